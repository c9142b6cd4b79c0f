"""Stored runs beside other transactions, and how few of them a list of some reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from ragdb import Document, RagDB
from ragdb.db import schema

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]


def a_run(document_id: int) -> str:
    """An answered question that quotes a document."""
    place = {"label": "l", "uri": "u", "heading_path": [], "start": 0, "end": 1}
    return json.dumps(
        {
            "collection": "help",
            "verb": "ask",
            "question": "how?",
            "pipeline": {},
            "k": 1,
            "ms": 1,
            "answer": "So. [1]",
            "document_ids": [document_id],
            "citations": [{"number": 1, "chunk_id": 1, "document_id": document_id, "quote": "so", **place}],
        }
    )


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_document_that_was_deleted_after_the_callers_snapshot_is_not_quoted(
    rag: RagDB, query: Query, ragdb_url: str, level: IsolationLevel
) -> None:
    rag.add(Document("a", "Reset the router."))
    with psycopg.connect(ragdb_url) as conn:
        conn.isolation_level = level
        [(document_id,)] = conn.execute("select document_id from ragdb.document").fetchall()
        query("select ragdb.delete_document('help', 'a')")
        assert conn.execute("select ragdb.record_run(%s)", [a_run(document_id)]).fetchall() != [(None,)]
        conn.commit()
    assert query("select answer, document_ids from ragdb.run") == [(None, [])]
    assert query("select quote, purged from ragdb.citation") == [(None, True)]


def test_a_change_of_status_after_the_callers_snapshot_costs_no_quote(rag: RagDB, query: Query, ragdb_url: str) -> None:
    rag.add(Document("a", "Reset the router."))
    with psycopg.connect(ragdb_url) as conn:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        [(document_id,)] = conn.execute("select document_id from ragdb.document").fetchall()
        query("update ragdb.document set status = 'archived'")
        conn.execute("select ragdb.record_run(%s)", [a_run(document_id)])
        # nor is the status held while this one is open
        query("set statement_timeout = 2000; update ragdb.document set status = 'active'")
        conn.commit()
    assert query("select answer, document_ids from ragdb.run") == [("So. [1]", [document_id])]
    assert query("select quote, purged from ragdb.citation") == [("so", False)]


def test_deleting_a_document_and_pruning_its_runs_do_not_lock_each_other(rag: RagDB, query: Query, ragdb_url: str) -> None:
    rag.add(Document("a", "Reset the router."))
    query("select ragdb.record_run(%s)", a_run(query("select document_id from ragdb.document")[0][0]))
    with psycopg.connect(ragdb_url) as pruner, psycopg.connect(ragdb_url, autocommit=True) as deleter:
        pid = deleter.info.backend_pid
        # ragdb.prune() in two steps
        pruner.execute("select from ragdb.run for update skip locked")
        thread = threading.Thread(target=lambda: deleter.execute("select ragdb.delete_document('help', 'a')"))
        thread.start()
        until = time.monotonic() + 20
        while query("select wait_event_type from pg_stat_activity where pid = %s", pid) != [("Lock",)]:
            assert time.monotonic() < until
            time.sleep(0.01)
        pruner.execute("set statement_timeout = 10000")
        pruner.execute("delete from ragdb.run")
        pruner.commit()
        thread.join()
    assert query("select (select count(*) from ragdb.run), (select count(*) from ragdb.document)") == [(0, 0)]


# Every run is of one role in one collection, as the statistics say too; the others came later.
RUNS = """
do $$ begin if to_regrole('asks') is null then create role asks; end if; end $$;
grant ragdb_reader to asks;
select ragdb.create_collection('few', null);
select ragdb.grant_collection('help', 'asks'), ragdb.grant_collection('few', 'asks');
create function pg_temp.ask(collection text, n integer, limits bytea default null, ids bigint[] default '{}') returns void language sql as $$
  insert into ragdb.run (collection, verb, question, pipeline, k, caller, limits_hash, document_ids, ms)
  select collection, 'search', 'q', '{}', 1, 'asks', limits, ids, 1 from generate_series(1, n) $$;
select pg_temp.ask('help', 3000);
analyze ragdb.run;
select pg_temp.ask('few', 2);
"""


@pytest.fixture
def asks(rag: RagDB, query: Query) -> Callable[..., tuple[int, int]]:
    """Lists runs as a role: how many came, and how many of the table were looked at."""
    rag.add(Document("a", "Reset the router."))
    query(schema.roles_script())
    query(RUNS)

    def listed(role: str, arguments: str) -> tuple[int, int]:
        looked = (
            "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'ragdb' and relname = 'run'"
        )
        query("begin")
        query(f"set local role {role}")
        before = query(looked)
        came = len(query(f"select * from ragdb.list_runs({arguments})"))
        after = query(looked)
        query("commit")
        return came, after[0][0] - before[0][0]

    return listed


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
def test_a_list_of_runs_reads_hardly_more_than_it_shows(asks: Callable[..., tuple[int, int]], query: Query, mode: str) -> None:
    query(f"set plan_cache_mode = {mode}")
    for _ in range(8):
        for role in ("none", "asks"):
            for arguments, shown in (("'few'", 2), ("'help'", 50), ("null", 50), ("'help', 50, 5", 4)):
                came, looked = asks(role, arguments)
                assert came == shown
                assert looked <= 3 * shown, (role, arguments)


def test_under_a_live_filter_runs_without_documents_are_not_asked_about(
    asks: Callable[..., tuple[int, int]], query: Query
) -> None:
    """reads_run() looks at a few tables for each run that it is asked about."""
    query("select ragdb.register_filter('all', 'select document_id from ragdb.document')")
    query("select ragdb.revoke_collection('help', 'asks')")
    query("""select ragdb.grant_collection('help', 'asks', '{"filter": {"all": []}}')""")
    limits = """ragdb.limits_hash('[{"filter": {"all": []}}]')"""
    query(
        f"select pg_temp.ask('help', 2, {limits}, array(select document_id from ragdb.document)), pg_temp.ask('help', 300, {limits})"
    )
    query("set track_functions = 'all'")
    counted = (
        "select coalesce(sum(calls), 0) from pg_stat_xact_user_functions where schemaname = 'ragdb' and funcname = 'reads_run'"
    )
    query("begin")
    query("set local role asks")
    [(before,)] = query(counted)
    assert len(query("select * from ragdb.list_runs('help')")) == 2
    [(after,)] = query(counted)
    query("rollback")
    assert after - before <= 2
