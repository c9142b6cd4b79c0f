"""What `ragdb eval` shows of runs: their metrics, their funnels, and what changed from one to another."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ragdb.cli.output import columns, counted, json_line, note, say

if TYPE_CHECKING:
    from ragdb.cli.state import State
    from ragdb.evaluate.comparing import Comparison
    from ragdb.evaluate.types import EvalRun

_FEW = 5  # questions that are named


def end_with(found: Sequence[EvalRun]) -> None:
    """Exit code 1 where questions could not be asked: their run would look better without them."""
    broken = [(one, result) for one in found for result in one.results if result.error]
    for one, result in broken[:5]:
        note(f"{one.name}: {result.key} could not be asked: {result.error}")
    if broken:
        note(f"{counted(len(broken), 'question')} could not be asked; the same command asks them again")
        raise typer.Exit(1)


def show_runs(state: State, found: Sequence[EvalRun], metrics: Sequence[str] | None) -> None:
    from ragdb.evaluate import comparing

    told = {one.eval_run_id: comparing.means(one) for one in found}
    if state.json:
        json_line(
            {
                "runs": [
                    {
                        "run": one.eval_run_id,
                        "name": one.name,
                        "collection": one.collection,
                        "cached": one.cached,
                        "finished": one.finished_at is not None,
                        "metrics": {name: mean.to_dict() for name, mean in told[one.eval_run_id].items()},
                        "funnel": comparing.alive(one),
                        "lost": comparing.lost(one),
                        "cautions": comparing.fallbacks(one),
                        "p50_ms": _p50(one),
                        "settings": dict(one.settings),
                    }
                    for one in found
                ]
            }
        )
        return
    names = list(dict.fromkeys(name for one in found for name in told[one.eval_run_id]))
    shown = [name for name in names if metrics is None or name in metrics or "@" not in name]
    rows = []
    for one in found:
        means = told[one.eval_run_id]
        cells = [f"{means[name].value:.3f}" if name in means else "" for name in shown]
        rows.append((str(one.eval_run_id), *cells, f"{_p50(one):.0f}", one.name + (" (stored)" if one.cached else "")))
    columns(("run", *shown, "p50 ms", "pipeline"), rows)
    say()
    for one in found:
        funnel = comparing.alive(one)
        if funnel:
            say(f"{one.name}: evidence alive  " + "  ".join(f"{stage} {share:.2f}" for stage, share in funnel.items()))
        if lost := comparing.lost(one):
            say(f"{one.name}: lost at  " + "  ".join(f"{stage} {count}{_named(one, stage)}" for stage, count in lost.items()))
        for caution in comparing.fallbacks(one):
            note(f"{one.name}: {caution}")
    counts = {mean.n for means in told.values() for mean in means.values()}
    note(f"over {min(counts)} to {max(counts)} questions" if counts else "no metric: nothing is judged")


def _named(one: EvalRun, stage: str) -> str:
    """The questions that lost their evidence there, where they are few."""
    keys = [result.key for result in one.results if result.lost_at == stage]
    return f" ({', '.join(keys)})" if len(keys) <= _FEW else ""


def _p50(one: EvalRun) -> float:
    """Median of the questions' times in milliseconds, without the vector of the question: that is kept for the next run."""
    times = [result.ms - result.stage_ms.get("embed", 0.0) for result in one.results if not result.error]
    return statistics.median(times) if times else 0.0


def show_comparison(found: Comparison) -> None:
    say(f"{found.before} -> {found.after}")
    for caution in found.cautions:
        note(caution)
    columns(
        ("metric", "before", "after", "change", "95 %", "p", "better", "worse", "n"),
        [
            (
                d.metric,
                f"{d.before:.4f}",
                f"{d.after:.4f}",
                f"{d.change:+.4f}",
                f"{d.low:+.4f} to {d.high:+.4f}",
                f"{d.p:.3f}",
                str(d.better),
                str(d.worse),
                str(d.n),
            )
            for d in found.differences
        ],
    )
    if found.by_tag:
        say()
        heads = ("tag", "n", *(d.metric for d in found.differences))
        rows = []
        for tag, differences in found.by_tag.items():
            by_name = {d.metric: d for d in differences}
            cells = [f"{by_name[d.metric].change:+.3f}" if d.metric in by_name else "" for d in found.differences]
            rows.append((tag, str(max(d.n for d in differences)), *cells))
        columns(heads, rows)
    if found.lost:
        say()
        columns(("lost at", "before", "after"), [(stage, str(old), str(new)) for stage, (old, new) in found.lost.items()])
    if found.changes:
        say()
        rows = [
            (change.key, f"{change.before:.3f}", f"{change.after:.3f}", change.lost_after or "", change.question)
            for change in found.changes[:10]
        ]
        columns(("question", "before", "after", "lost at", ""), rows)
