"""Excel: one section and one table a sheet, row by row, so that a long sheet takes little memory."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from ragdb.adapters import require
from ragdb.readers import office
from ragdb.readers.archive import opened
from ragdb.readers.decode import shown
from ragdb.readers.tables import cell, row, rule, trim
from ragdb.types import Document

_MOST_ROWS = 1_048_576
log = logging.getLogger("ragdb.ingest")


class XlsxReader:
    """Reads .xlsx and .xlsm: values, not formulas. The title is the properties', else the file's name."""

    def read(self, path: Path) -> Document:
        openpyxl = require("openpyxl", "files")
        name = shown(path)
        with opened(path, "an Excel workbook", "xl/") as archive:
            office.refuse_declarations(archive, name)
            title, modified = office.properties(archive, name)
        try:
            with path.open("rb") as file, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of extensions that openpyxl would lose on saving
                book = openpyxl.load_workbook(file, read_only=True, data_only=True)
                try:
                    content = "\n\n".join(_sheets(book, name))
                finally:
                    book.close()
        except Exception as error:  # openpyxl passes on those of XML, zipfile, and of values that do not fit
            raise office.damaged(path, error) from error
        return Document(
            uri=shown(path.name),
            content=content,
            title=title or shown(path.stem),
            metadata={},
            updated_at=modified,
            source=shown(path.absolute()),
            media_type="text/markdown",
        )


READER = XlsxReader()


def _sheets(book: Any, name: str) -> Iterator[str]:
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            log.info("%s: the sheet %r is hidden and left out", name, sheet.title)
            continue
        sheet.reset_dimensions()  # what the file says of them is often wrong, and rows would be cut
        if table := _table(sheet.iter_rows(values_only=True)):
            yield f"## {' '.join(sheet.title.split())}\n\n{table}"


def _table(rows: Iterable[tuple[Any, ...]]) -> str:
    lines: list[str] = []
    header: list[str] = []
    width = 0
    for number, values in enumerate(rows, start=1):
        if number > _MOST_ROWS:  # the numbers are the file's own word, and each row between two is yielded
            raise ValueError(f"a sheet has a row behind number {_MOST_ROWS:,}, the last one that Excel knows")
        cells = trim([_text(value) for value in values])
        if not cells:
            continue  # an empty line would end the table
        width = max(width, len(cells))
        if header:
            lines.append(row(cells))  # short rows are whole rows: only the header says how wide a table is
        else:
            header = cells
    return "\n".join([row(header, width), rule(width), *lines]) if header else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"{value:.15g}"  # as many digits as Excel has
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    return cell(str(value))
