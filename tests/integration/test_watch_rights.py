"""Who may watch a table, what its triggers may do, and that both survive a dump, with roles as docs/dba.md makes them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from ragdb import RagDB
from ragdb.db import catalog, embedded, schema
from ragdb.db.connect import libpq_url
from ragdb.testing import FakeEmbedder, drain

pytestmark = pytest.mark.postgres(16, 18)

MakeDatabase = Callable[..., str]


class Place:
    """A database of role rag_owner, with a table of role shop, which is a writer, and clerk, who only writes that table."""

    def __init__(self, make: MakeDatabase) -> None:
        self.admin = make()
        for role in ("rag_owner", "shop", "clerk", "ragdb_writer", "ragdb_reader", "ragdb_auditor"):
            self.run("admin", f"do $$ begin if to_regrole('{role}') is null then create role {role} login; end if; end $$")
        name = make_url(self.admin).database
        self.run("admin", f'alter database "{name}" owner to rag_owner')
        self.run("admin", f'grant create on database "{name}" to shop')
        self.run("admin", "create extension vector")
        self.run("admin", "grant ragdb_writer to shop")

    def url(self, role: str) -> str:
        return self.admin if role == "admin" else libpq_url(make_url(self.admin).set(username=role))

    def run(self, role: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(role), autocommit=True) as conn:
            cursor = conn.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


WATCH = (
    "select ragdb.watch_table('app.articles', id => 'id', content => 'body', title => 'title', "
    "metadata => '{\"tenant\": \"tenant_id\"}', collection => 'help')"
)


@pytest.fixture
def place(ragdb_empty_database: MakeDatabase) -> Place:
    here = Place(ragdb_empty_database)
    schema.upgrade(here.url("rag_owner"))
    here.run("rag_owner", schema.roles_script())
    with RagDB(here.url("shop"), collection="help", embedder=FakeEmbedder()) as rag:
        rag.context.ensure_collection(rag.context.database)
    here.run(
        "shop",
        "create schema app; grant usage on schema app to clerk; "
        "create table app.articles (id text primary key, body text, title text, tenant_id int); "
        "grant select, insert, update, delete on app.articles to clerk",
    )
    return here


def test_a_writer_who_owns_a_table_watches_it_and_who_writes_the_table_needs_no_right(place: Place) -> None:
    place.run("shop", "insert into app.articles values ('old', 'An old text.', null, 1)")
    place.run("shop", WATCH)
    assert place.run("shop", "select rows, put from ragdb.backfill_table('app.articles')") == [(1, 1)]
    place.run("clerk", "insert into app.articles values ('a', 'A zirconium anchor.', 'Anchor', 7)")
    place.run("clerk", "update app.articles set body = 'Two zirconium anchors.' where id = 'a'")
    place.run("clerk", "insert into app.articles values ('b', 'Gone soon.', null, 7)")
    place.run("clerk", "delete from app.articles where id = 'b'")
    with RagDB(place.url("shop"), collection="help", embedder=FakeEmbedder()) as rag:
        assert drain(rag) == ["articles/old", "articles/a"]
        assert rag.search("zirconium")[0].content == "Two zirconium anchors."
    assert place.run("shop", "select documents, rows_without_document, state from ragdb.watched_tables") == [
        (2, 0, "backfill is under way")
    ]
    for statement in (
        "select * from ragdb.document",
        "select ragdb.follow_row(1, null, '{}')",
        "select ragdb.unwatch_table('app.articles')",
        "create temp table mine (id int); create trigger mine after insert on mine for each row execute function ragdb.watch_row('x')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            place.run("clerk", statement)
    assert place.run("shop", "select ragdb.unwatch_table('app.articles', documents => true) ->> 'documents'") == [("2",)]


def test_a_table_is_watched_only_by_who_may_make_triggers_on_it_and_read_it(place: Place) -> None:
    place.run("admin", "create role reporter login") if not place.run("admin", "select to_regrole('reporter')")[0][0] else None
    place.run("admin", "grant ragdb_writer to reporter")
    place.run("shop", "grant usage on schema app to reporter; grant select on app.articles to reporter")
    with pytest.raises(psycopg.Error, match="reporter may not make triggers on"):
        place.run("reporter", WATCH)
    place.run(
        "shop", "revoke select on app.articles from reporter; grant trigger, select (id, title) on app.articles to reporter"
    )
    with pytest.raises(psycopg.Error, match='reporter may not read column "body"'):
        place.run("reporter", WATCH)
    place.run("admin", "revoke ragdb_writer from reporter")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        place.run("reporter", WATCH)
    assert place.run("shop", "select count(*) from ragdb.watched_table") == [(0,)]


def test_nothing_that_a_row_or_its_type_brings_runs_with_the_rights_of_ragdbs_owner(place: Place) -> None:
    place.run(
        "shop",
        """
        create table app.spoils (who text); grant insert, select on app.spoils to public; grant usage on schema app to rag_owner;
        create type app.kind as enum ('a', 'b');
        create function app.as_json(app.kind) returns json language plpgsql as
          $$ begin insert into app.spoils values (current_user); return '"a"'; end $$;
        create function app.as_text(app.kind) returns text language plpgsql as
          $$ begin insert into app.spoils values (current_user); return 'a'; end $$;
        create cast (app.kind as json) with function app.as_json(app.kind);
        create cast (app.kind as text) with function app.as_text(app.kind) as implicit;
        create domain app.short as text check (length(value) < 100);
        alter table app.articles add kind app.kind, add label app.short;
        create function app.jsonb_build_object(text, text) returns jsonb language sql as $$ select '{}'::jsonb $$;
        alter role shop set search_path = app, public, pg_catalog;
        """,
    )
    place.run(
        "shop",
        "select ragdb.watch_table('app.articles', id => 'id', content => 'body', title => 'kind', "
        'metadata => \'{"kind": "kind", "label": "label"}\', collection => \'help\', options => \'{"where": {"kind": ["a", "b"]}, "status": "kind"}\')',
    )
    place.run("clerk", "insert into app.articles values ('x', 'Text.', null, 1, 'b', 'short')")
    place.run("clerk", "update app.articles set label = 'other' where id = 'x'")
    assert place.run("shop", "select metadata from ragdb.document") == [({"kind": "b", "label": "other"},)]
    assert ("rag_owner",) not in place.run("shop", "select distinct who from app.spoils")
    place.run("shop", "alter role shop reset search_path")


def test_a_row_writes_documents_of_its_prefix_and_no_others(place: Place) -> None:
    place.run("shop", "select ragdb.submit_document('help', 'handbook/leave', 'The real rules.')")
    place.run("shop", WATCH)
    for name in ("../handbook/leave", "handbook/leave", "", "%", "'", "x/../../handbook/leave"):
        place.run("clerk", "insert into app.articles values (%s, 'Spoiled.', null, 1)", name)
    [(text,)] = place.run(
        "rag_owner",
        "select content from ragdb.document_revision r join ragdb.document d using (document_id) where uri = 'handbook/leave'",
    )
    assert text == "The real rules."
    place.run("clerk", "delete from app.articles")
    assert place.run("shop", "select uri from ragdb.document") == [("handbook/leave",)]


def dump(place: Place, *options: str) -> str:
    made = subprocess.run([embedded.bin_path(18) / "pg_dump", *options, place.admin], text=True, check=True, capture_output=True)
    # psql of another release may not know each setting of the dump's head
    return made.stdout.replace("SET transaction_timeout = 0;\n", "")


def restore(place: Place, script: str) -> str:
    command = [embedded.bin_path(18) / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", place.admin]
    done = subprocess.run(command, input=script, text=True, check=False, capture_output=True)
    return done.stderr if done.returncode else ""


def test_a_restored_dump_goes_on_following_the_table(place: Place, ragdb_empty_database: MakeDatabase) -> None:
    place.run("shop", WATCH)
    place.run("clerk", "insert into app.articles values ('a', 'The first text.', null, 1), ('b', 'The second.', null, 2)")
    place.run("shop", "alter table app.articles rename body to story")
    there = Place(ragdb_empty_database)
    there.run("admin", "drop extension vector")
    assert restore(there, dump(place)) == ""
    assert catalog.check(there.url("rag_owner")) == []
    assert there.run("shop", "select table_name, documents, rows_without_document from ragdb.watched_tables") == [
        ("app.articles", 2, 0)
    ]
    there.run("clerk", "update app.articles set story = 'Changed after the restore.' where id = 'a'")
    there.run("clerk", "insert into app.articles values ('c', 'New after the restore.', null, 7)")
    there.run("clerk", "delete from app.articles where id = 'b'")
    with RagDB(there.url("shop"), collection="help", embedder=FakeEmbedder()) as rag:
        assert sorted(drain(rag)) == ["articles/a", "articles/c"]
        assert {hit.content for hit in rag.search("after the restore")} == {
            "Changed after the restore.",
            "New after the restore.",
        }
    there.run("shop", "select ragdb.backfill_table('app.articles')")
    assert there.run("shop", "select ragdb.unwatch_table('app.articles', documents => true) ->> 'documents'") == [("2",)]


def test_a_table_that_came_without_its_watch_says_so_and_takes_no_other_ones(
    place: Place, ragdb_empty_database: MakeDatabase
) -> None:
    """Restored without ragdb's tables into a database where the same number is somebody else's watch."""
    place.run("shop", WATCH)
    there = Place(ragdb_empty_database)
    schema.upgrade(there.url("rag_owner"))
    there.run("rag_owner", schema.roles_script())
    with RagDB(there.url("shop"), collection="help", embedder=FakeEmbedder()) as rag:
        rag.context.ensure_collection(rag.context.database)
    there.run("admin", "create schema other authorization shop")
    there.run("shop", "create table other.notes (id text primary key, body text)")
    there.run("shop", "select ragdb.watch_table('other.notes', id => 'id', content => 'body', collection => 'help')")
    assert restore(there, dump(place, "--schema=app")) == ""
    with pytest.raises(psycopg.Error, match="which belongs to no watch of this database"):
        there.run("clerk", "insert into app.articles values ('a', 'Text.', null, 1)")
    assert there.run("shop", "select table_name, state from ragdb.watched_tables") == [("other.notes", "not backfilled")]
    there.run("shop", "drop trigger ragdb_watch_1_insert on app.articles; drop trigger ragdb_watch_1_update on app.articles")
    there.run("shop", "drop trigger ragdb_watch_1_delete on app.articles; drop trigger ragdb_watch_1_truncate on app.articles")
    there.run("shop", WATCH)
    there.run("clerk", "insert into app.articles values ('a', 'Text.', null, 1)")
    assert there.run("shop", "select uri from ragdb.document") == [("articles/a",)]


def test_rows_that_a_policy_hides_are_not_taken_for_rows_that_are_gone(place: Place) -> None:
    place.run("admin", "create role editor login") if not place.run("admin", "select to_regrole('editor')")[0][0] else None
    place.run("admin", "grant ragdb_writer to editor; grant usage on schema app to editor")
    place.run("shop", "grant all on app.articles to editor; alter table app.articles enable row level security")
    place.run("shop", "create policy own on app.articles to editor using (tenant_id = 1)")
    place.run("shop", WATCH)
    place.run("shop", "insert into app.articles values ('a', 'One.', null, 1), ('b', 'Two.', null, 2)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        place.run("editor", "select * from ragdb.backfill_table('app.articles')")
    assert place.run("shop", "select count(*) from ragdb.document") == [(2,)]
