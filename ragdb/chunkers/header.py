"""What is indexed with a chunk: title and heading path above it, then its context, then its text.

The chunker reserves room for exactly this text, and the embedder must be given exactly this text, so both build it here.
"""

from __future__ import annotations

from collections.abc import Sequence

import regex

from ragdb.protocols import CountTokens


def index_header(title: str | None, heading_path: Sequence[str]) -> str:
    """`Title > Heading > Sub-heading`; a first heading that repeats the title is named once. Empty if there is nothing."""
    names = [" ".join(name.split()) for name in ((title or ""), *heading_path)]
    if len(names) > 1 and names[0] == names[1]:
        del names[1]
    return " > ".join(filter(None, names))


def fit_header(header: str, max_tokens: int, count_tokens: CountTokens) -> str:
    """The header, cut at its end to a quarter of `max_tokens` (special tokens not counted): the chunk's own text counts more."""
    room = max_tokens // 4 + count_tokens("")
    if not header or (len(header) < 40 * max_tokens and count_tokens(header) <= room):
        return header
    ends = [match.end() for match in regex.finditer(r"\X", header[: 40 * max_tokens])]
    low, high = 0, len(ends)  # the first `low` graphemes fit
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(header[: ends[middle - 1]]) <= room:
            low = middle
        else:
            high = middle - 1
    return header[: ends[low - 1]].rstrip() if low else ""


def index_text(header: str, context: str, content: str) -> str:
    """The text that is embedded and indexed for a chunk: the parts that are not empty, one under the other."""
    return "\n".join(part for part in (header, context, content) if part)
