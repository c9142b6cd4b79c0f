"""The semantic leg: k rows whenever k rows match, settings put back, dimensions up to and above what HNSW holds. VEC-01, VEC-05."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from ragdb import Document, Pipeline, RagDB
from ragdb.db import hnsw
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
SEMANTIC = Pipeline(legs=("semantic",), window=0)
QUESTION = "lighthouse"
DIMS = 16
SETTINGS = ("hnsw.ef_search", "hnsw.iterative_scan", "enable_sort", "enable_seqscan")

# Beside the first document: tenant A in 2,000 chunks very near the question, tenant B in 5 that are further away.
FILL = """
select setseed(0.25);
insert into ragdb.document (document_id, collection_id, uri, ready_revision, n_chunks, ingest_state, metadata)
  select 1000 + d, 1, 'd' || d, 1, case when d <= 200 then 10 else 1 end, 'ready', jsonb_build_object('tenant', case when d <= 200 then 'A' else 'B' end)
    from generate_series(1, 205) d;
insert into ragdb.chunk (chunk_id, document_id, born_revision, text_hash, content)
  select 10000 + c, 1000 + case when c <= 2000 then 1 + (c - 1) / 10 else c - 1800 end, 1, int8send(c), 'chunk ' || c
    from generate_series(1, 2005) c;
insert into ragdb.chunk_place (document_id, revision, ordinal, chunk_id, label, start_at, end_at)
  select document_id, 1, case when chunk_id <= 12000 then (chunk_id - 10001) % 10 else 0 end, chunk_id, 'l' || chunk_id, 0, 1
    from ragdb.chunk where chunk_id > 10000;
insert into ragdb.embedding (chunk_id, model_id, dims, v)
  select c.chunk_id, 1, {dims}, l2_normalize(('{vector}'::vector(16)
           + array(select (random() - 0.5) * case when c.chunk_id <= 12000 then 0.2 else 0.8 + 0.02 * (c.chunk_id - 12000) end
                     from generate_series(1, {dims}) where c.chunk_id > 0)::vector)::vector)
    from ragdb.chunk c where c.chunk_id > 10000;
