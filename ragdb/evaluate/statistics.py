"""Means with intervals and paired differences, by scipy: two pipelines differ, or a handful of questions do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragdb.adapters import require
from ragdb.errors import ConfigError
from ragdb.evaluate.measures import lower_is_better
from ragdb.evaluate.types import Difference, Mean

_RESAMPLES = 2000  # of a bootstrap: the interval's ends move by under a hundredth of its width
_FLIPS = 10_000
_SEED = 20261130  # the same figures give the same interval


def mean(values: Sequence[float]) -> Mean:
    """The mean with its 95 % interval by bootstrap (BCa: Efron 1987); of one value, or equal ones, the value itself.

    Raises ConfigError where there is no value.
    """
    if not values:
        raise ConfigError("there is no value to take the mean of")
    middle = sum(values) / len(values)
    if len(set(values)) == 1:
        return Mean(middle, middle, middle, len(values))
    low, high = _interval(values)
    return Mean(middle, low, high, len(values))


def difference(metric: str, before: Mapping[str, float], after: Mapping[str, float]) -> Difference:
    """What changed over the questions that both have: mean difference, its interval, and the p-value of a paired test.

    The test is Fisher's randomization test, which flips the signs of the differences (Smucker, Allan and Carterette 2007).
    Raises ConfigError where no question is in both.
    """
    both = sorted(before.keys() & after.keys())
    if not both:
        raise ConfigError(f"{metric}: the two runs have no question in common to compare by")
    changes = [after[key] - before[key] for key in both]
    change = sum(changes) / len(both)
    old, new = (sum(run[key] for key in both) / len(both) for run in (before, after))
    better, worse = sum(c > 0 for c in changes), sum(c < 0 for c in changes)
    if lower_is_better(metric):
        better, worse = worse, better
    if len(set(changes)) == 1:
        low = high = change
        # every question moved by the same: flipping the signs of n equal differences
        p = 1.0 if change == 0 else min(1.0, 2.0 / 2 ** len(both))
    else:
        low, high = _interval(changes)
        p = _p_value(changes)
    return Difference(metric, old, new, change, low, high, p, len(both), better, worse)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    # BCa is not defined where leaving out any one value changes the mean by nothing it can tell apart
    for method in ("BCa", "percentile"):
        numpy, stats = _scipy()
        rng = numpy.random.default_rng(_SEED)
        found = stats.bootstrap((list(values),), numpy.mean, n_resamples=_RESAMPLES, rng=rng, method=method).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return float(found.low), float(found.high)


def _p_value(changes: Sequence[float]) -> float:
    numpy, stats = _scipy()
    rng = numpy.random.default_rng(_SEED)
    found = stats.permutation_test((list(changes),), numpy.mean, permutation_type="samples", n_resamples=_FLIPS, rng=rng)
    return float(found.pvalue)


def _scipy() -> tuple[Any, Any]:
    require("scipy", "eval")
    import numpy
    import scipy.stats

    return numpy, scipy.stats
