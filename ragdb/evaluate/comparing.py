"""Two runs of one set side by side: which metric changed, for which questions, and at which stage the evidence went."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragdb.errors import ConfigError
from ragdb.evaluate import measures, statistics
from ragdb.evaluate.how import set_digest
from ragdb.evaluate.types import FUNNEL, Difference, EvalQuestion, EvalRun, EvalSet, Mean
from ragdb.types import _Value


@dataclass(frozen=True, slots=True)
class Change(_Value):
    """One question in both runs: a metric before and after, and where the evidence was lost."""

    key: str
    question: str
    before: float
    after: float
    lost_before: str | None
    lost_after: str | None


@dataclass(frozen=True, slots=True)
class Comparison(_Value):
    """`differences` by metric; `by_tag` the same for each tag; `lost`: {stage: (before, after)} questions that lost their
    evidence there; `changes` of the first metric, those that fell most first; `cautions`: what differs beside the pipelines."""

    before: str
    after: str
    differences: tuple[Difference, ...]
    by_tag: Mapping[str, tuple[Difference, ...]]
    lost: Mapping[str, tuple[int, int]]
    changes: tuple[Change, ...]
    cautions: tuple[str, ...] = ()

    @property
    def worst_stage(self) -> str | None:
        """The stage at which the most more questions lost their evidence than before; None: at none."""
        more = {stage: after - before for stage, (before, after) in self.lost.items()}
        stage = max(more, key=lambda name: more[name], default=None)
        return stage if stage is not None and more[stage] > 0 else None


def values(run: EvalRun, metric: str) -> dict[str, float]:
    """A metric of each question that it counts for, by key."""
    if (stage := measures.stage_of(metric)) is not None:
        return {result.key: float(result.alive_after(stage)) for result in run.results if result.funnel}
    return {result.key: result.scores[metric] for result in run.results if metric in result.scores}


def metrics_of(*runs: EvalRun) -> tuple[str, ...]:
    """The metrics that every run has: those that are measured by default first, without those that a caution tells."""
    common = set.intersection(*({metric for result in run.results for metric in result.scores} for run in runs))
    common = {metric for metric in common if not metric.startswith(measures.FALLBACK)}
    return (*(m for m in measures.DEFAULT if m in common), *sorted(common - {*measures.DEFAULT}))


def means(run: EvalRun, metrics: Sequence[str] | None = None) -> dict[str, Mean]:
    """Each metric's mean over the questions it counts for, with its interval."""
    found = {}
    for metric in metrics or metrics_of(run):
        if given := list(values(run, metric).values()):
            found[metric] = statistics.mean(given)
    return found


def lost(run: EvalRun) -> dict[str, int]:
    """How many questions lost their evidence at each stage; see Result.lost_at."""
    counts = Counter(result.lost_at for result in run.results if result.lost_at is not None)
    order = [*FUNNEL[:2], "retrieve", *FUNNEL[4:]]
    return {stage: counts[stage] for stage in order if counts[stage]}


def alive(run: EvalRun) -> dict[str, float]:
    """The funnel: the share of questions with evidence to lose that still have it at each stage."""
    judged = [result for result in run.results if result.funnel]
    stages = [stage for stage in FUNNEL if any(stage in result.funnel for result in judged)]
    return {stage: sum(result.alive_after(stage) for result in judged) / len(judged) for stage in stages}


def unwanted(run: EvalRun, questions: Mapping[str, EvalQuestion], k: int) -> dict[str, int]:
    """What contaminates the first `k` documents of all questions together: archived, draft, trap."""
    counts = {"archived": 0, "draft": 0, "trap": 0}
    for result in run.results:
        status = dict(zip(reversed(result.uris), reversed(result.statuses), strict=True))
        for uri in result.documents[:k]:
            kind = "trap" if result.key in questions and uri in questions[result.key].traps else status[uri]
            if kind in counts:
                counts[kind] += 1
    return counts


def compare(eval_set: EvalSet, before: EvalRun, after: EvalRun, *, metrics: Sequence[str] | None = None) -> Comparison:
    """What changed from one run to the other. Raises ConfigError for runs of two sets, or without a question in common."""
    if before.eval_set != after.eval_set:
        raise ConfigError(f"runs are compared within a set; these are of {before.eval_set!r} and {after.eval_set!r}")
    wanted = tuple(metrics or metrics_of(before, after))
    if not wanted:
        raise ConfigError(f"runs {before.eval_run_id} and {after.eval_run_id} have no metric in common")
    questions = eval_set.by_key()
    # a question that was rejected since counts no more
    differences = tuple(_difference(metric, before, after, {*questions}) for metric in wanted)
    tags = sorted({tag for question in eval_set.questions for tag in question.tags})
    by_tag = {}
    for tag in tags:
        keys = {question.key for question in eval_set.questions if tag in question.tags}
        found = [_difference(metric, before, after, keys) for metric in wanted if _both(metric, before, after, keys)]
        if found:
            by_tag[tag] = tuple(found)
    old, new = lost(before), lost(after)
    stages = [stage for stage in ("indexed", "chunk", "retrieve", *FUNNEL[4:]) if stage in old or stage in new]
    first = wanted[0]
    one, other = before.by_key(), after.by_key()
    changes = [
        Change(
            key,
            questions[key].question,
            values(before, first)[key],
            values(after, first)[key],
            one[key].lost_at,
            other[key].lost_at,
        )
        for key in _both(first, before, after, questions.keys())
    ]
    sign = -1 if measures.lower_is_better(first) else 1
    changes = [change for change in changes if change.before != change.after]
    changes.sort(key=lambda change: (sign * (change.after - change.before), change.key))
    return Comparison(
        f"{before.name} ({before.eval_run_id})",
        f"{after.name} ({after.eval_run_id})",
        differences,
        by_tag,
        {stage: (old.get(stage, 0), new.get(stage, 0)) for stage in stages},
        tuple(changes),
        (*cautions(before, after), *_since(eval_set, after)),
    )


