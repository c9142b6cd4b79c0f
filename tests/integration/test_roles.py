"""Day one under least privilege: the owner of only its database migrates, writers write, readers read, and nobody's
statement defines anything. With pgvector in a schema called "Ext Ra", where PostgreSQL finds nothing by itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from ragdb import Document, RagDB
from ragdb.cli.main import app
from ragdb.db import catalog, embedded, hnsw, schema
from ragdb.db.connect import libpq_url, sqlalchemy_url
from ragdb.errors import AccessDenied, ConfigError
from ragdb.ingest import bulk
from ragdb.testing import FakeEmbedder, drain
from ragdb.types import Span

pytestmark = pytest.mark.postgres(16, 18)

MakeDatabase = Callable[..., str]

# Whatever anybody creates, alters, drops or grants from now on.
NO_DDL = """
create function public.no_ddl() returns event_trigger language plpgsql as
$$ begin raise exception 'DDL at run time: %', tg_tag; end $$;
create event trigger no_ddl on ddl_command_start execute function public.no_ddl()
"""


@dataclass(frozen=True)
class Place:
    admin: str

    def as_(self, role: str) -> str:
        return libpq_url(make_url(self.admin).set(username=role))

    def rag(self, role: str, **how: Any) -> RagDB:
        return RagDB(self.as_(role), collection="help", embedder=FakeEmbedder(), **how)


def run(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def owned_by_app(make: MakeDatabase) -> str:
    """URL, as administrator, of a database that the role app owns, and in it nothing but pgvector."""
    url = make()
    for role in ("app", "writes", "reads", "audits"):
        run(url, f"do $$ begin if to_regrole('{role}') is null then create role {role} login; end if; end $$")
    run(url, f'alter database "{make_url(url).database}" owner to app')
    run(url, 'create schema "Ext Ra"')
    run(url, 'create extension vector schema "Ext Ra"')
    run(url, 'grant usage on schema "Ext Ra" to app')
    return url


@pytest.fixture
def place(ragdb_empty_database: MakeDatabase) -> Place:
    here = Place(owned_by_app(ragdb_empty_database))
    schema.upgrade(here.as_("app"))
    # the roles are an administrator's, their rights the owner's: the script does what is left to do
    for kind in ("writer", "reader", "auditor"):
        run(here.admin, f"do $$ begin if to_regrole('ragdb_{kind}') is null then create role ragdb_{kind}; end if; end $$")
    psql(here.as_("app"), schema.roles_script())
    run(here.admin, "grant ragdb_writer to writes; grant ragdb_reader to reads; grant ragdb_auditor to audits")
    run(here.admin, NO_DDL)
    return here


def psql(url: str, script: str) -> None:
    command = [embedded.bin_path(18) / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", url]
    done = subprocess.run(command, input=script, text=True, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_writers_write_and_readers_read_and_nobody_defines_anything(place: Place) -> None:
    with place.rag("writes") as rag:
        assert rag.add(Document("a", "# Router\n\nReset the router with a pin.", metadata={"tenant": 7})).ingest_state == "ready"
        assert (
            rag.add(Document("a", "# Router\n\nReset the router with two pins.", metadata={"tenant": 7})).ingest_state == "ready"
        )
        with Session(create_engine(sqlalchemy_url(place.as_("writes")))) as session:
            assert rag.add(Document("b", "The battery of the router."), session=session).ingest_state == "queued"
            session.commit()
        assert drain(rag) == ["b"]
        content = "The antenna of the router."
        loaded = bulk.load(
            rag.context,
            [
                Document("c", content, chunks=(Span(0, len(content)),), vectors=[FakeEmbedder().embed_query(content)]),
                Document("d", "The case of the router.", metadata={"a": [1]}, owner="me"),
            ],
        )
        assert [added.ingest_state for added in loaded] == ["ready", "queued"]
        assert drain(rag) == ["d"]
        assert {h.uri for h in rag.search("router")} == {"a", "b", "c", "d"}
        assert rag.delete("d")["document"] == 1
        assert rag.get("a") is not None
    run(place.as_("writes"), "insert into ragdb.synonym (terms) values ('{router,gateway}')")
    run(place.as_("writes"), "update ragdb.document set metadata = metadata || '{\"seen\": true}' where uri = 'b'")
    run(place.as_("writes"), "select * from ragdb.refresh_lexical_stats('help')")
    run(place.as_("writes"), "select * from ragdb.prune('90 days')")
    assert run(place.as_("writes"), "select count(*) > 0 from ragdb.search_plan('router', 'help')") == [(True,)]

    with place.rag("reads") as rag:
        assert list(rag.search("router")) == [], "no grant: for this role there is no such collection"
    run(place.as_("app"), "select ragdb.grant_collection('help', 'reads', '{\"tenant\": 7}')")
    with place.rag("reads") as rag:
        assert [h.uri for h in rag.search("router")] == ["a"]
        answer = rag.ask("How do I reset the router?")
        assert (answer.outcome, {c.uri for c in answer.citations}) == ("answered", {"a"})
        assert answer.run_id is not None
        assert rag.explain(answer.run_id).run_id == answer.run_id
        assert rag.get("b") is None
        for change in (lambda: rag.add(Document("e", "x")), lambda: rag.delete("a")):
            with pytest.raises(AccessDenied, match="ragdb db roles"):
                change()
    assert run(place.as_("reads"), "select uri from ragdb.list_documents('help')") == [("a",)]
    assert run(place.as_("reads"), "select verb, question from ragdb.list_runs()") == [
        ("ask", "How do I reset the router?"),
        ("search", "router"),
    ]
    assert run(place.as_("audits"), "select verb, caller from ragdb.run order by run_id desc limit 1") == [("ask", "reads")]


def test_the_command_line_works_for_writers_and_readers(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cli = CliRunner()
    (tmp_path / "a.md").write_text("# Router\n\nReset the router with a pin.\n")
    monkeypatch.setenv("RAGDB_COLLECTION", "help")
    monkeypatch.setenv("RAGDB_EMBEDDER", "ragdb.testing.fakes:FakeEmbedder")
    monkeypatch.setenv("RAGDB_DATABASE_URL", place.as_("writes"))
    for words in (["add", str(tmp_path / "a.md")], ["worker", "--once"], ["ls"], ["collection", "list"]):
        result = cli.invoke(app, words)
        assert result.exit_code == 0, (words, result.output)
    assert cli.invoke(app, ["db", "check"]).output.startswith("no differences")
    run(place.as_("app"), "select ragdb.grant_collection('help', 'ragdb_reader')")
    monkeypatch.setenv("RAGDB_DATABASE_URL", place.as_("reads"))
    for words in (
        ["search", "router"],
        ["ask", "How do I reset the router?"],
        ["explain", "1"],
        ["ls"],
        ["show", "a.md"],
        ["db", "current"],
        ["collection", "list"],
    ):
        result = cli.invoke(app, words)
        assert result.exit_code == 0, (words, result.output)
    for words in (["add", str(tmp_path / "a.md")], ["db", "check"]):
        result = cli.invoke(app, words)
        assert isinstance(result.exception, AccessDenied), words


def test_the_roles_are_no_drift_under_any_name_and_a_changed_right_is(place: Place) -> None:
    run(place.admin, "drop event trigger no_ddl")
    owner = place.as_("app")
    assert catalog.check(owner) == []
    run(
        place.admin,
        "do $$ begin if to_regrole('acme_reader') is null then create role acme_reader; create role acme_writer; create role acme_auditor; end if; end $$",
    )
    psql(owner, schema.roles_script("acme"))
    assert catalog.check(owner) == []
    run(owner, "grant select on ragdb.chunk to acme_reader")
    run(owner, "revoke execute on function ragdb.explain(bigint, integer) from ragdb_auditor")
    run(owner, "grant select on ragdb.run to public")
    assert [str(d) for d in catalog.check(owner)] == [
        "grant table chunk to acme_reader: added: SELECT",
        "grant table run to public: added: SELECT",
        "grant function explain(run_id bigint, top integer) to ragdb_auditor: missing",
    ]
    for prefix in ("acme", "ragdb"):
        psql(owner, schema.roles_script(prefix))
    assert catalog.check(owner) == []


def test_the_script_of_the_roles_names_them_and_refuses_an_odd_name() -> None:
    script = CliRunner().invoke(app, ["db", "roles", "--prefix", "acme"])
    assert script.exit_code == 0
    assert "acme_reader" in script.stdout
    assert "ragdb_" not in script.stdout.replace("ragdb.", "")
    with pytest.raises(ConfigError, match="prefix of the roles is 'a; drop'"):
        schema.roles_script("a; drop")


def test_a_dump_is_restored_by_the_owner_and_searched(place: Place, ragdb_empty_database: MakeDatabase) -> None:
    run(place.admin, "drop event trigger no_ddl; drop function public.no_ddl")
    with place.rag("app") as rag:
        rag.add(Document("a", "# Router\n\nReset the router with a pin.", metadata={"tenant": 7}))
        rag.add(Document("b", "The battery of the router.", metadata={"tenant": 8}))
    hnsw.build(place.as_("app"), hnsw.models(place.as_("app"))[0])
    run(place.as_("app"), "select ragdb.grant_collection('help', 'reads', '{\"tenant\": 7}')")
    there = Place(owned_by_app(ragdb_empty_database))
    dump = subprocess.run(
        [embedded.bin_path(18) / "pg_dump", "--schema=ragdb", place.as_("app")], text=True, check=True, capture_output=True
    ).stdout
    # psql of another release may not know each setting of the dump's head; everything else has to pass
    psql(there.as_("app"), dump.replace("SET transaction_timeout = 0;\n", ""))
    assert catalog.check(there.as_("app")) == []
    for role, uris in (("app", {"a", "b"}), ("writes", {"a", "b"}), ("reads", {"a"})):
        with there.rag(role) as rag:
            assert {h.uri for h in rag.search("router")} == uris
    assert [m.state for m in hnsw.models(there.as_("app"))] == ["valid"]
    with there.rag("writes") as rag:
        assert rag.add(Document("c", "A new page.")).ingest_state == "ready"


def test_a_dump_without_privileges_is_closed_again_by_the_roles(place: Place, ragdb_empty_database: MakeDatabase) -> None:
    """PostgreSQL gives functions that are made anew to everybody."""
    run(place.admin, "drop event trigger no_ddl; drop function public.no_ddl")
    with place.rag("app") as rag:
        rag.add(Document("a", "# Router\n\nReset the router with a pin.", metadata={"tenant": 7}))
        rag.add(Document("b", "The battery of the router.", metadata={"tenant": 8}))
    run(place.as_("app"), "select ragdb.grant_collection('help', 'reads', '{\"tenant\": 7}')")
    there = Place(owned_by_app(ragdb_empty_database))
    dump = subprocess.run(
        [embedded.bin_path(18) / "pg_dump", "--schema=ragdb", "--no-privileges", place.as_("app")],
        text=True,
        check=True,
        capture_output=True,
    ).stdout
    psql(there.as_("app"), dump.replace("SET transaction_timeout = 0;\n", "") + schema.roles_script())
    assert catalog.check(there.as_("app")) == []
    assert run(there.as_("reads"), "select uri from ragdb.list_documents('help')") == [("a",)]
    with there.rag("reads") as rag, pytest.raises(AccessDenied):
        rag.delete("a")


def test_a_first_load_in_one_transaction_reads_no_table_whole(place: Place) -> None:
    """Plans are kept, and those of a session that began with empty tables would read them for each document."""
    with psycopg.connect(place.as_("writes")) as conn:
        conn.execute("select ragdb.create_collection('help')")
        conn.execute(
            "select count(*) from generate_series(1, 300) i, lateral ragdb.submit_document('help', 'a/' || i, 'text ' || i)"
        )
        conn.execute("select * from ragdb.claim_jobs('x', 1)")
        scans = conn.execute(
            "select relname, seq_scan from pg_stat_xact_user_tables where schemaname = 'ragdb' and seq_scan > 10"
        ).fetchall()
    assert scans == []


def test_the_owner_is_told_which_role_may_not_be_made(ragdb_empty_database: MakeDatabase) -> None:
    url = owned_by_app(ragdb_empty_database)
    schema.upgrade(libpq_url(make_url(url).set(username="app")))
    command = [embedded.bin_path(18) / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", libpq_url(make_url(url).set(username="app"))]
    done = subprocess.run(command, input=schema.roles_script("nosuch"), text=True, check=False, capture_output=True)
    assert done.returncode != 0
    assert "permission denied to create role" in done.stderr
    assert json.dumps(run(url, "select to_regrole('nosuch_reader')")) == "[[null]]"


def test_on_a_standby_searches_answer_and_nothing_is_written(ragdb_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(Document("a", "# Router\n\nReset the router with a pin."))
    standby = make_url(ragdb_url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    with RagDB(libpq_url(standby), collection="help", embedder=FakeEmbedder()) as rag:
        found = rag.search("router")
        assert ([hit.uri for hit in found], found.run_id) == (["a"], None)
        assert rag.ask("How do I reset the router?").outcome == "answered"
    assert "could not be recorded" not in caplog.text
    assert run(ragdb_url, "select (select count(*) from ragdb.run), (select count(*) from ragdb.query_vector)") == [(0, 0)]
