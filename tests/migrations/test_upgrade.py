"""An upgrade with data in place, rehearsed with a next release that only these tests have (conftest.py).

The program of these tests is the old one; that of the next release runs from its own folder.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import make_url

from ragdb import Document, RagDB
from ragdb.db import catalog, embedded, frozen, hnsw, schema
from ragdb.db.connect import libpq_url
from ragdb.errors import SchemaAhead
from ragdb.testing import FakeEmbedder, drain

if TYPE_CHECKING:
    from conftest import Release

pytestmark = pytest.mark.postgres(16, 18)

MakeDatabase = Callable[..., str]
QUESTIONS = ("How do I reset the router?", "battery of the camera", "手当", "ERR_7", "where is page 11")


def run(url: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def psql(url: str, script: str) -> None:
    command = [embedded.bin_path(18) / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", url]
    done = subprocess.run(command, input=script, text=True, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def dump(url: str, *options: str) -> str:
    """As pg_dump writes it, without what differs from one call to the next, or that an older psql does not know."""
    command = [embedded.bin_path(18) / "pg_dump", "--schema=ragdb", *options, url]
    done = subprocess.run(command, text=True, check=True, capture_output=True).stdout
    return re.sub(r"(?m)^(\\(un)?restrict .*|SET transaction_timeout = 0;)\n", "", done)


def at(server: str, database: str) -> str:
    return libpq_url(make_url(server).set(database=database))


def as_app(url: str) -> str:
    return libpq_url(make_url(url).set(username="app"))


def owned(make: MakeDatabase) -> str:
    """URL, as its owner without superuser, of a database with pgvector."""
    url = make()
    run(url, "create extension vector")
    run(url, "do $$ begin if to_regrole('app') is null then create role app login; end if; end $$")
    run(url, f'alter database "{make_url(url).database}" owner to app')
    return as_app(url)


def rag(url: str) -> RagDB:
    return RagDB(url, collection="help", embedder=FakeEmbedder())


def fill(url: str) -> None:
    """Documents that are ready and one that waits, a vector set with its index, a run with feedback, an evaluation set."""
    with rag(url) as r:
        r.add(Document("router.md", "# Router\n\nReset the router with a pin.\n\n## Battery\n\nNone.", metadata={"tenant": 7}))
        r.add(
            Document(
                "camera.md",
                "The battery of the camera. ERR_7 means that it is empty.",
                review_after=datetime(2020, 1, 1, tzinfo=UTC),
            )
        )
        r.add(Document("手当.md", "# 手当\n\n在宅勤務手当は月額五千円です。", status="draft"))
        for n in range(12):
            r.add(Document(f"page{n}.md", f"# Page {n}\n\nWord{n} stands on page {n}, with thing {n % 5}."))
        hnsw.build(url, hnsw.models(url)[0])
        answer = r.ask(QUESTIONS[0])
        assert answer.run_id is not None
        with psycopg.connect(url) as conn:
            conn.execute("select ragdb.submit_document('help', 'waits.md', 'The antenna waits.')")
            conn.execute("select ragdb.give_feedback(%s, 1, 'good', who => 'ann')", (answer.run_id,))
            conn.execute("insert into ragdb.eval_set (name, collection) values ('smoke', 'help')")
            conn.execute(
                "insert into ragdb.eval_question (eval_set_id, key, question) select eval_set_id, 'q1', %s from ragdb.eval_set",
                (QUESTIONS[0],),
            )
            conn.execute(
                "insert into ragdb.eval_judgement (eval_question_id, uri) select eval_question_id, 'router.md' from ragdb.eval_question"
            )


def seen(url: str) -> dict[str, Any]:
    """What the database answers, from SQL alone: rankings with their scores, and every row that was put in."""
    tables = (
        "document",
        "chunk",
        "chunk_place",
        "embedding",
        "job",
        "run",
        "citation",
        "feedback",
        "eval_question",
        "eval_judgement",
    )
    found: dict[str, Any] = {
        question: run(
            url,
            'select chunk_id, score from ragdb.search(%s, collection => \'help\', "where" => \'{"status": "any"}\', query_vector => %s)',
            question,
            FakeEmbedder().embed_query(question),
        )
        for question in QUESTIONS
    }
    assert all(found.values())
    for name in tables:
        # of runs the first: a reader in a loop adds others
        some = "where run_id = 1" if name in ("run", "citation", "feedback") else ""
        found[name] = run(url, f"select count(*), sum(hashtext((to_jsonb(t) - 'shelf')::text)) from ragdb.{name} t {some}")
    return found


@pytest.fixture(scope="session")
def filled(ragdb_server: str, this_release: Release) -> Iterator[str]:
    """Name of a database that the frozen files of this release made, with data in it, and the roles."""
    name = f"ragdb_filled_{uuid.uuid4().hex[:8]}"
    run(ragdb_server, f"create database {name} template template0 encoding 'UTF8'")
    url = owned(lambda: at(ragdb_server, name))
    this_release.ragdb(url, "db", "upgrade")
    run(at(ragdb_server, name), ROLES)
    psql(url, schema.roles_script())
    fill(url)
    yield name
    run(ragdb_server, f"drop database {name} with (force)")


@pytest.fixture
def old(ragdb_empty_database: MakeDatabase, filled: str) -> str:
    """URL, as its owner, of a copy of it."""
    url = ragdb_empty_database(filled)
    run(url, f'alter database "{make_url(url).database}" owner to app')
    return as_app(url)


# An administrator's; what they may do is the owner's to say.
ROLES = """do $$ declare r text; begin
  foreach r in array array['ragdb_writer', 'ragdb_reader', 'ragdb_auditor'] loop
    if to_regrole(r) is null then execute 'create role ' || r; end if;
  end loop;
