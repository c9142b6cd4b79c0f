"""What follows from the figures, in words: which run is better than the baseline, which worse, and what is not clear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ragdb.evaluate.figures import Metric, compared
from ragdb.evaluate.measures import lower_is_better
from ragdb.evaluate.types import Difference

_ORDER = ("worse", "unclear", "better")
_MANY = 5
_CLEAR = 0.05  # the level that goes with an interval of 95 %


def effect(change: Difference) -> str:
    """`better`, `worse`, or `unclear` where the interval holds 0 or the test finds nothing."""
    if change.low <= 0 <= change.high or change.p > _CLEAR:
        return "unclear"
    return "better" if (change.change > 0) != lower_is_better(change.metric) else "worse"


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
        note = f"{len(found)} runs against {every[0].lines[0].shown.name}: {counts}. By chance alone one comparison in twenty"
        found = [("plain", f"{note} looks clear. {_ahead(every[0])}"), *found]
    return found or [("plain", _ahead(every[0]))]


def _against_baseline(every: list[Metric], place: int) -> tuple[str, str]:
    run, base = every[0].lines[place].shown, every[0].lines[0].shown
    changes = [found for one in every if (found := one.lines[place].change) is not None]
    if not changes:
        return "unclear", f"{run.name}: no question in common with {base.name}."
    worse = [change for change in changes if effect(change) == "worse"]
    better = [change for change in changes if effect(change) == "better"]
    if worse:
        also = f" Better: {_short(better)}." if better else ""
        return "worse", f"{run.name} is worse than {base.name}: {_listed(worse)}.{also}"
    if better:
        return "better", f"{run.name} is better than {base.name}: {_listed(better)}."
    return "unclear", f"{run.name}: no clear difference to {base.name}: {said(changes[0])}."


def _listed(changes: Sequence[Difference]) -> str:
    """The first in full, the others by their change alone: the tables have the rest."""
    return f"{said(changes[0])}{'; also ' + _short(changes[1:]) if len(changes) > 1 else ''}"


def _short(changes: Sequence[Difference]) -> str:
    return ", ".join(f"{change.metric} {signed(change.change)}" for change in changes)


def said(change: Difference) -> str:
    """`ndcg@10 0.412 → 0.455 (+0.043, 95 % +0.010 to +0.077, p 0.012; 12 better, 4 worse of 36)`"""
    return (
        f"{change.metric} {change.before:.3f} → {change.after:.3f} ({signed(change.change)}, 95\u00a0% {signed(change.low)} to "
        f"{signed(change.high)}, {p_value(change.p)}; {change.better} better, {change.worse} worse of {change.n})"
    )


def signed(value: float) -> str:
    return re.sub("^-", "−", f"{value:+.3f}") if abs(value) >= 0.0005 else "0.000"


def p_value(p: float) -> str:
    return "p\u00a0<\u00a00.001" if p < 0.001 else f"p\u00a0{p:.3f}"


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
    change = compared(one.name, second.scores(one.name), first.shown.scores(one.name))
    if change is None:
        return f"{'Lowest' if one.less else 'Highest'} is {words}."
    clear = "clearly ahead of" if effect(change) == "better" else "not clearly ahead of"
    return (
        f"{'Lowest' if one.less else 'Highest'} is {words}, {clear} {second.name} ({signed(change.change)}, {p_value(change.p)})."
    )
