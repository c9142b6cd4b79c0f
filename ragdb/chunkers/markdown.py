"""Chunks by heading first, by size second: a chunk never spans two sections.

`outline` finds the sections and their blocks (tables, lists, code), `split` does the sizes. A chunk holds the heading
line above it, front matter is in no chunk, and all other text is in exactly one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragdb.chunkers.outline import spans
from ragdb.chunkers.sizes import MAX_TOKENS, check_sizes, named_sizes
from ragdb.chunkers.split import Splitter
from ragdb.protocols import CountTokens
from ragdb.types import Document, Span


class MarkdownChunker:
    """Sections of Markdown, paragraphs of plain text, records of CSV, in pieces of at most `max_tokens` of the embedder's tokens.

    Counted is what is embedded: title, heading path, context and text (`header.index_text`). `overlap` tokens of a
    chunk are repeated at the start of the next one in its section (not in tables). A chunk below `min_tokens` takes a
    part of the block behind it even where that could have stayed whole; the last chunk of a section may be smaller.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, overlap: int = 0, min_tokens: int = 0) -> None:
        check_sizes(max_tokens, overlap, min_tokens)
        self.max_tokens = max_tokens
        self.overlap = overlap
        self.min_tokens = min_tokens

    def __repr__(self) -> str:
        """What is recorded as the recipe of the chunks: the same text, the same chunks."""
        return f"MarkdownChunker(max_tokens={self.max_tokens}, overlap={self.overlap}, min_tokens={self.min_tokens})"

    @classmethod
    def load(cls, model: str = "", *, max_tokens: int = MAX_TOKENS) -> MarkdownChunker:
        """`markdown`, `markdown:MAX` or `markdown:MAX/OVERLAP`; `max_tokens` where the name gives none."""
        largest, overlap = named_sizes("markdown", model, "overlap")
        return cls(largest if largest is not None else max_tokens, overlap or 0)

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]:
        """Returns the spans in order; none for a text that is blank or has headings only."""
        splitter = Splitter(
            document.content, count_tokens, max_tokens=self.max_tokens, overlap=self.overlap, min_tokens=self.min_tokens
        )
        return spans(document, self.max_tokens, count_tokens, lambda part, header: splitter.split(part.blocks, header))


Adapter = MarkdownChunker
