"""Documents to chunks: one file a chunker; `split` cuts to size and `header` says what is indexed above a chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ragdb.protocols import Analyzer, Chunker, CountTokens
from ragdb.types import Document, Span


@dataclass(frozen=True, slots=True)
class Chunking:
    """A chunker with what counts tokens for it; `tokenizer` names that, `max_tokens` bounds what is indexed of a chunk.

    `analyzer` makes the words of a chunk where the collection's analyzer is external; None: the database does.
    """

    chunker: Chunker
    count_tokens: CountTokens
    max_tokens: int
    tokenizer: str
    analyzer: Analyzer | None = None

    @property
    def needs_model(self) -> bool:
        """Whether cutting calls a model, and so may take long and fail."""
        return bool(getattr(self.chunker, "needs_model", False))

    def spans(self, document: Document, known: Callable[[], Mapping[str, str]] | None = None) -> Sequence[Span]:
        """The document's chunks. `known` fetches the contexts of the chunks that are stored, by their text, for a chunker
        that would ask a model for them again."""
        if known is not None and getattr(self.chunker, "takes_known", False):
            return self.chunker.chunk(document, self.count_tokens, known=known())  # type: ignore[call-arg]
        return self.chunker.chunk(document, self.count_tokens)

    @property
    def recipe(self) -> str:
        """Names chunker, settings and tokenizer: documents cut by another recipe are cut again when they are added."""
        kind = type(self.chunker)
        # The default repr holds a memory address, which differs in every process.
        own = kind.__repr__ is not object.__repr__
        return f"{self.chunker!r} {self.tokenizer}" if own else f"{kind.__module__}.{kind.__qualname__} {self.tokenizer}"
