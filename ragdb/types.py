"""The values that travel through a pipeline: small, frozen, printable as JSON.

Offsets (`start`, `end`) count Unicode code points of the cleaned document text, half open, so that
`document.content[start:end] == chunk.content` always holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from ragdb.errors import BadDocument

Status = Literal["active", "draft", "archived"]
IngestState = Literal["queued", "processing", "ready", "failed"]
AnswerOutcome = Literal["answered", "not_in_documents", "nothing_retrieved", "no_retrieval", "llm_failed", "cancelled"]
AnswerMode = Literal["extractive", "llm"]

#: The ways to find a chunk; the set is open.
LEGS = ("lexical", "semantic")
STATUSES: tuple[Status, ...] = ("active", "draft", "archived")
#: How a text is read by a chunker.
MEDIA_TYPES = ("text/markdown", "text/plain", "text/csv")

T = TypeVar("T")
U = TypeVar("U")


class _Value:
    """Adds `to_dict()`, the body of `--json` and of HTTP answers."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain dicts, lists, strings and numbers; datetimes as ISO 8601 with an offset."""
        value = _plain(self)
        assert isinstance(value, dict)
        return value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value


@dataclass(frozen=True, slots=True)
class Section(_Value):
    """A heading and what stands under it, sub-sections included; `parent` is the section around it."""

    heading: str
    level: int
    start: int
    end: int
    parent: Section | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The headings from the outermost to this one."""
        return (*self.parent.path, self.heading) if self.parent else (self.heading,)


@dataclass(frozen=True, slots=True)
class Span(_Value):
    """One chunk of a document: `content[start:end]`, exactly.

    `context` is indexed and embedded with the chunk but stands outside the span: a table's header row,
    a line that places the chunk. Title and heading path are added by ragdb and do not belong here.
    """

    start: int
    end: int
    context: str = ""
    section: Section | None = None
    page: int | None = None

    @property
    def heading_path(self) -> tuple[str, ...]:
        return self.section.path if self.section else ()


@dataclass(frozen=True, slots=True)
class Document(_Value):
    """What `rag.add` takes. Identity is (collection, uri).

    A field left at None keeps what an earlier version of the document has (a new document: `active`, no
    metadata). `chunks` replaces the chunker; `vectors` gives one vector per given chunk, so vectors without
    chunks is an error. A naive `updated_at` or `review_after` is taken as UTC.

    `media_type` says how the text is cut: text/markdown, text/plain or text/csv; None: as the uri's suffix says, else
    Markdown. `pages` holds the offset at which each page of the original begins, the first page first; a chunk never
    spans two. `found` says which fields were read from the text itself, and by which rule (ragdb.metadata);
    `source_state` how the file was then that was read (ragdb.ingest.source_state).
    """

    uri: str
    content: str
    title: str | None = None
    status: Status | None = None
    language: str | None = None
    metadata: Mapping[str, Any] | None = None
    updated_at: datetime | None = None
    owner: str | None = None
    version: str | None = None
    review_after: datetime | None = None
    chunks: Sequence[Span] | None = None
    vectors: Sequence[Sequence[float]] | None = None
    source: str | None = None
    media_type: str | None = None
    pages: Sequence[int] | None = None
    found: Mapping[str, Mapping[str, Any]] | None = None
    source_state: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.uri, str) or not self.uri.strip():
            raise BadDocument(f"uri is {self.uri!r}; give each document a non-empty string that identifies it in its collection")
        if not isinstance(self.content, str):
            raise BadDocument(
                f"content of {self.uri!r} is {type(self.content).__name__}, not str; "
                "decode bytes first (ragdb.readers.read_file does it with detection)"
            )
        if self.status is not None and self.status not in STATUSES:
            raise BadDocument(f"status of {self.uri!r} is {self.status!r}; it is one of {', '.join(STATUSES)}")
        if self.media_type is not None and self.media_type not in MEDIA_TYPES:
            raise BadDocument(f"media_type of {self.uri!r} is {self.media_type!r}; it is one of {', '.join(MEDIA_TYPES)}")
        if self.pages is not None and not _ascending(self.pages, len(self.content)):
            raise BadDocument(
                f"pages of {self.uri!r} are not ascending offsets into its {len(self.content)} characters; "
                "give the offset at which each page begins"
            )
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise BadDocument(f"metadata of {self.uri!r} is {type(self.metadata).__name__}; give a mapping")
        if self.vectors is not None:
            if self.chunks is None:
                raise BadDocument(f"{self.uri!r} has vectors but no chunks; give the chunks that the vectors belong to")
            if len(self.vectors) != len(self.chunks):
                raise BadDocument(
                    f"{self.uri!r} has {len(self.vectors)} vectors for {len(self.chunks)} chunks; give one per chunk"
                )


def _ascending(offsets: Sequence[int], end: int) -> bool:
    return all(0 <= a <= b for a, b in zip(offsets, (*offsets[1:], end), strict=True))


@dataclass(frozen=True, slots=True)
class Added(_Value):
    """What became of one `add`: `chunks` in the new version, of which `reused` kept their row and vector.

    `changed`: the text is new; `updated`: a column of a document that was there is.
    """

    document_id: int
    uri: str
    ingest_state: IngestState
    chunks: int = 0
    reused: int = 0
    changed: bool = True
    warnings: tuple[str, ...] = ()
    error: str | None = None
    updated: bool = False


@dataclass(frozen=True, slots=True)
class Query(_Value):
    """One text to search with. `origin` names the rewriter (`question`: the user's own words); legs None: all.

    `lexemes` are its words where the caller's analyzer makes them; None: the database does.
    """

    text: str
    vector: tuple[float, ...] | None = field(default=None, repr=False)
    origin: str = "question"
    legs: tuple[str, ...] | None = None
    lexemes: tuple[str, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Hit(_Value):
    """One chunk that was found. `ranks` maps each list (leg) to the chunk's rank in it, from 1.

    `similarity` is the cosine of question and chunk where it is known. `matched` maps the question's content
    words that the chunk holds to their idf, `evidence` is their share of all its content words (0 to 1, by
    idf), `rare` names those of them that few chunks hold.
    """

    chunk_id: int
    label: str
    document_id: int
    collection: str
    uri: str
    title: str | None
    heading_path: tuple[str, ...]
    status: str
    context: str
    content: str
    start: int
    end: int
    page: int | None
    metadata: Mapping[str, Any]
    score: float
    ranks: Mapping[str, int] = field(default_factory=dict)
    rerank_score: float | None = None
    similarity: float | None = None
    matched: Mapping[str, float] = field(default_factory=dict)
    evidence: float = 0.0
    rare: tuple[str, ...] = ()
    aliases: tuple[int, ...] = ()
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ranking(_Value):
    """Chunk ids, best first, with their scores; from `fuse` on also the chunks themselves as `hits`.

    `path` says how the list was made (`exact`, `hnsw`, `gin`, ...).
    """

    chunk_ids: tuple[int, ...]
    scores: tuple[float, ...]
    leg: str
    path: str = ""
    query: int = 0
    hits: tuple[Hit, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, hits: Sequence[Hit], leg: str) -> Ranking:
        return cls(tuple(h.chunk_id for h in hits), tuple(h.score for h in hits), leg, hits=tuple(hits))


@dataclass(frozen=True, slots=True)
class Passage(_Value):
    """What is shown to the reader: a span of one document around one or more hits. `number` is its `[n]`.

    `hits` are the hits inside, best first, of which `evident` stand by themselves as evidence.
    """

    number: int
    chunk_id: int
    label: str
    document_id: int
    uri: str
    title: str | None
    heading_path: tuple[str, ...]
    content: str
    context: str
    start: int
    end: int
    page: int | None
    score: float
    hits: tuple[Hit, ...] = field(default=(), repr=False)
    evident: tuple[int, ...] = ()
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Citation(_Value):
    """Where `[number]` in an answer points: a span of a document, and the words quoted from it."""

    number: int
    chunk_id: int
    label: str
    uri: str
    heading_path: tuple[str, ...]
    start: int
    end: int
    page: int | None
    quote: str
    document_id: int = 0
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Claim(_Value):
    """A sentence of an answer, `answer.text[start:end]`: the passages it cites, and quotations that stand in none of them."""

    start: int
    end: int
    numbers: tuple[int, ...] = ()
    misquoted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a stage returns: its value, what it dropped and why ({reason: ids}), and a line for the trace.

    `fell_back`: what the stage asks did not do its part, so the value is as if the stage were left out, as the note says.
    """

    value: T
    dropped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""
    fell_back: bool = False


@dataclass(frozen=True, slots=True)
class StageTrace(_Value):
    """One row of a run's trace: what came out of a stage, in order, and what fell at it."""

    step: int
    stage: str
    name: str
    ms: float
    chunk_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    dropped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""
    parent: int | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True)
