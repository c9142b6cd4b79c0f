"""What a verb writes: its result to stdout, or one line of JSON with `--json`; everything else to stderr."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import typer

_PIECES = re.compile("[\u1100-\uffff]\\s?|[^\\s\u1100-\uffff]+\\s?")


def speak_unicode() -> None:
    """A terminal or pipe that Python takes for ASCII gets UTF-8; one in another encoding gets `?` for what it lacks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            ascii_only = (stream.encoding or "ascii").lower().replace("_", "-") in ("ascii", "us-ascii", "ansi-x3.4-1968", "646")
            stream.reconfigure(encoding="utf-8" if ascii_only else None, errors="replace")


def say(text: str = "") -> None:
    """A line of the result."""
    print(text, flush=True)


def note(text: str) -> None:
    """A line about the work: notices, counts, reasons."""
    print(text, file=sys.stderr, flush=True)


def json_line(value: Mapping[str, Any]) -> None:
    """The one line on stdout that `--json` promises."""
    whole = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, ensure_ascii=not whole, default=str), flush=True)


def on_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def style(text: str, **how: Any) -> str:
    """The text in colour where stdout is a terminal that wants it (https://no-color.org)."""
    return typer.style(text, **how) if on_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else text


def bold(text: str) -> str:
    return style(text, bold=True)


def dim(text: str) -> str:
    return style(text, dim=True)


def width() -> int | None:
    """Columns of the terminal; None in a pipe, where nothing is cut."""
    if not on_terminal(sys.stdout):
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


def cells(text: str) -> int:
    """Columns that a text takes: Chinese, Japanese and Korean letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, room: int | None) -> str:
    """The text on one line, in at most `room` columns."""
    text = " ".join(text.split())
    if room is None or cells(text) <= room:
        return text
    kept, used = [], 1
    for char in text:
        used += cells(char)
        if used > room:
            break
        kept.append(char)
    return "".join(kept) + "…"


def wrapped(text: str, room: int, most: int) -> list[str]:
    """At most `most` lines of `room` columns; breaks between words, and between letters that take two columns."""
    lines = [""]
    used = 0
    for piece in _PIECES.findall(" ".join(text.split())):
        if used and used + cells(piece.rstrip()) > room:
            if len(lines) == most:
                lines[-1] = lines[-1].rstrip() + "…"
                break
            lines.append("")
            used = 0
        lines[-1] += piece
        used += cells(piece)
    return [line.rstrip() for line in lines]


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; on a terminal its last column is cut to what fits."""
    if not rows:
        return
    widths = [max(cells(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    room = width()
    last = None if room is None else max(10, room - sum(widths[:-1]) - 2 * (len(heads) - 1))

    def line(row: Sequence[str]) -> str:
        padded = [text + " " * (wide - cells(text)) for text, wide in zip(row[:-1], widths, strict=False)]
        return "  ".join([*padded, cut(row[-1], last)]).rstrip()

    say(bold(line(heads)))
    for row in rows:
        say(line(row))


def counted(n: int, one: str, many: str | None = None) -> str:
    """`1 chunk`, `2 chunks`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
