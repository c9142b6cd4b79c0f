"""Paragraphs, then sentences, clauses, words, graphemes: the coarsest cut that makes the pieces small enough.

It looks at blank lines and punctuation only: a table, a list or code is text like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragdb.chunkers.blocks import Paragraphs
from ragdb.chunkers.outline import spans
from ragdb.chunkers.sizes import MAX_TOKENS, check_sizes, named_sizes
from ragdb.chunkers.split import Splitter
from ragdb.protocols import CountTokens
from ragdb.types import Document, Span


class RecursiveChunker:
    """As many whole paragraphs as fit in `max_tokens`, and parts of one that does not fit; within one section and page.

    `overlap` tokens of a chunk are repeated at the start of the next one. A chunk below `min_tokens` takes a part of the
    paragraph behind it even where that could have stayed whole.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, overlap: int = 0, min_tokens: int = 0) -> None:
        check_sizes(max_tokens, overlap, min_tokens)
        self.max_tokens = max_tokens
        self.overlap = overlap
        self.min_tokens = min_tokens

    def __repr__(self) -> str:
        return f"RecursiveChunker(max_tokens={self.max_tokens}, overlap={self.overlap}, min_tokens={self.min_tokens})"

    @classmethod
    def load(cls, model: str = "", *, max_tokens: int = MAX_TOKENS) -> RecursiveChunker:
        """`recursive`, `recursive:MAX` or `recursive:MAX/OVERLAP`; `max_tokens` where the name gives none."""
        largest, overlap = named_sizes("recursive", model, "overlap")
        return cls(largest if largest is not None else max_tokens, overlap or 0)

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]:
        """Returns the spans in order; none for a text that is blank or has headings only."""
        splitter = Splitter(
            document.content, count_tokens, max_tokens=self.max_tokens, overlap=self.overlap, min_tokens=self.min_tokens
        )
        return spans(
            document,
            self.max_tokens,
            count_tokens,
            lambda part, header: (
                piece for stretch in part.stretches for piece in splitter.split(Paragraphs(document.content, *stretch), header)
            ),
        )


Adapter = RecursiveChunker