end $$"""


@dataclass
class Reader:
    """Asks in a loop, until told to stop: each round a search of the program, and a transaction that reads many tables."""

    url: str
    rounds: int = 0
    errors: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        try:
            with rag(self.url) as r, psycopg.connect(self.url) as conn:
                # nobody waits long for a migration
                conn.execute("set statement_timeout = '3s'")
                conn.commit()
                while not self._stop.is_set():
                    assert r.search(QUESTIONS[0])[0].uri == "router.md"
                    for table in ("chunk", "embedding", "job", "document", "run"):
                        conn.execute(f"select count(*) from ragdb.{table}".encode())
                    conn.execute("select * from ragdb.search('battery', collection => 'help')")
                    conn.commit()
                    self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        thread = threading.Thread(target=self.work)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(60)


def test_an_upgrade_with_data_in_place_and_back_while_a_reader_reads(old: str, next_release: Release) -> None:
    assert catalog.check(old) == []
    before = seen(old)
    assert "ragdb db upgrade" in next_release.ragdb(old, "db", "check", check=False)  # behind
    with Reader(old).reading() as reader:
        next_release.ragdb(old, "db", "upgrade")
        while reader.rounds < 10 and not reader.errors:
            reader._stop.wait(0.05)
    assert reader.errors == []
    psql(old, next_release.ragdb(old, "db", "roles"))
    assert "no differences" in next_release.ragdb(old, "db", "check")
    assert seen(old) == before
    # what is new is there, for old rows too
    assert run(old, "select distinct shelf, ragdb.shelf_of(document_id) from ragdb.document") == [("none:%", "none:%")]
    assert run(old, "select shelf from ragdb.stale_documents") == [("none:%",)]
    with pytest.raises(psycopg.Error, match="is 100% no date"):
        run(old, "select ragdb.as_timestamp('soon')")
    run(old, "update ragdb.document set shelf = 'B-4' where uri = 'router.md'")
    assert run(old, "select shelf from ragdb.document where uri = 'router.md'") == [("b-4",)]

    # the old program goes on with the newer schema: reads, writes, and its worker does what waits
    with pytest.raises(SchemaAhead, match=next_release.revision):
        catalog.check(old)
    with rag(old) as r:
        assert drain(r) == ["waits.md"]
        assert r.search("antenna")[0].uri == "waits.md"
        assert r.add(Document("new.md", "A page that the old program added.")).ingest_state == "ready"
        assert r.ask(QUESTIONS[0]).outcome == "answered"
    assert run(old, "select shelf from ragdb.document where uri = 'new.md'") == [("none:%",)]
    kept = seen(old)

    # and back
    next_release.ragdb(old, "db", "downgrade", schema.head(), "--yes")
    psql(old, schema.roles_script())
    assert catalog.check(old) == []
    assert seen(old) == kept
    with pytest.raises(psycopg.Error, match="is no date or time"):
        run(old, "select ragdb.as_timestamp('soon')")
    assert run(old, "select proname from pg_proc where proname in ('shelf_of', 'fold_shelf')") == []
    assert "needs" in next_release.ragdb(old, "search", "router", check=False)  # the new program refuses what is behind
    next_release.ragdb(old, "db", "upgrade")
    assert seen(old) == kept


def test_the_worker_of_the_next_release_does_what_the_old_program_queued(old: str, next_release: Release) -> None:
    next_release.ragdb(old, "db", "upgrade")
    next_release.python("-c", WORKER, old)
    assert run(old, "select ingest_state, shelf from ragdb.document where uri = 'waits.md'") == [("ready", "none:%")]


WORKER = """
import sys
from ragdb import RagDB
from ragdb.testing import FakeEmbedder, drain

