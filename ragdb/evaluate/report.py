"""Runs as a page that reads by itself, and as Markdown for a pull request.

Both show the same figures of the same values (ragdb.evaluate.types); neither asks a database or a model.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ragdb
from ragdb.adapters import require
from ragdb.errors import ConfigError
from ragdb.evaluate import conclusion, figures, losses, plots
from ragdb.evaluate.types import EvalRun, EvalSet

_FOLDER = Path(__file__).parent / "templates"
_PAIRS = 3
_COLUMNS = {"metrics": 4, "dirty": 1, "answers": 2}  # of the Markdown's table
_STRUCTURE = re.compile("[&<>|*_\\[\\]`~\\\\#$\u200b]")
_LANGUAGE = re.compile("[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")  # the form of RFC 5646; a browser has no use for others
_BREAKS = re.compile(r"([,:/=])(?=\S)")  # where a long name may go on in the next line; none of them stands in an entity
_NO_WIDTH = "\u200b"
_REFERENCE = re.compile(r"(?<!\w)@(?=\w)|#(?=\d)")  # what GitHub makes a link, and a person's notification, of


def html(
    eval_set: EvalSet,
    runs: Sequence[EvalRun],
    *,
    baseline: EvalRun | None = None,
    metrics: Sequence[str] | None = None,
    title: str | None = None,
) -> str:
    """One HTML file: no script, nothing to fetch, for light and dark, phone and print. Everything from outside is escaped.

    `metrics` are those to compare by, the first one ranks runs and questions; None: all that the scores have of what was
    found. `baseline` may be one of `runs` or not. The same input gives the same text. Raises ConfigError where there is no
    run, a run is of another set, or no result has a metric; MissingExtra without jinja2.
    """
    style = _template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    values = _values(eval_set, runs, baseline, metrics, title)
    return str(_template("report.html.j2").render(style=style, style_hash=digest, **values))


def markdown(
    eval_set: EvalSet,
    runs: Sequence[EvalRun],
    *,
    baseline: EvalRun | None = None,
    metrics: Sequence[str] | None = None,
    title: str | None = None,
) -> str:
    """The verdict, the metrics and where evidence was lost, as GitHub renders it; arguments and errors are those of `html`."""
    text = str(_template("report.md.j2").render(**_values(eval_set, runs, baseline, metrics, title)))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _values(
    eval_set: EvalSet, runs: Sequence[EvalRun], baseline: EvalRun | None, metrics: Sequence[str] | None, title: str | None
) -> dict[str, Any]:
    every = figures.shown(eval_set, runs, baseline)
    found, dirty, answers = figures.metric_names(every)
    chosen = _chosen(metrics, [*found, *dirty, *answers]) if metrics is not None else found or answers
    kinds = {
        "metrics": [figures.metric(name, every) for name in chosen],
        "dirty": [figures.metric(name, every) for name in dirty],
        "answers": [figures.metric(name, every) for name in answers],
    }
    once = {metric.name: metric for group in kinds.values() for metric in group}
    first = kinds["metrics"][0] if kinds["metrics"] else None
    stages, speeds = figures.speed(every)
    # of many runs the last is any one: what the best one still gets wrong is of more use
    focus = every[-1] if len(every) <= _PAIRS + 1 else _ranked(every, first)[0]
    return {
        **kinds,
        "title": title or f"Evaluation of {eval_set.name}",
        "set": eval_set,
        "runs": every,
        "baseline": every[0] if every[0].baseline else None,
        "first": first,
        "main": first.name if first else None,
        "verdict": conclusion.verdict(once.values()),
        "settings": figures.settings(every),
        "versions": figures.versions(every),
        "cautions": figures.cautions(every),
        "version": ragdb.__version__,
        "lost_order": losses.STAGES,
        "shown_metrics": list({metric.name: metric for name in kinds for metric in kinds[name][: _COLUMNS[name]]}.values()),
        "funnels": losses.funnels(eval_set, every),
        "stages": stages,
        "speeds": speeds,
        "scatters": _scatters(first, speeds) if first else [],
        "moves": [losses.moves(eval_set, before, after) for before, after in _pairs(every, first)],
        "tags": figures.tags(eval_set, every, first.name) if first else [],
        "focus": focus,
        "worst": losses.worst(eval_set, focus, every[0] if every[0].baseline and focus is not every[0] else None, first.name)
        if first and not first.less
        else [],
        "dirt": losses.dirt(eval_set, every, dirty),
        "refusals": losses.refusals(eval_set, every),
        "verdicts": [(run, broken) for run in every if (broken := _broken(run.run)) is not None],
    }


def _chosen(metrics: Sequence[str], known: Sequence[str]) -> list[str]:
    """The metrics asked for; raises ConfigError for one that no result has."""
    if isinstance(metrics, str):
        raise ConfigError(f"metrics is {metrics!r}; it is a list of names: [{metrics!r}]")
    unknown = [name for name in metrics if name not in known]
    if unknown or not metrics:
        raise ConfigError(
            f"no result has the metric {', '.join(unknown) or '(none named)'}; there are {', '.join(known) or 'none'}"
        )
    return list(dict.fromkeys(metrics))


def _pairs(every: Sequence[figures.Shown], first: figures.Metric | None) -> list[tuple[figures.Shown, figures.Shown]]:
    """The first run against every other; of many, against the best and the worst of them."""
    others = every[1:]
    if len(others) > _PAIRS:
        others = _ranked(others, first)[:1] + _ranked(others, first)[-1:]
    return [(every[0], other) for other in others]


def _ranked(every: Sequence[figures.Shown], first: figures.Metric | None) -> list[figures.Shown]:
    """The best first, by the first metric; runs without a value last, and all as they are where there is no metric."""
    means = {line.shown.place: line.mean.value for line in first.lines if line.mean} if first else {}
    sign = 1 if first and first.less else -1
    return sorted(every, key=lambda run: (run.place not in means, sign * means.get(run.place, 0.0), run.place))


def _scatters(first: figures.Metric, speeds: Sequence[figures.Speed]) -> list[dict[str, Any]]:
    """Quality against the median time, and against cost where it is known."""
    means = {line.shown.place: line.mean for line in first.lines if line.mean}
    found = []
    for name, unit, values in (
        ("Latency", "median milliseconds of a question", {speed.shown.place: speed.p50 for speed in speeds}),
        ("Cost", "mean cost of a question", {speed.shown.place: speed.cost for speed in speeds}),
    ):
        known = {place: value for place, value in values.items() if value is not None and place in means}
        if not any(known.values()):
            continue
        x = plots.axis(list(known.values()))
        points = [
            (
                speed.shown.place,
                x.at(known[speed.shown.place]),
                100 - plots.UNIT.at(one.value),
                100 - plots.UNIT.at(one.low),
                100 - plots.UNIT.at(one.high),
                speed.shown.name if len(known) <= plots.WHISKERS else speed.shown.letter,
                speed.shown.letter,
            )
            for speed in speeds
            if speed.shown.place in known and (one := means[speed.shown.place])
        ]
        found.append({"name": name, "unit": unit, "x": x, "points": plots.label(points)})
    return found


def _broken(run: EvalRun) -> tuple[int, int] | None:
    """How many verdicts a judge was asked for, and how many were broken; None: no judge was."""
    said = run.settings.get("verdicts")
    if not isinstance(said, Mapping) or not said.get("asked"):
        return None
    return int(said["asked"]), int(said.get("broken", 0))


@cache
def _template(name: str) -> Any:
    return _environment(name.endswith(".md.j2")).get_template(name)


@cache
def _environment(for_markdown: bool) -> Any:
    jinja2, markupsafe = require("jinja2", "eval"), require("markupsafe", "eval")
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize if for_markdown else None,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": lambda value: f"{value:.3f}",
        "signed": conclusion.signed,
        "p": conclusion.p_value,
        "percent": lambda share: f"{100 * share:.0f} %",
        "ms": lambda value: f"{value:,.0f}" if value >= 10 else f"{value:.1f}",
        "cost": lambda value: f"{value:.3g}",
        "cut": _cut,
        "clock": lambda when: f"{when:%Y-%m-%d %H:%M %Z}".strip(),
        "soft": lambda text: markupsafe.Markup(_BREAKS.sub(r"\1<wbr>", str(markupsafe.escape(text)))),
        "is_language": lambda name: bool(name and _LANGUAGE.fullmatch(name)),
        "effect": conclusion.effect,
        "colour": lambda place: place % plots.COLOURS,
        "shape": lambda place: place % plots.SHAPES,
        "code": lambda text: _Markdown(f"<code>{_plain(text)}</code>"),
    }
    made.globals |= {"unit": plots.UNIT, "rank_axis": plots.rank_axis, "whiskers": plots.WHISKERS}
    return made


class _Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def _finalize(value: Any) -> Any:
    """What goes into the Markdown, but for what is Markdown already: plain text, and neither a mention nor a reference."""
    return value if isinstance(value, _Markdown) else _plain(_REFERENCE.sub(lambda found: found[0] + _NO_WIDTH, str(value)))


def _plain(value: Any) -> str:
    """One line of text in which nothing has a meaning to Markdown or HTML: such characters are spelt as numbers.

    An entity never opens a tag, a cell, an emphasis or a link (CommonMark 0.31, section 2.5), unlike a backslash in a table.
    """
    return _STRUCTURE.sub(lambda found: f"&#{ord(found[0])};", re.sub(r"\s+", " ", str(value)))


def _cut(text: str, most: int) -> str:
    """At most so many characters, an ellipsis where there were more."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
