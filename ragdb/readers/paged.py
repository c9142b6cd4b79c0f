"""The texts of pages as one text, and where in it each page begins."""

from __future__ import annotations

from collections.abc import Iterable


def joined(pages: Iterable[str]) -> tuple[str, list[int]]:
    """One text with a blank line between pages, and the offset of each page; an empty page begins where the next one does."""
    parts: list[str] = []
    offsets: list[int] = []
    end = 0
    for page in pages:
        if page and end:
            parts.append("\n\n")
            end += 2
            # empty pages before this one begin where it does
            n = len(offsets)
            while n and offsets[n - 1] == end - 2:
                n -= 1
                offsets[n] = end
        offsets.append(end)
        if page:
            parts.append(page)
            end += len(page)
    return "".join(parts), offsets
