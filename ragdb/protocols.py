"""What an adapter has to bring. One file, one class, one of these protocols; nothing else changes.

An adapter returns the least: floats, texts, spans. The stages sort, cut and keep ids. A class is loaded by
`load(model)`, its heavy imports inside, so that `import ragdb` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ragdb.types import Completion, Document, Message, Query, Ranking, Span

CountTokens = Callable[[str], int]
# A text to the words that the lexical leg searches for, in order and with repeats; called from several threads.
Analyzer = Callable[[str], Sequence[str]]


@runtime_checkable
class Embedder(Protocol):
    """Texts to vectors of `dimension` floats. Prefixes that the model wants are added inside.

    `name` is recorded with the vectors, `module:model` form, and must name the same model for ever.
    An embedder may have `query_prefix`, `passage_prefix` (recorded too), `batch_size` (texts a call) and
    `evidence_floor`: the cosine above which a passage alone counts as evidence (docs/pipeline.md).
    """

    name: str
    dimension: int
    max_tokens: int

    def count_tokens(self, text: str) -> int: ...

    def embed_query(self, text: str) -> Sequence[float]: ...

    def embed_passages(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


@runtime_checkable
class Reranker(Protocol):
    """One finite score a passage, in the order given; higher is better."""

    def score(self, query: str, passages: Sequence[str]) -> Sequence[float]: ...


@runtime_checkable
class LLM(Protocol):
    """A chat model. Token counts come from its tokenizer, or from an estimate that says so in its docstring.

    One with citations of its own has `complete_from(passages, messages, ...)` and `stream_from(passages, messages, ...)` too,
    like the two below, and writes `[n]` behind what it took from the passage with that number.
    """

    name: str
    context_window: int
    max_output_tokens: int

    def count_tokens(self, text: str) -> int: ...

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Completion:
        """One answer. `deadline` is seconds from now; raises LLMError when it passes or the server fails."""
        ...

    def stream(
        self,
        messages: Sequence[Message],
        *,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Iterator[str | Completion]:
        """The answer in pieces; a Completion at the end may tell the tokens and why it ended. Closing it ends the call."""
        ...


@runtime_checkable
class Rewriter(Protocol):
    """The question to one or more search queries; `history` is what was said before, oldest first."""

    def rewrite(self, question: Query, history: Sequence[Message]) -> Sequence[Query]: ...


@runtime_checkable
class Leg(Protocol):
    """One way to find chunks: at most `candidates` ids, best first, `where` applied before the limit."""

    def retrieve(self, query: Query, candidates: int, where: Mapping[str, Any]) -> Ranking: ...


@runtime_checkable
class Chunker(Protocol):
    """A document to spans that stand in order. Sizes are in the embedder's tokens."""

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]: ...


@runtime_checkable
class Reader(Protocol):
    """A file to a document: its text, decoded, and what its own head says (title, status, ...)."""

    def read(self, path: Path) -> Document: ...
