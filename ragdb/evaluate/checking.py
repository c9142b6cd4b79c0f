"""A judge is judged first: on items that people have labelled, before anything is believed that it says of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ragdb.adapters import require
from ragdb.errors import ConfigError
from ragdb.evaluate.judge import METRICS, Judge, outcome
from ragdb.evaluate.types import Mean, Verdict
from ragdb.types import _Value

_OURS = Path(__file__).parent / "labelled.jsonl"
_NEAR = 0.25  # a value agrees with its label where it is as near as that: one statement more or less of four
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Labelled(_Value):
    """What a judge is asked, and the value (0 to 1) that a person expects; `why` in a few words."""

    key: str
    metric: str
    question: str
    expected: float
    answer: str = ""
    contexts: tuple[str, ...] = ()
    reference: str | None = None
    language: str | None = None
    why: str = ""


_FIELDS = tuple(field.name for field in fields(Labelled))


@dataclass(frozen=True, slots=True)
class Checked(_Value):
    """What the judge made of one item: a value, or why it is broken, or why it was not asked."""

    item: Labelled
    verdicts: tuple[Verdict, ...] = ()
    value: float | None = None
    broken: str | None = None
    left_out: str | None = None

    @property
    def agrees(self) -> bool:
        return self.value is not None and abs(self.value - self.item.expected) <= _NEAR


@dataclass(frozen=True, slots=True)
class Agreement(_Value):
    """One metric: of `n` items `broken` have no value. The others are counted here, broken ones never as 0 or 1.

    `agreement`: share of values near their label, with its 95 % interval (Wilson 1927); None for answer relevance, whose
    cosines hang on the embedder, and where all are broken. `of_high` and `of_low`: (near, all) of the items labelled 0.5 and
    more, and of those below: a judge that always says yes is right in the first only. `separation`: the chance that an item
    labelled higher gets the higher value, 0.5 by guessing (Mann and Whitney 1947); None where the labels are all alike.
    """

    metric: str
    n: int
    broken: int
    agreement: Mean | None
    of_high: tuple[int, int]
    of_low: tuple[int, int]
    separation: float | None

    @property
    def broken_share(self) -> float:
        return self.broken / self.n


@dataclass(frozen=True, slots=True)
class JudgeCheck(_Value):
    """A judge on a labelled set: every item, and the figures of each metric that was asked for."""

    judge: str
    items: tuple[Checked, ...]
    metrics: tuple[Agreement, ...]

    def doubts(self, *, least: float = 0.8, most_broken: float = 0.1) -> list[str]:
        """One sentence a metric that should not be believed: it agrees or separates less than `least`, or breaks more."""
        found = []
        for figures in self.metrics:
            why = [f"{figures.broken} of {figures.n} verdicts are broken"] if figures.broken_share > most_broken else []
            if figures.agreement is not None and figures.agreement.value < least:
                why.append(f"agrees with {figures.agreement.value:.2f} of the labels, {least} is asked for")
            if figures.separation is not None and figures.separation < least:
                why.append(f"puts the better answer first {figures.separation:.2f} of the time, {least} is asked for")
            found += [f"{figures.metric} by {self.judge}: {'; '.join(why)}"] if why else []
        return found


def check_judge(
    judge: Judge, labelled: Sequence[Labelled] | None = None, *, progress: Callable[[Checked], None] | None = None
) -> JudgeCheck:
    """Asks the judge for each item's metric and compares; without `labelled` by the set that comes with ragdb.

    `progress` gets each item as it is done. An item whose metric cannot be had (no embedder) is left out and says why.
    """
    done = []
    for item in read_labelled() if labelled is None else labelled:
        done.append(_checked(judge, item))
        if progress:
            progress(done[-1])
    asked = [one for one in done if one.left_out is None]
    metrics = dict.fromkeys(one.item.metric for one in asked)
    figures = tuple(_figures(metric, [one for one in asked if one.item.metric == metric]) for metric in metrics)
    return JudgeCheck(judge.name, tuple(done), figures)


def read_labelled(path: str | Path | None = None) -> list[Labelled]:
    """A labelled set, one JSON object a line with the fields of Labelled; None: the one that comes with ragdb (en and ja).

    Raises ConfigError with the line that is wrong.
    """
    file = Path(path) if path is not None else _OURS
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the labelled set {file} cannot be read: {error}") from error
    found = [_item(f"{file}, line {n}", n, line) for n, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise ConfigError(f"the labelled set {file} is empty; write one JSON object a line: {', '.join(_FIELDS)}")
    return found


def _item(where: str, number: int, line: str) -> Labelled:
    try:
        given: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON: {error}") from error
    if not isinstance(given, dict) or (unknown := sorted(given.keys() - set(_FIELDS))):
        what = f"unknown {', '.join(unknown)}" if isinstance(given, dict) else "no object"
        raise ConfigError(f"{where}: {what}; an item has {', '.join(_FIELDS)}")
    contexts, expected = given.get("contexts") or [], given.get("expected")
    if given.get("metric") not in METRICS:
        raise ConfigError(f"{where}: metric is {given.get('metric')!r}; it is one of {', '.join(METRICS)}")
    if not isinstance(expected, (int, float)) or isinstance(expected, bool) or not 0 <= expected <= 1:
        raise ConfigError(f"{where}: expected is {expected!r}; it is a number from 0 to 1")
    if not isinstance(contexts, list) or not all(isinstance(text, str) for text in contexts):
        raise ConfigError(f"{where}: contexts is {str(contexts)[:60]!r}; it is a list of texts")
    texts = {name: given.get(name) for name in ("key", "question", "answer", "reference", "language", "why")}
    if wrong := [name for name, text in texts.items() if text is not None and not isinstance(text, str)]:
        raise ConfigError(f"{where}: {wrong[0]} is {texts[wrong[0]]!r}; it is a text")
    if not (texts["question"] or "").strip():
        raise ConfigError(f"{where}: there is no question")
    return Labelled(
        key=texts["key"] or str(number),
        metric=given["metric"],
        question=texts["question"] or "",
        expected=float(expected),
        answer=texts["answer"] or "",
        contexts=tuple(contexts),
        reference=texts["reference"],
        language=texts["language"],
        why=texts["why"] or "",
    )


def _checked(judge: Judge, item: Labelled) -> Checked:
    if reason := judge.why_not(item.metric, item.answer, item.contexts, item.reference):
        return Checked(item, left_out=reason)
    found = tuple(judge.judged(item.question, item.answer, item.contexts, item.reference, [item.metric]))
    said = outcome(found)[item.metric]
    if isinstance(said, str):
        return Checked(item, found, broken=said)
    return Checked(item, found, value=said)


def _figures(metric: str, items: Sequence[Checked]) -> Agreement:
    usable = [one for one in items if one.value is not None]
    high = [one for one in usable if one.item.expected >= _HALF]
    low = [one for one in usable if one.item.expected < _HALF]
    return Agreement(
        metric=metric,
        n=len(items),
        broken=len(items) - len(usable),
        agreement=_wilson(sum(one.agrees for one in usable), len(usable)) if usable and metric != "answer_relevance" else None,
        of_high=(sum(one.agrees for one in high), len(high)),
        of_low=(sum(one.agrees for one in low), len(low)),
        separation=_separation(usable),
    )


def _wilson(hits: int, n: int) -> Mean:
    interval = require("scipy.stats", "eval").binomtest(hits, n).proportion_ci(0.95, method="wilson")
    return Mean(hits / n, float(interval.low), float(interval.high), n)


def _separation(items: Sequence[Checked]) -> float | None:
    """Of the items above and below the middle label: U / (n1 n2)."""
    labels = sorted({one.item.expected for one in items})
    if len(labels) < 2:
        return None
    middle = (labels[0] + labels[-1]) / 2
    high = [one.value for one in items if one.item.expected > middle]
    low = [one.value for one in items if one.item.expected < middle]
    found = require("scipy.stats", "eval").mannwhitneyu(high, low)
    return float(found.statistic) / (len(high) * len(low))
