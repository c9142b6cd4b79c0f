"""Markdown as blocks on lines: one parse that the reader (title, front matter) and the chunker share.

markdown-it-py finds the blocks; its inline pass is off. Structure needs no inline markup, and that pass alone is
slow on hostile input (100,000 brackets). Link definitions are left as text: they are content here, not structure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

# PyYAML is slow and a head is short; what is longer is text between two rules.
MAX_FRONT_MATTER = 50_000
MAX_HEAD = 200_000
MAX_WINDOW = 500_000
# Inline markup is read in headings of human length only.
MAX_HEADING = 1_000


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The block between `---` lines at the top. `values` as YAML reads them, `written` as strings (`1.10` stays).

    With a `problem` it is not YAML: then it has no values and its text belongs to the body.
    """

    end: int
    values: dict[Any, Any]
    written: dict[Any, Any]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Markup:
    """Block tokens whose `map` counts lines; `lines[n]` is the offset of line n, and one more for the end."""

    tokens: list[Token]
    lines: list[int]
    front_matter: FrontMatter | None


def head_of(text: str) -> str:
    """As much of a text as may be its head: what front matter and the first lines need is not in the rest of a book."""
    return text if len(text) <= MAX_HEAD else text[: text.rfind("\n", 0, MAX_HEAD) + 1] or text[:MAX_HEAD]


def in_windows(text: str, size: int = MAX_WINDOW) -> Iterator[tuple[Sequence[Token], int, Markup]]:
    """Yields every top-level block of a text as its tokens, the line that their maps count from, and the parse it is of.

    A large text is parsed a window at a time, for tokens take thirty times the room of their text. A block at the top level
    hangs on nothing before it, so each window begins at the last block of the one before, which may have been cut off.
    """
    start = line = 0
    while True:
        reach = len(text)
        if reach - start > size:
            reach = text.find("\n", start + size) + 1 or len(text)
        markup = parse(text[start:reach], front_matter=start == 0)
        groups = list(_top_level(markup.tokens))
        last = groups[-1][0].map if groups else None
        if reach < len(text) and (last is None or last[0] == 0):
            size *= 2  # one block that is larger than the window
            continue
        whole = groups if reach == len(text) or last is None else groups[:-1]
        for group in whole:
            yield group, line, markup
        if reach == len(text) or last is None:
            return
        start += markup.lines[last[0]]
        line += last[0]


def _top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The tokens from each opening one to its closing one."""
    first, depth = 0, 0
    for index, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[first : index + 1]
            first = index + 1


def line_starts(text: str) -> list[int]:
    """The offset of each line, and one more for the end."""
    ends = (match.end() for match in re.finditer(r"\r\n|\r|\n", text))
    return [0, *ends, len(text)]


def parse(text: str, *, front_matter: bool = True) -> Markup:
    """Returns the blocks of a Markdown text. Never fails: any text is Markdown. `front_matter` False: it is no whole text."""
    lines = line_starts(text)
    # The same length with LF as the only line end, so that lines and offsets agree with the parser.
    text = text.replace("\r\n", " \n").replace("\r", "\n")
    if not front_matter:
        return Markup(_parser(False).parse(text + "\n"), lines, None)
    tokens = _parser(True).parse(text + "\n")
    if not tokens or tokens[0].type != "front_matter":
        return Markup(tokens, lines, None)
    last = (tokens[0].map or [0, 0])[1]
    front = _judged(tokens[0].content, lines[min(last, len(lines) - 1)])
    return Markup(tokens if front else _parser(False).parse(text + "\n"), lines, front)


@cache
def _parser(front_matter: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table").disable(["inline", "reference"])
    return parser.use(front_matter_plugin) if front_matter else parser


@cache
def _inline() -> MarkdownIt:
    return MarkdownIt("commonmark")


def heading_text(source: str) -> str:
    """A heading as it is read: `**Bold** [link](x)` is `Bold link`."""
    if len(source) <= MAX_HEADING:
        source = "".join(_plain(token) for token in _inline().parseInline(source))
    return " ".join(source.split())


def _plain(token: Token) -> str:
    if token.children:
        return "".join(map(_plain, token.children))
    return " " if token.type in ("softbreak", "hardbreak") else "" if token.type == "html_inline" else token.content


def _judged(block: str, end: int) -> FrontMatter | None:
    """None: it only looked like front matter, and is text between two thematic breaks."""
    if not block.strip():
        return FrontMatter(end, {}, {})
    if len(block) > MAX_FRONT_MATTER:
        return None
    try:
        values = yaml.load(block, _Loader)  # noqa: S506 (a SafeLoader)
        written = yaml.load(block, yaml.BaseLoader)  # noqa: S506 (strings, lists and dicts only)
    # PyYAML's constructors let these through for values of the wrong form (`!!bool x`, `!!timestamp x`).
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # A head starts right under its first line; after a blank line it is text that stands between rules.
        blank = not block.split("\n", 1)[0].strip()
        return None if blank else FrontMatter(end, {}, {}, " ".join(str(error).split()) or type(error).__name__)
    return FrontMatter(end, values, written) if isinstance(values, dict) and isinstance(written, dict) else None


class _Loader(yaml.SafeLoader):
    """Dates stay as they are written: `2024-13-45` is then a bad date, not a file that cannot be read."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
