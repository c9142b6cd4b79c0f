"""What a language model wrote, read with patience: thoughts, fences and prose around it, JSON that breaks off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ragdb.llms.think import strip_think

_DECODER = json.JSONDecoder(strict=False)  # a line end inside a text is no reason to lose it
_BEGINNINGS = 500  # brackets that JSON may begin at: a model that repeats one for ever is left at that
_BULLET = re.compile(r"^(?:[-*\u30fb\u2022]|\(?\d{1,2}[.)\u3001:])\s*")


def json_value(text: str | None, key: str = "") -> Any:
    """The JSON value in a reply: the first whole object that has `key`, else the first whole object or array, else None."""
    rest = strip_think(text or "")
    first = None
    at = 0
    for _ in range(_BEGINNINGS):
        if (at := _next(rest, at)) < 0:
            break
        try:
            value, end = _DECODER.raw_decode(rest, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if not key or (isinstance(value, dict) and key in value):
            return value
        first, at = value if first is None else first, end
    return first


def _next(text: str, start: int) -> int:
    found = [place for mark in "{[" if (place := text.find(mark, start)) >= 0]
    return min(found, default=-1)


def texts(reply: str | None, *, most: int) -> list[str]:
    """The texts that a model was asked for: of a list in JSON, else of lines; each once, at most `most`.

    Empty where nothing was written, where JSON was begun and broke off, or where a page came instead.
    """
    value = json_value(reply, "queries")
    if value is None or (isinstance(value, list) and not any(isinstance(item, str) for item in value)):
        plain = strip_think(reply or "").strip()
        # what looks like JSON and is none, or a page of a proxy, is no query
        if any(mark in plain for mark in "{}[]<") or "```" in plain:
            return []
        value = [_BULLET.sub("", line.strip()) for line in plain.splitlines()]
    found: dict[str, None] = {}
    for item in _strings(value):
        text = " ".join(item.replace("\x00", " ").split())
        if text:
            found.setdefault(text)
    return list(found)[:most]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))
    elif isinstance(value, dict):
        for part in [value["queries"]] if "queries" in value else value.values():
            yield from _strings(part if isinstance(part, (str, list)) else None)
