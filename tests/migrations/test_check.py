"""`ragdb db check`: a fresh database is as recorded, and every drift is named. On PostgreSQL 16 and 18 alike."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from ragdb import Document, RagDB
from ragdb.cli.main import app
from ragdb.db import catalog, hnsw, schema
from ragdb.db.connect import libpq_url
from ragdb.errors import SchemaMissing
from ragdb.testing import FakeEmbedder

pytestmark = pytest.mark.postgres(16, 18)

MakeDatabase = Callable[..., str]

DRIFTS = {
    "a function's body": (
        "create or replace function ragdb.caller() returns text language sql stable parallel safe "
        "set search_path = pg_catalog, public, pg_temp as 'select session_user::text'",
        "function caller(): changed",
    ),
    "a function without its fixed search_path": (
        "alter function ragdb.search(text, text, integer, jsonb, double precision[], jsonb) reset search_path",
        "function search(question text, ",
    ),
    "a function that runs as its caller": (
        "alter function ragdb.fuse(jsonb, text, text, jsonb) security invoker",
        "function fuse(lists jsonb, question text, collection text, options jsonb): changed",
    ),
    "a function of somebody else": (
        "create function ragdb.mine() returns int language sql as 'select 1'; revoke all on function ragdb.mine() from public",
        "function mine(): added",
    ),
    "a dropped function": (
        "drop function ragdb.rrf",
        "function rrf(",
    ),
    "a dropped CHECK": (
        "alter table ragdb.chunk drop constraint chunk_content_length_check",
        "constraint chunk.chunk_content_length_check: missing",
    ),
    "an added CHECK": (
        "alter table ragdb.document add constraint mine check (length(uri) > 0)",
        "constraint document.mine: added",
    ),
    "a foreign key without its cascade": (
        "alter table ragdb.chunk drop constraint chunk_document_id_fkey, "
        "add constraint chunk_document_id_fkey foreign key (document_id) references ragdb.document",
        "constraint chunk.chunk_document_id_fkey: is 'FOREIGN KEY (document_id) REFERENCES ragdb.document(document_id)', should be",
    ),
    "a constraint that was never validated": (
        "alter table ragdb.chunk drop constraint chunk_content_length_check, add constraint chunk_content_length_check "
        "check (length(content) between 1 and 60000) not valid",
        "constraint chunk.chunk_content_length_check: is",
    ),
    "a dropped index": ("drop index ragdb.chunk_lexemes_idx", "index chunk_lexemes_idx: missing"),
    "an index with another predicate": (
        "drop index ragdb.chunk_lexemes_idx; create index chunk_lexemes_idx on ragdb.chunk using gin (lexemes) where chunk_id > 5",
        "index chunk_lexemes_idx: is",
    ),
    "a unique index": (
        "create unique index mine on ragdb.document (title)",
        "index mine: added: CREATE UNIQUE INDEX mine ON document USING btree (title)",
    ),
    "an added column": ("alter table ragdb.document add tenant integer", "column document.tenant: added: integer"),
    "a nullable column": ("alter table ragdb.chunk alter content drop not null", "column chunk.content: is 'text', should be 'text not null'"),
    "another default": ("alter table ragdb.collection alter k1 set default 2", "column collection.k1: is"),
    "another storage": (
        "alter table ragdb.chunk alter lexical_weights set storage external",
        "column chunk.lexical_weights: is 'sparsevec', should be 'sparsevec storage main'",
    ),
    "table options": ("alter table ragdb.chunk reset (toast_tuple_target)", "table chunk: is"),
    "an unlogged table": ("alter table ragdb.query_vector set unlogged", "table query_vector: is 'unlogged'"),
    "an added table": ("create table ragdb.mine (id integer)", "table mine: added"),
    "a disabled trigger": ("alter table ragdb.chunk disable trigger chunk_lexemes", "trigger chunk.chunk_lexemes: "),
    "an added trigger": (
        "create trigger mine before update on ragdb.document for each row execute function suppress_redundant_updates_trigger()",
        "trigger document.mine: added",
    ),
    "row level security": ("alter table ragdb.chunk enable row level security", "table chunk: is"),
    "a policy": ("create policy mine on ragdb.chunk using (true)", "policy chunk.mine: added"),
    "a rule": ("create rule mine as on delete to ragdb.run do instead nothing", "rule run.mine: added"),
    "a changed view": (
        "create or replace view ragdb.run_candidate as select null::bigint as run_id, null::integer as step, null::text as stage, "
        "null::text as name, null::bigint as chunk_id, null::integer as rank, null::double precision as score, null::text as fell",
        "view run_candidate: changed",
    ),
    "a grant to everybody": ("grant select on ragdb.chunk to public", "grant table chunk to public: added: SELECT"),
    "a function for everybody": (
        "grant execute on function ragdb.delete_document to public",
        "grant function delete_document(",
    ),
    "a grant on a column": (
        "grant update (status) on ragdb.document to public",
        "grant column document.status to public: added: UPDATE",
    ),
    "a changed comment": ("comment on table ragdb.chunk is 'mine'", "comment table chunk: "),
    "a dropped comment": ("comment on column ragdb.chunk.content is null", "comment table chunk.content: missing"),
}  # fmt: skip


def lines(url: str) -> list[str]:
    return [str(difference) for difference in catalog.check(url)]


@pytest.mark.parametrize("vector_schema", ["public", '"Ext Ra"'])
def test_a_fresh_database_is_as_recorded(ragdb_empty_database: MakeDatabase, vector_schema: str) -> None:
    """If this fails after a change of sql/ or the tables: make freeze."""
    url = ragdb_empty_database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"create schema if not exists {vector_schema}".encode())
        conn.execute(f"create extension vector schema {vector_schema}".encode())
    schema.upgrade(url)
    assert lines(url) == []


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_drift_is_named(ragdb_url: str, drift: str) -> None:
    statement, expected = DRIFTS[drift]
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute(statement.encode())
    found = lines(ragdb_url)
    assert any(line.startswith(expected) for line in found), found
    assert len(found) <= 2, found


def test_indexes_of_models_are_no_drift_as_long_as_they_are_valid(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(Document("d", "Reset the router."))
    [model] = hnsw.models(ragdb_url)
    hnsw.build(ragdb_url, model)
    assert lines(ragdb_url) == []
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("update pg_index set indisvalid = false where indexrelid = 'ragdb.embedding_hnsw_1'::regclass")
    assert lines(ragdb_url) == ["index embedding_hnsw_1: is 'invalid: run ragdb embedder index', should be 'valid'"]
    hnsw.build(ragdb_url, hnsw.models(ragdb_url)[0])
    assert lines(ragdb_url) == []
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("drop index ragdb.embedding_hnsw_1; create index embedding_hnsw_1 on ragdb.embedding (chunk_id)")
    assert [line.split(": is")[0] for line in lines(ragdb_url)] == ["index embedding_hnsw_1"]


def test_check_needs_no_right_to_write(ragdb_url: str) -> None:
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("do $$ begin if to_regrole('looker') is null then create role looker login; end if; end $$")
        conn.execute("grant usage on schema ragdb to looker")
        conn.execute(
            "grant select on ragdb.alembic_version, ragdb.embedding_model, ragdb.collection, ragdb.embedding, ragdb.vector_set to looker"
        )
    as_looker = libpq_url(make_url(ragdb_url).set(username="looker"))
    assert all(line.startswith("grant ") and " to looker: " in line for line in lines(as_looker))


def test_the_command_names_differences_and_exits_with_one(ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    run = CliRunner()
    assert run.invoke(app, ["db", "check"]).output == f"no differences from revision {schema.head()}\n"
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("create index mine on ragdb.document (title)")
    result = run.invoke(app, ["--json", "db", "check"])
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("alter table ragdb.chunk disable trigger chunk_lexemes")
    result = run.invoke(app, ["db", "check"])
    assert result.exit_code == 1
    assert result.stdout.endswith(f"1 difference from revision {schema.head()}\n")
    assert "(disabled)" in result.stdout


def test_a_database_without_the_schema_is_no_drift_but_an_error(ragdb_empty_database: MakeDatabase) -> None:
    with pytest.raises(SchemaMissing, match="ragdb db upgrade"):
        catalog.check(ragdb_empty_database())


def test_the_script_is_printed_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    result = CliRunner().invoke(app, ["db", "sql"])
    assert result.exit_code == 0
    assert "BEGIN;" in result.stdout
    assert "CREATE TABLE ragdb.chunk" in result.stdout
    assert CliRunner().invoke(app, ["db", "sql", "nosuch"]).exit_code != 0
