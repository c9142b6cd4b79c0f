"""PDF: the text layer, page after page. A scan without one is refused: OCR is another program's work."""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from ragdb.adapters import require
from ragdb.errors import UnreadableFile
from ragdb.readers.decode import shown
from ragdb.readers.paged import joined
from ragdb.readers.sniff import identify_file
from ragdb.readers.titles import telling
from ragdb.types import Document

log = logging.getLogger("ragdb.ingest")

_LOCK = threading.Lock()  # PDFium is not thread-safe, not even for two documents
_NEEDS_PASSWORD = 4  # FPDF_ERR_PASSWORD
_HEAD, _TAIL = 1024, 65536  # where readers look for the marks of a PDF: some have an HTTP header before, or junk behind
_MAX_TEXT = 300_000_000  # characters: pages may share one stream, and a small file can hold very many
# PDFium writes one of these for the hyphen at the end of a line, and often leaves out the line's end.
_HYPHEN = re.compile(r"[\ufffe\x02](?:\r?\n)?")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff\ufeff]")
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?\s*(?:Z|([+-])(\d\d)'?(\d\d)?)?")
_WIDE = "々〆ヵヶぁ-ゖァ-ヺー一-鿿㐀-䶿豈-\ufaff、，（「『"
_ENDS_WIDE, _BEGINS_WIDE = re.compile(f"[{_WIDE}]$"), re.compile(f"[{_WIDE}）」』]")


class PdfReader:
    """Reads .pdf. The title is the properties' where it tells something, else the file's name; `pages` are its pages."""

    def read(self, path: Path) -> Document:
        pdfium = require("pypdfium2", "files")
        name = shown(path)
        _check(path, name)
        with _LOCK:
            document = _opened(pdfium, path, name)
            try:
                content, pages = joined(_texts(pdfium, document, name))
                properties = document.get_metadata_dict()
            except pdfium.PdfiumError as error:
                raise UnreadableFile(f"{name} is damaged: {error}; get it again from where it came from") from error
            finally:
                document.close()
        _tell_empty(content, pages, name)
        return Document(
            uri=shown(path.name),
            content=content,
            title=telling(properties.get("Title")) or shown(path.stem),
            metadata={},
            updated_at=moment(properties.get("ModDate")) or moment(properties.get("CreationDate")),
            source=shown(path.absolute()),
            media_type="text/plain",
            pages=pages,
        )


READER = PdfReader()


def _check(path: Path, name: str) -> None:
    """PDFium mends what it can, and of a file that was cut off it gives the pages that are left: that is refused here."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
        if size == 0:
            raise UnreadableFile(f"{name} is empty (0 bytes), not a PDF; get it again from where it came from")
        if b"%PDF-" not in head:
            kind = identify_file(path)
            instead = f"it is {kind.what}; {kind.advice}" if kind else "it does not begin with %PDF-; get it again"
            raise UnreadableFile(f"{name} is not a PDF: {instead}")
    except OSError as error:
        raise UnreadableFile(f"{name} cannot be read: {error.strerror}; check the path and its permissions") from error
    if b"%%EOF" not in tail:
        raise UnreadableFile(f"{name} is damaged: its end is missing after {size:,} bytes; get it again from where it came from")


def _opened(pdfium: Any, path: Path, name: str) -> Any:
    try:
        try:
            str(path).encode()
        except UnicodeEncodeError:  # a file name in another encoding, which PDFium cannot be given
            return pdfium.PdfDocument(path.read_bytes())
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if error.err_code == _NEEDS_PASSWORD:
            raise UnreadableFile(f"{name} needs a password; save a copy without one (qpdf --decrypt) and add it") from error
        raise UnreadableFile(f"{name} is damaged: {error}; get it again from where it came from") from error


def _texts(pdfium: Any, document: Any, name: str) -> Iterator[str]:
    length = 0
    for number in range(len(document)):
        try:
            page = document[number]
            try:
                layer = page.get_textpage()
                try:
                    text = page_text(layer.get_text_range())
                finally:
                    layer.close()
            finally:
                page.close()
        except pdfium.PdfiumError as error:
            raise UnreadableFile(f"{name} is damaged on page {number + 1}: {error}; get it again") from error
        length += len(text)
        if length > _MAX_TEXT:
            raise UnreadableFile(f"{name} has more than {_MAX_TEXT:,} characters of text by page {number + 1}; split it")
        yield text


def page_text(raw: str) -> str:
    """The text of one page as PDFium gives it, with words whole that stood on two lines."""
    text = _HYPHEN.sub(lambda found: _between(raw, found), raw)
    text = _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", " "))
    lines = [line.rstrip() for line in text.split("\n")]
    full = 0.9 * max(map(_width, lines), default=0)
    made: list[str] = []
    width = 0.0  # of the last line as it stood on the page
    for line in lines:
        # Japanese is broken anywhere; a line that is not full ended there on purpose
        if made and width >= full and width > 20 and _ENDS_WIDE.search(made[-1]) and _BEGINS_WIDE.match(line):
            made[-1] += line
        else:
            made.append(line)
        width = _width(line)
    return re.sub("\n{3,}", "\n\n", "\n".join(made)).strip()


def _between(raw: str, found: re.Match[str]) -> str:
    """Nothing within a word; a hyphen before a number or a capital, as in COVID-19."""
    before, after = raw[max(0, found.start() - 1) : found.start()], raw[found.end() : found.end() + 1]
    return "" if before.isalpha() and after.islower() else "-"


def _width(line: str) -> int:
    if line.isascii():
        return len(line)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def _tell_empty(content: str, pages: list[int], name: str) -> None:
    if not content:
        raise UnreadableFile(f"{name}: no text: {len(pages)} pages of images; run OCR first (ocrmypdf in.pdf out.pdf)")
    ends = (*pages[1:], len(content))
    empty = sum(begin == end for begin, end in zip(pages, ends, strict=True))
    if empty:
        log.warning("%s: %d of %d pages have no text; if they are images, run OCR first (ocrmypdf)", name, empty, len(pages))


def moment(text: str | None) -> datetime | None:
    """A PDF's date; without a zone it is UTC. Source: ISO 32000-1, section 7.9.4"""
    found = _DATE.match(text or "")
    if not found:
        return None
    year, month, day, hour, minute, second, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    try:
        zone = timezone(offset) if sign else UTC
        return datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=zone
        )
    except ValueError:
        return None
