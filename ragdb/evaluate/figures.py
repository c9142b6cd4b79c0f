"""What a report shows of runs against each other: their settings, means, differences, times and the verdict. Numbers, no marks."""

from __future__ import annotations

import re
import statistics as stdlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragdb.errors import ConfigError
from ragdb.evaluate.statistics import difference, mean
from ragdb.evaluate.types import Difference, EvalRun, EvalSet, Mean, Result

#: Metrics of a written answer; all else but contamination is about what was found.
ANSWER_METRICS = (
    "faithfulness",
    "answer_relevance",
    "context_precision",
    "context_recall",
    "citation_precision",
    "citation_recall",
    "refusal",
)
_FIRST = ("ndcg", "recall", "precision", "p", "mrr", "rr", "map", "ap")  # the order that readers expect
_STAGES = ("route", "rewrite", "embed", "retrieve", "fuse", "rerank", "freshen", "expand", "validate", "pack", "synthesize")
_ORDER = ("worse", "unclear", "better")
_MANY = 5
_CLEAR = 0.05  # the level that goes with an interval of 95 %


@dataclass(frozen=True, slots=True)
class Shown:
    """A run with its place in the report; `results` are those of questions that the set has."""

    place: int
    name: str
    run: EvalRun
    baseline: bool
    results: Mapping[str, Result]

    @property
    def letter(self) -> str:
        """A, B, ... Z, A1, B1, ...: stands at its marks, so that none needs its colour."""
        round_, letter = divmod(self.place, 26)
        return chr(ord("A") + letter) + (str(round_) if round_ else "")

    def scores(self, metric: str) -> dict[str, float]:
        return {key: result.scores[metric] for key, result in self.results.items() if metric in result.scores}


@dataclass(frozen=True, slots=True)
class Line:
    """A run's mean of a metric, and what changed against the baseline; None: it has no value, or there is none to compare with."""

    shown: Shown
    mean: Mean | None
    change: Difference | None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of all runs. `less`: less of it is better."""

    name: str
    less: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that differ, a column each, and those that all runs share."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Shown, tuple[str, ...]], ...]
    same: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Speed:
    """Milliseconds of a question (median and 95th percentile), the medians by stage, and the mean cost; None: not known."""

    shown: Shown
    p50: float | None
    p95: float | None
    stages: Mapping[str, float]
    cost: float | None


@dataclass(frozen=True, slots=True)
class Tag:
    """A kind of questions: how many, and the mean of every run over them."""

    name: str
    n: int
    means: tuple[Mean | None, ...]


def shown(eval_set: EvalSet, runs: Sequence[EvalRun], baseline: EvalRun | None) -> tuple[Shown, ...]:
    """The baseline first, then the others in the order given, names made unique by the run's id. Raises ConfigError for none."""
    every = ([baseline] if baseline is not None else []) + [run for run in runs if not _same(run, baseline)]
    if not every:
        raise ConfigError("a report needs one run or more; make one with: ragdb eval run " + eval_set.name)
    for run in every:
        if run.eval_set != eval_set.name:
            raise ConfigError(f"run {run.eval_run_id} is of the set {run.eval_set!r}, this report of {eval_set.name!r}")
    names = [run.name for run in every]
    known = eval_set.by_key()
    return tuple(
        Shown(
            place=place,
            name=run.name if names.count(run.name) == 1 else f"{run.name} (run {run.eval_run_id})",
            run=run,
            baseline=baseline is not None and place == 0,
            results={key: result for key, result in run.by_key().items() if key in known},
        )
        for place, run in enumerate(every)
    )


def _same(run: EvalRun, other: EvalRun | None) -> bool:
    return other is not None and (run is other or (run.eval_run_id == other.eval_run_id and run.eval_run_id != 0))


def metric_names(every: Sequence[Shown]) -> tuple[list[str], list[str], list[str]]:
    """The metrics that scores have: of what was found, of contamination, of answers."""
    names = {name for run in every for result in run.results.values() for name in result.scores}
    answers = [name for name in ANSWER_METRICS if name in names]
    dirt = sorted((name for name in names if less_is_better(name)), key=_metric_order)
    found = sorted(names - {*answers} - {*dirt}, key=_metric_order)
    return found, dirt, answers


