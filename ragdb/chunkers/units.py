"""The sentences of a part, and what counts as one where there are none: a table row, a record, a line of code."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

import regex

from ragdb.chunkers.blocks import PROSE, WRAPPED, Block, joined
from ragdb.chunkers.outline import Part

_WORDED = regex.compile(r"\w")


def units(content: str, part: Part) -> Iterator[tuple[int, int]]:
    """Yields spans that stand in order and hold all text of the part's blocks, white space at their ends included.

    Every one holds a letter or digit, if the part does: a rule or a code fence belongs to what follows. A heading
    belongs to the first sentence under it.
    """
    held: tuple[int, int] | None = None
    start, worded = -1, False
    for block in part.blocks:
        at = block.start
        for end in _bounds(content, block, part.wrapped):
            start = at if start < 0 else start
            worded = worded or _WORDED.search(content, max(at, part.body_at), end) is not None
            at = end
            if worded:
                if held:
                    yield held
                held, start, worded = (start, end), -1, False
    if start >= 0:
        # A rule at the end, or a part without any letter under its heading.
        held = (held[0] if held else start, part.blocks[-1].end)
    if held:
        yield held


def _bounds(content: str, block: Block, wrapped: bool) -> Iterator[int]:
    """Where the sentences of a block end; its own end is the last."""
    if block.header is not None:
        yield from block.cuts[0]
        return
    pattern = WRAPPED if wrapped and block.joints is PROSE else block.joints[0]
    found = (match.end() for match in pattern.finditer(content, block.start, block.end))
    items = block.cuts[-1] if block.cuts else ()
    before = block.start
    for end in merge((at for at in found if at < block.end and not joined(content, at)), items, (block.end,)):
        if end > before:
            yield end
            before = end
