"""One pipeline asks the questions of a set: resumable, cached, in parallel, every result a row.

A run is known by its fingerprint: set, collection as it is now, pipeline, models and settings. The same again costs
nothing; one that broke off goes on with what is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import ragdb
from ragdb.context import Context
from ragdb.db.caller import from_json, one, value
from ragdb.errors import ConfigError, RagDBError
from ragdb.evaluate import evidence as evidences
from ragdb.evaluate import measures, runs, sets
from ragdb.evaluate.evidence import Evidence
from ragdb.evaluate.types import EvalQuestion, EvalRun, EvalSet, Result, Verdict
from ragdb.pipeline import Examined, Pipeline, examine
from ragdb.prompts import rendered

if TYPE_CHECKING:
    from ragdb.rag import RagDB

#: Chunks of a result that are kept, where nothing else is asked for.
DEPTH = 100
#: Found, but not the answer: what a refusal is.
_REFUSED = ("not_in_documents", "nothing_retrieved")
_ANSWER_METRICS = ("faithfulness", "answer_relevance", "context_precision", "context_recall")
#: Scores that come with the asking, and are not computed from the list of documents.
ANSWER_SCORES = (*_ANSWER_METRICS, "refusal", "false_refusal", "citation_precision", "citation_recall")


class Judging(Protocol):
    """A ragdb.evaluate.judge.Judge."""

    @property
    def name(self) -> str: ...

    def settings(self) -> dict[str, Any]: ...

    def judged(
        self, question: str, answer: str, contexts: Sequence[str], reference: str | None, metrics: Sequence[str]
    ) -> list[Verdict]: ...


@dataclass(frozen=True, slots=True)
class How:
    """How the questions are asked. `k`: how many chunks an answer is made from; `depth`: how many are kept for the metrics.

    `answers`: the language model writes them; else they are quotations, which cost nothing. `judge` scores them by
    `judged`. `context` gold: from the chunks that were judged relevant, without a search, so that what is lost then is lost by
    the writing. `where` is put over each question's own. `jobs`: questions at a time; where it is more than one, times are those
    of a busy machine.
    """

    k: int = 6
    depth: int = DEPTH
    answers: bool = False
    judge: Judging | None = None
    judged: tuple[str, ...] = _ANSWER_METRICS
    context: Literal["retrieved", "gold"] = "retrieved"
    where: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    metrics: tuple[str, ...] = measures.DEFAULT
    again: bool = False
    gate: bool = False

    def label(self, pipeline: str) -> str:
        """What a run is called: the pipeline's name, and what is unusual about how it is asked."""
        where = [f"where {json.dumps(dict(self.where), ensure_ascii=False, sort_keys=True)}"] if self.where else []
        gold = ["gold context"] if self.context == "gold" else []
        # so that the pipeline's name still means the run that somebody made to compare with
        return ", ".join([pipeline, *(["answers"] if self.answers else []), *gold, *where, *(["gate"] if self.gate else [])])

    def __post_init__(self) -> None:
        for name, given, most in (("k", self.k, 1000), ("depth", self.depth, 1000), ("jobs", self.jobs, 64)):
            if not 1 <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from 1 to {most}")
        if self.context not in ("retrieved", "gold"):
            raise ConfigError(f"context is {self.context!r}; it is retrieved or gold")
        measures.check(self.metrics)


def how_of(run: EvalRun) -> dict[str, Any]:
    """The settings of How that a run was asked with, but for its judge."""
    settings = run.settings
    return {
        "k": settings["k"],
        "depth": settings["depth"],
        "context": settings["context"],
        "where": settings["where"],
        "answers": settings["answers"] == "llm",
    }


