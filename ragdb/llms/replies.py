"""What a language model wrote, read with patience: thoughts, fences and prose around it, JSON that breaks off."""

from __future__ import annotations

import json
from typing import Any

from ragdb.llms.think import strip_think

_DECODER = json.JSONDecoder()


def json_value(text: str | None) -> Any:
    """The JSON object or array in a reply, the first one that is whole; None where there is none."""
    rest = strip_think(text or "")
    at = 0
    while (at := _next(rest, at)) >= 0:
        try:
            value, _ = _DECODER.raw_decode(rest, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        return value
    return None


def _next(text: str, start: int) -> int:
    found = [place for mark in "{[" if (place := text.find(mark, start)) >= 0]
    return min(found, default=-1)