def _since(eval_set: EvalSet, run: EvalRun) -> tuple[str, ...]:
    if same_questions(run.settings, {"set_is": set_digest(eval_set)}):
        return ()
    return (
        f"the set changed after run {run.eval_run_id} was asked: its questions and judgements are those of today, and a key may "
        "stand for another question than then",
    )


#: What else than its pipeline a run may have been asked with.
_SETTINGS = ("k", "depth", "context", "where", "answers", "embedder", "llm", "llm_tokens", "prompts", "judge", "ragdb")


def cautions(before: EvalRun, after: EvalRun) -> tuple[str, ...]:
    """What differs between two runs beside their pipelines, in sentences."""
    old, new = before.settings, after.settings
    found = []
    if not same_questions(old, new):
        found.append(
            "the questions or their judgements changed in between: only questions that both runs have are compared, and the "
            "funnel, refusals and citations are by the judgements of then"
        )
    if before.collection != after.collection:
        found.append(f"two collections were asked, {before.collection} and {after.collection}")
    elif old.get("collection_is") != new.get("collection_is"):
        found.append(f"the collection {before.collection} changed in between")
    found += [
        f"{name} was {old[name]!r}, then {new[name]!r}"
        for name in _SETTINGS
        if name in old and name in new and old[name] != new[name]
    ]
    if "fusion" in old and "fusion" in new and _fusion(old) != _fusion(new):
        found.append(f"the collection's own settings of fuse were {_fusion(old)}, then {_fusion(new)}")
    runs = {run.eval_run_id: run for run in (before, after)}  # a gate compares a run with itself where nothing changed
    found += [f"{run.name} ({run_id}): {one}" for run_id, run in runs.items() for one in fallbacks(run)]
    return tuple(found)


def _fusion(settings: Mapping[str, Any]) -> str:
    """The stored settings of fuse without where they come from."""
    kept = {name: value for name, value in (settings["fusion"] or {}).items() if name != "source"}
    return json.dumps(kept, sort_keys=True) if kept else "none"


def fallbacks(run: EvalRun) -> list[str]:
    """Where the results are not those of the pipeline as it is written, for a stage's model failed or was late; in sentences."""
    told: dict[str, list[float]] = {}
    for result in run.results:
        for metric, value in result.scores.items():
            if metric.startswith(measures.FALLBACK):
                told.setdefault(metric.removeprefix(measures.FALLBACK), []).append(value)
    return [
        f"{stage} fell back for {sum(fell):g} of {len(fell)} questions, for its model was not there, failed or was late; "
        f"why: ragdb explain {_trace(run, stage)}; when that is mended, --again asks anew"
        for stage, fell in told.items()
        if any(fell)
    ]


def _trace(run: EvalRun, stage: str) -> object:
    """The trace of the first question for which a stage fell back."""
    ids = (result.run_id for result in run.results if result.scores.get(measures.FALLBACK + stage))
    return next((run_id for run_id in ids if run_id is not None), "RUN (no trace was stored)")


def same_questions(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Whether two runs, by their settings, were asked the same questions with the same judgements."""
    return "set_is" not in old or "set_is" not in new or old["set_is"] == new["set_is"]


def _both(metric: str, before: EvalRun, after: EvalRun, keys: object) -> list[str]:
    both = values(before, metric).keys() & values(after, metric).keys()
    return sorted(key for key in both if key in keys)  # type: ignore[operator]


def _difference(metric: str, before: EvalRun, after: EvalRun, keys: set[str] | None = None) -> Difference:
    old, new = values(before, metric), values(after, metric)
    if keys is not None:
        old, new = ({key: value for key, value in of.items() if key in keys} for of in (old, new))
    if not old.keys() & new.keys():
        raise ConfigError(
            f"{metric}: no question has it in both runs, {before.eval_run_id} ({before.name}) and {after.eval_run_id} "
            f"({after.name})"
        )
    return statistics.difference(metric, old, new)