def _metric_order(name: str) -> tuple[int, str, int]:
    kind, _, k = name.lower().partition("@")
    return (_FIRST.index(kind) if kind in _FIRST else len(_FIRST), kind, int(k) if k.isdigit() else 0)


def less_is_better(metric: str) -> bool:
    return metric.startswith("contamination")


def metric(name: str, every: Sequence[Shown]) -> Metric:
    """Means with intervals, and differences to the baseline over the questions that both have."""
    base = every[0].scores(name) if every[0].baseline else {}
    lines = []
    for run in every:
        scores = run.scores(name)
        both = base.keys() & scores.keys()
        change = difference(name, base, scores) if both and not run.baseline else None
        lines.append(Line(run, mean(list(scores.values())) if scores else None, change))
    return Metric(name, less_is_better(name), tuple(lines))


def effect(change: Difference) -> str:
    """`better`, `worse`, or `unclear` where the interval holds 0 or the test finds nothing."""
    if change.low <= 0 <= change.high or change.p > _CLEAR:
        return "unclear"
    return "better" if (change.change > 0) != less_is_better(change.metric) else "worse"


def settings(every: Sequence[Shown]) -> Settings:
    """Pipeline and settings, nested names joined by a dot."""
    flat = [{**_flat(run.run.pipeline), **_flat({"collection": run.run.collection, **run.run.settings})} for run in every]
    names = list(dict.fromkeys(name for values in flat for name in values))
    # the pipeline's name stands in the first column anyway; what the judge said is no setting
    names = [name for name in names if name != "name" and not name.startswith("verdicts.")]
    differ = [name for name in names if len({values.get(name) for values in flat}) > 1]
    return Settings(
        tuple(differ),
        tuple((run, tuple(values.get(name, "–") for name in differ)) for run, values in zip(every, flat, strict=True)),
        tuple((name, flat[0][name]) for name in names if name not in differ),
    )


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = _said(value)
    return found


