"""What a report shows of runs against each other: their settings, means, differences and times. Numbers, no marks."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ragdb.errors import ConfigError
from ragdb.evaluate.comparing import fallbacks
from ragdb.evaluate.measures import FALLBACK, lower_is_better
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
    "false_refusal",
)
_FIRST = ("ndcg", "recall", "precision", "p", "mrr", "rr", "map", "ap")  # the order that readers expect
_STAGES = ("route", "rewrite", "embed", "retrieve", "fuse", "rerank", "freshen", "expand", "validate", "pack", "synthesize")


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
    """A run's mean of a metric, and what changed against the baseline; None: no value, or none to compare with."""

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
    names = {name for name in names if not name.startswith(FALLBACK)}  # a caution tells those
    answers = [name for name in ANSWER_METRICS if name in names]
    dirt = sorted((name for name in names if name.startswith("contamination")), key=_metric_order)
    # first those that every run has: a verdict needs them
    partly = {name for name in names if not all(any(name in r.scores for r in run.results.values()) for run in every)}
    found = sorted(names - {*answers} - {*dirt}, key=lambda name: (name in partly, _metric_order(name)))
    return found, dirt, answers


def _metric_order(name: str) -> tuple[int, str, int]:
    kind, _, k = name.lower().partition("@")
    return (_FIRST.index(kind) if kind in _FIRST else len(_FIRST), kind, int(k) if k.isdigit() else 0)


@lru_cache(4096)
def _mean(values: tuple[float, ...]) -> Mean:
    return mean(values)  # a bootstrap; HTML and Markdown of the same runs ask for the same


@lru_cache(1024)
def _difference(name: str, before: tuple[tuple[str, float], ...], after: tuple[tuple[str, float], ...]) -> Difference:
    return difference(name, dict(before), dict(after))


def compared(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> Difference | None:
    """The difference over the questions that both have; None: there are none."""
    return _difference(name, tuple(before.items()), tuple(after.items())) if before.keys() & after.keys() else None


def metric(name: str, every: Sequence[Shown]) -> Metric:
    """Means with intervals, and differences to the baseline over the questions that both have."""
    base = every[0].scores(name) if every[0].baseline else {}
    lines = []
    for run in every:
        scores = run.scores(name)
        change = None if run.baseline else compared(name, base, scores)
        lines.append(Line(run, _mean(tuple(scores.values())) if scores else None, change))
    return Metric(name, lower_is_better(name), tuple(lines))


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
        times = [result.ms - result.stage_ms.get("embed", 0.0) for result in done]
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
            found.append(Tag(tag, max(map(len, values)), tuple(_mean(tuple(own)) if own else None for own in values)))
    return sorted(found, key=lambda tag: (-tag.n, tag.name))


def versions(every: Sequence[Shown]) -> list[str]:
    """The versions of ragdb that made the runs."""
    return list(dict.fromkeys(str(run.run.settings["ragdb"]) for run in every if "ragdb" in run.run.settings))


def cautions(every: Sequence[Shown]) -> list[str]:
    """What makes runs hard to compare: other questions, other documents, questions that failed, stages that fell back."""
    found = []
    if len({run.run.settings.get("set_is") for run in every}) > 1:
        found.append("The questions or their judgements changed between runs; only questions that both runs have are compared.")
    held: dict[str, set[Any]] = {}
    for run in every:
        held.setdefault(run.run.collection, set()).add(run.run.settings.get("collection_is"))
    changed = [name for name, states in held.items() if len(states) > 1]
    if changed:
        found.append(f"What the collection {', '.join(changed)} holds changed between runs: not only the pipeline differs.")
    for run in every:
        failed = sum(result.error is not None for result in run.results.values())
        if failed or run.run.finished_at is None:
            state = f"{len(run.results)} questions, {failed} of them failed" if failed else f"{len(run.results)} questions so far"
            found.append(f"{run.name} has {state}; run it again, and it goes on.")
        found += [f"{run.name}: {one}." for one in fallbacks(run.run)]
    return found