class StoredDocument(_Value):
    """A document as the database has it. `content` is the text that offsets point into."""

    document_id: int
    uri: str
    title: str | None
    status: Status
    ingest_state: IngestState
    chunks: int
    language: str | None
    owner: str | None
    version: str | None
    updated_at: datetime | None
    review_after: datetime | None
    metadata: Mapping[str, Any]
    source: str | None
    last_error: str | None
    warnings: tuple[str, ...]
    ready_at: datetime | None
    found: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    content: str | None = None
    source_state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SearchResult(_Value):
    """The hits of one search; iterates over them. `run_id` is None where the run could not be recorded."""

    run_id: int | None
    hits: tuple[Hit, ...]
    stages: tuple[StageTrace, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]


@dataclass(frozen=True, slots=True)
class Answer(_Value):
    """The answer to one question. `str(answer)` is the text with its sources below.

    `error` is why a language model failed, for who runs it and not for the reader.
    `uncited` are sentences that cite nothing, `misquoted` quotations that do not stand in the passage they cite; `claims`
    has both by sentence.
    """

    run_id: int | None
    text: str
    outcome: AnswerOutcome
    mode: AnswerMode
    citations: tuple[Citation, ...] = ()
    uncited: tuple[str, ...] = ()
    misquoted: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[StageTrace, ...] = ()
    question: str = ""
    error: str | None = None
    claims: tuple[Claim, ...] = field(default=(), repr=False)

    @property
    def sources(self) -> str:
        """One line a citation: `[n] uri > headings (page p, start-end)`; empty without citations."""
        return "\n".join(
            f"[{c.number}] {' > '.join((c.uri, *c.heading_path))} ({f'page {c.page}, ' if c.page else ''}{c.start}-{c.end})"
            for c in self.citations
        )

    def __str__(self) -> str:
        return f"{self.text}\n\n{self.sources}" if self.citations else self.text


@dataclass(frozen=True, slots=True)
class AnswerPart(_Value):
    """A piece of an answer as it is written; `str(part)` is its text. `citations`: where the marks in it point.

    `replaces`: what came before was no part of the answer (a model's thoughts that were not marked as such) and is void.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    replaces: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Message(_Value):
    """One message to a language model."""

    role: Literal["system", "user", "assistant"]
    content: str


#: What was said before, oldest first: messages, or mappings with `role` and `content`.
History = Sequence[Message | Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Completion(_Value):
    """What a language model wrote. `finish_reason` is the server's word (`stop`, `length`, ...)."""

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    model: str | None = None
