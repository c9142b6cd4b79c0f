"""EPUB: the chapters of the spine in reading order, each read as a page of HTML."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from ragdb.errors import UnreadableFile
from ragdb.readers import html
from ragdb.readers.archive import opened
from ragdb.readers.charset import page_text
from ragdb.readers.decode import shown
from ragdb.readers.html_markdown import to_markdown
from ragdb.readers.titles import telling
from ragdb.readers.xml import parsed, text_of
from ragdb.types import Document

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTERS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


class EpubReader:
    """Reads .epub. Title and language are those of the book, else the title is the file's name."""

    def read(self, path: Path) -> Document:
        name = shown(path)
        with opened(path, "an EPUB book", _CONTAINER) as archive:
            package = _package(archive, name)
            root = parsed(_member(archive, package, name), name)
            chapters = list(_chapters(archive, root, posixpath.dirname(package), name))
            content = "\n\n".join(filter(None, chapters))
        if not content:
            raise UnreadableFile(f"{name}: no text: {len(chapters)} chapters without words; run OCR on its images first")
        return Document(
            uri=shown(path.name),
            content=content,
            title=telling(text_of(root, "title")) or shown(path.stem),
            language=text_of(root, "language"),
            metadata={},
            source=shown(path.absolute()),
            media_type="text/markdown",
        )


READER = EpubReader()


def _package(archive: zipfile.ZipFile, name: str) -> str:
    for element in parsed(archive.read(_CONTAINER), name).iter("{*}rootfile"):
        if full := element.get("full-path"):
            return str(full)
    raise UnreadableFile(f"{name} is damaged: {_CONTAINER} names no package; get it again from where it came from")


def _chapters(archive: zipfile.ZipFile, package: object, folder: str, name: str) -> Iterator[str]:
    items = {item.get("id"): item for item in package.iter("{*}item")}  # type: ignore[attr-defined]
    locked = _locked(archive, name)
    seen: set[str] = set()
    for reference in package.iter("{*}itemref"):  # type: ignore[attr-defined]
        item = items.get(reference.get("idref"))
        if item is None or item.get("media-type") not in _CHAPTERS or "nav" in (item.get("properties") or "").split():
            continue
        member = posixpath.normpath(posixpath.join(folder, unquote((item.get("href") or "").split("#")[0])))
        if member in seen:
            continue  # a reading order has each chapter once; a hostile one has it a thousand times
        seen.add(member)
        if member in locked:
            raise UnreadableFile(f"{name}: {member} is encrypted (DRM); add a copy of the book without it")
        soup = html.parse(html.opened(page_text(_member(archive, member, name), f"{name}: {member}")), name)
        yield to_markdown(html.region(soup))


def _member(archive: zipfile.ZipFile, member: str, name: str) -> bytes:
    try:
        return archive.read(member)
    except KeyError as error:
        raise UnreadableFile(f"{name} is damaged: {member} is missing; get it again from where it came from") from error


def _locked(archive: zipfile.ZipFile, name: str) -> set[str]:
    """The parts that are encrypted; of most books that have any, only the fonts."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    references = parsed(archive.read(_ENCRYPTION), name).iter("{*}CipherReference")
    return {unquote(reference.get("URI") or "") for reference in references}
