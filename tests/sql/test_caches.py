"""The caches of rewritten questions and of vectors: what they take, that an index serves them, that nobody waits in them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from ragdb import Document, RagDB
from ragdb.testing import FakeEmbedder

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]
Session = psycopg.Connection[tuple[Any, ...]]

NUMBERS = FakeEmbedder().embed_query("router")
MODEL = FakeEmbedder().name
KEPT = json.dumps({"queries": [{"text": "another question", "legs": None}]})


@pytest.fixture
def session(rag: RagDB, ragdb_url: str) -> Iterator[Callable[..., Session]]:
    """Opens sessions whose statements fail when they wait."""
    rag.add(Document("a", "Reset the router."))
    with contextlib.ExitStack() as stack:

        def opened(level: IsolationLevel | None = None) -> Session:
            conn = stack.enter_context(psycopg.connect(ragdb_url, options="-c statement_timeout=2000"))
            conn.isolation_level = level
            return conn

        yield opened


def keep_rewrite(conn: Session, key: str, queries: str | None = KEPT) -> None:
    conn.execute("select ragdb.keep_rewrite(%s, %s)", [key, queries])


def keep_vector(conn: Session, key: str) -> None:
    conn.execute("select ragdb.keep_query_vector(%s, %s, %s)", [key, MODEL, NUMBERS])


KEEPERS = pytest.mark.parametrize("keep", [keep_rewrite, keep_vector])


@KEEPERS
def test_who_keeps_the_same_in_two_transactions_waits_for_nobody(session: Callable[..., Session], keep: Any) -> None:
    one, two = session(), session()
    keep(one, "first")
    keep(two, "second")
    keep(two, "first")
    keep(one, "second")
    for conn in (one, two):
        assert conn.execute("show lock_timeout").fetchall() == [("0",)]
        conn.commit()
    keep(two, "first")
    two.commit()
    table = "rewrite" if keep is keep_rewrite else "query_vector"
    assert two.execute(f"select count(*) from ragdb.{table}".encode()).fetchall() == [(2,)]


@KEEPERS
@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_what_was_kept_after_a_snapshot_breaks_no_transaction(
    session: Callable[..., Session], keep: Any, level: IsolationLevel
) -> None:
    one, two = session(level), session()
    one.execute("select count(*) from ragdb.document")
    keep(two, "first")
    two.commit()
    keep(one, "first")
    keep(one, "second")
    assert one.execute("select 1").fetchall() == [(1,)]
    one.commit()


def test_a_row_that_is_being_deleted_is_not_waited_for(session: Callable[..., Session]) -> None:
    one, two = session(), session()
    keep_rewrite(one, "first")
    one.commit()
    one.execute("delete from ragdb.rewrite")
    keep_rewrite(two, "first")
    assert two.execute("select 1").fetchall() == [(1,)]


def test_nothing_is_waited_for_that_a_stranger_could_hold(session: Callable[..., Session], query: Query) -> None:
    """A lock by number tells in pg_locks, which everybody reads, whose question it is, and anybody may hold it."""
    one = session()
    keep_rewrite(one, "first")
    keep_vector(one, "first")
    ours = "database = (select oid from pg_database where datname = current_database())"
    assert query(f"select count(*) from pg_locks where locktype = 'advisory' and {ours}") == [(0,)]


@pytest.mark.parametrize(
    ("key", "queries", "expected"),
    [
        (None, KEPT, "key is null"),
        ("k", None, "queries is null"),
        ("k", "[]", "queries is array"),
        ("k", "{}", '"queries" as nothing'),
        ("k", '{"queries": {}}', '"queries" as object'),
        ("k", '{"queries": [{"text": "a"}, 1]}', "query 2 is 1"),
        ("k", '{"queries": [{"legs": null}]}', "query 1 is"),
        ("k", '{"queries": [{"text": 3}]}', "query 1 is"),
        ("k", '{"queries": [{"text": null}]}', "query 1 is"),
        ("k", '{"queries": [{"text": "a", "legs": "lexical"}]}', "query 1 is"),
        ("k", '{"queries": [{"text": "a", "legs": ["lexical", 2]}]}', "query 1 is"),
        ("k", '{"queries": [{"text": "a", "origin": 7}]}', "query 1 is"),
        ("k", json.dumps({"queries": [{"text": "a"}] * 51}), "51 queries"),
        ("k", json.dumps({"queries": [{"text": "a" * 100_000}]}), "characters, 100000 are kept at most"),
    ],
)
def test_a_rewrite_of_another_shape_is_refused_with_the_right_one(
    session: Callable[..., Session], key: str | None, queries: str | None, expected: str
) -> None:
    conn = session()
    with pytest.raises(psycopg.Error, match=expected) as caught:
        keep_rewrite(conn, key, queries)  # type: ignore[arg-type]
    assert caught.value.sqlstate == "RD004"
    assert "Write it like" in (caught.value.diag.message_hint or "")


def test_what_is_kept_comes_back_with_all_its_keys(session: Callable[..., Session]) -> None:
    conn = session()
    for kept in (
        [],
        [{"text": "a"}],
        [{"text": "a", "legs": None, "origin": None}],
        [{"text": "", "legs": []}, {"text": "b", "legs": ["lexical", "semantic"], "origin": "hyde", "more": {"x": [1]}}],
        [{"text": "a", "legs": None}] * 50,
    ):
        keep_rewrite(conn, "k", json.dumps({"queries": kept, "by": "me"}))
        assert conn.execute("select ragdb.known_rewrite('k')").fetchall() == [(kept,)]


@pytest.mark.parametrize(
    ("table", "condition", "index"),
    [
        ("rewrite", "asked_by = ragdb.caller() and key_hash = sha256('x')", "rewrite_pkey"),
        ("query_vector", "model_id = 1 and asked_by = ragdb.caller() and text_hash = sha256('x')", "query_vector_pkey"),
    ],
)
def test_the_role_that_asks_is_looked_up_by_the_index(
    session: Callable[..., Session], table: str, condition: str, index: str
) -> None:
    """As `name` it had the collation "C", and the whole index was read for the hash."""
    conn = session()
    conn.execute("set enable_seqscan = off; set enable_bitmapscan = off")
    lines = conn.execute(f"explain (costs off) select from ragdb.{table} where {condition}".encode()).fetchall()
    text = "\n".join(line for (line,) in lines)
    assert index in text
    assert "(asked_by = ragdb.caller())" in text.split("Index Cond:")[1]
    assert "Filter" not in text


# --- what is old goes ---------------------------------------------------------------------------------


def fill(query: Query, runs: int = 0, caches: int = 0) -> None:
    """Runs with a stage and a citation, and rows of both caches; the n-th is n days old."""
    query(
        "with made as (insert into ragdb.run (collection, verb, question, pipeline, k, ms, started_at) "
        "select 'help', 'search', n::text, '{}', 1, 1, now() - n * interval '1 day' from generate_series(1, %s) n returning run_id), "
        "stage as (insert into ragdb.run_stage (run_id, step, stage, ms) select run_id, 1, 'fuse', 1 from made) "
        "insert into ragdb.citation (run_id, number, chunk_id, document_id, label, uri, heading_path, start_at, end_at, quote) "
        "select run_id, 1, 1, 1, 'l', 'u', '{}', 0, 1, 'q' from made",
        runs,
    )
    query(
        "insert into ragdb.rewrite (asked_by, key_hash, queries, created_at) "
        "select 'me', int4send(n), '[]', now() - n * interval '1 day' from generate_series(1, %s) n",
        caches,
    )
    query(
        "insert into ragdb.query_vector (model_id, asked_by, text_hash, v, created_at) "
        "select 1, 'me', int4send(n), array_fill(1, array[8])::vector, now() - n * interval '1 day' from generate_series(1, %s) n",
        caches,
    )


def test_prune_deletes_what_is_old_with_all_that_belongs_to_it(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router."))
    fill(query, runs=10, caches=40)
    assert query("select * from ragdb.prune()") == [("run", 0), ("rewrite", 11), ("query_vector", 11)]
    assert query("select * from ragdb.prune('4.5 days')") == [("run", 6), ("rewrite", 0), ("query_vector", 0)]
    assert query("select * from ragdb.prune(caches => null)") == [("run", 0), ("rewrite", 0), ("query_vector", 0)]
    for table in ("run", "run_stage", "citation"):
        assert query(f"select count(*) from ragdb.{table}") == [(4,)]
    assert query("select max(now() - created_at) < interval '30 days' from ragdb.query_vector") == [(True,)]


def test_prune_takes_a_batch_at_a_time_the_oldest_first(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router."))
    fill(query, runs=10, caches=10)
    assert query("select * from ragdb.prune('2.5 days', '6.5 days', 3)") == [("run", 3), ("rewrite", 3), ("query_vector", 3)]
    assert query("select question from ragdb.run order by run_id") == [(str(n),) for n in range(1, 8)]
    sums = [query("select sum(deleted)::integer from ragdb.prune('2.5 days', '6.5 days', 3)")[0][0] for _ in range(3)]
    assert sums == [5, 2, 0]


def test_prune_passes_over_what_others_have_in_hand(session: Callable[..., Session], query: Query) -> None:
    fill(query, runs=3, caches=3)
    conn = session()
    conn.execute("update ragdb.run set answer = null where question = '2'")
    conn.execute("update ragdb.rewrite set queries = '[]' where key_hash = int4send(2)")
    query("set statement_timeout = 2000")
    assert query("select * from ragdb.prune('0', '0')") == [("run", 2), ("rewrite", 2), ("query_vector", 3)]
    conn.rollback()
    assert query("select * from ragdb.prune('0', '0')") == [("run", 1), ("rewrite", 1), ("query_vector", 0)]


@pytest.mark.parametrize("arguments", ["runs => '-1 day'", "caches => '-1 day'", "batch => 0", "batch => null"])
def test_prune_refuses_what_would_delete_all_or_nothing(query: Query, arguments: str) -> None:
    with pytest.raises(psycopg.Error, match="prune: runs is") as caught:
        query(f"select * from ragdb.prune({arguments})")
    assert caught.value.sqlstate == "RD004"


def test_an_old_vector_is_not_renewed_by_being_asked_for(session: Callable[..., Session], query: Query) -> None:
    """A model that was changed under its name leaves no vector that lives for ever."""
    conn = session()
    keep_vector(conn, "first")
    conn.commit()
    query("update ragdb.query_vector set created_at = now() - interval '31 days'")
    keep_vector(conn, "first")
    conn.commit()
    assert query("select deleted from ragdb.prune() where what = 'query_vector'") == [(1,)]
