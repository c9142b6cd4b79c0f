"""Sentences of plain text, Japanese or with spaces, as offsets. A line end always ends one."""

from __future__ import annotations

import regex

# A sentence ends at 。！？ (closing brackets and citation marks stay with it), at . ! ? before a space, or at a line end.
_CLOSING = r"(?:[」』）)\]\"”]|\[\d+\]|（(?:\[\d+\])+）)*"
_SENTENCE = regex.compile(
    rf"[^\n]*?(?:[。！？]{_CLOSING}|[.!?](?:[)\]\"”']|\[\d+\])*(?=\s|$)(?:\s*\[\d+\])*|(?=\n|$))", regex.MULTILINE
)


def sentences(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, surrounding space left out; blank ones too."""
    found = []
    for match in _SENTENCE.finditer(text):
        start, end = match.span()
        piece = text[start:end]
        start += len(piece) - len(piece.lstrip())
        end -= len(piece) - len(piece.rstrip())
        if start < end:
            found.append((start, end))
    return found
