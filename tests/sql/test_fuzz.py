"""Whatever is typed into the search box: no input raises, and none is slow."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import psycopg
import pytest

from ragdb import Document, RagDB

PIECES = [
    "'", '"', "\\", "''", "\\'", "$$", "$1", "%s", "%", "--", "/*", "*/", ";", ":*", "::", "&", "|", "!", "<->", "(", ")", "{", "}", "[", "]",
    "<b>", "&amp;", "\t", "\n", "\u3000", "\u200b", "\u202e", "\ufeff", "e\u0301", "🙂", "👩‍👩‍👧", "寺", "京都", "ﬁ", "㍻", "ﷺ", "ｶﾞ", "ſ", "İ", "ß", "word", "WORD",
    "a-b_c.d/e@f", "-x", "1.5e300", "0x1F", "x" * 2100, "漢" * 700, "http://a.b/c?d=e#f", "NULL", "or", "and", "not", "{1:2}/3", "E'\\x41'",
]  # fmt: skip


def strings(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)  # noqa: S311
    planes = [
        (0x20, 0x7F),
        (0xA0, 0x24F),
        (0x370, 0x1FFF),
        (0x2000, 0x33FF),
        (0x3400, 0xD7FF),
        (0xE000, 0xFFFF),
        (0x10000, 0x10FFFF),
    ]
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.5:
                parts.append(rng.choice(PIECES))
            else:
                low, high = rng.choice(planes)
                parts.append("".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 20))))
            parts.append(rng.choice(["", " "]))
        yield "".join(parts).replace("\x00", " ")


@pytest.fixture
def filled(rag: RagDB) -> RagDB:
    for n in range(30):
        rag.add(Document(f"d{n}", f"Page {n} about word{n % 5}, 京都の寺院 {n}, ERR_CONN_RESET and the router."))
    return rag


def test_no_string_makes_a_search_raise(filled: RagDB, ragdb_url: str) -> None:
    seed = int(time.time())
    times = []
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        for n, text in enumerate(strings(2000, seed)):
            limit = '{"exact_limit": 0}' if n % 2 else "{}"
            began = time.perf_counter()
            try:
                conn.execute("select * from ragdb.lexical_leg(%s, 'help', options => %s::jsonb)", [text, limit])
            except psycopg.Error as error:
                pytest.fail(f"{text!r} (seed {seed}): {error}")
            times.append(time.perf_counter() - began)
    assert sorted(times)[int(0.99 * len(times))] < 0.5


def test_the_same_holds_for_the_whole_search(filled: RagDB) -> None:
    for text in strings(100, 1):
        if text.strip():
            filled.search(text)


@pytest.mark.parametrize(
    "text",
    ["word " * 50_000, " ".join(f"w{i}" for i in range(50_000)), "漢字" * 100_000, "ﷺ" * 60_000, "a" * 1_000_000, "'" * 100_000],
)
def test_very_long_questions_end_soon(filled: RagDB, ragdb_url: str, text: str) -> None:
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        began = time.perf_counter()
        conn.execute("select * from ragdb.lexical_leg(%s, 'help')", [text])
        assert time.perf_counter() - began < 5
