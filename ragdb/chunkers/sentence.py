"""One sentence a chunk, or a few: small enough to be found by one fact, and meant to be read with its neighbours.

Search these with `expand="window"`: what is found is the sentence, what the model reads is the window around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragdb.chunkers.blocks import Clipper
from ragdb.chunkers.outline import Part, spans
from ragdb.chunkers.sizes import MAX_TOKENS, check_sizes, named_sizes
from ragdb.chunkers.split import Piece, Splitter
from ragdb.chunkers.units import units
from ragdb.errors import ConfigError
from ragdb.protocols import CountTokens
from ragdb.types import Document, Span


class SentenceChunker:
    """`sentences` sentences a chunk, at most `max_tokens`: what is longer is cut further.

    Table rows, records of CSV and lines of code count as sentences. A heading stays with the first sentence under it, and
    what holds no letter (a rule, a code fence) with what follows.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, sentences: int = 1) -> None:
        check_sizes(max_tokens)
        if sentences < 1:
            raise ConfigError(f"sentences is {sentences}; give a number of sentences a chunk from 1 on")
        self.max_tokens = max_tokens
        self.sentences = sentences

    def __repr__(self) -> str:
        return f"SentenceChunker(max_tokens={self.max_tokens}, sentences={self.sentences})"

    @classmethod
    def load(cls, model: str = "", *, max_tokens: int = MAX_TOKENS) -> SentenceChunker:
        """`sentence`, `sentence:MAX` or `sentence:MAX/SENTENCES`; `max_tokens` where the name gives none."""
        largest, sentences = named_sizes("sentence", model, "sentences")
        return cls(largest if largest is not None else max_tokens, 1 if sentences is None else sentences)

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]:
        """Returns the spans in order; none for a text that is blank or has headings only."""
        content = document.content
        splitter = Splitter(content, count_tokens, max_tokens=self.max_tokens)

        def cut(part: Part, header: str) -> Iterator[Piece]:
            clipper = Clipper(part.blocks)
            for start, end in self._groups(content, part):
                yield from splitter.split(clipper.clip(start, end), header)

        return spans(document, self.max_tokens, count_tokens, cut)

    def _groups(self, content: str, part: Part) -> Iterator[tuple[int, int]]:
        group: list[tuple[int, int]] = []
        for unit in units(content, part):
            group.append(unit)
            if len(group) == self.sentences:
                yield group[0][0], unit[1]
                group = []
        if group:
            yield group[0][0], group[-1][1]


Adapter = SentenceChunker
