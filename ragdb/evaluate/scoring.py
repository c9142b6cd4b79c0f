"""Metrics of a run, computed from the lists of documents that it found, and stored beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragdb.context import Context
from ragdb.evaluate import measures, runs
from ragdb.evaluate.how import comes_with_asking, set_digest
from ragdb.evaluate.types import EvalQuestion, EvalRun, EvalSet, Result


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
        wanted |= {metric for result in results.values() for metric in result.scores if not comes_with_asking(metric)}
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
