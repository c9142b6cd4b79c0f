"""A pipeline is data: which stages, with which numbers. The two functions below run it, stage by stage.

`search` ends after fuse (or rerank); `ask` goes on to an answer. Every stage can be left out, has a safe fallback and
leaves a trace. No connection is held while a model runs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ragdb.context import Context
from ragdb.db.caller import Caller, value
from ragdb.embedders import embed_query_checked
from ragdb.errors import ConfigError, EmbedderError, EmptyQuery, ModelError
from ragdb.ingest.clean import clean_json, clean_text
from ragdb.runs.record import Recorder
from ragdb.stages import synthesize
from ragdb.stages.expand import expand
from ragdb.stages.fuse import fuse
from ragdb.stages.pack import pack
from ragdb.stages.rerank import rerank
from ragdb.stages.retrieve import LEGS, retrieve
from ragdb.stages.validate import evident
from ragdb.types import Answer, Outcome, Passage, Query, Ranking, SearchResult


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The settings of one way to answer, storable as JSON.

    `candidates` is the length of every list of every leg; `rrf_k` and `weights` (by leg) go to fuse; `window` is the
    number of neighbours on either side (0: none); `context_tokens` is the budget of an extractive answer (with a
    language model its window decides); `require_evidence` False answers from whatever was found; `temperature` and
    `timeout` (seconds) are for the answer.
    """

    name: str = "custom"
    legs: tuple[str, ...] = ("lexical", "semantic")
    candidates: int = 50
    rrf_k: int = 60
    weights: Mapping[str, float] = field(default_factory=dict)
    rerank_candidates: int = 20
    window: int = 1
    context_tokens: int = 3000
    require_evidence: bool = True
    temperature: float = 0.2
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not self.legs or not set(self.legs) <= set(LEGS):
            raise ConfigError(f"legs is {list(self.legs)}; it is one or more of {', '.join(LEGS)}")
        for name, least, most in (("candidates", 1, 1000), ("rrf_k", 0, 10_000), ("rerank_candidates", 1, 1000), ("window", 0, 100), ("context_tokens", 1, 10**7)):
            given = getattr(self, name)
            if not isinstance(given, int) or not least <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from {least} to {most}")
        if not set(self.weights) <= set(LEGS) or any(not w >= 0 for w in self.weights.values()):
            raise ConfigError(f"weights is {dict(self.weights)}; it maps {', '.join(LEGS)} to numbers of at least 0")

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "legs": list(self.legs), "weights": dict(self.weights)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Pipeline:
        """The pipeline that `to_dict` described; an unknown key is an error that names it."""
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise ConfigError(f"a pipeline has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return cls(**{**given, "legs": tuple(given.get("legs", LEGS))})


@dataclass(frozen=True, slots=True)
class Question:
    """A cleaned question on its way through one pipeline."""

    text: str
    k: int
    offset: int
    where: Mapping[str, Any]


def search(context: Context, pipeline: Pipeline, text: str, *, k: int, offset: int = 0, where: Mapping[str, Any] | None = None, session: Any = None) -> SearchResult:
    """The `k` best chunks after the first `offset`; see RagDB.search."""
    question = _question(text, k, offset, where)
    recorder = _recorder(context, pipeline, question, "search")
    db = context.caller(session)
    query, ranking = _found(context, db, pipeline, question, recorder, parallel=session is None)
    run_id = recorder.store(db, vector=query.vector, model=context.embedder().name if query.vector else "")
    return SearchResult(run_id, ranking.hits[offset : offset + k], tuple(recorder.stages))


def ask(context: Context, pipeline: Pipeline, text: str, *, k: int, where: Mapping[str, Any] | None = None, session: Any = None) -> Answer:
    """The answer to a question from its `k` best chunks; see RagDB.ask."""
    question = _question(text, k, 0, where)
    # Before any work: a prompt that cannot fit is known now.
    budget = synthesize.room(question.text, context.llm) if context.llm else pipeline.context_tokens
    recorder = _recorder(context, pipeline, question, "ask")
    db = context.caller(session)
    query, ranking = _found(context, db, pipeline, question, recorder, parallel=session is None)
    top = Ranking.of(ranking.hits[:k], "kept")
    answer, passages = _answered(context, db, pipeline, question, top, budget, recorder)
    run_id = recorder.store(db, answer=answer, passages=passages, vector=query.vector, model=context.embedder().name if query.vector else "")
    return dataclasses.replace(answer, run_id=run_id, stages=tuple(recorder.stages))


def _question(text: str, k: int, offset: int, where: Mapping[str, Any] | None) -> Question:
    if not isinstance(text, str) or not text.strip():
        raise EmptyQuery(f"the question is {text!r}; give at least one word")
    if not 1 <= k <= 1000 or offset < 0:
        raise ConfigError(f"k is {k}, offset is {offset}; k is from 1 to 1000, offset at least 0")
    return Question(clean_text(text)[0].strip(), k, offset, clean_json(dict(where or {}))[0])


def _recorder(context: Context, pipeline: Pipeline, question: Question, verb: str) -> Recorder:
    return Recorder(
        collection=context.collection, verb=verb, question=question.text, where=question.where, pipeline=pipeline.to_dict(), k=question.k
    )


def _found(context: Context, db: Caller, pipeline: Pipeline, question: Question, recorder: Recorder, *, parallel: bool) -> tuple[Query, Ranking]:
    """retrieve, fuse and, where there is a reranker, rerank."""
    query = _embedded(context, db, pipeline, question, recorder)
    # Every list is as deep as the deepest page asked for, in steps, so that neighbouring pages see the same lists.
    depth = pipeline.candidates
    while depth < min(1000, question.offset + question.k):
        depth *= 2
    rankings = _retrieved(context, db, pipeline, query, question, min(depth, 1000), recorder, parallel=parallel)
    keep = question.offset + question.k
    if context.reranker is not None:
        keep = max(keep, pipeline.rerank_candidates)
    fused = recorder.stage(
        "fuse",
        lambda: fuse(db, rankings, query, collection=context.collection, rrf_k=pipeline.rrf_k, weights=pipeline.weights, keep=keep),
    )
    if context.reranker is None or not fused.hits:
        return query, fused
    return query, recorder.stage("rerank", lambda: _reranked(context, query, fused, keep))


def _reranked(context: Context, query: Query, fused: Ranking, keep: int) -> Outcome[Ranking]:
    assert context.reranker is not None
    try:
        return rerank(query, fused, context.reranker, keep=keep)
    except ModelError as error:
        return Outcome(fused, note=f"kept the fused order: {error}")


def _embedded(context: Context, db: Caller, pipeline: Pipeline, question: Question, recorder: Recorder) -> Query:
    """The question with its vector: the one kept from an earlier run, or a new one. A failing model leaves the lexical leg."""
    if "semantic" not in pipeline.legs:
        return Query(question.text)
    embedder = context.embedder()
    info = context.info(db)
    if info is None:
        return Query(question.text)
    known = value(db.call("known_query_vector", question=question.text, model_id=info["model_id"]))
    if known is not None:
        return Query(question.text, tuple(known))
    began = time.perf_counter()
    try:
        vector = embed_query_checked(embedder, question.text)
    except EmbedderError as error:
        if "lexical" not in pipeline.legs:
            raise
        recorder.usage["embedder_failed"] = str(error)
        return Query(question.text)
    recorder.usage["embed_ms"] = round((time.perf_counter() - began) * 1000, 2)
    return Query(question.text, tuple(vector))


def _retrieved(
    context: Context, db: Caller, pipeline: Pipeline, query: Query, question: Question, depth: int, recorder: Recorder, *, parallel: bool
) -> list[Ranking]:
    """One ranking a leg; in parallel, each on a pooled connection of its own, unless the caller's session is the only one."""
    legs = [leg for leg in pipeline.legs if leg != "semantic" or query.vector is not None]

    def one(leg: str) -> tuple[Outcome[Ranking], float]:
        began = time.perf_counter()
        outcome = retrieve(db, query, leg, collection=context.collection, candidates=depth, where=question.where)
        return outcome, (time.perf_counter() - began) * 1000

    if parallel and len(legs) > 1:
        futures: list[Future[tuple[Outcome[Ranking], float]]] = [context.legs.submit(one, leg) for leg in legs]
        results = [future.result() for future in futures]
    else:
        results = [one(leg) for leg in legs]
    for leg, (outcome, ms) in zip(legs, results, strict=True):
        recorder.took("retrieve", leg, outcome, ms)
    if "embedder_failed" in recorder.usage:
        recorder.took("retrieve", "semantic", Outcome(None, note=f"left out: {recorder.usage['embedder_failed']}"), 0.0)
    return [outcome.value for outcome, _ in results]


def _answered(
    context: Context, db: Caller, pipeline: Pipeline, question: Question, top: Ranking, budget: int, recorder: Recorder
) -> tuple[Answer, Sequence[Passage]]:
    """validate, expand, pack, synthesize."""
    mode = "llm" if context.llm else "extractive"
    if not top.hits:
        return recorder.stage("synthesize", lambda: synthesize.no_answer(question.text, "nothing_retrieved", mode=mode), name=mode), ()
    info = context.info(db)
    ids = set(recorder.stage("validate", lambda: evident(top, info["evidence_floor"] if info else None), name="evidence"))
    if not pipeline.require_evidence:
        ids = set(top.chunk_ids)
    if not ids:
        return recorder.stage("synthesize", lambda: synthesize.no_answer(question.text, "not_in_documents", mode=mode), name=mode), ()
    passages = recorder.stage("expand", lambda: expand(db, top, window=pipeline.window))
    count_tokens = context.count_tokens()
    packed = recorder.stage("pack", lambda: pack(passages, budget=budget, count_tokens=count_tokens))
    shown = tuple(dataclasses.replace(p, evident=tuple(h.chunk_id for h in p.hits if h.chunk_id in ids)) for p in packed)
    llm = context.llm
    if llm is None:
        return recorder.stage("synthesize", lambda: synthesize.quote(question.text, shown), name="extractive"), shown
    return (
        recorder.stage(
            "synthesize",
            lambda: synthesize.write(question.text, shown, llm, temperature=pipeline.temperature, timeout=pipeline.timeout),
            name=llm.name,
        ),
        shown,
    )
