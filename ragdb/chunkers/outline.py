"""A document as the parts that no chunk spans: what stands between two headings, on one page.

markdown-it-py says what is a heading (not the `#` in a code fence), a table, a list. Front matter and HTML comments
are in no part, and a heading stands at the start of the first block under it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from markdown_it.token import Token

from ragdb.chunkers.blocks import CODE, PROSE, Block, Clipper, Paragraphs, is_blank
from ragdb.chunkers.header import fit_header, index_header
from ragdb.chunkers.records import table
from ragdb.chunkers.split import Piece
from ragdb.protocols import CountTokens
from ragdb.readers.markup import heading_text, in_windows, line_starts
from ragdb.readers.media import media_type
from ragdb.types import Document, Section, Span

log = logging.getLogger("ragdb.ingest")

# A short paragraph right above a table is its caption and stays with it.
MAX_CAPTION = 200


@dataclass(slots=True)
class Part:
    """`blocks` hold all text of the part, and so do `stretches`: spans with nothing between their blocks but white space.

    `wrapped`: a line end in a paragraph is a space. `body_at`: where the part's heading ends.
    """

    section: Section | None
    blocks: Sequence[Block] = field(default_factory=list)
    stretches: Sequence[tuple[int, int]] = ()
    page: int | None = None
    wrapped: bool = False
    body_at: int = 0

    @property
    def path(self) -> tuple[str, ...]:
        return self.section.path if self.section else ()


def spans(
    document: Document, max_tokens: int, count_tokens: CountTokens, cut: Callable[[Part, str], Iterable[Piece]]
) -> tuple[Span, ...]:
    """The document's chunks: `cut(part, header)` makes the pieces of each part, with room for the header above each."""
    return tuple(
        Span(piece.start, piece.end, piece.context, part.section, part.page)
        for part, header in headed(document, max_tokens, count_tokens)
        for piece in cut(part, header)
    )


def headed(document: Document, max_tokens: int, count_tokens: CountTokens) -> Iterator[tuple[Part, str]]:
    """Yields the parts, each with the title and heading path that are indexed above its chunks."""
    path: tuple[str, ...] | None = None
    header = ""
    for part in parts(document):
        if part.path != path:
            path = part.path
            header = fit_header(index_header(document.title, path), max_tokens, count_tokens)
        yield part, header


def parts(document: Document) -> Iterator[Part]:
    """Yields the parts in order, none without blocks; nothing for a text that is blank or has headings only."""
    content = document.content
    if is_blank(content):
        return
    kind = media_type(document)
    if kind == "text/markdown":
        found: Iterable[Part] = _markdown_parts(content)
    else:
        found = [_table_part(content) if kind == "text/csv" else _plain_part(content)]
    for part in found:
        yield from _pages(content, part, document.pages) if document.pages else [part]


def _pages(content: str, part: Part, pages: Sequence[int]) -> Iterator[Part]:
    """The part, cut where pages begin. Where that parts a heading from its text, the heading is a part by itself."""
    blocks, stretches = Clipper(part.blocks), Clipper([Block(start, end) for start, end in part.stretches])
    start, end = part.stretches[0][0], part.stretches[-1][1]
    number = bisect_right(pages, start)
    while start < end:
        # Equal offsets: the pages between are empty.
        following = bisect_right(pages, start)
        until = min(end, pages[following]) if following < len(pages) else end
        if not is_blank(content[start:until]) and (clipped := blocks.clip(start, until)):
            on_page = [(block.start, block.end) for block in stretches.clip(start, until)]
            yield replace(part, blocks=clipped, stretches=on_page, page=max(1, number))
        start = until
        number = bisect_right(pages, start)


def _plain_part(content: str) -> Part:
    """Paragraphs are what stands between blank lines."""
    blocks = Paragraphs(content, 0, len(content))
    return Part(None, blocks, [(blocks[0].start, blocks[-1].end)])


def _table_part(content: str) -> Part:
    block = table(content)
    return Part(None, [block], [(block.start, block.end)])


def _markdown_parts(content: str) -> list[Part]:
    try:
        outline = _Outline(content)
    except RecursionError:
        log.warning("the Markdown is nested too deep to be parsed; it is chunked as plain text")
        return [_plain_part(content)]
    found = list(outline.parts())
    if not any(part.blocks for part in found):
        return []  # headings alone are a table of contents of nothing
    for part, following in zip(found, [*found[1:], None], strict=True):
        # A heading with nothing under it, not even sub-sections, says something by itself.
        if part.section is not None and not part.blocks and not _is_inside(following, part.section):
            part.blocks = [Block(part.section.start, part.body_at)]
        part.stretches = _stretches(content, part.blocks)
    return [part for part in found if part.blocks]


def _is_inside(part: Part | None, section: Section) -> bool:
    return part is not None and part.section is not None and part.section.level > section.level


