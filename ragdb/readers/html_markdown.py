"""An HTML tree to Markdown: headings, lists, tables and code keep their form, everything else becomes plain text.

Emphasis and the addresses of links are left out: they would stand inside words that are searched and quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ragdb.adapters import require
from ragdb.readers.tables import cell, pipe_table

if TYPE_CHECKING:
    from bs4 import Tag

_WIDE = "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uffee"
# A line break in the source between two of these is no space. Source: CSS Text 3, section 4.1.3
_BREAK_IN_WIDE = re.compile(rf"(?<=[{_WIDE}])[ \t\r]*\n[ \t\r\n]*(?=[{_WIDE}])")
_BLANK = re.compile(r"[ \t\r\n\f]+")
_OPENS_BLOCK = re.compile(r"^(\s*)(#{1,6} |```|~~~)")
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source|sourceCode|brush:)[-:\s]?\s*([A-Za-z0-9_+#.-]+)")
_MAX_SPAN = 50  # columns or rows: a page can say 1000, and no row is that wide
_MAX_DEPTH = 100  # elements within each other; the conversion is recursive
_LAYOUT = ("h1", "h2", "h3", "h4", "h5", "h6", "pre", "table")


def to_markdown(root: Tag) -> str:
    """The Markdown of everything below `root`, which is changed on the way."""
    _flatten(root)
    for table in root.find_all("table"):
        if _is_layout(table):
            for part in (*_own(table, "td", "th", "tr", "tbody", "thead", "tfoot", "caption"), table):
                part.name, part.attrs = "div", {}
    for items in root.find_all("ol"):
        for number, item in enumerate(items.find_all("li", recursive=False), start=_whole(items.get("start"), 1, 10**9)):
            item.attrs["data-number"] = str(number)
    lines = [line.rstrip() for line in _converter()().convert_soup(root).split("\n")]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _flatten(root: Tag) -> None:
    """Elements too deep for recursion become their text."""
    waiting: list[tuple[Any, int]] = [(root, 0)]
    while waiting:
        element, depth = waiting.pop()
        if depth >= _MAX_DEPTH:
            element.string = element.get_text(" ")
        else:
            waiting.extend((child, depth + 1) for child in element.children if hasattr(child, "children"))


def _own(table: Tag, *names: str) -> Iterator[Tag]:
    """Parts of the table that are not parts of a table inside it."""
    for part in table.find_all(names):
        if _around(part, "table") is table:
            yield part


def _around(part: Tag, *names: str) -> Tag | None:
    """As find_parent, which is slow for so simple a question."""
    return next((parent for parent in part.parents if parent.name in names), None)


def _is_layout(table: Tag) -> bool:
    """A table that only places blocks on the page: its cells are read as paragraphs."""
    if table.get("role") in ("presentation", "none"):
        return True
    cells = list(_own(table, "td", "th"))
    if len(cells) <= 1:
        return True
    return all(part.name == "td" for part in cells) and table.find(_LAYOUT) is not None


def _whole(value: object, least: int, most: int) -> int:
    text = str(value or "").strip()
    return max(least, min(most, int(text))) if text.isascii() and text.isdigit() and len(text) < 12 else least


@lru_cache(maxsize=1)
def _converter() -> type[Any]:
    base = require("markdownify", "files").MarkdownConverter

    class Converter(base):  # type: ignore[misc,valid-type]
        """markdownify with tables of one line a row, and text where it writes marks."""

        class Options:
            heading_style = "atx"
            bullets = "-"
            escape_asterisks = False
            escape_underscores = False

        def __init__(self) -> None:
            super().__init__()
            self._cells: dict[int, str] = {}

        def process_text(self, el: Any, parent_tags: set[str]) -> str:
            text = str(el).replace("\u00ad", "").replace("\u00a0", " ")
            if "pre" in parent_tags:
                return text
            text = _BLANK.sub(" ", _BREAK_IN_WIDE.sub("", text))
            edge = "br", "div", "p", "ul", "ol", "table", "pre"
            if el.previous_sibling is not None and el.previous_sibling.name in edge:
                text = text.lstrip(" ")
            if el.next_sibling is not None and el.next_sibling.name in edge:
                text = text.rstrip(" ")
            # only at the start of a block: elsewhere these characters mean nothing
            if "_inline" not in parent_tags and "_noformat" not in parent_tags and not el.previous_sibling:
                text = _OPENS_BLOCK.sub(r"\1\\\2", text)
            return text

        def convert_a(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return "" if text.strip() == "↑" else text  # the way back from a footnote

        def _plain(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return text

        convert_b = convert_strong = convert_em = convert_i = convert_del = convert_s = convert_sub = convert_sup = _plain
        convert_video = convert_q = _plain

        def convert_rt(self, el: Any, text: str, parent_tags: set[str]) -> str:
            # the reading of a kanji; where the page has brackets for it (<rp>), those stand there already
            return text if el.parent.find("rp", recursive=False) else f"({text})"

        def convert_img(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return " ".join(str(el.get("alt") or "").split())

        def convert_br(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return (" " if "_inline" in parent_tags else "\n") + text

        def convert_div(self, el: Any, text: str, parent_tags: set[str]) -> str:
            if "_inline" in parent_tags:
                return f" {text.strip()} "
            text = text.strip()
            return f"\n\n{text}\n\n" if text else ""

        convert_article = convert_section = convert_main = convert_header = convert_footer = convert_aside = convert_div
        convert_figure = convert_figcaption = convert_details = convert_summary = convert_address = convert_fieldset = convert_div
        convert_form = convert_head = convert_legend = convert_center = convert_body = convert_html = convert_hgroup = (
            convert_dialog
        ) = convert_div

        def convert_dd(self, el: Any, text: str, parent_tags: set[str]) -> str:
            text = text.strip()
            if "_inline" in parent_tags or not text:
                return f" {text} "
            return "\n:   " + "\n".join(line and f"    {line}" for line in text.split("\n")).lstrip() + "\n"

        def convert_li(self, el: Any, text: str, parent_tags: set[str]) -> str:
            text = text.strip()
            if not text:
                return "\n"
            mark = f"{number}. " if (number := el.get("data-number")) else "- "
            return mark + "\n".join(line and " " * len(mark) + line for line in text.split("\n")).lstrip() + "\n"

        def convert_pre(self, el: Any, text: str, parent_tags: set[str]) -> str:
            if "_inline" in parent_tags:
                return f" {text.strip()} "
            if not text.strip():
                return ""
            code = el.find("code")
            named = _LANGUAGE.search(" ".join([*el.get("class", []), *(code.get("class", []) if code else [])]))
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            return "\n\n{}{}\n{}\n{}\n\n".format(fence, named[1] if named else "", text.strip("\n"), fence)

        def convert_td(self, el: Any, text: str, parent_tags: set[str]) -> str:
            if "table" not in parent_tags:
                return f" {text} "
            self._cells[id(el)] = cell(text)
            return ""

        convert_th = convert_td

        def convert_tr(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return text

        def convert_caption(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return f"{text.strip()}\n\n"

        def convert_table(self, el: Any, text: str, parent_tags: set[str]) -> str:
            rows = self._grid(el)
            if "_inline" in parent_tags:  # a table in a cell of another
                return " " + "; ".join(" ".join(filter(None, cells)) for cells in [[text.strip()], *rows] if any(cells)) + " "
            return f"\n\n{text.strip()}\n\n{pipe_table(rows)}\n\n"

        def _grid(self, table: Any) -> list[list[str]]:
            """The texts of the cells; one that spans rows stands in each of them, one that spans columns in the first."""
            below: dict[int, tuple[int, str]] = {}  # column to how many more rows it is taken in, and the text
            grid = []
            # a cell outside of any row stands in a row with its neighbours
            for _, parts in groupby(_own(table, "td", "th"), key=lambda part: id(_around(part, "tr", "table"))):
                cells: list[str] = []

                def inherit(cells: list[str]) -> None:
                    while (column := len(cells)) in below:
                        left, text = below.pop(column)
                        cells.append(text)
                        if left > 1:
                            below[column] = (left - 1, text)

                for part in parts:
                    inherit(cells)
                    text = self._cells.get(id(part), "")
                    rows = _whole(part.get("rowspan"), 1, _MAX_SPAN)
                    for n in range(_whole(part.get("colspan"), 1, _MAX_SPAN)):
                        if rows > 1:
                            below[len(cells)] = (rows - 1, "" if n else text)
                        cells.append("" if n else text)
                inherit(cells)
                grid.append(cells)
            return grid

    return Converter