def run(
    rag: RagDB,
    eval_set: str,
    pipelines: Sequence[Pipeline],
    *,
    how: How | None = None,
    collection: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[EvalRun]:
    """Asks the questions of a set through each pipeline and returns the runs with their results and metrics.

    The collection is the set's own, or another that holds the same documents. `progress(name, done, of)`. A question that could
    not be asked has an `error`; its run is not finished, and the next call asks it again. Raises ConfigError for a set without
    questions, two pipelines of one name, or a judge without answers.
    """
    how = how or How()
    judged = sets.read(rag, eval_set)
    if not judged.questions:
        raise ConfigError(f"the set {eval_set!r} has no accepted questions; import some, or accept drafts")
    names = [pipeline.name for pipeline in pipelines]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two pipelines are called {', '.join(sorted(twice))}; give each a name of its own")
    context = about(rag, collection or judged.collection)
    if how.answers and context.llm is None:
        raise ConfigError("answers by a language model are asked for, and there is none; set RAGDB_LLM, or llm= of RagDB")
    if how.judge is not None and not how.answers and how.context == "retrieved":
        raise ConfigError("a judge scores the answers of a language model; ask for answers too")
    for pipeline in pipelines:
        _check_parts(context, pipeline)
    return [_one(context, judged, pipeline, how, progress) for pipeline in pipelines]


def _check_parts(context: Context, pipeline: Pipeline) -> None:
    """Raises ConfigError for a pipeline with parts that are not here: measured without them it would be another one."""
    for name in pipeline.rewrite:
        context.rewriter(name)
    if context.llm is None and "llm" in (pipeline.route, pipeline.compress):
        raise ConfigError(
            f"the pipeline {pipeline.name!r} asks a language model, and there is none; set RAGDB_LLM, or llm= of RagDB"
        )
    if pipeline.rerank:
        reranker, note = context.reranker(asked_for=True)
        if reranker is None:
            raise ConfigError(f"the pipeline {pipeline.name!r} has a reranker: {note or 'RAGDB_RERANKER is none'}")


def about(rag: RagDB, collection: str) -> Context:
    """The RagDB's own context, or the same for another collection; raises UnknownCollection."""
    from ragdb.ingest import collections

    context = rag.context
    if collection != context.collection:
        context = context.sibling(collection, embedder=None, analyzer=True)
    collections.require(context)
    return context


def settings_of(context: Context, judged: EvalSet, pipeline: Pipeline, how: How) -> dict[str, Any]:
    """Everything but the pipeline that results hang on, as JSON."""
    info = context.info() or {}
    reranker, note = (None, "") if pipeline.rerank is False else context.reranker(asked_for=bool(pipeline.rerank))
    uses_llm = how.answers or bool(pipeline.rewrite) or pipeline.route == "llm"
    return {
        "k": how.k,
        "depth": how.depth,
        "context": how.context,
        "where": dict(how.where),
        "answers": "llm" if how.answers else "extractive",
        "embedder": info.get("model"),
        "reranker": getattr(reranker, "name", None) or (type(reranker).__name__ if reranker else None),
        "llm": context.llm.name if context.llm is not None and uses_llm else None,
        "fusion": from_json(info.get("fusion")) if pipeline.tuned else None,
        "judge": how.judge.settings() if how.judge else None,
        "judged": list(how.judged) if how.judge else [],
        "collection_is": value(context.database.call("collection_fingerprint", collection=context.collection)),
        "set_is": set_digest(judged),
        "questions": len(judged.questions),
        "ragdb": ragdb.__version__,
        **({"note": note} if note else {}),
    }


def set_digest(judged: EvalSet) -> str:
    """What `set_is` is in the settings of a run: a hash of the questions and their judgements."""
    return _digest([question.to_dict() for question in judged.questions])


def _digest(given: Any) -> str:
    return hashlib.sha256(json.dumps(given, sort_keys=True, ensure_ascii=False, default=str).encode()).hexdigest()[:32]


def _one(
    context: Context, judged: EvalSet, pipeline: Pipeline, how: How, progress: Callable[[str, int, int], None] | None
) -> EvalRun:
    db = context.database
    settings = settings_of(context, judged, pipeline, how)
    fingerprint = _digest([context.collection, pipeline.to_dict(), settings])
    begun = one(
        db.call(
            "start_eval_run",
            run={
                "eval_set": judged.name,
                "name": how.label(pipeline.name),
                "collection": context.collection,
                "pipeline": pipeline.to_dict(),
                "settings": settings,
                "fingerprint": fingerprint,
                "again": how.again,
                "gate": how.gate,
            },
        )
    )
    run_id = int(begun["eval_run_id"])
    if not begun["finished"]:
        _fill(context, judged, pipeline, how, run_id, progress)
    return measured(context, run_id, judged, how.metrics, cached=bool(begun["finished"]))


def _fill(
    context: Context,
    judged: EvalSet,
    pipeline: Pipeline,
    how: How,
    run_id: int,
    progress: Callable[[str, int, int], None] | None,
) -> None:
    """Asks what has no result yet, or one with an error."""
    db = context.database
    there = {row["key"] for row in db.call("eval_results", eval_run_id=run_id) if row["error"] is None}
    evidence = evidences.of_set(db, judged.name, context.collection)
    missing = [question for question in judged.questions if question.key not in there]
    if how.context == "gold":
        missing = [question for question in missing if evidence.get(question.key, Evidence()).ids]
    tell = progress or (lambda name, done, of: None)
    of = len(there) + len(missing)
    tell(pipeline.name, len(there), of)

    def ask(question: EvalQuestion) -> bool:
        result = _result(context, pipeline, question, evidence.get(question.key, Evidence()), how, run_id)
        db.call("record_eval_result", eval_run_id=run_id, result=result)
        return result.get("failed") is None

    failed = 0
    with ThreadPoolExecutor(max_workers=how.jobs, thread_name_prefix="ragdb-eval") as threads:
        waiting = [threads.submit(ask, question) for question in missing]
        try:
            for done, future in enumerate(as_completed(waiting), start=len(there) + 1):
                failed += not future.result()
                tell(pipeline.name, done, of)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    if not failed:
        verdicts = db.call("eval_verdicts", eval_run_id=run_id)
        counted = {"asked": sum(row["asked"] for row in verdicts), "broken": sum(row["broken"] for row in verdicts)}
        db.call("finish_eval_run", eval_run_id=run_id, counted={"verdicts": counted} if how.judge else {})


def _result(
    context: Context, pipeline: Pipeline, question: EvalQuestion, evidence: Evidence, how: How, run_id: int
) -> dict[str, Any]:
    given: dict[str, Any] = {"eval_question_id": question.eval_question_id, "ms": 0.0}
    try:
        made = examine(
            context,
            pipeline,
            question.question,
            k=how.k,
            depth=how.depth,
            where={**question.where, **how.where},
            gold=_gold(evidence) if how.context == "gold" else None,
            writes=how.answers,
            eval_run_id=run_id,
        )
    except RagDBError as error:
        return {**given, "error": f"{type(error).__name__}: {error}", "failed": True}
    answer = made.answer
    if said := answer.usage.get("embedder_failed"):
        # asked by words alone it would be another pipeline's result
        return {**given, "run_id": answer.run_id, "error": f"EmbedderError: {said}", "failed": True}
    failed = answer.outcome == "llm_failed"
    verdicts = _verdicts(question, made, how)
    hits = evidences.named(evidence, made.ranking.hits[: how.depth], question.traps)
    searched = how.context == "retrieved"
    return {
        **given,
        "run_id": answer.run_id,
        "chunk_ids": [chunk_id for chunk_id, _, _ in hits],
        "uris": [uri for _, uri, _ in hits],
        "statuses": [status for _, _, status in hits],
        "funnel": evidences.as_json(evidences.funnel(evidence, made, pipeline, how.k, searched=searched))
        if question.answerable
        else {},
        "outcome": answer.outcome,
        "answer": answer.text,
        "document_ids": sorted({passage.document_id for passage in made.shown}),
        "error": answer.error if failed else None,
        "ms": round(made.ms, 2),
        "stage_ms": _times(made),
        "cost": answer.usage.get("cost"),
        "scores": {
            **_refusal(question, answer.outcome),
            **evidences.citation_scores(evidence, made),
            **{verdict.metric: verdict.value for verdict in verdicts if verdict.value is not None},
        },
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        **({"failed": True} if failed else {}),
    }


def _gold(evidence: Evidence) -> list[int]:
    """The judged chunks: the whole of a quote where one chunk has it."""
    return sorted({i for piece in evidence.pieces for i in (piece.whole or piece.chunks)})


def _verdicts(question: EvalQuestion, made: Examined, how: How) -> list[Verdict]:
    if how.judge is None or made.answer.outcome != "answered":
        return []
    # as the model saw them: titles and headings are part of what supports an answer
    contexts = [rendered(passage) for passage in sorted(made.shown, key=lambda passage: passage.number)]
    return how.judge.judged(question.question, made.answer.text, contexts, question.reference, how.judged)


def _refusal(question: EvalQuestion, outcome: str) -> dict[str, float]:
    """`refusal`: of what no document answers, the share that was refused; `false_refusal`: of what one does.

    An answer that failed and a greeting, which no document was looked up for, are neither.
    """
    if outcome in ("llm_failed", "no_retrieval"):
        return {}
    return {"false_refusal" if question.answerable else "refusal": float(outcome in _REFUSED)}


def _times(made: Examined) -> dict[str, float]:
    """Milliseconds by stage; legs run beside each other, so the slowest list counts."""
    found: dict[str, float] = {}
    for trace in made.answer.stages:
        before = found.get(trace.stage, 0.0)
        found[trace.stage] = max(before, trace.ms) if trace.stage == "retrieve" else before + trace.ms
    if "embed_ms" in made.answer.usage:
        found["embed"] = made.answer.usage["embed_ms"]
    return {stage: round(ms, 2) for stage, ms in found.items()}


def measured(context: Context, run_id: int, judged: EvalSet, metrics: Sequence[str], *, cached: bool = False) -> EvalRun:
    """The run with its results; metrics that were not computed before are computed from what is stored, and stored.

    Where the judgements changed since, all that are computed from lists of documents are computed again.
    """
    measures.check(metrics)
    found = runs.get(context.database, run_id)
    questions = judged.by_key()
    results = {result.key: result for result in found.results if result.key in questions and result.error is None}
    if found.settings.get("context") == "gold":
        return runs.marked(found, cached=cached)
    wanted = {metric for metric in metrics if measures.stage_of(metric) is None}
    if found.settings.get("set_is") != set_digest(judged):
        wanted |= {metric for result in results.values() for metric in result.scores} - {*ANSWER_SCORES}
    elif not any(_lacks(result, questions[key], wanted) for key, result in results.items()):
        return runs.marked(found, cached=cached)
    # all of them: what a question scores may hang on others, as stability does
    fresh = _scores(results, questions, sorted(wanted))
    scores = {str(questions[key].eval_question_id): values for key, values in fresh.items() if values}
    if scores:
        context.database.call("put_eval_scores", eval_run_id=run_id, scores={"scores": scores})
        found = runs.get(context.database, run_id)
    return runs.marked(found, cached=cached)


def _lacks(result: Result, question: EvalQuestion, metrics: Iterable[str]) -> bool:
    """Whether a metric is missing that may count for this question: what is no relevance does without a relevant document."""
    any_question = ("contamination", "stability")
    return any(m not in result.scores and (question.answerable or m.startswith(any_question)) for m in metrics)


def _scores(
    results: Mapping[str, Any], questions: Mapping[str, EvalQuestion], metrics: Iterable[str]
) -> dict[str, dict[str, float]]:
    ranked = {key: result.documents for key, result in results.items()}
    # without a relevant document there is nothing to find: such a question counts for contamination and refusal only
    qrels = {
        key: {j.uri: max(j.grade, 0) for j in questions[key].judgements} | questions[key].relevant
        for key in results
        if questions[key].answerable
    }
    scores = measures.per_question(list(metrics), qrels, ranked)
    found: dict[str, dict[str, float]] = {key: dict(scores.get(key, {})) for key in results}
    for metric in metrics:
        kind, k = metric.split("@")[0], measures.cut(metric)
        if kind == "contamination":
            for key, result in results.items():
                found[key][metric] = measures.contamination(result, questions[key], k)
        elif kind == "stability":
            alike = measures.stability([questions[key] for key in results], ranked, k)
            for key, value_ in alike.items():
                found[key][metric] = value_
    return found
