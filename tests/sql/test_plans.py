"""Which way the legs take, seen by search_plan and by the counters of the indexes. VEC-02, and filters that do not starve."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from ragdb.db import hnsw
from ragdb.db.connect import libpq_url

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]

# 300 documents of 10 chunks. `page` stands everywhere, `even` in every second document, the rest is rarer.
FILL = """
select setseed(0.5);
select ragdb.register_model('plans', 8);
select ragdb.create_collection('help', 1, '{"exact_limit": 500, "candidate_budget": 1000}');
insert into ragdb.document (document_id, collection_id, uri, ready_revision, n_chunks, ingest_state, metadata)
  select d, 1, 'd' || d, 1, 10, 'ready', jsonb_build_object('tenant', d % 100, 'half', d % 2)
    from generate_series(1, 300) d;
insert into ragdb.chunk (chunk_id, document_id, born_revision, text_hash, content)
  select c, 1 + (c - 1) / 10, 1, int8send(c),
         format('page number%s topic%s word%s %s', c, c % 7, c % 500, case when (1 + (c - 1) / 10) % 2 = 0 and c % 3 = 0 then 'even' else '' end)
    from generate_series(1, 3000) c;
insert into ragdb.chunk_place (document_id, revision, ordinal, chunk_id, label, start_at, end_at)
  select document_id, 1, (chunk_id - 1) % 10, chunk_id, 'l' || chunk_id, 0, 1 from ragdb.chunk;
insert into ragdb.embedding (chunk_id, model_id, dims, v)
  select c.chunk_id, 1, 8, l2_normalize(array(select random() - 0.5 from generate_series(1, 8) where c.chunk_id > 0)::vector)
    from ragdb.chunk c;
