"""Text is cleaned once, at the door: what comes out of here can be stored, hashed and cut without surprise.

PostgreSQL holds no U+0000, UTF-8 holds no lone surrogate, and a line ends with LF. U+FEFF is a byte order mark only
at the start of a text and is removed there; elsewhere it is a character like any other and stays.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from ragdb.errors import BadDocument
from ragdb.types import Document, Section, Span

MAX_METADATA_DEPTH = 64
# A YAML file with aliases can unfold a few lines into millions of values.
MAX_METADATA_VALUES = 100_000

_UNCLEAN = re.compile("\\A\ufeff+|\x00|\r\n?|[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")

# Only what changes the meaning of a text is worth a warning; line ends and the byte order mark are not.
_WORDS = {
    "nul": ("NUL character became a space", "NUL characters became spaces"),
    "surrogate": ("lone surrogate became U+FFFD", "lone surrogates became U+FFFD"),
    "number": ("number that JSON cannot hold became null", "numbers that JSON cannot hold became null"),
    "key": ("metadata key was given twice, the later value stays", "metadata keys were given twice, the later values stay"),
}

# of each place whose length changed, in order: its start and end in the old text, and the shift of all that stands behind it
_Edits = list[tuple[int, int, int]]


def clean_text(text: str) -> tuple[str, dict[str, int]]:
    """Returns the cleaned text and how often each kind was met: `nul`, `surrogate`, `pair`, `newline`, `bom`."""
    cleaned, counts, _ = _clean(text)
    return cleaned, dict(counts)


def _clean(text: str) -> tuple[str, Counter[str], _Edits]:
    counts: Counter[str] = Counter()
    edits: _Edits = []
    shift = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal shift
        kind, new = _replacement(match[0])
        counts[kind] += 1
        if len(new) != len(match[0]):
            shift += len(new) - len(match[0])
            edits.append((match.start(), match.end(), shift))
        return new

    return _UNCLEAN.sub(replace, text), counts, edits


def _replacement(found: str) -> tuple[str, str]:
    if found == "\x00":
        return "nul", " "  # a space, so that words do not fuse
    if found[0] == "\r":
        return "newline", "\n"
    if found[0] == "\ufeff":
        return "bom", ""
    if len(found) == 2:
        return "pair", found.encode("utf-16", "surrogatepass").decode("utf-16")
    return "surrogate", "\ufffd"


def clean_json(value: Any) -> tuple[Any, dict[str, int]]:
    """Returns `value` as JSON can hold it (dict, list, str, int, float, bool, None) and the counts by kind.

    A naive datetime is taken as UTC; a date stays a date. Raises BadDocument for metadata that is nested deeper than
    `MAX_METADATA_DEPTH` (or holds itself) or has more than `MAX_METADATA_VALUES` values.
    """
    counts: Counter[str] = Counter()
    cleaned = _json(value, counts, 0)
    del counts["values"]
    return cleaned, dict(counts)


def _json(value: Any, counts: Counter[str], depth: int) -> Any:
    counts["values"] += 1
    if counts["values"] > MAX_METADATA_VALUES:
        raise BadDocument(f"metadata has more than {MAX_METADATA_VALUES} values; keep in it what you filter by, not the content")
    if depth > MAX_METADATA_DEPTH:
        raise BadDocument(f"metadata is nested deeper than {MAX_METADATA_DEPTH} levels, or holds itself; flatten it")
    if isinstance(value, str):
        return _counted(value, counts)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (numbers.Number, Decimal)):
        return _number(value, counts)
    if isinstance(value, (datetime, date, time)):
        return _iso(value)
    if isinstance(value, Mapping):
        return _object(value, counts, depth)
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)  # a set has no order; the same set must give the same JSON
    if isinstance(value, (list, tuple)):
        return [_json(item, counts, depth + 1) for item in value]
    return _counted(str(value), counts)


def _object(value: Mapping[Any, Any], counts: Counter[str], depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, counts)
        if name in result:
            counts["key"] += 1
        result[name] = _json(item, counts, depth + 1)
    return result


def _key(key: Any, counts: Counter[str]) -> str:
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]  # as json.dumps writes them
    if isinstance(key, (datetime, date, time)):
        return _iso(key)
    return _counted(str(key), counts)


def _counted(text: str, counts: Counter[str]) -> str:
    cleaned, found, _ = _clean(text)
    counts.update(found)
    return cleaned


def _number(value: Any, counts: Counter[str]) -> Any:
    if isinstance(value, Decimal):
        # int() of 1E+999999 would write a million digits
        if value.is_finite() and value.adjusted() < 300:
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
    elif isinstance(value, numbers.Integral):
        if int(value).bit_length() <= 4096:
            return int(value)
    elif not isinstance(value, numbers.Real):
        return str(value)
    elif math.isfinite(value):
        return float(value)
    counts["number"] += 1
    return None


def _iso(value: datetime | date | time) -> str:
    return aware(value).isoformat() if isinstance(value, datetime) else value.isoformat()


def aware(moment: datetime) -> datetime:
    """The same moment with an offset; a naive one is taken as UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def clean_document(document: Document) -> tuple[Document, tuple[str, ...]]:
    """Returns the document with every field cleaned, and what was changed, in plain words.

    The offsets of given chunks count the text as it was given; they are moved to the cleaned text. Raises BadDocument
    when a chunk lies outside the text, is empty, or stands before the one it follows.
    """
    counts: Counter[str] = Counter()
    content, found, edits = _clean(document.content)
    counts.update(found)
    changes: dict[str, Any] = {"content": content}
    for name in ("uri", "title", "owner", "version", "language", "source"):
        text = getattr(document, name)
        changes[name] = None if text is None else _counted(text, counts)
    if document.metadata is not None:
        changes["metadata"], found_in_metadata = clean_json(dict(document.metadata))
        counts.update(found_in_metadata)
    if document.found is not None:
        changes["found"], _ = clean_json(dict(document.found))
    for name in ("updated_at", "review_after"):
        moment = getattr(document, name)
        changes[name] = None if moment is None else aware(moment)
    move = _mover(edits)
    if document.pages is not None:
        changes["pages"] = tuple(map(move, document.pages))
    if document.chunks is not None:
        _check_spans(document)
        changes["chunks"] = _moved_spans(document.chunks, move, counts)
    return dataclasses.replace(document, **changes), _warnings(counts)


