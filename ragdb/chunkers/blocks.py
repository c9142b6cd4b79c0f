"""What chunkers cut: blocks (a paragraph, list, table, code block), and the places in them where a cut does no harm."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import regex

_CLOSERS = "[”’\"'」』）)\\]】》〉］｝}»]*+"
SENTENCE = regex.compile(
    rf"[。！？｡]++{_CLOSERS}\s*+"
    rf"|．(?!\d){_CLOSERS}\s*+"
    rf"|(?<![!?])[!?]++{_CLOSERS}(?=\s|[^\x00-\x7f])\s*+"  # the look-behind keeps "!!!!..." linear
    rf"|\.{_CLOSERS}(?=\s)\s*+"
    r"|\n\s*+"
)
CLAUSE = regex.compile(r"[、，；]\s*+|[,;](?=\s)\s*+")
WORD = regex.compile(r"\s++")
LINE = regex.compile(r"\n")
# Sentences where a line end is a space, as in a paragraph of Markdown; two spaces or a backslash before it break the line.
WRAPPED = regex.compile(
    rf"[。！？｡]++{_CLOSERS}\s*+"
    rf"|．(?!\d){_CLOSERS}\s*+"
    rf"|(?<![!?])[!?]++{_CLOSERS}(?=\s|[^\x00-\x7f])\s*+"
    rf"|\.{_CLOSERS}(?=\s)\s*+"
    r"|(?<=  |\\)\n\s*+|\n[^\S\n]*+\n\s*+"
)
# Between words; in scripts that put no spaces between them, behind any character.
RUNNING = regex.compile(
    r"\s++|[\p{Han}\p{Hiragana}\p{Katakana}ー\u3000-\u303f\uff00-\uff65\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*+"
)
PROSE = (SENTENCE, CLAUSE, WORD)
CODE = (LINE, WORD)
GRAPHEME = regex.compile(r"\X")
_VISIBLE = regex.compile(r"[^\s\p{Cc}\p{Cf}]")
# As str.splitlines and str.isspace see lines and blanks. A line end and the blank lines behind it:
_LINE_END = r"(?>\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029])"
_BLANK_LINES = rf"(?:[\t\x1f \xa0\u1680\u2000-\u200a\u202f\u205f\u3000]*+{_LINE_END})"
_GAP = re.compile(rf"({_LINE_END}){_BLANK_LINES}++")
_LEADING = re.compile(rf"{_BLANK_LINES}*+")
_DARK = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list, table or code block. `cuts`: offsets where it may be cut, coarsest list first, its end the last of
    each; `joints`: patterns behind which it may be cut when those do not do. `header`: the span of a table's header rows."""

    start: int
    end: int
    cuts: tuple[Sequence[int], ...] = ()
    joints: tuple[regex.Pattern[str], ...] = PROSE
    header: tuple[int, int] | None = None


def is_blank(text: str) -> bool:
    """Nothing to see: white space, control and format characters (U+200B, U+FEFF) only."""
    return _VISIBLE.search(text) is None


def joined(content: str, at: int) -> bool:
    """Whether a cut at `at`, beside white space or punctuation, would part a grapheme (a space with an accent on it)."""
    return 0 < at < len(content) and GRAPHEME.fullmatch(content[at - 1 : at + 1]) is not None


def trim(content: str, start: int, end: int) -> tuple[int, int]:
    """The span without surrounding white space, but never from or to the middle of a grapheme."""
    text = content[start:end]
    if not text.strip():
        return start, start
    first, last = end - len(text.lstrip()), start + len(text.rstrip())
    first -= first > start and joined(content, first)
    last += last < end and joined(content, last)
    return first, last


class Paragraphs(Sequence[Block]):
    """What stands between blank lines in `content[start:end]`; two numbers a paragraph, for a text may have millions."""

    def __init__(self, content: str, start: int, end: int) -> None:
        self._starts = array("q")
        self.ends = array("q")
        leading = _LEADING.match(content, start, end)
        at = leading.end() if leading else start
        for gap in _GAP.finditer(content, at, end):
            self._add(at, gap.end(1))
            at = gap.end()
        if _DARK.search(content, at, end):
            self._add(at, end)

    def _add(self, start: int, end: int) -> None:
        self._starts.append(start)
        self.ends.append(end)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Block]: ...

    def __getitem__(self, index: int | slice) -> Block | Sequence[Block]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return Block(self._starts[index], self.ends[index])


def ends_of(blocks: Sequence[Block]) -> array[int]:
    """Where each block ends."""
    return blocks.ends if isinstance(blocks, Paragraphs) else array("q", (block.end for block in blocks))


class Clipper:
    """Parts of a row of blocks, for callers that ask for one span after the other."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._ends = ends_of(blocks)

    def clip(self, start: int, end: int) -> list[Block]:
        """The blocks as far as they stand in the span; a table keeps its header, even where that is outside."""
        return list(self._clipped(start, end))

    def _clipped(self, start: int, end: int) -> Iterator[Block]:
        for index in range(bisect_right(self._ends, start), len(self._blocks)):
            block = self._blocks[index]
            if block.start >= end:
                return
            first, last = max(block.start, start), min(block.end, end)
            if (first, last) != (block.start, block.end):
                cuts = tuple(array("q", [*at[bisect_right(at, first) : bisect_left(at, last)], last]) for at in block.cuts)
                block = replace(block, start=first, end=last, cuts=cuts)
            yield block