with RagDB(sys.argv[1], collection="help", embedder=FakeEmbedder()) as rag:
    assert drain(rag) == ["waits.md"]
    assert rag.search("antenna")[0].uri == "waits.md"
"""


def test_who_holds_a_table_is_named_and_nothing_is_changed(old: str, next_release: Release) -> None:
    before = seen(old)
    with psycopg.connect(old, application_name="a long report") as holder:
        holder.execute("select count(*) from ragdb.document")
        with Reader(old).reading() as reader:
            said = next_release.ragdb(old, "db", "upgrade", check=False, PGOPTIONS="-c ragdb.lock_wait=1s")
        assert reader.errors == []
        assert reader.rounds > 0
        assert "the migration gave up: others hold ragdb.document" in said
        assert f"pid {holder.info.backend_pid} (app, a long report, idle in transaction, for 00:00:0" in said
        assert "Nothing was changed" in said and "Traceback" not in said
    assert catalog.check(old) == []
    assert seen(old) == before
    next_release.ragdb(old, "db", "upgrade")
    assert "no differences" in next_release.ragdb(old, "db", "check")


def test_check_names_what_half_an_upgrade_left(old: str, next_release: Release) -> None:
    """Somebody ran a part of the script by hand."""
    run(
        old,
        "alter table ragdb.document add shelf text not null default 'none:%'; comment on column ragdb.document.shelf is 'where it stands'",
    )
    assert [str(one) for one in catalog.check(old)] == [
        "column document.shelf: added: text not null default 'none:%'::text",
        "comment table document.shelf: added: where it stands",
    ]
    assert f"database at {schema.head()}, this version needs {next_release.revision}" in next_release.ragdb(
        old, "db", "check", check=False
    )
    run(old, f"update ragdb.alembic_version set version_num = '{next_release.revision}'")
    said = next_release.ragdb(old, "db", "check", check=False)
    assert "index document_shelf_idx: missing" in said and "function shelf_of(document_id bigint): missing" in said


def test_online_and_the_script_give_the_same_database_with_the_same_data(
    old: str, next_release: Release, ragdb_empty_database: MakeDatabase
) -> None:
    """The script is applied with psql, to a dump that was restored, by an owner without superuser."""
    there = owned(ragdb_empty_database)
    psql(there, dump(old))
    assert catalog.check(there) == []
    before = seen(old)
    assert seen(there) == before
    next_release.ragdb(old, "db", "upgrade")
    psql(there, next_release.ragdb(there, "db", "sql", f"{schema.head()}:{next_release.revision}"))
    for url in (old, there):
        psql(url, next_release.ragdb(url, "db", "roles"))
        assert "no differences" in next_release.ragdb(url, "db", "check")
        assert seen(url) == before
    assert dump(old, "--schema-only") == dump(there, "--schema-only")
    fresh = owned(ragdb_empty_database)
    psql(fresh, next_release.ragdb(fresh, "db", "sql") + next_release.ragdb(fresh, "db", "roles"))
    assert "no differences" in next_release.ragdb(fresh, "db", "check")


def test_frozen_files_make_the_database_that_sql_and_the_models_make(
    this_release: Release, ragdb_empty_database: MakeDatabase
) -> None:
    online, script, here = (owned(ragdb_empty_database) for _ in range(3))
    this_release.ragdb(online, "db", "upgrade")
    psql(script, this_release.ragdb(script, "db", "sql"))
    schema.upgrade(here)
    assert dump(online, "--schema-only") == dump(script, "--schema-only") == dump(here, "--schema-only")


def test_a_large_index_is_built_beside_readers_and_a_stopped_build_is_made_good(
    old: str, next_release: Release, ragdb_server: str, ragdb_empty_database: MakeDatabase, tmp_path: Path
) -> None:
    further = next_release.copy(tmp_path / "further", f"{int(next_release.revision) + 1:04d}")
    further.python("migrations/new_revision.py", "index of owners")
    file = f"migrations/versions/{further.revision}_index_of_owners.py"
    further.edit(file, "import begin, install, uninstall", "import build_index, run")
    further.edit(
        file, "    begin()\n    install(revision)\n", "    build_index('document_owner_idx', 'ragdb.document (owner)')\n"
    )
    further.edit(file, "    begin()\n    uninstall(revision)\n", "    run('drop index ragdb.document_owner_idx')\n")
    run(old, "create index document_owner_idx on ragdb.document (owner)")
    run(
        at(ragdb_server, str(make_url(old).database)),
        "update pg_index set indisvalid = false where indexrelid = 'ragdb.document_owner_idx'::regclass",
    )
    [(left,)] = run(old, "select 'ragdb.document_owner_idx'::regclass::oid")
    with Reader(old).reading() as reader:
        further.ragdb(old, "db", "upgrade")
    assert reader.errors == []
    valid = "select indisvalid from pg_index where indexrelid = 'ragdb.document_owner_idx'::regclass"
    assert run(old, valid) == [(True,)]
    assert run(old, "select 'ragdb.document_owner_idx'::regclass::oid") != [(left,)]
    assert further.ragdb(old, "db", "current") == f"{further.revision} (head)\n"
    there = owned(ragdb_empty_database)
    psql(there, further.ragdb(there, "db", "sql"))
    assert run(there, valid) == [(True,)]
    # no transaction of an application can hold it
    fresh = owned(ragdb_empty_database)
    said = further.python("-c", INSIDE, fresh, check=False).stderr
    assert "ConfigError: document_owner_idx is built concurrently" in said
    assert run(fresh, "select to_regnamespace('ragdb')") == [(None,)]


INSIDE = """
import sys
from sqlalchemy import create_engine
from ragdb.db import upgrade
from ragdb.db.connect import sqlalchemy_url