def _said(value: Any) -> str:
    if value is None or value in ((), [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def speed(every: Sequence[Shown]) -> tuple[list[str], list[Speed]]:
    """The stages that took time, in the order of a question, and the times of each run without questions that failed."""
    lines = []
    for run in every:
        done = [result for result in run.results.values() if result.error is None]
        stages: dict[str, list[float]] = {}
        for result in done:
            for stage, ms in result.stage_ms.items():
                stages.setdefault(stage, []).append(ms)
        costs = [result.cost for result in done if result.cost is not None]
        times = [result.ms for result in done]
        lines.append(
            Speed(
                run,
                stdlib.median(times) if times else None,
                _percentile95(times),
                {stage: stdlib.median(values) for stage, values in stages.items()},
                sum(costs) / len(costs) if costs else None,
            )
        )
    return sorted({stage for line in lines for stage in line.stages}, key=_stage_order), lines


def _percentile95(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return stdlib.quantiles(values, n=20, method="inclusive")[-1]


def _stage_order(stage: str) -> tuple[int, str]:
    return (_STAGES.index(stage) if stage in _STAGES else len(_STAGES), stage)


def tags(eval_set: EvalSet, every: Sequence[Shown], name: str) -> list[Tag]:
    """The metric by tag, and by language where there are several; the most frequent first."""
    groups: dict[str, list[str]] = {}
    languages = {question.language for question in eval_set.questions}
    for question in eval_set.questions:
        own = [*question.tags, *([f"language: {question.language or 'not said'}"] if len(languages) > 1 else [])]
        for tag in dict.fromkeys(own):
            groups.setdefault(tag, []).append(question.key)
    scores = [run.scores(name) for run in every]
    found = []
    for tag, keys in groups.items():
        values = [[own[key] for key in keys if key in own] for own in scores]
        if any(values):
            found.append(Tag(tag, max(map(len, values)), tuple(mean(own) if own else None for own in values)))
    return sorted(found, key=lambda tag: (-tag.n, tag.name))


def versions(every: Sequence[Shown]) -> list[tuple[str, str]]:
    """What the runs say about versions, each once."""
    found: dict[str, list[str]] = {}
    for run in every:
        said = run.run.settings.get("versions")
        for name, value in (_flat(said) if isinstance(said, Mapping) else {}).items():
            found.setdefault(name, []).append(value)
    return [(name, ", ".join(dict.fromkeys(values))) for name, values in found.items()]


def verdict(metrics: Iterable[Metric]) -> list[tuple[str, str]]:
    """The outcome first: (`better`, `worse`, `unclear` or `plain`, a sentence) for each run, the worst first.

    Without a baseline: which run is ahead on the first metric, and whether clearly so.
    """
    every = list(metrics)
    if not every:
        return [("plain", "No result has a score.")]
    if not every[0].lines[0].shown.baseline:
        return [("plain", _ahead(every[0]))]
    found = [_against_baseline(every, place) for place in range(1, len(every[0].lines))]
    found.sort(key=lambda one: _ORDER.index(one[0]))
    if len(found) > _MANY:
        counts = ", ".join(f"{sum(how == one for how, _ in found)} {one}" for one in _ORDER)
        note = f"{len(found)} runs against {every[0].lines[0].shown.name}: {counts}. By chance alone one comparison in twenty looks clear."
        found = [("plain", f"{note} {_ahead(every[0])}"), *found]
    return found or [("plain", _ahead(every[0]))]


def _against_baseline(every: list[Metric], place: int) -> tuple[str, str]:
    run, base = every[0].lines[place].shown, every[0].lines[0].shown
    changes = [found for one in every if (found := one.lines[place].change) is not None]
    if not changes:
        return "unclear", f"{run.name}: no question in common with {base.name}."
    worse = [change for change in changes if effect(change) == "worse"]
    better = [change for change in changes if effect(change) == "better"]
    if worse:
        also = f" Better: {'; '.join(map(said, better))}." if better else ""
        return "worse", f"{run.name} is worse than {base.name}: {'; '.join(map(said, worse))}.{also}"
    if better:
        return "better", f"{run.name} is better than {base.name}: {'; '.join(map(said, better))}."
    return "unclear", f"{run.name}: no clear difference to {base.name}: {said(changes[0])}."


def said(change: Difference) -> str:
    """`ndcg@10 0.412 → 0.455 (+0.043, 95 % +0.010 to +0.077, p 0.012; 12 better, 4 worse of 36)`"""
    up, down = improved(change)
    return (
        f"{change.metric} {change.before:.3f} → {change.after:.3f} ({signed(change.change)}, 95 % {signed(change.low)} to "
        f"{signed(change.high)}, {p_value(change.p)}; {up} better, {down} worse of {change.n})"
    )


def improved(change: Difference) -> tuple[int, int]:
    """How many questions got better and worse; a Difference counts what rose and fell."""
    return (change.worse, change.better) if less_is_better(change.metric) else (change.better, change.worse)


def signed(value: float) -> str:
    return re.sub("^-", "−", f"{value:+.3f}") if abs(value) >= 0.0005 else "0.000"


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def _ahead(one: Metric) -> str:
    lines = sorted((line for line in one.lines if line.mean), key=lambda line: line.mean.value if line.mean else 0, reverse=True)
    if not lines:
        return f"No result has {one.name}."
    if one.less:
        lines.reverse()
    first = lines[0]
    assert first.mean is not None
    words = f"{first.shown.name}: {one.name} {first.mean.value:.3f} (95 % {first.mean.low:.3f} to {first.mean.high:.3f})"
    if len(lines) == 1:
        return f"{words}, over {first.mean.n} questions. One run alone: there is nothing to compare it with."
    second = lines[1].shown
    before, after = second.scores(one.name), first.shown.scores(one.name)
    if not before.keys() & after.keys():
        return f"Highest is {words}."
    change = difference(one.name, before, after)
    clear = "clearly ahead of" if effect(change) == "better" else "not clearly ahead of"
    return f"{'Lowest' if one.less else 'Highest'} is {words}, {clear} {second.name} ({signed(change.change)}, {p_value(change.p)})."
