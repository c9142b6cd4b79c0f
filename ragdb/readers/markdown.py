"""Markdown: what the file says about itself in its front matter becomes the document's fields.

The content is the whole file, front matter included, so that offsets point into the real text; the chunker skips it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from ragdb.readers.decode import read_text, shown
from ragdb.readers.markup import FrontMatter, Markup, heading_text, parse
from ragdb.types import STATUSES, Document

log = logging.getLogger("ragdb.ingest")

# A title and an owner are also worth filtering by as the file wrote them; the others live in one place only.
_ALSO_METADATA = frozenset({"title", "owner"})


class MarkdownReader:
    """Reads .md. The title is the front matter's, else the first level-1 heading, else the file's name."""

    def read(self, path: Path) -> Document:
        name = shown(path.name)
        content = read_text(path)
        markup = parse(content)
        fields, metadata = _front_fields(markup.front_matter, name)
        fields["title"] = fields.get("title") or _first_heading(markup) or shown(path.stem)
        return Document(uri=name, content=content, metadata=metadata, source=shown(path.absolute()), **fields)


READER = MarkdownReader()


def _first_heading(markup: Markup) -> str:
    for token, inline in zip(markup.tokens, markup.tokens[1:], strict=False):
        if token.type == "heading_open" and token.level == 0 and token.tag == "h1" and heading_text(inline.content):
            return heading_text(inline.content)
    return ""


def _front_fields(front: FrontMatter | None, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document's own fields, and everything else as metadata. What has a wrong form stays in metadata."""
    if front is None:
        return {}, {}
    if front.problem:
        log.warning("%s: the front matter is not YAML and stays in the text (%s)", name, front.problem)
        return {}, {}
    metadata = {str(key): value for key, value in front.values.items()}
    written = {str(key): value for key, value in front.written.items()}
    fields: dict[str, Any] = {}
    for key, field, read in _FIELDS:
        if metadata.get(key) is None or field in fields:
            continue
        value = read(written.get(key))
        if value is None:
            log.warning("%s: front matter %s: %r is no %s; it stays in the metadata", name, key, written.get(key), field)
            continue
        fields[field] = value
        if key not in _ALSO_METADATA:
            del metadata[key]
    return fields, metadata


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _status(value: Any) -> str | None:
    word = value.strip().lower() if isinstance(value, str) else ""
    return word if word in STATUSES else None


def _moment(value: Any) -> datetime | None:
    """ISO 8601 or YAML's own form of it; naive is UTC."""
    if not isinstance(value, str):
        return None
    try:
        moment: Any = datetime.fromisoformat(value.strip())
    except ValueError:
        moment = _yaml_moment(value)
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _yaml_moment(value: str) -> Any:
    try:
        return yaml.safe_load(value)  # knows `2024-5-1 10:00:00 +9`, which fromisoformat does not
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        log.debug("%r is no date: %s", value, error)
        return None


# front matter key, field of Document, how it is read; of two keys for one field the first that can be read counts
_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("title", "title", _text),
    ("status", "status", _status),
    ("language", "language", _text),
    ("lang", "language", _text),
    ("owner", "owner", _text),
    ("version", "version", _text),
    ("updated_at", "updated_at", _moment),
    ("updated", "updated_at", _moment),
    ("date", "updated_at", _moment),
    ("review_after", "review_after", _moment),
)
