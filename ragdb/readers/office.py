"""What an Office file says of itself: title and date, from its core properties (ECMA-376 part 2, section 11)."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

from ragdb.errors import UnreadableFile
from ragdb.readers.decode import shown
from ragdb.readers.titles import telling
from ragdb.readers.xml import parsed, text_of

_CORE = "docProps/core.xml"


def properties(archive: zipfile.ZipFile, name: str) -> tuple[str | None, datetime | None]:
    """Title and time of the last change, each None where the file does not tell. Raises UnreadableFile."""
    if _CORE not in archive.namelist():
        return None, None
    root = parsed(archive.read(_CORE), name)
    return telling(text_of(root, "title")), _moment(text_of(root, "modified"))


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def refuse_declarations(archive: zipfile.ZipFile, name: str) -> None:
    """Raises UnreadableFile for a part with a DTD: Office writes none, and entities can unfold without end."""
    for member in archive.infolist():
        if member.filename.endswith((".xml", ".rels")):
            with archive.open(member) as part:
                head = part.read(2048)
            if b"<!DOCTYPE" in head or b"<!ENTITY" in head:
                raise UnreadableFile(f"{name}: {member.filename} declares entities, which no Office program does; leave it out")


def damaged(path: Path, error: Exception) -> UnreadableFile:
    """The error for a file that its library could not read, with the library's words."""
    return UnreadableFile(
        f"{shown(path)} is damaged: {type(error).__name__}: {error}; open it and save it again, or get it again"
    )
