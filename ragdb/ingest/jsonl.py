"""JSON Lines to documents: one object a line, with chunks and vectors where they are there already.

    {"uri": "a/1", "content": "...", "title": "...", "metadata": {...}, "status": "active",
     "chunks": [{"start": 0, "end": 120, "context": ""}], "vectors": [[0.1, ...]]}

`vector`, a single one, stands for a document that is one chunk. BEIR's names (`_id`, `text`) are understood too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ragdb.errors import BadDocument
from ragdb.types import Document, Span

_TEXTS = ("title", "status", "language", "owner", "version", "source")
_KNOWN = {"uri", "_id", "content", "text", "metadata", "chunks", "vectors", "vector", "updated_at", "review_after", *_TEXTS}


def documents(lines: Iterable[str]) -> Iterator[Document]:
    """One document a line that is not blank. Raises BadDocument with the line's number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _document(json.loads(line))
        except (ValueError, TypeError, KeyError, BadDocument) as error:
            raise BadDocument(f"line {number}: {error}; see 'ragdb import --help' for the form of a line") from error


def _document(given: Any) -> Document:
    if not isinstance(given, Mapping):
        raise BadDocument(f"is {type(given).__name__}, not an object")
    if unknown := sorted(given.keys() - _KNOWN):
        raise BadDocument(f"has unknown keys {', '.join(unknown)} (free keys belong into metadata)")
    content = given.get("content", given.get("text"))
    vectors = given.get("vectors")
    chunks = given.get("chunks")
    if "vector" in given:
        chunks, vectors = [{"start": 0, "end": len(content)}], [given["vector"]]
    return Document(
        uri=given.get("uri", given.get("_id")),
        content=content,
        metadata=given.get("metadata"),
        chunks=None if chunks is None else [Span(c["start"], c["end"], c.get("context", ""), page=c.get("page")) for c in chunks],
        vectors=vectors,
        updated_at=_moment(given.get("updated_at")),
        review_after=_moment(given.get("review_after")),
        **{name: given.get(name) for name in _TEXTS},
    )


def _moment(given: str | None) -> datetime | None:
    return datetime.fromisoformat(given) if given else None
