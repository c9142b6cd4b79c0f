"""One pipeline asks the questions of a set: resumable, cached, in parallel, every result a row.

A run is known by its fingerprint: set, collection as it is now, pipeline, models and settings. The same again costs
nothing; one that broke off goes on with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from ragdb.context import Context
from ragdb.db.caller import one
from ragdb.errors import ConfigError, RagDBError
from ragdb.evaluate import evidence as evidences
from ragdb.evaluate import measures, sets
from ragdb.evaluate.evidence import Evidence
from ragdb.evaluate.how import How, about, check_parts, digest, settings_of
from ragdb.evaluate.scoring import measured
from ragdb.evaluate.types import EvalQuestion, EvalRun, EvalSet, Verdict
from ragdb.pipeline import Examined, Pipeline, examine
from ragdb.prompts import rendered

if TYPE_CHECKING:
    from ragdb.rag import RagDB

#: Found, but not the answer: what a refusal is.
_REFUSED = ("not_in_documents", "nothing_retrieved")


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
        check_parts(context, pipeline)
    return [_one(context, judged, pipeline, how, progress) for pipeline in pipelines]


def _one(
    context: Context, judged: EvalSet, pipeline: Pipeline, how: How, progress: Callable[[str, int, int], None] | None
) -> EvalRun:
    db = context.database
    settings = settings_of(context, judged, pipeline, how)
    fingerprint = digest([context.collection, pipeline.to_dict(), settings])
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
    if "retrieve" in answer.usage.get("fell_back", ()):
        # asked by words alone it would be another pipeline's result
        said = answer.usage.get("embedder_failed") or _note(made, "retrieve", "semantic")
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
        if question.answerable and not failed  # what a model did not write was not lost
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
            **_fallbacks(made, pipeline),
            **evidences.citation_scores(evidence, made),
            **{verdict.metric: verdict.value for verdict in verdicts if verdict.value is not None},
        },
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        **({"failed": True} if failed else {}),
    }


def _note(made: Examined, stage: str, name: str) -> str:
    return next((trace.note for trace in made.answer.stages if (trace.stage, trace.name) == (stage, name)), "")


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


def _fallbacks(made: Examined, pipeline: Pipeline) -> dict[str, float]:
    """`fallback:STAGE` for each stage of the question's that asks a model: 1 where it did without, else 0."""
    asks = {
        "route": pipeline.route == "llm",
        "rewrite": bool(pipeline.rewrite),
        "rerank": True,
        "pack": pipeline.compress is not None,
    }
    fell = made.answer.usage.get("fell_back", ())
    taken = {trace.stage for trace in made.answer.stages}
    return {measures.FALLBACK + stage: float(stage in fell) for stage, does in asks.items() if does and stage in taken}


def _times(made: Examined) -> dict[str, float]:
    """Milliseconds by stage; legs run beside each other, so the slowest list counts."""
    found: dict[str, float] = {}
    for trace in made.answer.stages:
        before = found.get(trace.stage, 0.0)
        found[trace.stage] = max(before, trace.ms) if trace.stage == "retrieve" else before + trace.ms
    if "embed_ms" in made.answer.usage:
        found["embed"] = made.answer.usage["embed_ms"]
    return {stage: round(ms, 2) for stage, ms in found.items()}