select ragdb.refresh_lexical_stats('help');
analyze;
"""
QUESTION = "page topic3 word17"
VECTOR = [0.5, -0.2, 0.3, 0.1, -0.6, 0.4, 0.2, -0.1]


@pytest.fixture(scope="module")
def corpus(ragdb_server: str, ragdb_template: str) -> Iterator[str]:
    """URL of a database with 3,000 chunks and an HNSW index; the tests of this file only read it."""
    name = f"ragdb_plans_{uuid.uuid4().hex[:8]}"
    url = libpq_url(make_url(ragdb_server).set(database=name))
    with psycopg.connect(ragdb_server, autocommit=True) as server:
        server.execute(sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(ragdb_template)))
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(FILL)
    [model] = hnsw.models(url)
    hnsw.build(url, model)
    yield url
    with psycopg.connect(ragdb_server, autocommit=True) as server:
        server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(params=["auto", "force_generic_plan"])
def planned(corpus: str, request: pytest.FixtureRequest) -> Iterator[Query]:
    """Runs statements with parameters as drivers send them, prepared at once, under both ways of planning."""
    with psycopg.connect(corpus, autocommit=True, prepare_threshold=0) as conn:
        conn.execute(f"set plan_cache_mode = {request.param}".encode())

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        yield run


def plan(query: Query, leg: str, where: Any = None, options: Any = None, question: str = QUESTION) -> tuple[set[str], str]:
    """The paths that search_plan names for a leg, and its lines."""
    rows = query(
        'select path, line from ragdb.search_plan(%s, %s, 10, "where" => %s, query_vector => %s, options => %s) where leg = %s',
        question,
        "help",
        json.dumps(where or {}),
        VECTOR,
        json.dumps(options or {}),
        leg,
    )
    return {path for path, _ in rows}, "\n".join(line for _, line in rows)


def leg(query: Query, name: str, where: Any = None, options: Any = None, question: str = QUESTION, k: int = 50) -> Any:
    """chunk_ids, path, matching and note of a leg."""
    first, kind = (question, "text") if name == "lexical" else (VECTOR, "float8[]")
    statement = f"select chunk_ids, path, matching, note from ragdb.{name}_leg(%s::{kind}, 'help', %s, %s, %s)"
    [row] = query(statement, first, k, json.dumps(where or {}), json.dumps(options or {}))
    return row


def scans(url: str, index: str) -> int:
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute("select idx_scan from pg_stat_user_indexes where indexrelname = %s", [index]).fetchone()
    assert row is not None
    return int(row[0] or 0)


def grown(url: str, index: str, before: int, at_least: int) -> bool:
    """Statistics lag behind: looks for some seconds."""
    until = time.monotonic() + 10
    while scans(url, index) < before + at_least:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_many_matching_chunks_go_through_the_indexes(planned: Query) -> None:
    paths, lines = plan(planned, "semantic")
    assert paths == {"hnsw"}
    assert "Index Scan using embedding_hnsw_1 on embedding" in lines
    assert "Seq Scan" not in lines
    paths, lines = plan(planned, "lexical")
    assert paths == {"gin"}
    assert "Bitmap Index Scan on chunk_lexemes_idx" in lines
    assert "Seq Scan" not in lines


@pytest.mark.parametrize("where", [{"tenant": 7}, {"tenant": {"in": [7]}}, {"tenant": {"in": []}}, {"uri": {"prefix": "d29"}}])
def test_few_matching_chunks_are_looked_up_document_by_document(planned: Query, where: Any) -> None:
    paths, lines = plan(planned, "semantic", where)
    assert paths == {"exact"}
    assert "using chunk_document_id_idx on chunk" in lines
    assert "Index Scan using embedding_pkey on embedding" in lines
    paths, lines = plan(planned, "lexical", where)
    assert paths == {"exact"}
    assert "using chunk_document_id_idx on chunk" in lines
    assert "Seq Scan on chunk" not in lines


def test_a_filter_that_half_of_the_chunks_match_keeps_the_order_of_the_index(planned: Query) -> None:
    paths, lines = plan(planned, "semantic", {"half": 1}, {"analyze": True})
    assert paths == {"hnsw"}
    assert "Index Scan using embedding_hnsw_1 on embedding" in lines
    assert "Join Filter" not in lines
    assert "Materialize" not in lines


def test_the_plan_is_that_of_the_leg(planned: Query) -> None:
    for where in ({}, {"half": 1}, {"tenant": 7}, {"tenant": "nobody"}, {"status": "draft"}):
        for options in ({}, {"exact_limit": 0}, {"exact_limit": 100000}):
            for name in ("lexical", "semantic"):
                taken = leg(planned, name, where, options)[1]
                assert taken in plan(planned, name, where, {**options, "analyze": True})[0], (name, where, options)


def test_the_hnsw_index_is_used_by_every_call_with_parameters(planned: Query, corpus: str) -> None:
    before = scans(corpus, "embedding_hnsw_1")
    for _ in range(14):
        assert leg(planned, "semantic")[1] == "hnsw"
    planned("select pg_stat_force_next_flush()")
    assert grown(corpus, "embedding_hnsw_1", before, 14)


def test_hybrid_search_uses_both_indexes(planned: Query, corpus: str) -> None:
    before = [scans(corpus, index) for index in ("embedding_hnsw_1", "chunk_lexemes_idx")]
    rows = planned("select chunk_id from ragdb.search(%s, %s, 10, query_vector => %s)", QUESTION, "help", VECTOR)
    assert len(rows) == 10
    planned("select pg_stat_force_next_flush()")
    assert grown(corpus, "embedding_hnsw_1", before[0], 1)
    assert grown(corpus, "chunk_lexemes_idx", before[1], 1)


def test_with_analyze_the_plan_is_run_and_shows_rows_and_buffers(planned: Query) -> None:
    for name in ("lexical", "semantic"):
        assert "actual" not in plan(planned, name)[1]
        lines = plan(planned, name, options={"analyze": True})[1]
        assert "actual" in lines
        assert "Buffers" in lines


def test_the_plan_shows_the_settings_and_leaves_none_behind(corpus: str) -> None:
    with psycopg.connect(corpus) as conn:

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        assert "enable_sort = 'off'" in plan(run, "semantic")[1]
        assert "enable_seqscan = 'off'" in plan(run, "lexical")[1]
        names = ("enable_sort", "enable_seqscan", "hnsw.iterative_scan", "hnsw.ef_search")
        assert [run(f"show {name}")[0][0] for name in names] == ["on", "on", "off", "40"]


def test_a_leg_that_searches_for_nothing_says_why(planned: Query) -> None:
    assert plan(planned, "lexical", question="!!!") == ({"empty"}, "no word of the question is searched for")
    rows = planned("select leg, path, line from ragdb.search_plan('page', 'help', options => %s)", '{"legs": ["semantic"]}')
    assert rows == [("semantic", "empty", "no vector of the question")]


def test_a_wrong_filter_or_collection_is_refused_as_by_the_search(planned: Query) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        plan(planned, "lexical", {"tenant": {"like": 1}})
    assert caught.value.sqlstate == "RD001"
    with pytest.raises(psycopg.DatabaseError) as caught:
        planned("select * from ragdb.search_plan('page', 'nowhere')")
    assert caught.value.sqlstate == "RD002"


# --- filters do not starve the lexical leg ------------------------------------------------------------


@pytest.mark.parametrize("question", ["page topic3 word17", "word17 word18 even", "even number77", "number5"])
@pytest.mark.parametrize("where", [{"half": 0}, {"half": 1}, {"tenant": {"lt": 60}}])
def test_the_gin_path_finds_under_a_filter_what_scoring_all_finds(planned: Query, where: Any, question: str) -> None:
    ids, path, *_ = leg(planned, "lexical", where, question=question)
    assert path in ("gin", "exact")
    assert ids == leg(planned, "lexical", where, {"exact_limit": 100000}, question=question)[0]


def test_too_few_candidates_of_the_rarest_words_mean_that_all_are_scored(corpus: str) -> None:
    with psycopg.connect(corpus) as conn:

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        conn.execute("update ragdb.collection set candidate_budget = 550, exact_limit = 1")
        # `even` (500 chunks) fills the budget, and stands in no document of this half
        ids, path, _, note = leg(run, "lexical", {"half": 1}, question="even page")
        assert (len(ids), path) == (50, "exact")
        assert "GIN gave 0 of 50" in note
        paths, _ = plan(run, "lexical", {"half": 1}, {"analyze": True}, question="even page")
        assert paths == {"gin", "exact"}
        conn.rollback()


def test_a_small_collection_in_a_large_table_is_not_searched_by_gin(corpus: str) -> None:
    """GIN knows no collections: what the rare words of a small one give are mostly the chunks of others."""
    with psycopg.connect(corpus) as conn:

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        conn.execute("select ragdb.create_collection('other', 1, '{\"exact_limit\": 5}')")
        conn.execute("alter table ragdb.document disable trigger user")
        conn.execute("update ragdb.document set collection_id = 2 where document_id <= 20")
        conn.execute("select ragdb.refresh_lexical_stats()")
        [(path,)] = run("select path from ragdb.lexical_leg(%s, 'other')", QUESTION)
        assert path == "exact"
        conn.rollback()


# --- what reads chunks by their ids reads no others -----------------------------------------------------

ROLE = """
create role plans_reader;
grant usage on schema ragdb to plans_reader;
grant execute on function ragdb.fuse, ragdb.explain, ragdb.record_run to plans_reader;
select ragdb.grant_collection('help', 'plans_reader', '{"half": 1}')
"""
READ = """
select relname::text, seq_tup_read, seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables
 where schemaname = 'ragdb' and relname in ('chunk', 'chunk_place') order by 1
