"""Windows of one size that overlap, whatever the text is: the plainest chunks there are, and a measure for the others."""

from __future__ import annotations

from collections.abc import Sequence

from ragdb.chunkers.blocks import RUNNING, Block
from ragdb.chunkers.outline import spans
from ragdb.chunkers.sizes import MAX_TOKENS, check_sizes, named_sizes
from ragdb.chunkers.split import Splitter
from ragdb.protocols import CountTokens
from ragdb.types import Document, Span


class SlidingChunker:
    """Windows that are full (`max_tokens` with title and heading path), each with the last `overlap` tokens of the one before.

    `overlap` None is an eighth of `max_tokens`. A window ends between words, in scripts without spaces between any two
    characters; a word longer than a window is cut. The last window of a section or page may be smaller.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, overlap: int | None = None) -> None:
        overlap = max_tokens // 8 if overlap is None else overlap
        check_sizes(max_tokens, overlap)
        self.max_tokens = max_tokens
        self.overlap = overlap

    def __repr__(self) -> str:
        return f"SlidingChunker(max_tokens={self.max_tokens}, overlap={self.overlap})"

    @classmethod
    def load(cls, model: str = "", *, max_tokens: int = MAX_TOKENS) -> SlidingChunker:
        """`sliding`, `sliding:MAX` or `sliding:MAX/OVERLAP`; `max_tokens` where the name gives none."""
        largest, overlap = named_sizes("sliding", model, "overlap")
        return cls(largest if largest is not None else max_tokens, overlap)

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]:
        """Returns the spans in order; none for a text that is blank or has headings only."""
        splitter = Splitter(
            document.content, count_tokens, max_tokens=self.max_tokens, overlap=self.overlap, overlap_joints=(RUNNING,)
        )
        return spans(
            document,
            self.max_tokens,
            count_tokens,
            lambda part, header: (
                piece for start, end in part.stretches for piece in splitter.split([Block(start, end, joints=(RUNNING,))], header)
            ),
        )


Adapter = SlidingChunker
