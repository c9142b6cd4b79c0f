"""Markdown: the content is the whole file, front matter included, so that offsets point into the real text.

The chunker skips the front matter; ragdb.metadata reads it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ragdb.readers.decode import read_text, shown
from ragdb.readers.markup import Markup, head_of, heading_text, parse
from ragdb.types import Document

log = logging.getLogger("ragdb.ingest")

# A title and an owner are also worth filtering by as the file wrote them; the others live in one place only.
_ALSO_METADATA = frozenset({"title", "owner"})


class MarkdownReader:
    """Reads .md. The title is the front matter's, else the first level-1 heading, else the file's name."""

    def read(self, path: Path) -> Document:
        name = shown(path.name)
        content = read_text(path)
        markup = parse(head_of(content))
        title = _front_title(markup) or first_heading(markup) or shown(path.stem)
        return Document(uri=name, content=content, title=title, metadata={}, source=shown(path.absolute()))


READER = MarkdownReader()


def _front_title(markup: Markup) -> str:
    written = markup.front_matter.written.get("title") if markup.front_matter else None
    return written.strip() if isinstance(written, str) else ""


def first_heading(markup: Markup) -> str:
    for token, inline in zip(markup.tokens, markup.tokens[1:], strict=False):
        if token.type == "heading_open" and token.level == 0 and token.tag == "h1" and heading_text(inline.content):
            return heading_text(inline.content)
    return ""
