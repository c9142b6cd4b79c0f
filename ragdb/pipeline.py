"""A pipeline is data: which stages, with which numbers. The two functions below run it, stage by stage.

`search` ends after fuse (or rerank); `ask` goes on to an answer. Every stage can be left out, has a safe fallback and
leaves a trace. No connection is held while a model runs.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ragdb.context import Context
from ragdb.db.caller import value
from ragdb.embedders import embed_checked, embed_query_checked
from ragdb.errors import BadDocument, BadFilter, ConfigError, EmbedderError, EmptyQuery
from ragdb.ingest.clean import clean_json, clean_text
from ragdb.llms.calls import counted
from ragdb.protocols import Embedder
from ragdb.rewriting import Rewriting
from ragdb.runs.record import Recorder
from ragdb.stages import synthesize
from ragdb.stages.expand import expand
from ragdb.stages.fuse import fuse
from ragdb.stages.pack import pack
from ragdb.stages.rerank import rerank
from ragdb.stages.retrieve import LEGS, retrieve
from ragdb.stages.route import Route, route, route_by_model, without
from ragdb.stages.validate import evident
from ragdb.types import Answer, AnswerMode, Message, Outcome, Passage, Query, Ranking, SearchResult

logger = logging.getLogger("ragdb.run")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The settings of one way to answer, storable as JSON.

    `route`: greetings are answered without a search, and which rewriters suit the question is decided, by rules; with
    `llm` the language model is asked where no rule fits (one call more, also before a search without rewriters).
    `rewrite` names rewriters (reword, multi, hyde, stepback, terms, decompose, condense); they need a language model, run
    beside each other and have `rewrite_timeout` seconds together. `rewrite_weight` is what all further lists of a leg
    weigh in fuse, the question's own list being 1.

    `candidates` is the length of every list of every leg; `rrf_k` and `weights` (by leg) go to fuse. `rerank`: True,
    by the RagDB's reranker, or by the one that has been fetched where it says `auto`; False, never; None, where a reranker
    was given by name or as an object. `rerank_candidates` chunks are scored, what has less than `rerank_min_score` falls,
    `rerank_weight` below 1 blends with the fused places, `rerank_timeout` is in seconds. `window` is the
    number of neighbours on either side (0: none); `context_tokens` is the budget of an extractive answer (with a
    language model its window decides); `require_evidence` False answers from whatever was found; `temperature` and
    `timeout` (seconds) are for the answer.
    """

    name: str = "custom"
    route: bool | Literal["llm"] = False
    rewrite: tuple[str, ...] = ()
    rewrite_weight: float = 0.5
    rewrite_timeout: float = 15.0
    legs: tuple[str, ...] = ("lexical", "semantic")
    candidates: int = 50
    rrf_k: int = 60
    weights: Mapping[str, float] = field(default_factory=dict)
    rerank: bool | None = None
    rerank_candidates: int = 20
    rerank_min_score: float | None = None
    rerank_weight: float = 1.0
    rerank_timeout: float = 10.0
    window: int = 1
    context_tokens: int = 3000
    require_evidence: bool = True
    temperature: float = 0.2
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not self.legs or not set(self.legs) <= set(LEGS):
            raise ConfigError(f"legs is {list(self.legs)}; it is one or more of {', '.join(LEGS)}")
        for name, least, most in (
            ("candidates", 1, 1000),
            ("rrf_k", 0, 10_000),
            ("rerank_candidates", 1, 1000),
            ("window", 0, 100),
            ("context_tokens", 1, 10**7),
        ):
            given = getattr(self, name)
            if not isinstance(given, int) or not least <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from {least} to {most}")
        if isinstance(self.rewrite, str) or not all(isinstance(name, str) and name for name in self.rewrite):
            raise ConfigError(f"rewrite is {self.rewrite!r}; it is a list of names, such as ('reword', 'multi')")
        if self.route not in (True, False, "llm"):
            raise ConfigError(f"route is {self.route!r}; it is True (by rules), 'llm' (by rules, then by the model) or False")
        for name, low, high in (
            ("rewrite_timeout", 0.0, 3600.0),
            ("rewrite_weight", 0.0, 100.0),
            ("rerank_weight", 0.0, 1.0),
            ("rerank_timeout", 0.0, 3600.0),
            ("rerank_min_score", -math.inf, math.inf),
        ):
            number = getattr(self, name)
            if number is None and name == "rerank_min_score":
                continue
            if (
                not isinstance(number, (int, float))
                or isinstance(number, bool)
                or not low <= number <= high
                or math.isnan(number)
            ):
                raise ConfigError(f"{name} is {number!r}; it is a number from {low:g} to {high:g}")
        if self.rerank not in (True, False, None):
            raise ConfigError(f"rerank is {self.rerank!r}; it is True, False or None")
        if not set(self.weights) <= set(LEGS) or any(
            not isinstance(w, (int, float)) or not 0 <= w < math.inf for w in self.weights.values()
        ):
            raise ConfigError(f"weights is {dict(self.weights)}; it maps {', '.join(LEGS)} to numbers of at least 0")

    def to_dict(self) -> dict[str, Any]:
        lists = {"legs": list(self.legs), "rewrite": list(self.rewrite)}
        return {**dataclasses.asdict(self), **lists, "weights": dict(self.weights)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Pipeline:
        """The pipeline that `to_dict` described; an unknown key is an error that names it."""
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise ConfigError(f"a pipeline has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        lists = {"legs": tuple(given.get("legs", LEGS)), "rewrite": tuple(given.get("rewrite", ()))}
        return cls(**{**given, **lists})


def search(
    context: Context,
    pipeline: Pipeline,
    question: str,
    *,
    k: int,
    offset: int = 0,
    where: Mapping[str, Any] | None = None,
    history: Sequence[Message] = (),
    session: Any = None,
) -> SearchResult:
    """The `k` best chunks after the first `offset`; see RagDB.search."""
    run = _Run(context, pipeline, "search", question, k=k, offset=offset, where=where, history=history, session=session)
    ranking = run.found()
    return SearchResult(run.stored(), ranking.hits[offset : offset + k], tuple(run.recorder.stages))


def ask(
    context: Context,
    pipeline: Pipeline,
    question: str,
    *,
    k: int,
    where: Mapping[str, Any] | None = None,
    history: Sequence[Message] = (),
    session: Any = None,
) -> Answer:
    """The answer to a question from its `k` best chunks; see RagDB.ask."""
    run = _Run(context, pipeline, "ask", question, k=k, offset=0, where=where, history=history, session=session)
    # Before any work: a prompt that cannot fit is known now.
    budget = synthesize.room(run.question, context.llm) if context.llm else pipeline.context_tokens
    answer = run.not_searched()
    shown: Sequence[Passage] = ()
    if answer is None:
        answer, shown = run.answered(Ranking.of(run.found().hits[:k], "kept"), budget)
    answer = dataclasses.replace(answer, usage={**run.recorder.usage, **answer.usage})
    return dataclasses.replace(answer, run_id=run.stored(answer, shown), stages=tuple(run.recorder.stages))


class _Run:
    """One question on its way through one pipeline: calls the stages in order and hands each to the recorder."""

    def __init__(
        self,
        context: Context,
        pipeline: Pipeline,
        verb: str,
        question: str,
        *,
        k: int,
        offset: int,
        where: Mapping[str, Any] | None,
        history: Sequence[Message],
        session: Any,
    ) -> None:
        if not isinstance(question, str) or not question.strip():
            raise EmptyQuery(f"the question is {question!r}; give at least one word")
        for name, given, least, most in (("k", k, 1, 1000), ("offset", offset, 0, 100_000)):
            if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from {least} to {most}")
        self.context = context
        self.pipeline = pipeline
        self.question = clean_text(question)[0].strip()
        self.where = _filter(where)
        self.wanted = offset + k
        self.depth = _depth(pipeline.candidates, self.wanted)
        self.reranker, self.rerank_note = (
            (None, "") if pipeline.rerank is False else context.reranker(asked_for=bool(pipeline.rerank))
        )
        self.keep = max(offset + k, pipeline.rerank_candidates if self.reranker else 0)
        self.db = context.caller(session)
        # The caller's session is one connection: its legs run one after the other.
        self.parallel = session is None
        self.history = _history(history)
        self.fresh: dict[str, tuple[float, ...]] = {}  # vectors made now, worth keeping, by what they are known as
        self.rewritten: dict[str, list[dict[str, Any]]] = {}  # queries made now, by the key of their cache
        self.query = Query(self.question)  # searched with; another one than the question's where a follow-up was condensed
        self.queries: list[Query] = []
        self.route = Route("simple", "")
        self.info = context.info(self.db)
        if self.info is None:
            logger.warning("collection %r has no documents yet", context.collection)
        context.check_analyzer(self.info)
        self.recorder = Recorder(
            collection=context.collection, verb=verb, question=self.question, where=self.where, pipeline=pipeline.to_dict(), k=k
        )

    def found(self) -> Ranking:
        """route, rewrite, retrieve, fuse and, where there is a reranker, rerank."""
        if self.info is None:
            return Ranking((), (), "fused")
        self._routed()
        further = self._further()
        self.queries = self._searchable([self.query, *further])
        self.query = self.queries[0]
        while True:
            rankings = self._retrieved()
            fused = self._fused(rankings)
            # Copies of one text count once: where they fill a list and leave too little, longer ones (as ragdb.search does).
            full = any(len(ranking.chunk_ids) >= self.depth for ranking in rankings)
            if self.depth == 1000 or not full or len(fused.hits) >= min(self.wanted, 1000):
                break
            self.depth = min(self.depth * 2, 1000)
        if not fused.hits:
            return fused
        if self.reranker is None:
            if self.rerank_note:
                self.recorder.took("rerank", "", Outcome(fused, note=self.rerank_note), 0.0)
            return fused
        return self.recorder.stage("rerank", lambda: self._reranked(fused))

    def _routed(self) -> None:
        """What kind of question it is, decided once."""
        if not self.pipeline.route or self.route.reason:
            return
        began = time.perf_counter()
        llm = self.context.llm if self.pipeline.route == "llm" else None
        with counted() as calls:
            if llm is None:
                outcome = route(self.question, history=bool(self.history))
            else:
                outcome = route_by_model(self.question, llm, history=bool(self.history), timeout=self.pipeline.rewrite_timeout)
        self.route = outcome.value
        # Where nothing hangs on it, it is no step of the question's way.
        if self.route.kind != "simple" or self.pipeline.rewrite or calls:
            name = llm.name if llm and calls else "rules"
            self.recorder.took("route", name, outcome, (time.perf_counter() - began) * 1000, calls=calls)

    def not_searched(self) -> Answer | None:
        """The answer to what needs no search; None where one is needed."""
        self._routed()
        mode: AnswerMode = "llm" if self.context.llm else "extractive"
        if self.route.kind not in ("no_retrieval", "said_before"):
            return None
        words = self.route.kind
        return self.recorder.stage("synthesize", lambda: synthesize.fixed(self.question, words, "no_retrieval", mode), name=mode)

    def _further(self) -> list[Query]:
        """What the rewriters made of the question. A condensed follow-up takes the place of the question in the search."""
        if self.route.kind in ("no_retrieval", "said_before"):
            return []  # a search was wanted all the same: for these words, as they are
        names, left_out = without(self.pipeline.rewrite, self.route)
        for name in left_out:
            self.recorder.took("rewrite", name, Outcome((), note=f"left out: {self.route.reason}"), 0.0)
        if names:
            names = tuple(dict.fromkeys((*names, *self.route.add)))
        rewriting = Rewriting(self.context, self.db, self.recorder, self.history, self.pipeline.rewrite_timeout, self.rewritten)
        if "condense" in names and self.history:
            for query in rewriting.queries(self.query, ["condense"]):
                self.query = Query(query.text, origin="condense")
        return rewriting.queries(self.query, [name for name in names if name != "condense"])

    def _searchable(self, queries: Sequence[Query]) -> list[Query]:
        """Each query with its words and its vector, as far as its legs want them."""
        vectors = self._vectors([query for query in queries if "semantic" in self._legs_of(query)])
        return [dataclasses.replace(self._analyzed(query), vector=vectors.get(_known_as(query))) for query in queries]

    def _analyzed(self, query: Query) -> Query:
        analyzer = self.context.analyzer
        return query if analyzer is None else dataclasses.replace(query, lexemes=tuple(analyzer(query.text)))

    def _vectors(self, queries: Sequence[Query]) -> dict[str, tuple[float, ...]]:
        """The vectors kept from earlier runs, or new ones, made beside each other: a server needs its time for each."""
        assert self.info is not None
        found: dict[str, tuple[float, ...]] = {}
        fresh: dict[str, Query] = {}
        for query in queries:
            known = value(self.db.call("known_query_vector", question=_known_as(query), model_id=self.info["model_id"]))
            if known is None:
                fresh.setdefault(_known_as(query), query)
            else:
                found[_known_as(query)] = tuple(known)
        if not fresh:
            return found
        embedder = self.context.embedder(self.db)
        began = time.perf_counter()
        first, *others = fresh
        made: dict[str, Callable[[], tuple[float, ...]]] = {first: partial(_embedded, embedder, fresh[first])}
        made |= {name: self.context.rewriting.submit(_embedded, embedder, fresh[name]).result for name in others}
        for name, vector in made.items():
            try:
                self.fresh[name] = vector()
            except EmbedderError as error:
                # The other lists can answer alone; the trace says that they did.
                if "lexical" not in self.pipeline.legs:
                    raise
                self.recorder.usage["embedder_failed"] = str(error)
        self.recorder.usage["embed_ms"] = round((time.perf_counter() - began) * 1000, 2)
        return found | self.fresh

    def _legs_of(self, query: Query) -> tuple[str, ...]:
        return tuple(leg for leg in self.pipeline.legs if query.legs is None or leg in query.legs)

    def _retrieved(self) -> list[Ranking]:
        """One ranking for each query and leg, in parallel on a pooled connection each."""
        lists = [
            (number, query, leg)
            for number, query in enumerate(self.queries)
            for leg in self._legs_of(query)
            if leg != "semantic" or query.vector is not None
        ]
        if self.parallel and len(lists) > 1:
            futures: list[Future[tuple[Outcome[Ranking], float]]] = [self.context.legs.submit(self._leg, *one) for one in lists]
            results = [future.result() for future in futures]
        else:
            results = [self._leg(*one) for one in lists]
        for (number, query, leg), (outcome, ms) in zip(lists, results, strict=True):
            text = None if query.text == self.question else query.text
            self.recorder.took("retrieve", f"{leg}/{number}" if number else leg, outcome, ms, query=text)
        if "embedder_failed" in self.recorder.usage:
            self.recorder.took(
                "retrieve", "semantic", Outcome(None, note=f"left out: {self.recorder.usage['embedder_failed']}"), 0.0
            )
        return [outcome.value for outcome, _ in results]

    def _fused(self, rankings: Sequence[Ranking]) -> Ranking:
        return self.recorder.stage(
            "fuse",
            lambda: fuse(
                self.db,
                rankings,
                self.query,
                collection=self.context.collection,
                rrf_k=self.pipeline.rrf_k,
                weights=self.pipeline.weights,
                keep=self.keep,
                further=self.pipeline.rewrite_weight,
            ),
        )

    def _leg(self, number: int, query: Query, leg: str) -> tuple[Outcome[Ranking], float]:
        began = time.perf_counter()
        outcome = retrieve(
            self.db, query, leg, collection=self.context.collection, candidates=self.depth, where=self.where, number=number
        )
        return outcome, (time.perf_counter() - began) * 1000

    def _reranked(self, fused: Ranking) -> Outcome[Ranking]:
        assert self.reranker is not None
        pipeline = self.pipeline
        outcome = rerank(
            # the user's own words, whatever was searched with
            Query(self.question),
            fused,
            self.reranker,
            keep=self.keep,
            min_score=pipeline.rerank_min_score,
            weight=pipeline.rerank_weight,
            rrf_k=pipeline.rrf_k,
            timeout=pipeline.rerank_timeout,
        )
        return dataclasses.replace(outcome, note=", ".join(part for part in (outcome.note, self.rerank_note) if part))

    def answered(self, top: Ranking, budget: int) -> tuple[Answer, Sequence[Passage]]:
        """validate, expand, pack, synthesize."""
        recorder, llm = self.recorder, self.context.llm
        mode: AnswerMode = "llm" if llm else "extractive"
        if not top.hits:
            waiting = self.context.counts(self.db)["n_waiting"]
            return recorder.stage("synthesize", lambda: synthesize.nothing(self.question, mode, waiting=waiting), name=mode), ()
        floor: float | None = self.info["evidence_floor"] if self.info else None
        evidence = recorder.stage("validate", lambda: evident(top, floor), name="evidence")
        ids = set(evidence if self.pipeline.require_evidence else top.chunk_ids)
        if not ids:
            return recorder.stage(
                "synthesize", lambda: synthesize.no_answer(self.question, "not_in_documents", mode), name=mode
            ), ()
        passages = recorder.stage("expand", lambda: expand(self.db, top, window=self.pipeline.window))
        packed = recorder.stage("pack", lambda: pack(passages, budget=budget, count_tokens=self.context.count_tokens()))
        shown = tuple(dataclasses.replace(p, evident=tuple(h.chunk_id for h in p.hits if h.chunk_id in ids)) for p in packed)
        if llm is None:
            return recorder.stage("synthesize", lambda: synthesize.quote(self.question, shown), name=mode), shown
        return recorder.stage("synthesize", lambda: self._written(shown), name=llm.name), shown

    def _written(self, shown: Sequence[Passage]) -> Outcome[Answer]:
        assert self.context.llm is not None
        return synthesize.write(
            self.question, shown, self.context.llm, temperature=self.pipeline.temperature, timeout=self.pipeline.timeout
        )

    def stored(self, answer: Answer | None = None, shown: Sequence[Passage] = ()) -> int | None:
        """Records the run; None where there is no collection to record it with, or it could not be recorded."""
        if self.info is None:
            return None
        # Not in the caller's transaction: until its end, everybody who asks the same would wait for its row.
        vectors, rewrites = (self.fresh, self.rewritten) if self.parallel else ({}, {})
        model = self.info["model"] or ""
        return self.recorder.store(self.db, answer=answer, passages=shown, vectors=vectors, rewrites=rewrites, model=model)


def _known_as(query: Query) -> str:
    """What its vector is kept under; a made-up passage is embedded as passages are."""
    return f"passage: {query.text}" if query.origin == "hyde" else query.text


def _embedded(embedder: Embedder, query: Query) -> tuple[float, ...]:
    if query.origin == "hyde":
        return tuple(embed_checked(embedder, [query.text])[0])
    return tuple(embed_query_checked(embedder, query.text))


def _history(history: Sequence[Message]) -> tuple[Message, ...]:
    if isinstance(history, str) or not all(isinstance(message, Message) for message in history):
        raise ConfigError("history is what was said before, as messages: [Message('user', '...'), Message('assistant', '...')]")
    return tuple(history)


def _filter(where: Mapping[str, Any] | None) -> dict[str, Any]:
    """A `where` as JSON can hold it: datetimes as text, nothing that would turn into null and match what lacks the key."""
    if not isinstance(where or {}, Mapping):
        raise BadFilter(f"where is {type(where).__name__}, not a mapping; write it like {{'tenant': 7}}")
    try:
        cleaned, counts = clean_json(dict(where or {}))
    except BadDocument as error:
        raise BadFilter(f"where: {error}") from None
    if counts.get("number"):
        raise BadFilter(f"where has a number that is not finite: {where!r}")
    found: dict[str, Any] = cleaned
    return found


def _depth(candidates: int, wanted: int) -> int:
    """How long each list is: `candidates`, doubled until the page asked for is inside, so that neighbouring pages agree."""
    while candidates < min(wanted, 1000):
        candidates *= 2
    return min(candidates, 1000)
