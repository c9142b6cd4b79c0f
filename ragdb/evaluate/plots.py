"""Where marks, ticks and labels of a plot stand, in per cent of its width and height; templates draw them as SVG.

Per cent let a plot be as wide as its page while its text keeps its size. Labels are placed for the narrowest page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Colours by place, and shapes: together 30 marks that differ.
COLOURS = 6
SHAPES = 5
#: With more marks than these their intervals are left to the table.
WHISKERS = 8
_NARROW = 270  # pixels of a scatter plot on a phone of 360
_TALL = 260
_LINE = 15
_REACH = 100  # of a logarithmic axis: a longest value this many times the shortest


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`; `ticks` are (per cent, text)."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Per cent of the axis' length, within it."""
        if self.log:
            part = (math.log(max(value, self.low)) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(min(max(part, 0.0), 1.0) * 100, 2)


@dataclass(frozen=True, slots=True)
class Point:
    """A mark of a scatter plot: place in per cent (y from above), its label's offset in pixels and anchor; "" has no room."""

    place: int
    x: float
    y: float
    low: float
    high: float
    label: str
    dx: int = 0
    dy: int = 0
    anchor: str = "start"


def axis(values: Sequence[float]) -> Axis:
    """From zero in two or three round steps; logarithmic where values differ by a factor of a hundred."""
    most, least = max(values, default=0.0), min(values, default=0.0)
    if least > 0 and most / least >= _REACH:
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
        marks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
        shell = Axis(marks[0], marks[-1], True, ())
    else:
        step = _round_step(most / 3) if most > 0 else 0.25
        marks = [step * count for count in range(max(1, math.ceil(most / step - 1e-9)) + 1)]
        shell = Axis(0.0, marks[-1], False, ())
    return Axis(shell.low, shell.high, shell.log, tuple((shell.at(mark), f"{mark:,.10g}") for mark in marks))


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= rough * 0.999)


#: Metrics go from 0 to 1, and are shown so: a cut axis would make small differences look large.
UNIT = Axis(0.0, 1.0, False, tuple((share * 100.0, f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1)))


def rank_axis(most: int) -> Axis:
    """Ranks from 1, logarithmic, to nine tenths of the width; what was not found stands at its end."""
    high = max(most, 2) ** (1 / 0.9)
    shell = Axis(1.0, high, True, ())
    marks = [rank for rank in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000) if rank <= most and shell.at(rank) <= 84]
    return Axis(1.0, high, True, (*((shell.at(rank), str(rank)) for rank in marks), (100.0, "none")))


def label(points: Sequence[tuple[int, float, float, float, float, str, str]]) -> list[Point]:
    """Places labels beside marks so that none covers another: (place, x, y, low, high, name, letter).

    The name where it fits, else the letter, else nothing: the table beside the plot names every mark.
    """
    taken = [_box(x, y, -7, -7, 14, 14) for _, x, y, *_ in points]
    if len(points) <= WHISKERS:
        taken += [_box(x, high, -2, 0, 4, (low - high) / 100 * _TALL) for _, x, _, low, high, *_ in points]
    done: dict[int, Point] = {}
    for place, x, y, low, high, name, letter in sorted(points, key=lambda point: (point[2], point[1], point[0])):
        point = Point(place, x, y, low, high, "")
        for text in dict.fromkeys((name, letter)):
            fit = _fit(x, y, text, taken)
            if fit is not None:
                (dx, dy, anchor), box = fit
                taken.append(box)
                point = Point(place, x, y, low, high, text, dx, dy, anchor)
                break
        done[place] = point
    return [done[place] for place, *_ in points]


Box = tuple[float, float, float, float]


def _box(x: float, y: float, left: float, top: float, width: float, height: float) -> Box:
    across, down = x / 100 * _NARROW, y / 100 * _TALL
    return across + left, down + top, across + left + width, down + top + height


def _fit(x: float, y: float, text: str, taken: Sequence[Box]) -> tuple[tuple[int, int, str], Box] | None:
    width = sum(13 if ord(letter) > 0x2E7F else 7.5 for letter in text)
    for dx, dy, anchor, left in (
        (10, 5, "start", 10.0),
        (-10, 5, "end", -10 - width),
        (0, -11, "middle", -width / 2),
        (0, 21, "middle", -width / 2),
    ):
        box = _box(x, y, left, dy - 12, width, _LINE)
        inside = box[0] >= 0 and box[2] <= _NARROW and box[1] >= 0 and box[3] <= _TALL
        if inside and not any(_cross(box, other) for other in taken):
            return (dx, dy, anchor), box
    return None


def _cross(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
