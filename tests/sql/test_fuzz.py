"""Whatever is typed into the search box: no input raises, and none is slow."""

from __future__ import annotations

import time

import psycopg
import pytest

from ragdb import Document, RagDB
from ragdb.testing.odd import strings


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
