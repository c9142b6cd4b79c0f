"""JSON Lines to documents: one object a line, with chunks and vectors where they are there already.

    {"uri": "a/1", "content": "...", "title": "...", "metadata": {...}, "status": "active",
     "chunks": [{"start": 0, "end": 120, "context": ""}], "vectors": [[0.1, ...]]}

`vector`, a single one, stands for a document that is one chunk. BEIR's names (`_id`, `text`) are understood too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from ragdb.errors import BadDocument, UnreadableFile
from ragdb.readers.decode import shown
from ragdb.readers.sniff import identify_file
from ragdb.types import Document, Span

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


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


class JsonlReader:
    """Stands for a file that is many documents: `read` says how they are read."""

    def read(self, path: Path) -> Document:
        raise UnreadableFile(f"{shown(path)} holds a document in each line; read them with ragdb.readers.read_documents")


READER = JsonlReader()


def read_lines(path: Path) -> Iterator[tuple[int, Document | BadDocument]]:
    """Of each line of a file that is not blank its number and its document, or what is wrong with it.

    Raises UnreadableFile where it is no text file at all.
    """
    name = shown(path)
    try:
        if kind := identify_file(path):
            raise UnreadableFile(f"{name}: binary: it is {kind.what}; {kind.advice}")
        with path.open("rb") as file:
            if file.read(2) in _UTF16:
                raise UnreadableFile(f"{name} is UTF-16; JSON Lines are UTF-8: iconv -f UTF-16 -t UTF-8")
            file.seek(0)
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _read(number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
    except OSError as error:
        raise UnreadableFile(f"{name} cannot be read: {error.strerror}; check the path and its permissions") from error


def documents(lines: Iterable[str]) -> Iterator[Document]:
    """One document a line that is not blank. Raises BadDocument with the line's number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        made = _read(number, line)
        if isinstance(made, BadDocument):
            raise made
        yield made


def _read(number: int, line: str | bytes) -> Document | BadDocument:
    try:
        return _document(_Line.model_validate_json(line.decode() if isinstance(line, bytes) else line))
    except UnicodeDecodeError as error:
        cause: Exception = error
        wrong = f"is not UTF-8 (byte {error.start + 1}: {error.reason}); convert the file: iconv -f CP932 -t UTF-8"
    except ValidationError as error:
        cause = error
        wrong = "; ".join(_told(one) for one in error.errors(include_url=False))
        wrong += "; see 'ragdb import --help' for the form of a line"
    except (ValueError, TypeError, BadDocument) as error:
        cause, wrong = error, str(error)
    bad = BadDocument(f"line {number}: {wrong}")
    bad.__cause__ = cause
    return bad


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
