"""explain: the funnel of a recorded run, as rows and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragdb.db.caller import Caller, Row
from ragdb.types import _Value


@dataclass(frozen=True, slots=True)
class FunnelRow(_Value):
    """One chunk at one stage of a run, or a stage without chunks; `fell` says why it fell there."""

    step: int
    stage: str
    name: str
    rank: int | None
    score: float | None
    label: str | None
    snippet: str | None
    fell: str | None
    chunk_id: int | None
    ms: float
    note: str


@dataclass(frozen=True, slots=True)
class Explanation(_Value):
    """The funnel of one run; `str()` prints it."""

    run_id: int
    rows: tuple[FunnelRow, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def explain(db: Caller, run_id: int, *, top: int = 10) -> Explanation:
    """The first `top` chunks of every stage of a run, and all that fell with the reason. Raises UnknownRun."""
    rows: list[Row] = db.call("explain", run_id=run_id, top=top)
    return Explanation(run_id, tuple(FunnelRow(**row) for row in rows))


def _lines(explanation: Explanation) -> Any:
    yield f"run {explanation.run_id}"
    step = 0
    for row in explanation.rows:
        if row.step != step:
            step = row.step
            name = f" {row.name}" if row.name else ""
            yield f"{row.step} {row.stage}{name}  ({row.ms:.0f} ms)  {row.note}".rstrip()
        if row.chunk_id is None:
            continue
        if row.fell is not None:
            yield f"      fell: {row.fell} | {row.label}"
        else:
            yield f"  {row.rank:>3} {row.score:.4f} | {row.label} | {row.snippet or ''}"
