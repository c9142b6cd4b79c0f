"""Long texts in parts that a model can read: halved, at the sentence's end nearest the middle, until each part fits."""

from __future__ import annotations

from collections.abc import Callable

from ragdb.sentences import sentences

_MOST_CHARACTERS = 20  # of a token, on average


def windows(text: str, limit: int, count_tokens: Callable[[str], int]) -> list[str]:
    """The text in order, in parts of at most `limit` tokens (at least 1); nothing is left out but space at the cuts."""
    # What is that long does not fit: it need not be counted, which for a book takes longer than all the rest.
    if len(text) < 2 or (len(text) <= limit * _MOST_CHARACTERS and count_tokens(text) <= limit):
        return [text]
    cut = _cut(text)
    parts = [part for part in (text[:cut].strip(), text[cut:].strip()) if part]
    return [window for part in parts for window in windows(part, limit, count_tokens)]


def first_window(text: str, limit: int, count_tokens: Callable[[str], int]) -> str:
    """The beginning of a text, of at most `limit` tokens."""
    text = text[: limit * _MOST_CHARACTERS]
    while len(text) > 1 and (count := count_tokens(text)) > limit:
        # a little shorter than the share that would fit, so that few rounds do
        text = text[: max(1, min(len(text) - 1, int(len(text) * limit / count * 0.95)))]
    return text


def _cut(text: str) -> int:
    middle = len(text) // 2
    ends = [end for _, end in sentences(text)[:-1]] or [place for place, mark in enumerate(text) if mark.isspace()]
    inside = [end for end in ends if len(text) // 4 <= end <= len(text) * 3 // 4]
    return min(inside, key=lambda end: abs(end - middle), default=middle)
