"""Chunks by heading first, by size second: a chunk never spans two sections.

markdown-it-py says what is a heading (not the `#` in a code fence), a table, a list; `split` does the sizes. A chunk
holds the heading line above it, front matter is in no chunk, and all other text is in exactly one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from markdown_it.token import Token

from ragdb.chunkers.header import fit_header, index_header
from ragdb.chunkers.split import CODE, PROSE, Block, Splitter, is_blank
from ragdb.errors import ConfigError
from ragdb.protocols import CountTokens
from ragdb.readers.markup import Markup, heading_text, parse
from ragdb.readers.media import media_type
from ragdb.types import Document, Section, Span

log = logging.getLogger("ragdb.ingest")

# A short paragraph right above a table is its caption and stays with it.
MAX_CAPTION = 200


class MarkdownChunker:
    """Sections of Markdown, paragraphs of plain text, in pieces of at most `max_tokens` of the embedder's tokens.

    Counted is what is embedded: title, heading path, context and text (`header.index_text`). `overlap` tokens of a
    chunk are repeated at the start of the next one in its section (not in tables). A chunk below `min_tokens` takes a
    part of the block behind it even where that could have stayed whole; the last chunk of a section may be smaller.
    """

    def __init__(self, max_tokens: int = 256, overlap: int = 0, min_tokens: int = 0) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens is {max_tokens}; give a number of tokens from 1 on, below the embedder's own limit")
        if not 0 <= overlap < max_tokens:
            raise ConfigError(f"overlap is {overlap}; it is 0 or more and below max_tokens ({max_tokens})")
        if not 0 <= min_tokens <= max_tokens:
            raise ConfigError(f"min_tokens is {min_tokens}; it is 0 or more and at most max_tokens ({max_tokens})")
        self.max_tokens = max_tokens
        self.overlap = overlap
        self.min_tokens = min_tokens

    def __repr__(self) -> str:
        """What is recorded as the recipe of the chunks: the same text, the same chunks."""
        return f"MarkdownChunker(max_tokens={self.max_tokens}, overlap={self.overlap}, min_tokens={self.min_tokens})"

    @classmethod
    def load(cls, model: str) -> MarkdownChunker:
        """The default chunker; there is only one, so `model` is not looked at."""
        return cls()

    def chunk(self, document: Document, count_tokens: CountTokens) -> Sequence[Span]:
        """Returns the spans in order; none for a text that is blank or has headings only."""
        content = document.content
        if is_blank(content):
            return ()
        parts = _markdown_parts(content) if media_type(document) == "text/markdown" else _plain_parts(content)
        splitter = Splitter(content, count_tokens, max_tokens=self.max_tokens, overlap=self.overlap, min_tokens=self.min_tokens)
        spans: list[Span] = []
        for part in parts:
            header = fit_header(index_header(document.title, part.path), self.max_tokens, count_tokens)
            pieces = splitter.split(part.blocks, header)
            spans += (Span(piece.start, piece.end, piece.context, part.section) for piece in pieces)
        return tuple(spans)


@dataclass(slots=True)
class _Part:
    """The blocks between one heading and the next."""

    section: Section | None
    blocks: list[Block] = field(default_factory=list)
    heading_at: int | None = None
    heading_end: int = 0

    @property
    def path(self) -> tuple[str, ...]:
        return self.section.path if self.section else ()


def _plain_parts(content: str) -> list[_Part]:
    """Paragraphs are what stands between blank lines."""
    blocks: list[Block] = []
    at, start = 0, -1
    for line in content.splitlines(keepends=True):
        if line.strip():
            start = at if start < 0 else start
        elif start >= 0:
            blocks.append(Block(start, at))
            start = -1
        at += len(line)
    if start >= 0:
        blocks.append(Block(start, at))
    return [_Part(None, blocks)]


def _markdown_parts(content: str) -> list[_Part]:
    try:
        markup = parse(content)
    except RecursionError:
        log.warning("the Markdown is nested too deep to be parsed; it is chunked as plain text")
        return _plain_parts(content)
    parts = list(_Outline(content, markup).parts())
    if not any(part.blocks for part in parts):
        return []  # headings alone are a table of contents of nothing
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        # A heading with nothing under it, not even sub-sections, says something by itself.
        if part.section is not None and not part.blocks and not _is_inside(following, part.section):
            part.blocks.append(Block(part.section.start, part.heading_end))
    return [part for part in parts if part.blocks]


def _is_inside(part: _Part | None, section: Section) -> bool:
    return part is not None and part.section is not None and part.section.level > section.level


class _Outline:
    """Walks the top-level tokens: headings open parts, everything else becomes blocks of the part they stand in."""

    def __init__(self, content: str, markup: Markup) -> None:
        self._content = content
        self._lines = markup.lines
        self._in_no_chunk = markup.front_matter is not None and not markup.front_matter.problem
        self._groups = list(_top_level(markup.tokens))

    def parts(self) -> Iterator[_Part]:
        sections = iter(self._sections())
        part = _Part(None)
        line = 0  # the first one that no token has claimed
        for group in self._groups:
            first, last = self._line_range(group)
            self._add_text(part, line, first)
            line = max(line, last)
            if group[0].type == "heading_open":
                yield part
                part = _Part(next(sections), heading_at=self._lines[first], heading_end=self._lines[last])
            elif not _is_comment(group) and (group[0].type != "front_matter" or not self._in_no_chunk):
                self._add(part, self._block(group, first, last))
        self._add_text(part, line, len(self._lines) - 1)
        yield part

    def _line_range(self, group: Sequence[Token]) -> tuple[int, int]:
        first, last = group[0].map or (0, 0)
        return min(first, len(self._lines) - 1), min(last, len(self._lines) - 1)

    def _add_text(self, part: _Part, first: int, last: int) -> None:
        """Lines between two tokens: link definitions and whatever else the parser leaves out. No text is lost."""
        if first < last:
            self._add(part, Block(self._lines[first], self._lines[last]))

    def _add(self, part: _Part, block: Block) -> None:
        if is_blank(self._content[block.start : block.end]):
            return
        start = block.start
        if not part.blocks and part.heading_at is not None:
            start = part.heading_at  # a heading is never parted from what follows
        elif part.blocks and block.header and self._is_caption(part.blocks[-1]):
            start = part.blocks.pop().start
        part.blocks.append(replace(block, start=start))

    def _is_caption(self, block: Block) -> bool:
        return block.joints is PROSE and not block.cuts and block.end - block.start <= MAX_CAPTION

    def _block(self, group: Sequence[Token], first: int, last: int) -> Block:
        start, end, kind = self._lines[first], self._lines[last], group[0].type
        if kind == "table_open":
            rows = tuple(self._lines[first + 3 : last])  # behind the first row, so that the header is never alone
            return Block(start, end, cuts=(rows,), header=(start, self._lines[first + 2]))
        if kind in ("bullet_list_open", "ordered_list_open"):
            return Block(start, end, cuts=(self._items(group, start, 1), self._items(group, start, 1_000)))
        return Block(start, end, joints=CODE if kind in ("fence", "code_block", "html_block") else PROSE)

    def _items(self, group: Sequence[Token], start: int, deepest: int) -> tuple[int, ...]:
        found = {self._lines[t.map[0]] for t in group if t.type == "list_item_open" and t.level <= deepest and t.map}
        return tuple(sorted(found - {start}))

    def _sections(self) -> list[Section]:
        headings = [group for group in self._groups if group[0].type == "heading_open"]
        starts = [self._lines[self._line_range(group)[0]] for group in headings]
        levels = [int(group[0].tag[1:]) for group in headings]
        ends = _ends(levels, starts, len(self._content))
        sections: list[Section] = []
        around: list[Section] = []  # the open sections, outermost first
        for group, level, start, end in zip(headings, levels, starts, ends, strict=True):
            while around and around[-1].level >= level:
                around.pop()
            section = Section(heading_text(group[1].content), level, start, end, around[-1] if around else None)
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


def _is_comment(group: Sequence[Token]) -> bool:
    """A block that is one HTML comment: no reader of the page sees it, so no search should find it."""
    text = group[0].content.strip()
    return group[0].type == "html_block" and text.startswith("<!--") and text.find("-->") == len(text) - 3


def _top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The tokens from each opening one to its closing one."""
    first, depth = 0, 0
    for index, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[first : index + 1]
            first = index + 1
