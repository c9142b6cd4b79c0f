"""What a DBA looks at: the views, and `ragdb doctor`, which tells each thing that is wrong with its fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from ragdb import Document, RagDB
from ragdb.cli.main import app
from ragdb.db import doctor, hnsw

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]


# The server of the tests runs without them, and doctor says so.
UNSAFE = ("setting fsync", "setting full_page_writes")


def wrong(url: str) -> dict[str, tuple[str, str]]:
    return {f.about: (f.found, f.fix) for f in doctor.examine(url) if f.level != "ok" and f.about not in UNSAFE}


def test_overview_counts_what_is_there_by_collection(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router."))
    rag.add(Document("b", "Old page.", status="archived"))
    rag.context.database.call("submit_document", collection="help", uri="w", content="wombats dig burrows")
    seen = query("select collection, documents, active, archived, waiting, failed, chunks, vectors from ragdb.overview")
    assert seen == [("help", 3, 2, 1, 1, 0, 2, 2)]
    query("select * from ragdb.refresh_lexical_stats('help')")
    assert query("select stats_drift, stats_refreshed_at is not null from ragdb.overview") == [(0, True)]


def test_sizes_add_up(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router."))
    assert query("select count(*) from ragdb.sizes where total_bytes < table_bytes + toast_bytes + index_bytes") == [(0,)]
    assert query("select index_bytes > 0 from ragdb.sizes where \"table\" = 'chunk'") == [(True,)]


def test_the_depth_of_the_queue_is_told_by_collection_and_state(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router."))
    for uri in ("w", "x", "y", "z"):
        rag.context.database.call("submit_document", collection="help", uri=uri, content=f"wombats dig {uri}")
    query("select * from ragdb.claim_jobs('one', 2)")
    query("update ragdb.job set leased_until = now() - interval '1 minute' where job_id = (select min(job_id) from ragdb.job)")
    query("update ragdb.job set state = 'failed' where job_id = (select max(job_id) from ragdb.job)")
    query("select ragdb.create_collection('empty')")
    seen = query("select collection, waiting, due, processing, lost, failed, oldest is not null from ragdb.queue_depth")
    assert seen == [("empty", 0, 0, 0, 0, 0, False), ("help", 1, 1, 2, 1, 1, True)]


def test_stale_documents_are_active_ones_that_are_overdue(rag: RagDB, query: Query) -> None:
    past, later = datetime(2020, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)
    rag.add(Document("old", "Reset the router.", owner="SRE", review_after=past))
    rag.add(Document("archived", "Reset the old router.", status="archived", review_after=past))
    rag.add(Document("fresh", "Reset the new router.", review_after=later))
    rag.add(Document("never", "No review."))
    assert query("select collection, uri, owner, overdue > interval '1 year' from ragdb.stale_documents") == [
        ("help", "old", "SRE", True)
    ]


def test_an_empty_schema_has_empty_views(query: Query) -> None:
    for view in ("overview", "run_latency", "queue_depth", "stale_documents"):
        assert query(f"select * from ragdb.{view}") == []
    assert query("select count(*) from ragdb.index_health where problem is not null") == [(0,)]


def test_latency_of_each_stage_is_told_by_hour(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router."))
    for _ in range(3):
        rag.search("router")
    seen = query("select stage, name, runs, p50_ms <= p95_ms and p95_ms <= max_ms from ragdb.run_latency where verb = 'search'")
    assert ("all", "", 3, True) in seen
    assert ("retrieve", "lexical", 3, True) in seen


def test_every_view_says_what_its_columns_are(query: Query) -> None:
    silent = query(
        "select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid "
        "where c.relnamespace = 'ragdb'::regnamespace and c.relkind = 'v' "
        "group by c.relname having count(col_description(c.oid, a.attnum)) = 0"
    )
    assert silent == []


def test_a_missing_or_broken_index_is_a_problem(rag: RagDB, query: Query, ragdb_url: str) -> None:
    for n in range(3):
        rag.add(Document(f"d{n}", f"Page {n}."))
    query("update ragdb.collection set exact_limit = 2")
    assert "no HNSW index" in query("select problem from ragdb.index_health where problem is not null")[0][0]
    hnsw.build(ragdb_url, hnsw.models(ragdb_url)[0])
    assert query("select count(*) from ragdb.index_health where problem is not null") == [(0,)]
    query("update pg_index set indisvalid = false where indexrelid = 'ragdb.embedding_hnsw_1'::regclass")
    found, fix = wrong(ragdb_url)["index embedding_hnsw_1"]
    assert found.startswith("invalid")
    assert fix == "ragdb embedder index"


def test_a_healthy_database_has_nothing_to_mend(rag: RagDB, ragdb_url: str) -> None:
    rag.add(Document("a", "Reset the router."))
    assert wrong(ragdb_url) == {}


@pytest.mark.parametrize(
    ("statement", "about", "fix"),
    [
        ("alter table ragdb.chunk disable trigger chunk_lexemes", "schema", "ragdb db check"),
        ("grant create on schema public to public", "extension schema", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
        ("delete from ragdb.lexical_stats", "document frequencies of help", "refresh_lexical_stats('help')"),
        ("update ragdb.job set state = 'failed'", "queue", "add them again"),
        ("update ragdb.job set created_at = now() - interval '1 hour'", "queue", "ragdb worker"),
        (
            "insert into ragdb.collection_grant (collection_id, grantee) values (1, 'nosuch')",
            "grant of help to nosuch",
            "revoke_collection('help', 'nosuch')",
        ),
        (
            "insert into ragdb.collection_grant (collection_id, grantee) values (1, 'pg_monitor')",
            "grant of help to pg_monitor",
            "grant ragdb_reader to pg_monitor",
        ),
        (
            'insert into ragdb.collection_grant (collection_id, grantee, "where") values (1, \'public\', \'{"a": {"like": 1}}\')',
            "grant of help to public",
            "ragdb.grant_collection",
        ),
        ("update ragdb.alembic_version set version_num = '0000'", "schema", ""),
    ],
)
def test_each_fault_is_found_with_its_fix(rag: RagDB, query: Query, ragdb_url: str, statement: str, about: str, fix: str) -> None:
    rag.add(Document("a", "Reset the router."))
    rag.context.database.call("submit_document", collection="help", uri="w", content="wombats dig burrows")
    query(statement)
    assert list(wrong(ragdb_url)) == [about]
    assert fix in wrong(ragdb_url)[about][1]


def test_a_group_whose_members_search_is_no_fault(rag: RagDB, query: Query, ragdb_url: str) -> None:
    rag.add(Document("a", "Reset the router."))
    query(
        "do $$ begin if to_regrole('staff') is null then create role staff; create role alice login in role staff; end if; end $$"
    )
    query("grant usage on schema ragdb to alice; grant execute on function ragdb.search to alice")
    query("select ragdb.grant_collection('help', 'staff')")
    assert "grant of help to staff" not in wrong(ragdb_url)


def test_settings_of_fuse_that_were_fitted_to_other_vectors_are_told(rag: RagDB, query: Query, ragdb_url: str) -> None:
    rag.add(Document("a", "Reset the router."))
    about = "settings of fuse of help"
    [(active,)] = query("select m.name from ragdb.collection join ragdb.embedding_model m on m.model_id = active_model_id")
    for model, found in ((active, False), ("older", True)):
        rag.context.database.call(
            "set_fusion", collection="help", fusion={"rrf_k": 30, "source": {"model": model, "set": "golden"}}
        )
        assert (about in wrong(ragdb_url)) == found
    assert wrong(ragdb_url)[about][0] == f"were fitted to the vectors of older, and those of {active} are searched"
    rag.context.database.call("set_fusion", collection="help", fusion={"rrf_k": 30})  # by hand: fitted to nothing
    assert about not in wrong(ragdb_url)


def test_the_plans_of_a_large_collection_are_looked_at(ragdb_url: str, rag: RagDB, query: Query) -> None:
    for n in range(12):
        rag.add(Document(f"d{n}", f"Page {n} about the router."))
    query("update ragdb.collection set exact_limit = 5")
    query("select * from ragdb.refresh_lexical_stats('help')")
    assert "plan of the semantic leg in help" in wrong(ragdb_url)
    hnsw.build(ragdb_url, hnsw.models(ragdb_url)[0])
    told = {f.about: (f.level, f.found) for f in doctor.examine(ragdb_url)}
    assert told["plan of the semantic leg in help"] == ("ok", "hnsw, by embedding_hnsw")
    assert told["plan of the lexical leg in help"][0] in ("ok", "warning")


def test_the_command_tells_and_exits_by_what_it_found(
    ragdb_url: str, rag: RagDB, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    rag.add(Document("a", "Reset the router."))
    unsafe = [f for f in doctor.examine(ragdb_url) if f.level == "error"]
    assert {f.about for f in unsafe} <= set(UNSAFE)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == bool(unsafe)
    assert "ok       schema: as revision" in result.stdout
    assert result.stdout.splitlines()[-1] == f"{len(unsafe)} errors, 0 warnings"
    query("grant create on schema public to public")
    result = CliRunner().invoke(app, ["--json", "doctor"])
    assert (result.exit_code, json.loads(result.stdout)["errors"]) == (1, len(unsafe) + 1)


def test_a_server_that_may_lose_rows_is_told(ragdb_url: str, query: Query) -> None:
    [(fsync,)] = query("show fsync")
    assert ("setting fsync" in {f.about for f in doctor.examine(ragdb_url) if f.level == "error"}) == (fsync == "off")


def test_a_database_without_the_schema_is_a_finding(ragdb_empty_database: Callable[..., str]) -> None:
    url = ragdb_empty_database()
    assert "CREATE EXTENSION vector" in wrong(url)["server"][0]
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension vector")
    assert "ragdb db upgrade" in wrong(url)["schema"][0]