def _stretches(content: str, blocks: Sequence[Block]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for block in blocks:
        if joined and not content[joined[-1][1] : block.start].strip():
            joined[-1] = (joined[-1][0], block.end)
        else:
            joined.append((block.start, block.end))
    return joined


@dataclass(frozen=True, slots=True)
class _Group:
    """What is kept of a top-level block: its lines, the text of a heading, the lines of list items with their depth."""

    kind: str
    first: int
    last: int
    level: int = 0
    heading: str = ""
    items: tuple[tuple[int, int], ...] = ()


def _groups(content: str, line_count: int) -> Iterator[_Group]:
    """The blocks of the text; front matter and comments, which no search should find, have the kind `hidden`."""
    for group, line, markup in in_windows(content):
        opening = group[0]
        first, last = opening.map or (0, 0)
        first, last = min(line + first, line_count), min(line + last, line_count)
        if opening.type == "heading_open":
            yield _Group("heading", first, last, int(opening.tag[1:]), heading_text(group[1].content))
        elif _is_comment(opening) or (opening.type == "front_matter" and markup.front_matter and not markup.front_matter.problem):
            yield _Group("hidden", first, last)
        elif opening.type in ("bullet_list_open", "ordered_list_open"):
            items = ((token.level, line + token.map[0]) for token in group if token.type == "list_item_open" and token.map)
            yield _Group("list", first, last, items=tuple(items))
        else:
            yield _Group(opening.type, first, last)


class _Outline:
    """Walks the top-level blocks: headings open parts, everything else becomes blocks of the part they stand in."""

    def __init__(self, content: str) -> None:
        self._content = content
        self._lines = line_starts(content)
        self._groups = list(_groups(content, len(self._lines) - 1))
        self._blocks: list[Block] = []  # of the part that is open

    def parts(self) -> Iterator[Part]:
        """Yields the parts, those without blocks too."""
        sections = iter(self._sections())
        part = Part(None, self._blocks, wrapped=True)
        line = 0  # the first one that no token has claimed
        for group in self._groups:
            self._add_text(part, line, group.first)
            line = max(line, group.last)
            if group.kind == "heading":
                yield part
                self._blocks = []
                part = Part(next(sections), self._blocks, wrapped=True, body_at=self._lines[group.last])
            elif group.kind != "hidden":
                self._add(part, self._block(group))
        self._add_text(part, line, len(self._lines) - 1)
        yield part

    def _add_text(self, part: Part, first: int, last: int) -> None:
        """Lines between two tokens: link definitions and whatever else the parser leaves out. No text is lost."""
        if first < last:
            self._add(part, Block(self._lines[first], self._lines[last]))

    def _add(self, part: Part, block: Block) -> None:
        if is_blank(self._content[block.start : block.end]):
            return
        start = block.start
        if not self._blocks and part.section is not None:
            start = part.section.start  # a heading is never parted from what follows
        elif self._blocks and block.header and self._is_caption(self._blocks[-1]):
            start = self._blocks.pop().start
        self._blocks.append(replace(block, start=start))

    def _is_caption(self, block: Block) -> bool:
        return block.joints is PROSE and not block.cuts and block.end - block.start <= MAX_CAPTION

    def _block(self, group: _Group) -> Block:
        start, end, kind = self._lines[group.first], self._lines[group.last], group.kind
        if kind == "table_open":
            # Behind the first row, so that the header is never alone.
            rows = (*self._lines[group.first + 3 : group.last], end)
            return Block(start, end, cuts=(rows,), header=(start, self._lines[group.first + 2]))
        if kind == "list":
            return Block(start, end, cuts=(self._items(group, start, end, 1), self._items(group, start, end, 1_000)))
        return Block(start, end, joints=CODE if kind in ("fence", "code_block", "html_block") else PROSE)

    def _items(self, group: _Group, start: int, end: int, deepest: int) -> tuple[int, ...]:
        found = {self._lines[line] for level, line in group.items if level <= deepest}
        return (*sorted(found - {start, end}), end)

    def _sections(self) -> list[Section]:
        headings = [group for group in self._groups if group.kind == "heading"]
        starts = [self._lines[group.first] for group in headings]
        levels = [group.level for group in headings]
        ends = _ends(levels, starts, len(self._content))
        sections: list[Section] = []
        around: list[Section] = []  # the open sections, outermost first
        for group, level, start, end in zip(headings, levels, starts, ends, strict=True):
            while around and around[-1].level >= level:
                around.pop()
            section = Section(group.heading, level, start, end, around[-1] if around else None)
            around.append(section)
            sections.append(section)
        return sections


def _ends(levels: Sequence[int], starts: Sequence[int], end: int) -> list[int]:
    """A section ends at the next heading of its level or above."""
    ends = [end] * len(levels)
    still_open: list[int] = []
    for number, level in enumerate(levels):
        while still_open and levels[still_open[-1]] >= level:
            ends[still_open.pop()] = starts[number]
        still_open.append(number)
    return ends


def _is_comment(token: Token) -> bool:
    """A block that is one HTML comment: no reader of the page sees it."""
    text = token.content.strip()
    return token.type == "html_block" and text.startswith("<!--") and text.find("-->") == len(text) - 3