"""


Reads = Callable[..., tuple[list[tuple[Any, ...]], int, int]]


@pytest.fixture(params=["auto", "force_generic_plan"])
def reads(corpus: str, request: pytest.FixtureRequest) -> Iterator[Reads]:
    """Runs a statement: its rows, and how many of chunk and chunk_place were read by a scan of all, and in any way."""
    with psycopg.connect(corpus, options=f"-c plan_cache_mode={request.param}") as conn:

        def run(statement: str, *values: Any) -> tuple[list[tuple[Any, ...]], int, int]:
            before = conn.execute(READ).fetchall()
            rows = conn.execute(statement.encode(), values).fetchall()
            read = [(a[1] - b[1], a[2] - b[2]) for a, b in zip(conn.execute(READ).fetchall(), before, strict=True)]
            return rows, sum(scanned for scanned, _ in read), sum(all_of_them for _, all_of_them in read)

        conn.execute(ROLE.encode())
        yield run
        conn.rollback()


@pytest.mark.parametrize("role", ["none", "plans_reader"])
def test_every_call_of_fuse_reads_the_chunks_that_it_is_given(reads: Reads, role: str) -> None:
    reads("select set_config('role', %s, true)", role)
    lists = json.dumps({"lexical": [*range(101, 151)], "semantic": [*range(121, 171)]})
    for _ in range(12):
        rows, scanned, read = reads("select * from ragdb.fuse(%s, %s, 'help')", lists, QUESTION)
        assert len(rows) == (50 if role == "none" else 40)  # of 7 documents those with odd numbers
        assert scanned == 0
        assert read <= 70 * 4


@pytest.mark.parametrize("role", ["none", "plans_reader"])
def test_every_call_of_explain_reads_the_chunks_of_the_run(reads: Reads, role: str) -> None:
    reads("select set_config('role', %s, true)", role)
    stage = {"stage": "retrieve", "name": "lexical", "ms": 1, "scores": [1.0] * 50}
    stages = [{**stage, "step": n, "chunk_ids": [*range(n * 100, n * 100 + 50)]} for n in range(1, 7)]
    run = {"collection": "help", "verb": "search", "question": "q", "pipeline": {}, "k": 1, "ms": 1, "stages": stages}
    [(run_id,)], *_ = reads("select ragdb.record_run(%s)", json.dumps(run))
    for _ in range(12):
        rows, scanned, read = reads("select * from ragdb.explain(%s, 50)", run_id)
        assert len(rows) == 300
        assert scanned == 0
        assert read <= 300 * 4