def _check_spans(document: Document) -> None:
    before = 0
    for number, span in enumerate(document.chunks or ()):
        where = f"chunk {number} of {document.uri!r} is {span.start}-{span.end}"
        if span.start >= span.end:
            raise BadDocument(f"{where}: empty; leave it out or give start < end")
        if span.start < 0 or span.end > len(document.content):
            raise BadDocument(
                f"{where}, outside the text (0-{len(document.content)}); offsets count characters of content as given"
            )
        if span.start < before:
            raise BadDocument(f"{where}, before the chunk it follows (start {before}); give chunks in the order of the text")
        before = span.start


def _mover(edits: _Edits) -> Callable[[int], int]:
    """A function from offsets in the old text to offsets in the new one; inside a replaced place: behind it."""
    starts = [start for start, _, _ in edits]

    def move(offset: int) -> int:
        index = bisect_right(starts, offset - 1) - 1  # the last edit that starts before the offset
        if index < 0:
            return offset
        _, end, shift = edits[index]
        return max(offset, end) + shift

    return move


def _moved_spans(spans: Sequence[Span], move: Callable[[int], int], counts: Counter[str]) -> tuple[Span, ...]:
    sections: dict[int, Section] = {}  # by id: chunks of one section keep sharing one object

    def moved(section: Section | None) -> Section | None:
        if section is None:
            return None
        if id(section) not in sections:
            sections[id(section)] = dataclasses.replace(
                section,
                heading=_counted(section.heading, counts),
                start=move(section.start),
                end=move(section.end),
                parent=moved(section.parent),
            )
        return sections[id(section)]

    result = tuple(
        dataclasses.replace(
            span, start=move(span.start), end=move(span.end), context=_counted(span.context, counts), section=moved(span.section)
        )
        for span in spans
    )
    for number, span in enumerate(result):
        if span.start >= span.end:
            raise BadDocument(f"chunk {number} holds nothing but a part of a line end; leave it out")
    return result


def _warnings(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{counts[kind]} {words[counts[kind] > 1]}" for kind, words in _WORDS.items() if counts[kind])
