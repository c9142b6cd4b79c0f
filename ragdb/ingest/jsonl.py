"""JSON Lines to documents: one object a line, with chunks and vectors where they are there already.

    {"uri": "a/1", "content": "...", "title": "...", "metadata": {...}, "status": "active",
     "chunks": [{"start": 0, "end": 120, "context": ""}], "vectors": [[0.1, ...]]}

`vector`, a single one, stands for a document that is one chunk. BEIR's names (`_id`, `text`) are understood too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from ragdb.errors import BadDocument
from ragdb.types import Document, Span


class _Chunk(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    start: int
    end: int
    context: str = ""
    page: int | None = None


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    uri: str = Field(validation_alias=AliasChoices("uri", "_id"))
    content: str = Field(validation_alias=AliasChoices("content", "text"))
    title: str | None = None
    status: str | None = None
    language: str | None = None
    owner: str | None = None
    version: str | None = None
    source: str | None = None
    metadata: dict[str, Any] | None = None
    updated_at: datetime | None = Field(default=None, strict=False)
    review_after: datetime | None = Field(default=None, strict=False)
    chunks: list[_Chunk] | None = None
    vectors: list[list[float]] | None = None
    vector: list[float] | None = None


def documents(lines: Iterable[str]) -> Iterator[Document]:
    """One document a line that is not blank. Raises BadDocument with the line's number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _document(_Line.model_validate_json(line))
        except ValidationError as error:
            wrong = "; ".join(_told(one) for one in error.errors(include_url=False))
            raise BadDocument(f"line {number}: {wrong}; see 'ragdb import --help' for the form of a line") from error
        except (ValueError, TypeError, BadDocument) as error:
            raise BadDocument(f"line {number}: {error}") from error


def _told(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"has unknown keys {where} (free keys belong into metadata)"
    if error["type"] == "missing":
        return f"has no {where}"
    return f"{where}: {error['msg']}" if where else str(error["msg"])


def _document(line: _Line) -> Document:
    chunks, vectors = line.chunks, line.vectors
    if line.vector is not None:
        whole = [_Chunk(start=0, end=len(line.content))] if line.content.strip() else []
        chunks, vectors = whole, [line.vector] * len(whole)
    given = line.model_dump(exclude={"chunks", "vectors", "vector"})
    return Document(
        **given,
        chunks=None if chunks is None else [Span(c.start, c.end, c.context, page=c.page) for c in chunks],
        vectors=vectors or None if chunks == [] else vectors,
    )
