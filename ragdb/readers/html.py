"""HTML: what a reader of the page sees, as Markdown; menus, scripts and what is hidden stay out."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ragdb.adapters import require
from ragdb.errors import UnreadableFile
from ragdb.readers.charset import page_text
from ragdb.readers.decode import read_bytes, shown
from ragdb.readers.html_markdown import to_markdown
from ragdb.types import Document

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_NEVER_SHOWN = (
    *("script", "style", "template", "noscript", "nav", "title", "iframe", "canvas", "audio", "video", "datalist"),
    *("input", "button", "select", "textarea"),
)
_HIDDEN = re.compile(r"(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_AROUND = ("header", "footer", "nav", "aside")
_ROLES_AROUND = ("banner", "contentinfo", "navigation", "search", "complementary")
# Inside one of these, a header belongs to a part of the text and not to the page. Source: HTML, section 4.3.8
_PARTS = ("article", "section", "main", "blockquote", "td", "figure", "details", "dialog")
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_SELF_CLOSED = re.compile(rf"<(?!(?:{_VOID})\b)([A-Za-z][\w:-]*)(\s[^<>]*)?/>", re.IGNORECASE)


class HtmlReader:
    """Reads .html. The title is the page's, else its first h1, else the file's name; the language that of <html>."""

    def read(self, path: Path) -> Document:
        return read_html(read_bytes(path), path)


READER = HtmlReader()


def read_html(data: bytes, path: Path, *, charset: str | None = None, name: str | None = None) -> Document:
    """As the reader, with the charset of an HTTP header. `name` is what errors call it. Raises UnreadableFile."""
    text = page_text(data, name or shown(path), charset)
    if path.suffix.lower() == ".xhtml":
        text = opened(text)
    soup = parse(text, name or shown(path))
    title = page_title(soup)
    language = _language(soup)
    content = to_markdown(region(soup))
    return Document(
        uri=shown(path.name),
        content=content,
        title=title or shown(path.stem),
        language=language,
        metadata={},
        source=shown(path.absolute()),
        media_type="text/markdown",
    )


def parse(text: str, name: str) -> BeautifulSoup:
    """The tree of a page. Raises UnreadableFile."""
    etree = require("lxml.etree", "files")
    bs4 = require("bs4", "files")
    from bs4.builder import LXMLTreeBuilder  # type: ignore[attr-defined]  # there where lxml is

    # huge_tree: without it lxml drops what is nested deeper than 256 elements, in silence
    builder = LXMLTreeBuilder(parser=partial(etree.HTMLParser, huge_tree=True))
    try:
        soup: BeautifulSoup = bs4.BeautifulSoup(text.replace("\x00", " "), builder=builder)
    except Exception as error:  # the parsers of foreign markup have no common error
        raise UnreadableFile(f"{name} cannot be read as HTML: {error}; save it again from a browser") from error
    return soup


def opened(xhtml: str) -> str:
    """XHTML for a parser of HTML, to which `<title/>` would be open to the end of the page."""
    return _SELF_CLOSED.sub(r"<\1\2></\1>", xhtml)


def page_title(soup: BeautifulSoup) -> str | None:
    """What <title> says, else the first h1."""
    head = soup.head.find("title") if soup.head else None
    for element in (head, soup.find("h1")):
        if element is not None and (text := " ".join(element.get_text().split())):
            return text
    return None


def _language(soup: BeautifulSoup) -> str | None:
    root = soup.find("html")
    value = root.get("lang") or root.get("xml:lang") if root is not None else None
    return str(value).strip() or None if value else None


def region(soup: BeautifulSoup) -> Tag:
    """The part of the page that is its text. What is never shown is removed from the tree."""
    # not soup.body: to libxml2 a <main> without <body> around it stands in the head
    from bs4.element import PreformattedString

    for string in soup.find_all(string=lambda text: isinstance(text, PreformattedString)):  # comments and declarations
        string.extract()
    for element in soup.find_all(_hidden):
        element.extract()
    for element in soup.find_all("svg"):
        element.replace_with(" ".join(text.get_text(" ") for text in element.find_all("text")))
    main = [element for element in soup.find_all(_is_main) if element.find_parent(_is_main) is None]
    if len(main) == 1 and _has_text(main[0]):
        return main[0]
    articles = [element for element in soup.find_all("article") if element.find_parent("article") is None]
    if not main and len(articles) == 1 and _has_text(articles[0]):
        return articles[0]
    _remove_surroundings(soup)
    return soup


def _remove_surroundings(body: Tag) -> None:
    around = [element for element in body.find_all(_is_around) if element.find_parent(_PARTS) is None]
    inside = {id(part) for element in around for part in element.find_all("h1")}
    outermost = [element for element in around if element.find_parent(_is_around) is None]
    if _length(body) == sum(map(_length, outermost)):
        return  # the whole page stands in what is called its surroundings
    others = [heading for heading in body.find_all("h1") if id(heading) not in inside]
    for element in around:
        if not others and (heading := element.find("h1")):
            element.insert_before(heading.extract())
            others.append(heading)
        element.extract()


def _hidden(element: Tag) -> bool:
    hidden = element.get("hidden")
    return (
        element.name in _NEVER_SHOWN
        or element.get("role") == "navigation"
        or (hidden is not None and hidden != "until-found")
        or bool(_HIDDEN.search(str(element.get("style") or "")))
    )


def _is_main(element: Tag) -> bool:
    return element.name == "main" or element.get("role") == "main"


def _is_around(element: Tag) -> bool:
    return element.name in _AROUND or element.get("role") in _ROLES_AROUND


def _has_text(element: Tag) -> bool:
    return bool(element.get_text().strip())


def _length(element: Tag) -> int:
    return sum(map(len, element.get_text().split()))
