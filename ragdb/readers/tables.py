"""Tables as Markdown writes them: one line a row, the first row the header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPACE = re.compile(r"\s+")
_PIPE = re.compile(r"(?<!\\)\|")


def cell(text: str) -> str:
    """The text on one line, its pipes escaped."""
    return _PIPE.sub(r"\\|", _SPACE.sub(" ", text).strip())


def row(cells: Iterable[str], width: int = 0) -> str:
    """One line of cells that `cell` made, filled up with empty ones to `width`."""
    given = list(cells)
    return f"| {' | '.join(given + [''] * (width - len(given)))} |"


def rule(width: int) -> str:
    """The line below the header."""
    return f"|{' --- |' * width}"


def pipe_table(rows: Sequence[Sequence[str]]) -> str:
    """A whole table of plain texts; rows and columns at the end that are empty go. Empty where no cell has text."""
    kept = [trimmed for cells in rows if (trimmed := trim([cell(text) for text in cells]))]
    if not kept:
        return ""
    width = max(map(len, kept))
    return "\n".join([row(kept[0], width), rule(width), *(row(cells, width) for cells in kept[1:])])


def trim(cells: list[str]) -> list[str]:
    """The cells without the empty ones at their end."""
    while cells and not cells[-1]:
        cells.pop()
    return cells
