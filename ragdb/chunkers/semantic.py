"""Cuts where the subject changes: where a sentence is far from the one before it in the embedder's space.

The idea is Greg Kamradt's ("5 Levels of Text Splitting", level 4, 2024): each sentence is embedded with its neighbours, and
the largest distances between neighbours are the cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ragdb.chunkers.blocks import Clipper, trim
from ragdb.chunkers.outline import Part, headed
from ragdb.chunkers.sizes import MAX_TOKENS, check_sizes, named_sizes
from ragdb.chunkers.split import Piece, Splitter
from ragdb.chunkers.units import units
from ragdb.embedders import embed_checked
from ragdb.errors import ConfigError
from ragdb.protocols import CountTokens, Embedder
from ragdb.types import Document, Span

if TYPE_CHECKING:
    import numpy as np

# Sentences whose vectors are held at once; the embedder gets them in batches of its own size.
_HELD = 256
PERCENTILE = 90


@dataclass(slots=True)
class _Group:
    """Sentences that stand together, `size` tokens; `gap` is the distance to the group before in the part."""

    start: int
    end: int
    size: int
    gap: float


@dataclass(slots=True)
class _Sentences:
    """The sentences of one part with their sizes; `gaps[n]` is the distance between sentence n and n + 1."""

    part: Part
    header: str
    places: list[tuple[int, int]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


class SemanticChunker:
    """Sentences of one subject, at most `max_tokens`: cut where the distance to the next sentence is above a percentile.

    `percentile` is of all distances in the document, so a change in one section may move cuts in others. What is still
    too long is cut as the other chunkers cut; a chunk below `min_tokens` is joined to the neighbour that is nearer, where
    both fit. Embeds every sentence of a document: several times the cost of its chunks.
    """

    #: It calls a model: not to be run while a transaction is open.
    needs_model = True

    def __init__(
        self, embedder: Embedder, max_tokens: int = MAX_TOKENS, percentile: float = PERCENTILE, min_tokens: int = 0
    ) -> None:
        check_sizes(max_tokens, 0, min_tokens)
        if not 0 <= percentile <= 100:
            raise ConfigError(f"percentile is {percentile}; it is the share of distances that are no cut, from 0 to 100")
        if max_tokens > embedder.max_tokens:
            raise ConfigError(
                f"max_tokens is {max_tokens}, but {embedder.name} reads {embedder.max_tokens} tokens; give at most that many"
            )
        self.embedder = embedder
        self.max_tokens = max_tokens
        self.percentile = percentile
        self.min_tokens = min_tokens

    def __repr__(self) -> str:
        return (
            f"SemanticChunker({self.embedder.name!r}, max_tokens={self.max_tokens}, percentile={self.percentile}, "
            f"min_tokens={self.min_tokens})"
        )

    @classmethod
    def load(cls, model: str = "", *, max_tokens: int = MAX_TOKENS, embedder: Embedder | None = None) -> SemanticChunker:
        """`semantic`, `semantic:MAX` or `semantic:MAX/PERCENTILE`; `max_tokens` where the name gives none.

        Errors: ConfigError where there is no embedder.
        """
        largest, percentile = named_sizes("semantic", model, "percentile")
        if embedder is None:
            raise ConfigError("the chunker semantic compares sentences by an embedder; give one: SemanticChunker(embedder)")
        return cls(embedder, largest if largest is not None else max_tokens, PERCENTILE if percentile is None else percentile)

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]:
        """Returns the spans in order; none for a text that is blank or has headings only. Errors: EmbedderError."""
        content = document.content
        splitter = Splitter(content, count_tokens, max_tokens=self.max_tokens)
        found = [
            self._sentences(content, part, header, splitter, count_tokens)
            for part, header in headed(document, self.max_tokens, count_tokens)
        ]
        self._measure(content, found, count_tokens)
        limit = _percentile([gap for sentences in found for gap in sentences.gaps], self.percentile)
        return tuple(
            Span(piece.start, piece.end, piece.context, sentences.part.section, sentences.part.page)
            for sentences in found
            for piece in self._pieces(sentences, limit, splitter)
        )

    def _pieces(self, sentences: _Sentences, limit: float, splitter: Splitter) -> Iterator[Piece]:
        clipper = Clipper(sentences.part.blocks)
        for group in self._groups(sentences, limit):
            yield from splitter.split(clipper.clip(group.start, group.end), sentences.header)

    def _sentences(self, content: str, part: Part, header: str, splitter: Splitter, count_tokens: CountTokens) -> _Sentences:
        """The sentences of a part; one above `max_tokens` counts as several."""
        found = _Sentences(part, header)
        clipper = Clipper(part.blocks)
        for start, end in units(content, part):
            # What is this long in characters is not worth counting whole.
            size = count_tokens(content[slice(*trim(content, start, end))]) if end - start <= 8 * self.max_tokens else None
            if size is not None and size <= self.max_tokens:
                found.places.append((start, end))
                found.sizes.append(size)
                continue
            for piece in splitter.split(clipper.clip(start, end), header):
                found.places.append((piece.start, piece.end))
                found.sizes.append(self.max_tokens)
        return found

    def _measure(self, content: str, found: Sequence[_Sentences], count_tokens: CountTokens) -> None:
        """Fills in the distances. Few vectors are held at once, however long the document is."""
        numbers = ((sentences, n) for sentences in found for n in range(len(sentences.places)))
        before: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
        batch_size = getattr(self.embedder, "batch_size", 32)
        while batch := list(islice(numbers, _HELD)):
            texts = [self._with_neighbours(content, sentences, n, count_tokens) for sentences, n in batch]
            vectors = _unit_vectors(embed_checked(self.embedder, texts, batch_size=batch_size))
            for (sentences, n), vector in zip(batch, vectors, strict=True):
                if n > 0 and before is not None:
                    sentences.gaps.append(1.0 - float(before @ vector))
                before = vector

    def _with_neighbours(self, content: str, sentences: _Sentences, n: int, count_tokens: CountTokens) -> str:
        """The sentence between its neighbours, where the model reads so much; else alone."""
        first, last = max(0, n - 1), min(len(sentences.places) - 1, n + 1)
        text = content[slice(*trim(content, sentences.places[first][0], sentences.places[last][1]))]
        about = sum(sentences.sizes[first : last + 1])
        room = self.embedder.max_tokens
        # A tokenizer is not additive: near the limit the text itself is counted.
        if about <= room // 2 or (about <= 2 * room and count_tokens(text) <= room):
            return text
        return content[slice(*trim(content, *sentences.places[n]))]

    def _groups(self, sentences: _Sentences, limit: float) -> list[_Group]:
        groups: list[_Group] = []
        for (start, end), size, gap in zip(sentences.places, sentences.sizes, [2.0, *sentences.gaps], strict=True):
            if groups and gap <= limit:
                groups[-1].end = end
                groups[-1].size += size
            else:
                groups.append(_Group(start, end, size, gap))
        return self._joined(groups) if self.min_tokens else groups

    def _joined(self, groups: Sequence[_Group]) -> list[_Group]:
        """Small groups with the nearer neighbour, where both together are not above `max_tokens`."""
        made: list[_Group] = []
        for group, following in zip(groups, [*groups[1:], None], strict=True):
            if made and self._belongs(made[-1], group, following):
                made[-1].end = group.end
                made[-1].size += group.size
            else:
                made.append(group)
        return made

    def _belongs(self, before: _Group, group: _Group, following: _Group | None) -> bool:
        if not self._fit(before, group):
            return False
        if self._is_small(before) or not self._is_small(group):
            return self._is_small(before)
        # It waits for the group behind it, where that is nearer.
        return following is None or group.gap <= following.gap or not self._fit(group, following)

    def _is_small(self, group: _Group) -> bool:
        return group.size < self.min_tokens

    def _fit(self, one: _Group, other: _Group) -> bool:
        return one.size + other.size <= self.max_tokens


def _percentile(gaps: Sequence[float], percentile: float) -> float:
    """The distance that `percentile` per cent are not above, between two by their share; 2, the largest, where there is none."""
    import numpy as np

    return float(np.percentile(gaps, percentile)) if gaps else 2.0


def _unit_vectors(vectors: Sequence[Sequence[float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    import numpy as np

    made = np.asarray(vectors, dtype=np.float64)
    scaled: np.ndarray[tuple[int, int], np.dtype[np.float64]] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return scaled


Adapter = SemanticChunker
