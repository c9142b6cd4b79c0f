"""What a file is by its first bytes, whatever its name says, and what its owner can do about it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """`what` it is ("a PDF"), what to do (`advice`), and the suffix of its reader, "" where there is none."""

    what: str
    advice: str
    suffix: str = ""


_OCR = "ragdb reads no images: run OCR and add the text"
_UNPACK = "unpack it and add what is inside"
_SAVE_AS = "open it and save it as .docx, .xlsx or .pptx"
_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"%PDF-", Kind("a PDF", "give it the suffix .pdf", ".pdf")),
    (b"\x89PNG", Kind("a PNG image", _OCR)),
    (b"\xff\xd8\xff", Kind("a JPEG image", _OCR)),
    (b"GIF87a", Kind("a GIF image", _OCR)),
    (b"GIF89a", Kind("a GIF image", _OCR)),
    (b"{\\rtf", Kind("an RTF document", "open it and save it as .docx")),
    (b"\x1f\x8b", Kind("a gzip archive", _UNPACK)),
    (b"BZh91AY&SY", Kind("a bzip2 archive", _UNPACK)),
    (b"\xfd7zXZ", Kind("an xz archive", _UNPACK)),
    (b"7z\xbc\xaf", Kind("a 7z archive", _UNPACK)),
    (b"\x7fELF", Kind("a program", "leave it out")),
    (b"SQLite format 3", Kind("an SQLite database", "export its tables as .csv")),
)
_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Names of streams in the directory of an OLE file, which stores them in UTF-16.
_STREAMS = (
    ("EncryptedPackage", Kind("an Office document under a password", "remove the password in Office and save it again")),
    ("WordDocument", Kind("an old Word document (.doc)", "open it and save it as .docx")),
    ("Workbook", Kind("an old Excel workbook (.xls)", "open it and save it as .xlsx")),
    ("PowerPoint Document", Kind("an old PowerPoint presentation (.ppt)", "open it and save it as .pptx")),
)
_FOLDERS = (
    ("word/", Kind("a Word document", "give it the suffix .docx", ".docx")),
    ("xl/", Kind("an Excel workbook", "give it the suffix .xlsx", ".xlsx")),
    ("ppt/", Kind("a PowerPoint presentation", "give it the suffix .pptx", ".pptx")),
    ("META-INF/container.xml", Kind("an EPUB book", "give it the suffix .epub", ".epub")),
    ("content.xml", Kind("an OpenDocument file", _SAVE_AS)),
)
_LOOKED_AT = 100_000_000  # bytes; a ZIP's directory stands at its end


def identify(data: bytes) -> Kind | None:
    """What the bytes of a whole file are; None where they may be text."""
    if data.startswith(_OLE):
        found = (kind for name, kind in _STREAMS if name.encode("utf-16-le") in data)
        return next(found, Kind("an old Office document", _SAVE_AS))
    if data.startswith(_ZIP):
        return _archive(data)
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def identify_file(path: Path) -> Kind | None:
    """As `identify`, of a file."""
    with path.open("rb") as file:
        return identify(file.read(_LOOKED_AT))


def _archive(data: bytes) -> Kind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        return Kind("a ZIP archive or an Office document, damaged", "get it again from where it came from")
    found = (kind for folder, kind in _FOLDERS if any(name.startswith(folder) for name in names))
    return next(found, Kind("a ZIP archive", _UNPACK))
