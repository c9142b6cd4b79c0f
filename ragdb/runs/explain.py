"""explain: the funnel of a recorded run, as rows and as text; what moved between two stages, or between two runs.

`why_not` asks of one chunk where it stood at every stage and what kept it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, Protocol

from ragdb.adapters import sendable
from ragdb.db.caller import Caller, Row, from_json
from ragdb.errors import ConfigError
from ragdb.types import _Value

ALL = 1_000_000
_NAMED = 3  # of what fell for one reason
#: Stages that bring chunks in an order of their own, the last one last.
_RANKING = ("fuse", "rerank", "freshen")


class HasDatabase(Protocol):
    """A RagDB, as far as these functions need it."""

    @property
    def context(self) -> Any: ...


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
class Move(_Value):
    """A chunk before and after: its ranks, from 1, None where it was not there."""

    chunk_id: int
    label: str | None
    before: int | None
    after: int | None

    @property
    def what(self) -> Literal["entered", "left", "up", "down", "stayed"]:
        """What became of it."""
        if self.before is None:
            return "entered"
        if self.after is None:
            return "left"
        return "stayed" if self.before == self.after else "up" if self.after < self.before else "down"


@dataclass(frozen=True, slots=True)
class Explanation(_Value):
    """The funnel of one run; `str()` prints it."""

    run_id: int
    rows: tuple[FunnelRow, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def ranking(self, stage: str) -> dict[int, FunnelRow]:
        """What came out of a stage (`fuse`, `retrieve lexical`) by chunk id, best first. Raises ConfigError without it."""
        name, _, part = stage.partition(" ")
        found = [row for row in self.rows if row.stage == name and (not part or row.name == part)]
        if not found or (not part and name == "retrieve" and len({row.name for row in found}) > 1):
            there = dict.fromkeys(f"{row.stage} {row.name}".strip() for row in self.rows if row.chunk_id is not None)
            raise ConfigError(f"run {self.run_id} has no single stage {stage!r} with chunks; it has {', '.join(there) or 'none'}")
        came = [row for row in found if row.chunk_id is not None and row.fell is None]
        last = max((row.step for row in came), default=0)
        return {
            row.chunk_id: row for row in sorted(came, key=lambda r: r.rank or 0) if row.step == last and row.chunk_id is not None
        }

    def between(self, before: str, after: str) -> tuple[Move, ...]:
        """What moved from one stage to another: those that came out of the later one in order, then those that left."""
        return _moves(self.ranking(before), self.ranking(after))

    def final(self) -> dict[int, FunnelRow]:
        """The last ranking of the run, by chunk id; empty where nothing was ranked."""
        stages = {row.stage for row in self.rows if row.chunk_id is not None}
        last = next((stage for stage in reversed(_RANKING) if stage in stages), None)
        return self.ranking(last) if last else {}


@dataclass(frozen=True, slots=True)
class Finding(_Value):
    """What ragdb.why_not tells of a chunk at one stage. `rank` in a leg is exact, among all that match."""

    step: int | None
    stage: str
    name: str
    finding: str
    rank: int | None
    score: float | None
    detail: Mapping[str, Any]


def explain(db: Caller, run_id: int, *, top: int = 10) -> Explanation:
    """The first `top` chunks of every stage of a run, and all that fell with the reason. Raises UnknownRun."""
    rows: list[Row] = db.call("explain", run_id=run_id, top=top)
    return Explanation(run_id, tuple(FunnelRow(**row) for row in rows))


def why_not(rag: HasDatabase, run_id: int, chunk: str | int) -> tuple[Finding, ...]:
    """Where a chunk (its label or id) stood at every stage of a run; the last finding is the verdict.

    Raises UnknownRun, and ConfigError where the collection has no such chunk for the caller.
    """
    rows: list[Row] = rag.context.database.call("why_not", run_id=run_id, chunk=sendable(str(chunk)))
    return tuple(Finding(**{**row, "detail": from_json(row["detail"])}) for row in rows)


def diff(rag: HasDatabase, before: int, after: int) -> tuple[Move, ...]:
    """What moved between the rankings of two runs: those of the later one in order, then those that left. Raises UnknownRun."""
    first, second = (explain(rag.context.database, run_id, top=ALL) for run_id in (before, after))
    return _moves(first.final(), second.final())


def feedback(rag: HasDatabase, run_id: int, rating: int, *, comment: str | None = None, who: str | None = None) -> None:
    """Keeps what a reader (`who`, your name for them) thought of a run: 1 good, 0 neither, -1 bad. Raises UnknownRun."""
    rag.context.database.call("give_feedback", run_id=run_id, rating=rating, comment=_text(comment), who=_text(who))


def _text(given: str | None) -> str | None:
    return None if given is None else sendable(given)


def _moves(before: Mapping[int, FunnelRow], after: Mapping[int, FunnelRow]) -> tuple[Move, ...]:
    places = [{chunk_id: place for place, chunk_id in enumerate(rows, start=1)} for rows in (before, after)]
    labels = {chunk_id: row.label for rows in (before, after) for chunk_id, row in rows.items()}
    chunks = [*after, *(chunk_id for chunk_id in before if chunk_id not in after)]
    return tuple(Move(i, labels[i], places[0].get(i), places[1].get(i)) for i in chunks)


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"run {explanation.run_id}"
    for step, rows in groupby(explanation.rows, key=lambda row: row.step):
        of_stage = list(rows)
        first = of_stage[0]
        name = f" {first.name}" if first.name else ""
        yield f"{step} {first.stage}{name}  ({first.ms:.0f} ms)  {first.note}".rstrip()
        fell: dict[str, list[str]] = {}
        for row in of_stage:
            if row.fell is not None:
                fell.setdefault(row.fell, []).append(row.label or f"chunk {row.chunk_id}")
            elif row.chunk_id is not None:
                yield f"  {row.rank:>3} {row.score:.4f} | {row.label} | {row.snippet or ''}"
        for why, labels in fell.items():
            more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
            yield f"      fell, {why}: {len(labels)} | {', '.join(labels[:_NAMED])}{more}"
