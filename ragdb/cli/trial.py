"""trial: what became of the questions of a live A/B."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import typer

from ragdb.cli.output import columns, json_line, note
from ragdb.cli.state import State, verb


def trial(
    state: State,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this trial.", show_default=False)] = None,
) -> None:
    """Show what became of the questions of a trial.

    A share of them goes to another pipeline (RAGDB_TRIAL_PIPELINE): what was answered, liked and spent on either side.
    """
    from ragdb.rag import RagDB
    from ragdb.runs.trials import trials

    with RagDB(state.place(state.settings()).url) as rag:
        rows = trials(rag.context.database, trial=name, collection=state.collection)
    if state.json:
        json_line({"trials": [{key: _number(value) for key, value in row.items()} for row in rows]})
        return
    heads = ("trial", "collection", "arm", "questions", "answered", "good", "bad", "liked", "llm failed", "p50 ms", "mean cost")
    columns(heads, [_line(row) for row in rows])
    note("shares with their 95 % intervals" if rows else f"no question was part of {'this' if name else 'a'} trial")


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(row["good"]), str(row["bad"]), _share(row, "good"), str(row["llm_failed"]))
    cost = "-" if row["mean_cost"] is None else f"{float(row['mean_cost']):.6f}"
    return (
        row["trial"],
        row["collection"],
        row["arm"],
        str(row["questions"]),
        _share(row, "answered"),
        *counts,
        f"{row['p50_ms']:.0f}",
        cost,
    )


def _share(row: dict[str, Any], of: str) -> str:
    if row[f"{of}_share"] is None:
        return "-"
    return "{:.1f} % ({:.1f} to {:.1f})".format(*(100 * row[f"{of}_{end}"] for end in ("share", "low", "high")))


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def register(app: typer.Typer) -> None:
    verb(app)(trial)
