"""The head of a page: what stands before its first section, line by line, where people write about the page itself."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markdown_it.token import Token

from ragdb.readers.markup import Markup, head_of, heading_text, parse
from ragdb.readers.media import media_type
from ragdb.types import Document

# A head is short; what is longer is text.
MAX_LINES = 24
MAX_LINE = 400
# Plain text has no sections: its head is what its first lines say.
PLAIN_LINES = 12
# Rows and events: what they say is not about the file.
_RECORDS = (".log", ".xlsx", ".xlsm")

_QUOTE = re.compile(r"\s*>")
_MARKS = re.compile(r"^[\s>*+\-#]*(?:\d+[.)]\s+)?(?:\[[ xX]\]\s+)?")
_STRUCK = re.compile(r"~~.+?~~")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s\"[^\"]*\")?\)|\[\[([^\[\]|]*)(?:\|[^\[\]]*)?\]\]")
# the address behind a name is an aside, like words in brackets
_MAIL = re.compile(r"(?P<gap>(?<=\w)\s*)?<(?:mailto:)?(?P<mail>[^\s<>@]+@[^\s<>@]+)>", re.IGNORECASE)
_TASK = re.compile(r"[-*+]\s*\[[ xX]\]")
_BOLD = re.compile(r"\s*(?:\*\*|__)[^*_]+(?:\*\*|__)[:：.。]?\s*")
_EMPHASIS = re.compile(r"\*\*|__|~~|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)")
# ⚠️, :warning:, 📌, ※, and the name of an admonition: [!NOTE], Note:, 注意:
_SIGNS = re.compile(r"^(?::[a-z_]+:|[^\w\[(【\"'「『<]|\ufe0f)+")
_NOTICE = re.compile(
    r"^(?:\[!\w+\]\s*|(?:note|notice|warning|caution|important|attention|info|tip|disclaimer|注意事項|注意|注記|注|警告|重要|お知らせ|備考|補足)\s*[:\])】]\s*)+",
    re.IGNORECASE,
)

Kind = Literal["title", "quote", "alone", "line", "item"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the head: `number` counts from 1, `text` is without marks and NFKC, `written` as it stands there.

    A `quote` stands in a block quote or is bold as a whole, one that is `alone` is a paragraph, an `item` is of a list.
    """

    number: int
    kind: Kind
    text: str
    written: str


def lines(document: Document, markup: Markup | None = None) -> Iterator[Line]:
    """The lines of a document's head that hold text, the title first where there is one."""
    kind = media_type(document)
    if kind == "text/csv" or document.uri.lower().endswith(_RECORDS):
        return
    if kind == "text/plain":
        yield from _plain(document.content)
        return
    try:
        markup = markup or parse(head_of(document.content))
    except RecursionError:
        return  # nested too deep to be a page that people write by hand
    yield from _markdown(document.content, markup)


def _plain(content: str) -> Iterator[Line]:
    number, taken, at = 0, 0, 0
    while taken < PLAIN_LINES and at < len(content) and number < 4 * PLAIN_LINES:
        end = content.find("\n", at)
        end = len(content) if end < 0 else end
        number += 1
        written = content[at : min(end, at + MAX_LINE)].strip()
        at = end + 1
        if written:
            taken += 1
            yield Line(number, "line", cleaned(written), written)


def _markdown(content: str, markup: Markup) -> Iterator[Line]:
    seen_title = said = folded = False
    taken = 0
    depth = 0
    for index, token in enumerate(markup.tokens):
        if depth == 0 and token.type == "heading_open":
            if seen_title or (said and token.tag != "h1"):
                return
            seen_title = True
            yield _title(markup, token, markup.tokens[index + 1])
        elif depth == 0 and token.map and token.type not in ("front_matter", "heading_close", "inline") and token.nesting >= 0:
            if token.type == "html_block":  # what is folded away is not said at the top of the page
                block = token.content.lower()
                folded = "</details" not in block and (folded or "<details" in block)
            if folded or token.type in ("fence", "code_block", "html_block", "hr", "table_open"):
                continue
            for line in _block(content, markup, token, _code(markup.tokens[index:])):
                said = True
                taken += 1
                if taken > MAX_LINES:
                    return
                yield line
        depth += token.nesting if token.type not in ("heading_open", "heading_close") else 0


def _title(markup: Markup, opening: Token, inline: Token) -> Line:
    text = heading_text(inline.content)[:MAX_LINE]
    return Line((opening.map or [0])[0] + 1, "title", unicodedata.normalize("NFKC", text).strip(), text)


def _code(tokens: Sequence[Token]) -> frozenset[int]:
    """The lines of code inside the block that begins here."""
    found: set[int] = set()
    depth = 0
    for token in tokens:
        depth += token.nesting
        if token.type in ("fence", "code_block") and token.map:
            found.update(range(*token.map))
        if depth <= 0:
            break
    return frozenset(found)


def _block(content: str, markup: Markup, token: Token, code: frozenset[int]) -> Iterator[Line]:
    first, last = token.map or (0, 0)
    kind: Kind = "line"
    if token.type == "blockquote_open":
        kind = "quote"
    elif token.type in ("bullet_list_open", "ordered_list_open"):
        kind = "item"
    elif last - first == 1:
        kind = "alone"
    for number in range(first, min(last, first + MAX_LINES)):
        if number + 1 >= len(markup.lines):
            return
        written = content[markup.lines[number] : markup.lines[number + 1]].strip()[:MAX_LINE]
        if number in code or _TASK.match(written) or not (text := cleaned(written)):
            continue
        bold = kind in ("line", "alone") and _BOLD.fullmatch(written) is not None
        yield Line(number + 1, "quote" if bold else kind, text, _QUOTE.sub("", written).strip())


def cleaned(written: str) -> str:
    """A line without the marks of quotes, lists and emphasis, and without signs and "Note:" before it."""
    text = html.unescape(_STRUCK.sub("", unicodedata.normalize("NFKC", written)))
    text = _LINK.sub(lambda link: link[1] or link[2] or "", text)
    text = _MAIL.sub(lambda found: found["mail"] if found["gap"] is None else f" ({found['mail']})", text)
    text = _EMPHASIS.sub("", _MARKS.sub("", text)).strip()
    before = None
    while before != text:
        before = text
        text = _NOTICE.sub("", _SIGNS.sub("", text)).strip()
    return text
