"""The funnel of a run as people read it: every stage in order, what came out of it, what fell there and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from ragdb.cli.output import bold, cut, dim, say, style, width

if TYPE_CHECKING:
    from ragdb.runs.explain import Explanation, FunnelRow

#: Asks explain for everything: how many came out of a stage is worth knowing, also where few are shown.
ALL = 1_000_000
_NAMED = 3


@dataclass
class Stage:
    """One stage of a run, with its rows sorted out."""

    number: str
    stage: str
    name: str
    ms: float
    note: str
    out: list[FunnelRow] = field(default_factory=list)
    fell: dict[str, list[str]] = field(default_factory=dict)


def stages(explanation: Explanation) -> list[Stage]:
    """The stages in order; `2a`, `2b` are the lists of one stage."""
    groups = [list(rows) for _, rows in groupby(explanation.rows, key=lambda row: row.step)]
    made = [_stage(rows, number) for rows, number in zip(groups, _numbers([rows[0].stage for rows in groups]), strict=True)]
    return made


def _stage(rows: Sequence[FunnelRow], number: str) -> Stage:
    first = rows[0]
    stage = Stage(number, first.stage, first.name, first.ms, first.note)
    for row in rows:
        if row.chunk_id is None:
            continue
        if row.fell is None:
            stage.out.append(row)
        else:
            stage.fell.setdefault(row.fell, []).append(row.label or f"chunk {row.chunk_id}")
    return stage


def _numbers(names: Sequence[str]) -> Iterator[str]:
    n = 0
    for i, name in enumerate(names):
        n += i == 0 or names[i - 1] != name
        same = [j for j, other in enumerate(names) if other == name]
        yield f"{n}{chr(ord('a') + same.index(i))}" if 1 < len(same) <= 26 else str(n)


def print_funnel(explanation: Explanation, *, top: int) -> None:
    """Prints every stage with its first `top` chunks: rank, score, label, snippet."""
    from ragdb.runs.record import WITHOUT_CHUNKS

    room = width()
    for stage in stages(explanation):
        name = f" {stage.name}" if stage.name else ""
        silent = stage.stage in WITHOUT_CHUNKS or (stage.stage == "synthesize" and not stage.out)
        came_out = "" if silent else f" -> {_chunks(stage)}"
        remark = f"  {stage.note}" if stage.note else ""
        say(f"{bold(f'{stage.number} {stage.stage}{name}')}{came_out}  {dim(f'({stage.ms:.0f} ms){remark}')}")
        for row in stage.out[:top]:
            head = f"  {row.rank:>3}  {_score(row)}  {row.label}"
            snippet = f"  {row.snippet}" if row.snippet else ""
            say(cut_keeping(head, snippet, room))
        if (more := len(stage.out) - top) > 0:
            say(dim(f"       and {more} more"))
        for reason, labels in stage.fell.items():
            rest = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
            say(style(f"       fell, {reason}: {len(labels)}", fg="yellow") + dim(f"  {', '.join(labels[:_NAMED])}{rest}"))


def _chunks(stage: Stage) -> str:
    word = {"synthesize": "citation", "expand": "passage", "pack": "passage"}.get(stage.stage, "chunk")
    return f"{len(stage.out)} {word}{'' if len(stage.out) == 1 else 's'}"


def _score(row: FunnelRow) -> str:
    # The score of a citation is its number.
    if row.stage == "synthesize":
        return f"[{row.score:.0f}]".ljust(8) if row.score is not None else " " * 8
    return f"{row.score:8.4f}" if row.score is not None else " " * 8


def cut_keeping(head: str, rest: str, room: int | None) -> str:
    """The head whole, and of the rest (dim) what fits on the line."""
    from ragdb.cli.output import cells

    left = None if room is None else room - cells(head) - 2
    if left is not None and left < 8:
        return head
    return f"{head}  {dim(cut(rest, left))}" if rest.strip() else head
