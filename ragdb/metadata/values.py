"""Values that people write by hand, read only where they can be read in one way.

`03/04/2025` is March or April, so it is no date here; `2025 年 3 月` names no day, so it is none either.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import regex
import yaml

log = logging.getLogger("ragdb.ingest")

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("january jan", "february feb", "march mar", "april apr", "may", "june jun"),
            *("july jul", "august aug", "september sept sep", "october oct", "november nov", "december dec"),
        ),
        start=1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
# The first year of each era, minus one.
_ERAS = {"令和": 2018, "平成": 1988, "昭和": 1925, "r": 2018, "h": 1988}
_CLOCK = (
    r"(?:[\sT]*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?"
    r"(?!\s*[ap]\.?m)\s*(?P<zone>Z|UTC|GMT|JST|[+-]\d{2}:?\d{2}|(?-i:[A-Z]{2,5})(?!\w))?)?"
)
_DATES = tuple(
    re.compile(pattern + _CLOCK, re.IGNORECASE)
    for pattern in (
        r"(?P<year>(?:19|20)\d{2})\s*(?P<mark>[-/.])\s*(?P<month>\d{1,2})\s*(?P=mark)\s*(?P<day>\d{1,2})(?!\d)",
        r"(?P<year>(?:19|20)\d{2})\s*年(?:度)?\s*(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*日(?:\s*\(.\))?",
        r"(?P<era>令和|平成|昭和)\s*(?P<era_year>\d{1,2}|元)\s*年\s*(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*日",
        r"(?P<era>[RH])\s?(?P<era_year>\d{1,2})\s*[./]\s*(?P<month>\d{1,2})\s*[./]\s*(?P<day>\d{1,2})(?!\d)",
        rf"(?P<name>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year>(?:19|20)\d{{2}})(?!\d)",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[\s-]+(?P<name>{_MONTH})\.?,?[\s-]+(?P<year>(?:19|20)\d{{2}})(?!\d)",
        r"(?P<year>(?:19|20)\d{2})(?P<month>[01]\d)(?P<day>[0-3]\d)(?!\d)",
    )
)
_DAY_OF_THE_WEEK = re.compile(
    r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?[,.]?|[月火水木金土日]曜日?)\s*", re.IGNORECASE
)
_ZONES = {"JST": "+09:00", "Z": "+00:00", "UTC": "+00:00", "GMT": "+00:00"}
_BRACKETS = regex.compile(r"^[\[【「(`\s]+|[\]】」)`\s.。、,;]+$|^[^\w\s\[【「(]+\s*")
_VERSION = re.compile(
    r"(?:v(?:er(?:sion)?)?\.?\s?)?\d+(?:\.\d+)*(?:[-+.]?[a-z0-9]+)*|第\s?\d+(?:\.\d+)*\s?版|rev\.?\s?\w+", re.IGNORECASE
)
_NOBODY = frozenset(["tbd", "tba", "n/a", "na", "none", "unknown", "-", "–", "—", "?", "未定", "なし", "不明", "未設定", "同上"])


def moment(text: str) -> tuple[datetime, int] | None:
    """The date (midnight UTC) or time that `text` begins with, and where it ends; None where it is none for sure."""
    skipped = _DAY_OF_THE_WEEK.match(text)
    begin = skipped.end() if skipped else 0
    for pattern in _DATES:
        if match := pattern.match(text, begin):
            try:
                return _moment(match.groupdict()), match.end()
            except (ValueError, OverflowError):
                return None  # 2025-13-45
    return None


def _moment(parts: dict[str, str | None]) -> datetime:
    if era := parts.get("era"):
        written = parts["era_year"] or ""
        year = _ERAS[era.lower()] + (1 if written == "元" else int(written))
    else:
        year = int(parts["year"] or "")
    month = _MONTHS[month_name.lower()] if (month_name := parts.get("name")) else int(parts["month"] or "")
    day = date(year, month, int(parts["day"] or ""))
    if not parts["hour"]:
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    zone = (parts["zone"] or "Z").upper()
    if zone.isalpha() and zone not in _ZONES:  # EST is in New York and in Sydney: the day is what can be read
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    clock = f"{int(parts['hour']):02d}:{parts['minute']}:{parts['second'] or '00'}{_ZONES.get(zone, zone)}"
    return datetime.fromisoformat(f"{day.isoformat()}T{clock}")


def day_or_time(read: datetime) -> str:
    """As metadata holds it: `2025-04-28`, with a time where one was written."""
    midnight = (read.hour, read.minute, read.second) == (0, 0, 0)
    return read.date().isoformat() if midnight else read.isoformat()


def front_moment(value: Any) -> datetime | None:
    """A whole value of front matter: ISO 8601, YAML's own form of it, or as people write it; naive is UTC."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    try:
        read: Any = datetime.fromisoformat(text)
    except ValueError:
        if (found := moment(text)) and found[1] == len(text):
            return found[0]
        read = _yaml(text)
    if isinstance(read, date) and not isinstance(read, datetime):
        read = datetime(read.year, read.month, read.day)
    if not isinstance(read, datetime):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)  # knows `2024-5-1 10:00:00 +9`, which fromisoformat does not
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        log.debug("%r is no date: %s", text, error)
        return None


def version(text: str) -> tuple[str, int] | None:
    """The version that `text` begins with, and where it ends."""
    match = _VERSION.match(text)
    return (match[0], match.end()) if match and not re.match(r"\w", text[match.end() :]) else None


def name(text: str) -> str | None:
    """A person or a team: something of human length that is not a sentence or left open."""
    text = text.strip(" \t.,;、。")
    if not 1 <= len(text) <= 80 or re.search(r"[。?!<>]|https?://|[a-z]{3}\. ", text):
        return None
    return None if text.lower() in _NOBODY else text


def status(words: Mapping[str, str], text: str) -> str | None:
    """The status that a whole value means: `Draft`, `【ドラフト】`, `draft v0.3 (in review)`, `superseded by ADR-12`."""
    bare = _BRACKETS.sub("", _BRACKETS.sub("", text))
    # "draft (until 2023), now active" says two things
    whole = regex.sub(r"\s*\([^()]*\)?$", "", bare)
    tries = [bare, regex.split(r"\s+[-–—]\s+|\s+v?\d", whole, maxsplit=1)[0], regex.split(r"\s+by\s", bare, maxsplit=1)[0]]
    said = (words.get(one.strip(" .。、,;").casefold()) for one in tries)
    return next(filter(None, said), None)


def stored(value: Any) -> Any:
    """A value as JSON holds it."""
    return value.isoformat() if isinstance(value, datetime) else value
