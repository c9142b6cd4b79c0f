"""The schema's life: up, down and up again; one clear message where a database is not as it must be. MIG-01 to 03."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from typer.testing import CliRunner

from ragdb import Document, RagDB
from ragdb.cli.main import app
from ragdb.db import catalog, embedded, frozen, schema
from ragdb.db.connect import libpq_url, sqlalchemy_url
from ragdb.db.tables import metadata
from ragdb.errors import ConfigError, DatabaseUnreachable, ExtensionMissing, SchemaAhead, SchemaBehind, SchemaMissing
from ragdb.testing import FakeEmbedder

pytestmark = pytest.mark.postgres(16, 18)

MakeDatabase = Callable[..., str]


def run(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(sql)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def test_there_is_one_head() -> None:
    from alembic.script import ScriptDirectory

    assert ScriptDirectory.from_config(schema.config()).get_heads() == [schema.head()]


@pytest.mark.parametrize("vector_schema", ["public", '"Ext Ra"'])
def test_down_and_up_again_as_an_owner_without_superuser(ragdb_empty_database: MakeDatabase, vector_schema: str) -> None:
    url = ragdb_empty_database()
    name = make_url(url).database
    run(url, f"create schema if not exists {vector_schema}")
    run(url, f"create extension vector schema {vector_schema}")
    run(url, "do $$ begin if to_regrole('app') is null then create role app login; end if; end $$")
    run(url, f'alter database "{name}" owner to app')
    owner = libpq_url(make_url(url).set(username="app"))
    if vector_schema != "public":
        with pytest.raises(ExtensionMissing, match="GRANT USAGE ON SCHEMA"):
            schema.upgrade(owner)
        run(url, f"grant usage on schema {vector_schema} to app")
    for filled in (False, True):
        schema.upgrade(owner)
        if filled:
            with RagDB(owner, collection="help", embedder=FakeEmbedder()) as rag:
                rag.add(Document("d", "Reset the router."))
                assert rag.search("router")[0].uri == "d"
        schema.downgrade(owner, "base")
        assert run(
            owner, "select count(*) from pg_class where relnamespace = 'ragdb'::regnamespace and relname !~ 'alembic'"
        ) == [(0,)]
        assert run(owner, "select count(*) from pg_proc where pronamespace = 'ragdb'::regnamespace") == [(0,)]
        assert run(owner, "select count(*) from pg_extension where extname = 'vector'") == [(1,)]
    schema.upgrade(owner)
    assert run(owner, "select count(*) from pg_index where not indisvalid") == [(0,)]


def test_a_missing_extension_is_named_with_its_command_and_nothing_is_made(ragdb_empty_database: MakeDatabase) -> None:
    url = ragdb_empty_database()
    with pytest.raises(ExtensionMissing, match="CREATE EXTENSION vector"):
        schema.upgrade(url)
    assert run(url, "select to_regnamespace('ragdb')") == [(None,)]


def test_an_old_extension_is_named_with_both_versions(
    ragdb_empty_database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ragdb_empty_database()
    run(url, "create extension vector")
    have = run(url, "select extversion from pg_extension where extname = 'vector'")[0][0]
    monkeypatch.setattr(schema, "PGVECTOR_NEEDED", (99, 0, 0))
    with pytest.raises(ExtensionMissing, match=rf"{re.escape(have)}.*99\.0\.0"):
        schema.upgrade(url)
    assert run(url, "select to_regnamespace('ragdb')") == [(None,)]


def test_an_unreachable_server_is_named_without_the_password() -> None:
    with pytest.raises(DatabaseUnreachable, match="localhost:1") as caught:
        schema.upgrade("postgresql://me:geheim@localhost:1/db")
    assert "geheim" not in str(caught.value)


def test_a_database_without_schema_behind_or_ahead_is_told_what_to_run(ragdb_empty_database: MakeDatabase) -> None:
    url = ragdb_empty_database()
    run(url, "create extension vector")
    rag = RagDB(url, embedder=FakeEmbedder())
    with pytest.raises(SchemaMissing, match="ragdb db upgrade"):
        rag.search("x")
    schema.upgrade(url)
    head = schema.head()
    run(url, "update ragdb.alembic_version set version_num = '0000'")
    with pytest.raises(SchemaBehind, match=rf"0000.*{head}.*ragdb db upgrade"):
        rag.search("x")
    run(url, "update ragdb.alembic_version set version_num = '9999'")
    needs = "create or replace function ragdb.oldest_program() returns text language sql immutable return '{}'::text"
    run(url, needs.format("9999"))
    with pytest.raises(SchemaAhead, match="9999"):
        rag.search("x")
    run(url, needs.format(head))
    assert rag.search("x").hits == ()
    with pytest.raises(SchemaAhead, match="9999"):
        catalog.check(url)
    run(url, "drop function ragdb.oldest_program()")
    with RagDB(url, embedder=FakeEmbedder()) as another, pytest.raises(SchemaAhead, match="9999"):
        another.search("x")


def test_a_migration_that_fails_leaves_nothing_and_can_be_run_again(
    ragdb_empty_database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ragdb_empty_database()
    run(url, "create extension vector")
    broken = "create function ragdb.zz() returns nonsense language sql as 'select 1'"
    good = frozen.bodies
    monkeypatch.setattr(frozen, "bodies", lambda revision: {**good(revision), "functions/zz.sql": broken} if revision else {})
    with pytest.raises(Exception, match="nonsense"):
        schema.upgrade(url)
    assert run(url, "select to_regnamespace('ragdb')") == [(None,)]
    monkeypatch.setattr(frozen, "bodies", good)
    schema.upgrade(url)


def test_upgrade_runs_inside_a_connection_of_the_caller(ragdb_empty_database: MakeDatabase) -> None:
    url = ragdb_empty_database()
    run(url, "create extension vector")
    engine = create_engine(sqlalchemy_url(url))
    with engine.connect() as connection:
        transaction = connection.begin()
        schema.upgrade(connection)
        transaction.rollback()
    assert run(url, "select to_regnamespace('ragdb')") == [(None,)]
    with engine.begin() as connection:
        schema.upgrade(connection)
    assert run(url, "select version_num from ragdb.alembic_version") == [(schema.head(),)]
    engine.dispose()


def test_dropping_leaves_nothing_but_the_extension(ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    refused = CliRunner().invoke(app, ["db", "drop"])
    assert isinstance(refused.exception, ConfigError)
    assert CliRunner().invoke(app, ["db", "drop", "--yes"]).output == "dropped\n"
    assert CliRunner().invoke(app, ["db", "drop", "--yes"]).output == "nothing to do: there was no schema\n"
    assert run(ragdb_url, "select to_regnamespace('ragdb')") == [(None,)]
    assert run(ragdb_url, "select count(*) from pg_extension where extname = 'vector'") == [(1,)]
    schema.upgrade(ragdb_url)
    assert run(ragdb_url, "select version_num from ragdb.alembic_version") == [(schema.head(),)]


def test_the_models_describe_the_database(ragdb_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = create_engine(sqlalchemy_url(ragdb_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "include_name": lambda n, t, _p: n == "ragdb" if t == "schema" else n != "alembic_version",
                "compare_type": True,
            },
        )
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_every_table_column_function_and_view_has_a_comment(ragdb_url: str) -> None:
    ours = "relnamespace = 'ragdb'::regnamespace and relname <> 'alembic_version'"
    assert (
        run(
            ragdb_url,
            f"select relname from pg_class where {ours} and relkind in ('r', 'v') and obj_description(oid, 'pg_class') is null",
        )
        == []
    )
    assert (
        run(
            ragdb_url,
            f"select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid where {ours} and relkind = 'r' and attnum > 0 and not attisdropped and col_description(c.oid, attnum) is null",
        )
        == []
    )
    assert (
        run(
            ragdb_url,
            "select proname from pg_proc where pronamespace = 'ragdb'::regnamespace and obj_description(oid, 'pg_proc') is null",
        )
        == []
    )


def test_nobody_but_the_owner_may_execute_a_function_and_all_have_a_fixed_search_path(ragdb_url: str) -> None:
    ours = "from pg_proc where pronamespace = 'ragdb'::regnamespace"
    assert run(ragdb_url, f"select proname {ours} and has_function_privilege('public', oid, 'execute')") == []
    # A body in standard SQL was parsed when the function was made and has no names left to look up (ragdb.rrf).
    loose = "(prosqlbody is null or prosecdef) and not coalesce(proconfig::text ~ 'search_path=pg_catalog', false)"
    assert run(ragdb_url, f"select proname {ours} and {loose}") == []


def test_the_offline_script_gives_the_same_database(
    ragdb_empty_database: MakeDatabase,
) -> None:
    urls = []
    for offline in (False, True):
        url = ragdb_empty_database()
        urls.append(url)
        run(url, "create extension vector")
        if offline:
            psql = embedded.bin_path(18) / "psql"
            subprocess.run(
                [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", url],
                input=schema.script(),
                text=True,
                check=True,
                capture_output=True,
            )
        else:
            schema.upgrade(url)
    dumps = [
        re.sub(
            r"(?m)^\\(un)?restrict .*$",
            "",
            subprocess.run([embedded.bin_path(18) / "pg_dump", "-s", url], text=True, check=True, capture_output=True).stdout,
        )
        for url in urls
    ]
    assert dumps[0] == dumps[1]


def test_a_schema_of_pgvector_that_is_open_to_everybody_is_warned_about(
    ragdb_empty_database: MakeDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = ragdb_empty_database()
    run(url, "create extension vector")
    schema.upgrade(url)
    assert "REVOKE CREATE" not in caplog.text
    run(url, "grant create on schema public to public")
    schema.upgrade(url)
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC" in caplog.text