with create_engine(sqlalchemy_url(sys.argv[1])).begin() as connection:
    upgrade(connection)
"""

# What a program does by SQL; no signature ever changes, so that each release can be given data by it.
EMBED = """
with claimed as materialized (select * from ragdb.claim_jobs('test', 10)),
todo as materialized (select c.job_id, c.lease_token, e.chunk_id from claimed c, ragdb.chunks_to_embed(c.document_id, c.revision) e)
select job_id, lease_token, array_agg(chunk_id) from todo group by 1, 2
"""


@pytest.mark.parametrize("start", frozen.released() or [schema.head()])
def test_a_database_of_each_release_with_data_is_upgraded_to_this_version(ragdb_empty_database: MakeDatabase, start: str) -> None:
    url = owned(ragdb_empty_database)
    schema.upgrade(url, start)
    with schema.connection(url) as conn:
        recorded = {kind: found for kind, found in catalog.recorded(start).items() if kind != "grant"}
        made = {kind: found for kind, found in catalog.read(conn).items() if kind != "grant"}
        assert [str(one) for one in catalog.compare(recorded, made)] == []
    text = "Reset the router with a pin."
    chunk = {
        "ordinal": 0,
        "content": text,
        "context": "Router",
        "start": 0,
        "end": len(text),
        "section": None,
        "label": "router#0",
    }
    vector = FakeEmbedder().embed_passages([text])[0]
    with psycopg.connect(url) as conn:
        conn.execute("select ragdb.create_collection('help', ragdb.register_model(%s, 8))", (FakeEmbedder().name,))
        conn.execute(
            "select * from ragdb.put_document('help', %s, '{\"queue\": true}')",
            (json.dumps({"uri": "router.md", "content": text, "chunking": "given", "sections": [], "chunks": [chunk]}),),
        )
        [(job, token, chunks)] = conn.execute(EMBED).fetchall()
        conn.execute("select ragdb.store_vectors(%s, %s, %s, %s)", (job, token, chunks, vector * len(chunks)))
        assert conn.execute("select ragdb.finish_job(%s, %s)", (job, token)).fetchall() == [(True,)]
        conn.execute("select ragdb.submit_document('help', 'waits.md', 'The antenna waits.')")
        [(run_id,)] = conn.execute(
            "select ragdb.record_run(%s)",
            (
                json.dumps(
                    {"collection": "help", "verb": "ask", "question": "router?", "pipeline": {}, "k": 1, "ms": 1, "usage": {}}
                ),
            ),
        ).fetchall()
        conn.execute("select ragdb.give_feedback(%s, 1)", (run_id,))
        conn.execute("insert into ragdb.eval_set (name, collection) values ('smoke', 'help')")
    ranking = "select chunk_id, score from ragdb.search('router', collection => 'help')"
    before = run(url, ranking)
    assert before
    schema.upgrade(url)
    assert [one for one in catalog.check(url) if one.kind != "grant"] == []
    assert run(url, ranking) == before
    with rag(url) as r:
        assert drain(r) == ["waits.md"]
        assert r.search("antenna")[0].uri == "waits.md"
        assert r.explain(run_id).run_id == run_id
        assert r.ask("How do I reset the router?").outcome == "answered"
    assert run(url, "select question, rating from ragdb.feedback join ragdb.run using (run_id)") == [("router?", 1)]
    assert run(url, "select name from ragdb.eval_set") == [("smoke",)]
    schema.downgrade(url, start)
    assert run(url, ranking) == before
