"""Strings that break what reads them: operators, quotes, backslashes, format marks, every plane of Unicode.

For tests of whatever takes a user's text. `strings(2000, seed=7)` gives the same ones each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

PIECES = (
    "'", '"', "\\", "''", "\\'", "$$", "$1", "%s", "%", "--", "/*", "*/", ";", ":*", "::", "&", "|", "!",
    "<->", "(", ")", "{", "}", "[", "]", "<b>", "&amp;", "\t", "\n", "\u3000", "\u200b", "\u202e", "\ufeff",
    "e\u0301", "🙂", "👩\u200d👩\u200d👧", "寺", "京都", "ﬁ", "㍻", "ﷺ", "ｶﾞ", "ſ", "İ", "ß", "word", "WORD",
    "a-b_c.d/e@f", "-x", "1.5e300", "0x1F", "x" * 2100, "漢" * 700, "http://a.b/c?d=e#f", "NULL", "or", "and",
    "not", "{1:2}/3", "E'\\x41'",
)  # fmt: skip
_PLANES = (
    (0x20, 0x7F),
    (0xA0, 0x24F),
    (0x370, 0x1FFF),
    (0x2000, 0x33FF),
    (0x3400, 0xD7FF),
    (0xE000, 0xFFFF),
    (0x10000, 0x10FFFF),
)


def strings(count: int, seed: int, *, words: Sequence[str] = ()) -> Iterator[str]:
    """`count` strings of one to eleven pieces, none with U+0000; with `words`, every other piece is one to forty of them."""
    rng = random.Random(seed)  # noqa: S311
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            if words and rng.random() < 0.5:
                parts.append(" ".join(rng.choices(words, k=rng.randrange(1, 40))))
            elif rng.random() < 0.5:
                parts.append(rng.choice(PIECES))
            else:
                low, high = rng.choice(_PLANES)
                parts.append("".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 20))))
            parts.append(rng.choice(["", " "]))
        yield "".join(parts)