select ragdb.refresh_lexical_stats('help');
analyze;
"""


@pytest.fixture
def vector() -> list[float]:
    return FakeEmbedder(DIMS).embed_query(QUESTION)


@pytest.fixture
def tenants(ragdb_url: str, vector: list[float], query: Query) -> Iterator[RagDB]:
    """Tenants A and B, indexed, in a database where sequential scans are off."""
    query(f'alter database "{make_url(ragdb_url).database}" set enable_seqscan = off')
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(DIMS)) as rag:
        rag.add(Document("first", "A page about gardens.", metadata={"tenant": "C"}))
        with psycopg.connect(ragdb_url, autocommit=True) as conn:
            conn.execute(FILL.format(dims=DIMS, vector=vector).encode())
        hnsw.build(ragdb_url, hnsw.models(ragdb_url)[0])
        yield rag


def leg(query: Query, vector: Any, k: int, where: Any = None, options: Any = None) -> Any:
    """chunk_ids, scores, path, matching and note of the leg."""
    [row] = query(
        "select chunk_ids, scores, path, matching, note from ragdb.semantic_leg(%s::float8[], 'help', %s, %s, %s)",
        vector,
        k,
        json.dumps(where or {}),
        json.dumps(options or {}),
    )
    return row


# --- VEC-01 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact_limit", [10000, 1000, 0])
def test_every_matching_row_up_to_k_is_found_whatever_stands_nearer(
    tenants: RagDB, query: Query, vector: list[float], exact_limit: int
) -> None:
    query("update ragdb.collection set exact_limit = %s", exact_limit)
    nearest = query(
        "select e.chunk_id from ragdb.embedding e where e.chunk_id > 12000 order by e.v <=> %s::float8[]::vector, 1", vector
    )
    for _ in range(2):  # twice on one pooled connection
        hits = tenants.search(QUESTION, k=5, where={"tenant": "B"}, pipeline=SEMANTIC).hits
        assert [(hit.chunk_id,) for hit in hits] == nearest
        assert len(tenants.search(QUESTION, k=100, pipeline=SEMANTIC).hits) == 100
        assert len(tenants.search(QUESTION, k=1000, where={"tenant": "A"}, pipeline=SEMANTIC).hits) == 1000


def test_where_the_index_gives_too_few_all_are_compared_and_it_is_said(
    tenants: RagDB, query: Query, vector: list[float], ragdb_url: str
) -> None:
    with psycopg.connect(ragdb_url) as conn:

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        run("select '[1]'::vector")  # loads the library, whose settings these are
        conn.execute("set local hnsw.max_scan_tuples = 1")
        ids, _, path, matching, note = leg(run, vector, 5, {"tenant": "B"}, {"exact_limit": 0})
    assert (len(ids), path, matching) == (5, "exact", 5)
    assert "of 5, so every matching chunk was compared" in note
    ids, _, path, matching, _ = leg(query, vector, 50, {"tenant": "B"}, {"exact_limit": 0})
    assert (len(ids), matching) == (5, 5), "all five are all there are"
    assert tenants.search(QUESTION, where={"tenant": "B"}, pipeline=SEMANTIC).hits


@pytest.mark.usefixtures("tenants")
def test_both_paths_give_the_same_rows_in_the_same_order(query: Query, vector: list[float]) -> None:
    indexed, exact = (leg(query, vector, 50, {}, {"exact_limit": limit}) for limit in (0, 100_000))
    assert (indexed[2], exact[2]) == ("hnsw", "exact")
    # half precision may swap neighbours as near as these at the end of the list
    assert len(set(indexed[0]) & set(exact[0])) >= 46
    assert indexed[0][:5] == exact[0][:5]
    assert sorted(indexed[1], reverse=True) == indexed[1]


def test_the_path_reaches_the_trace_also_where_nothing_was_found(tenants: RagDB, query: Query) -> None:
    assert tenants.search(QUESTION, where={"tenant": "nobody"}, pipeline=SEMANTIC).hits == ()
    query("update ragdb.collection set exact_limit = 100")
    assert tenants.search(QUESTION, where={"tenant": "A"}, pipeline=SEMANTIC).hits
    notes = [note for (note,) in query("select note from ragdb.run_stage where stage = 'retrieve' order by run_id")]
    assert notes[0].startswith("exact")
    assert "0 chunks match" in notes[0]
    assert notes[1].startswith("hnsw")


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tenants")
def test_the_callers_settings_are_put_back_after_success(ragdb_url: str, vector: list[float]) -> None:
    with psycopg.connect(ragdb_url) as conn:

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        def settings() -> list[str]:
            return [run(f"show {name}")[0][0] for name in SETTINGS]

        assert leg(run, vector, 50, {}, {"exact_limit": 0})[2] == "hnsw"
        assert settings() == ["40", "off", "on", "off"]
        conn.execute("set local hnsw.ef_search = 55")
        conn.execute("set local enable_seqscan = on")
        assert leg(run, vector, 50, {}, {"exact_limit": 0})[2] == "hnsw"
        assert settings() == ["55", "off", "on", "on"]
        conn.commit()
        assert settings() == ["40", "off", "on", "off"]


@pytest.mark.usefixtures("tenants")
def test_the_callers_settings_are_put_back_after_an_error(ragdb_url: str, vector: list[float]) -> None:
    with psycopg.connect(ragdb_url) as conn:

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            return conn.execute(statement.encode(), values).fetchall()

        conn.execute(
            """create or replace function ragdb.semantic_statement(path text, condition text, model_id bigint, dims integer) returns text
               language sql as $$ select 'select chunk_id, 1 / (chunk_id - chunk_id) as score from ragdb.chunk' $$"""
        )
        conn.execute("set local hnsw.ef_search = 55")
        with pytest.raises(psycopg.errors.DivisionByZero), conn.transaction():
            leg(run, vector, 50, {}, {"exact_limit": 0})
        assert [run(f"show {name}")[0][0] for name in SETTINGS] == ["55", "off", "on", "off"]
        conn.execute(
            """do $$ begin
                 perform ragdb.semantic_leg(array_fill(1.0::float8, array[16]), 'help', options => '{"exact_limit": 0}');
               exception when division_by_zero then null; end $$"""
        )
        assert [run(f"show {name}")[0][0] for name in SETTINGS] == ["55", "off", "on", "off"]
        conn.rollback()


# --- wrong vectors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([1.0] * 7, "has 7 numbers, but model"),
        ([], "has 0 numbers, but model"),
        ([float("nan"), *[1.0] * 7], "null, NaN, infinite or only zero"),
        ([float("inf"), *[1.0] * 7], "null, NaN, infinite or only zero"),
        ([None, *[1.0] * 7], "null, NaN, infinite or only zero"),
        ([0.0] * 8, "null, NaN, infinite or only zero"),
    ],
)
def test_a_vector_that_is_none_is_refused_by_name(rag: RagDB, query: Query, numbers: list[Any], message: str) -> None:
    rag.add(Document("d", "A page."))
    with pytest.raises(psycopg.DatabaseError, match=message) as caught:
        leg(query, numbers, 5)
    assert caught.value.sqlstate == "RD003"


@pytest.mark.parametrize("size", [1e-200, 1e-3, 0.3, 1.0, 7.0, 1e200])
def test_only_the_direction_of_a_vector_counts(rag: RagDB, query: Query, size: float) -> None:
    for n in range(5):
        rag.add(Document(f"d{n}", f"A page about thing{n}."))
    given = FakeEmbedder().embed_query("thing3")
    wanted = leg(query, given, 5)
    ids, scores, *_ = leg(query, [x * size for x in given], 5)
    assert ids == wanted[0]
    assert scores == pytest.approx(wanted[1], abs=1e-6)


def test_no_vector_and_no_model_are_an_empty_list_with_its_reason(rag: RagDB, query: Query) -> None:
    query("select ragdb.create_collection('help')")
    assert leg(query, [1.0] * 8, 5) == ([], [], "empty", None, "the collection has no embedding model")
    rag.add(Document("d", "A page."))
    assert leg(query, None, 5) == ([], [], "empty", None, "no vector of the question")


# --- VEC-05 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [2000, 3072, 4000, 4096])
def test_long_vectors_are_searched_by_index_up_to_4000_dimensions_and_exactly_above(
    ragdb_url: str, query: Query, dims: int
) -> None:
    embedder = FakeEmbedder(dims)
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        for uri, text in (("a", "Reset the router."), ("b", "The battery is empty."), ("c", "Lunch starts at noon.")):
            rag.add(Document(uri, text))
        [model] = hnsw.models(ragdb_url)
        built = hnsw.build(ragdb_url, model)
        assert built.action == ("built" if dims <= 4000 else "none")
        query("update ragdb.collection set exact_limit = 0")
        assert rag.search("battery", pipeline=SEMANTIC)[0].uri == "b"
        ids, _, path, _, note = leg(query, embedder.embed_query("battery"), 3)
        assert len(ids) == 3
        if dims > 4000:
            assert (path, note) == (
                "exact",
                "4096 dimensions are more than an HNSW index holds: every matching chunk is compared",
            )
            return
        assert path == "hnsw"
        query("select pg_stat_force_next_flush()")
        until = time.monotonic() + 10
        while query("select idx_scan from pg_stat_user_indexes where indexrelname = 'embedding_hnsw_1'") == [(0,)]:
            assert time.monotonic() < until, "the index is not used"
            time.sleep(0.05)


def test_without_an_index_every_chunk_is_compared_and_it_is_said(rag: RagDB, query: Query) -> None:
    rag.add(Document("d", "A page."))
    ids, _, path, _, note = leg(query, [1.0] * 8, 5, {}, {"exact_limit": 0})
    assert (len(ids), path, note) == (1, "exact", "no HNSW index for this model: every matching chunk is compared")
