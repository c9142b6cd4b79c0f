"""Blocks to pieces of at most `max_tokens`: as many whole blocks as fit, else the coarsest cut inside one that does.

A tokenizer is not additive and not free, so the real text of a candidate is counted, never a sum, and candidates are
guessed from the characters per token seen so far. No call looks at much more text than a few chunks: the whole
costs time in proportion to the text, whatever it is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import regex

from ragdb.chunkers.blocks import GRAPHEME, PROSE, Block, ends_of, is_blank, joined, trim
from ragdb.chunkers.header import index_text
from ragdb.protocols import CountTokens

# Whatever a tokenizer says (spaces may be free): PostgreSQL indexes at most 1 MB of lexemes for a chunk.
MAX_CHUNK_CHARACTERS = 60_000

_SPACE = regex.compile(r"\s*+")


@dataclass(frozen=True, slots=True)
class Piece:
    """`content[start:end]`, stripped, and what is indexed above it."""

    start: int
    end: int
    context: str


@dataclass(slots=True)
class _Window:
    """What is known about the pieces that start at `start`: up to `fit` they fit, from `unfit` on they do not."""

    start: int
    context: str
    fit: int
    unfit: int
    sizes: dict[int, int] = field(default_factory=dict)


class _Joints:
    """The ends of a pattern's matches in a block and the block's own end, read as far as they are asked for.

    The words of a text of 50 MB are millions, and a piece needs those of the next few hundred characters.
    """

    def __init__(self, content: str, pattern: regex.Pattern[str], block: Block) -> None:
        self._matches = (match.end() for match in pattern.finditer(content, block.start, block.end))
        self._content = content
        self._end = block.end
        self._found = array("q")

    def between(self, start: int, end: int) -> array[int]:
        """Those from `start`, which never falls, to at least one that is not before `end`, or all."""
        found = self._found
        if len(found) > 1_000 and found[len(found) // 2] < start:
            del found[: bisect_left(found, start)]
        while not found or found[-1] < min(end, self._end):
            at = next(self._matches, self._end)
            if at == self._end or not joined(self._content, at):
                found.append(at)
        return found


class Splitter:
    """Splits the blocks of one section after the other. What it learns about the tokenizer it keeps."""

    def __init__(
        self,
        content: str,
        count_tokens: CountTokens,
        *,
        max_tokens: int,
        overlap: int = 0,
        min_tokens: int = 0,
        overlap_joints: Sequence[regex.Pattern[str]] = PROSE,
    ) -> None:
        """`overlap_joints`: behind which of these, coarsest first, an overlap may begin; else at any grapheme."""
        self._content = content
        self._count = count_tokens
        self._max = max_tokens
        self._overlap = overlap
        self._min = min_tokens
        self._overlap_joints = (*overlap_joints, GRAPHEME)
        self._header: str | None = None
        self._per_token = 2.0  # characters; corrected by each call
        self._bare = count_tokens("")  # special tokens

    def split(self, blocks: Sequence[Block], header: str) -> Iterator[Piece]:
        """Yields pieces in order that hold every visible character of the blocks. `header` is counted with each of them."""
        if not blocks:
            return
        if header != self._header:
            self._header = header
            self._overheads: dict[str, int] = {}
        self._blocks = blocks
        self._ends = ends_of(blocks)
        self._inner: dict[tuple[int, int], _Joints] = {}
        self._oldest = 0  # the block that the piece starts in
        start, done = self._skip(blocks[0].start), blocks[0].start
        while start < self._ends[-1]:
            window = self._window(start)
            self._forget_before(start)
            end = self._piece_end(window)
            if end <= done:  # the overlap left no room for anything new
                start = self._skip(done)
                continue
            first, last = trim(self._content, start, end)
            if not is_blank(self._content[max(first, done) : last]):
                yield Piece(first, last, window.context)
            done = end
            start = self._skip(self._back(start, end))

    def _forget_before(self, start: int) -> None:
        """Pieces start ever further on: what is known of the blocks behind is of no more use."""
        index = bisect_right(self._ends, start)
        if index > self._oldest:
            self._oldest = index
            self._inner = {place: joints for place, joints in self._inner.items() if place[0] >= index}

    def _skip(self, at: int) -> int:
        """The next visible place. White space under an accent is part of a grapheme and stays."""
        match = _SPACE.match(self._content, at, max(at, self._ends[-1]))
        to = match.end() if match else at
        return to - 1 if to > at and joined(self._content, to) else to

    # --- where a piece ends -------------------------------------------------------------------------

    def _piece_end(self, window: _Window) -> int:
        """The last whole block that fits; finer cuts while nothing does, or only crumbs before something too big."""
        best, level = window.start, 0
        while (bounds := self._bounds(level, best, window)) is not None:
            first = bisect_right(bounds, best)
            found = self._largest(window, bounds, first)
            best = max(best, found)
            if best > window.start and self._is_good(window, best, bounds):
                return best
            level += 1
        bounds = self._graphemes(window, best)
        best = max(best, self._largest(window, bounds, 0))
        return best if best > window.start else bounds[0]

    def _bounds(self, level: int, at: int, window: _Window) -> Sequence[int] | None:
        """Where a piece may end: at level 0 behind any block, then at the cuts and joints of the block around `at`."""
        if level == 0:
            return self._ends
        index = bisect_right(self._ends, at)
        if index == len(self._ends):
            return None
        block = self._blocks[index]
        if level <= len(block.cuts):
            return block.cuts[level - 1]
        number = level - 1 - len(block.cuts)
        if number >= len(block.joints):
            return None
        if (index, level) not in self._inner:
            self._inner[index, level] = _Joints(self._content, block.joints[number], block)
        return self._inner[index, level].between(window.start, window.unfit)

    def _graphemes(self, window: _Window, start: int) -> Sequence[int]:
        """The ends of the graphemes from `start` on, about as many as can fit; at least one."""
        block_end = self._ends[bisect_right(self._ends, start)]
        limit = min(block_end, start + MAX_CHUNK_CHARACTERS)
        reach = min(limit, start + 64 + min(2 * self._guess(), 8_192))
        while True:
            # A slice: \X looks back over a whole row of flags, which in 100,000 flags takes a minute.
            ends = [start + match.end() for match in GRAPHEME.finditer(self._content[start:reach])]
            if reach < block_end and (len(ends) > 1 or reach < limit):
                ends.pop()  # it may go on behind the reach; only one that is itself above the hard cap is cut
            if ends:
                return ends
            reach = min(limit, start + 4 * (reach - start))

    def _is_good(self, window: _Window, end: int, bounds: Sequence[int]) -> bool:
        """A piece may stay small, unless what follows must be cut anyway: then it takes a part of that."""
        following = bisect_right(bounds, end)
        if end >= self._ends[-1]:
            return True
        overhead = self._overhead(window.context)
        own = self._size(window, end) - overhead
        if own < self._min:
            return False
        if own * 4 >= self._max - overhead or following == len(bounds):
            return True
        return self._fits(self._window(self._skip(end)), bounds[following])

    # --- what fits ----------------------------------------------------------------------------------

    def _window(self, start: int) -> _Window:
        return _Window(start, self._context(start), start, start + MAX_CHUNK_CHARACTERS + 1)

    def _context(self, start: int) -> str:
        """The header rows of the table that a piece starts in, unless they would take half the room."""
        index = min(bisect_right(self._ends, start), len(self._blocks) - 1)
        header = self._blocks[index].header
        if header is None or start < header[1]:
            return ""
        if header[1] - header[0] > MAX_CHUNK_CHARACTERS // 4:
            return ""
        context = self._content[slice(*trim(self._content, *header))]
        taken = self._overhead(context) - self._overhead("")
        return context if taken * 2 <= self._max - self._overhead("") else ""

    def _overhead(self, context: str) -> int:
        if context not in self._overheads:
            self._overheads[context] = self._count(index_text(self._header or "", context, ""))
        return self._overheads[context]

    def _guess(self) -> int:
        """The characters that about fill a piece."""
        room = max(1, self._max - self._overheads.get("", self._bare))
        return min(MAX_CHUNK_CHARACTERS, max(1, int(room * self._per_token)))

    def _largest(self, window: _Window, bounds: Sequence[int], first: int) -> int:
        """The last of `bounds[first:]` that fits, or the window's start."""
        low, high = first - 1, len(bounds)  # low fits, high does not
        tries = 0
        while (high := min(high, bisect_left(bounds, window.unfit, low + 1, high))) - low > 1:
            guess = bisect_right(bounds, window.start + self._guess(), low + 1, high) - 1
            at = min(max(guess, low + 1), high - 1) if tries < 8 else (low + high) // 2
            tries += 1
            if self._fits(window, bounds[at]):
                low = at
            else:
                high = at
        return bounds[low] if low >= first else window.start

    def _fits(self, window: _Window, end: int) -> bool:
        """Counts `start:end`; a far end in steps, so that no call is much longer than what fits."""
        probe = max(window.start + 3 * self._guess() // 2, window.fit)
        while probe < min(end, window.unfit):
            if self._size(window, probe) > self._max:
                window.unfit = probe
                break
            window.fit = probe
            probe = window.start + max(3 * self._guess() // 2, 2 * (probe - window.start), 8)
        if end >= window.unfit:
            return False
        if self._size(window, end) > self._max:
            window.unfit = end
            return False
        window.fit = max(window.fit, end)
        return True

    def _size(self, window: _Window, end: int) -> int:
        if end not in window.sizes:
            text = self._content[slice(*trim(self._content, window.start, end))]
            size = self._count(index_text(self._header or "", window.context, text))
            window.sizes[end] = size
            self._per_token = max(0.1, len(text) / max(1, size - self._overhead(window.context)))
        return window.sizes[end]

    # --- overlap ------------------------------------------------------------------------------------

    def _back(self, start: int, end: int) -> int:
        """Where the next piece starts: the sentence, clause, word or grapheme that is at most `overlap` tokens before `end`."""
        if self._overlap <= 0 or end >= self._ends[-1] or self._blocks[bisect_left(self._ends, end)].header:
            return end
        # where a whole piece fits into the overlap (8,000 letters may be one token), half of it at most comes again
        first = start + (end - start) // 2 if self._is_overlap(start, end) else start
        for joint in self._overlap_joints:
            found = (start + match.end() for match in joint.finditer(self._content[start:end]))
            starts = [at for at in found if first <= at < end and (joint is GRAPHEME or not joined(self._content, at))]
            low, high = 0, len(starts)  # from starts[high] on it fits
            while low < high:
                middle = (low + high) // 2
                if self._is_overlap(starts[middle], end):
                    high = middle
                else:
                    low = middle + 1
            if low < len(starts):
                return starts[low]
        return end

    def _is_overlap(self, start: int, end: int) -> bool:
        return self._count(self._content[slice(*trim(self._content, start, end))]) - self._bare <= self._overlap
