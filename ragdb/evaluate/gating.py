"""The gate: a run that is worse than its baseline by more than was allowed is refused, with the stage that lost it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragdb.errors import ConfigError
from ragdb.evaluate import comparing, measures
from ragdb.evaluate.comparing import Comparison
from ragdb.evaluate.types import Difference, EvalRun, EvalSet
from ragdb.types import _Value

#: What is allowed where nothing is said: by how much a mean may be worse.
DEFAULT = {"ndcg@10": 0.01, "recall@20": 0.01, "contamination@5": 0.0, "alive:chunk": 0.01, "alive:cited": 0.01}
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Gate(_Value):
    """`failures` are (difference, what was allowed); `missing` names what could not be compared, which fails too."""

    comparison: Comparison
    failures: tuple[tuple[Difference, float], ...]
    missing: tuple[str, ...] = ()
    #: For contamination that rose: by metric, what is among the first k documents, before and after.
    unwanted: Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.failures and not self.missing

    @property
    def reason(self) -> str:
        """In a sentence or two: what got worse, and at which stage the evidence is lost now."""
        if self.passed:
            return "no metric is worse than allowed"
        told = [
            f"{d.metric} went from {d.before:.4f} to {d.after:.4f} ({d.change:+.4f}, p {d.p:.3f}); {allowed:g} is allowed"
            for d, allowed in self.failures
        ]
        told += [f"{metric} was not measured in both runs" for metric in self.missing]
        for metric, (old, new) in self.unwanted.items():
            changed = [f"{kind} {old[kind]} -> {new[kind]}" for kind in old if new[kind] > old[kind]]
            # traps are judged and come by their words; the others are let in
            where = "; the status is filtered at retrieve" if any(new[kind] > old[kind] for kind in ("archived", "draft")) else ""
            told.append(f"{metric} counts {', '.join(changed) or 'no more of them, but among fewer documents'}{where}")
        stage = self.comparison.worst_stage
        if stage is not None:
            before, after = self.comparison.lost[stage]
            told.append(f"most is lost at {stage}: {after} questions lost their evidence there, {before} before")
        return "; ".join(told)


def gate(eval_set: EvalSet, baseline: EvalRun, run: EvalRun, *, max_drop: Mapping[str, float] | None = None) -> Gate:
    """Whether `run` may take the place of `baseline`: no mean is worse by more than `max_drop` allows.

    For metrics where less is better (contamination, false_refusal) a rise is the drop. Raises ConfigError for an allowance
    below 0 and where the questions of the two runs are not the same: answers that fail would make the rest look better.
    """
    wanted = dict(DEFAULT if max_drop is None else max_drop)
    if not wanted:
        raise ConfigError("the gate is given no metric; say it like --max-drop ndcg@10=0.01")
    if low := [metric for metric, allowed in wanted.items() if not allowed >= 0]:
        raise ConfigError(f"the drop allowed of {', '.join(low)} is below 0; it is a number from 0 on")
    for one in (baseline, run):
        if one.finished_at is None:
            raise ConfigError(f"run {one.eval_run_id} ({one.name}) is not finished; run it again, it goes on where it stopped")
    check_questions(eval_set, baseline, run.settings.get("set_is"))
    unlisted = [metric for metric in wanted if measures.stage_of(metric) or measures.fallback_of(metric)]
    staged = [metric for metric in unlisted if all(comparing.values(one, metric) for one in (baseline, run))]
    common = (*comparing.metrics_of(baseline, run), *staged)
    missing = tuple(metric for metric in wanted if metric not in common)
    measured = [metric for metric in wanted if metric in common]
    comparison = comparing.compare(eval_set, baseline, run, metrics=measured or None)
    failures = []
    for difference in comparison.differences:
        worse = difference.change if measures.lower_is_better(difference.metric) else -difference.change
        if difference.metric in wanted and worse > wanted[difference.metric] + _ROUNDING:
            failures.append((difference, wanted[difference.metric]))
    questions = eval_set.by_key()
    dirt = {
        d.metric: tuple(comparing.unwanted(one, questions, measures.cut(d.metric)) for one in (baseline, run))
        for d, _ in failures
        if d.metric.startswith("contamination")
    }
    return Gate(comparison, tuple(failures), missing, {metric: (old, new) for metric, (old, new) in dirt.items()})


def check_questions(eval_set: EvalSet, baseline: EvalRun, set_is: object) -> None:
    """Raises ConfigError where a baseline was asked other questions, or by other judgements, than those of this hash."""
    if set_is is not None and not comparing.same_questions(baseline.settings, {"set_is": set_is}):
        raise ConfigError(
            f"run {baseline.eval_run_id} ({baseline.name}) was asked when the set {eval_set.name!r} had other questions or "
            f"judgements; ask it again: ragdb eval run {eval_set.name} -p {baseline.name}"
        )
