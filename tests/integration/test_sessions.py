"""Documents in the application's own transaction: every driver, savepoints, autocommit, and what cannot be a session."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from ragdb import Document, RagDB
from ragdb.db import embedded
from ragdb.errors import BadDocument, ConfigError
from ragdb.testing import drain

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]
ROUTER = "# Reset\n\nHold the zirconium button."


def uris(query: Query) -> list[str]:
    return [uri for (uri,) in query("select uri from ragdb.document order by uri")]


@pytest.fixture
def ready(rag: RagDB) -> RagDB:
    """A RagDB whose collection is there."""
    rag.context.ensure_collection(rag.context.database)
    return rag


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_savepoint_that_is_rolled_back_takes_its_documents_along(
    ready: RagDB, ragdb_url: str, query: Query, driver: str
) -> None:
    engine = create_engine(make_url(ragdb_url).set(drivername=f"postgresql+{driver}"))
    with Session(engine) as session:
        ready.add(Document("outer", "Outer text."), session=session)
        savepoint = session.begin_nested()
        ready.add(Document("inner", "Inner text."), session=session)
        ready.add(Document("outer", "Outer text, changed inside."), session=session)
        savepoint.rollback()
        with session.begin_nested():
            ready.add(Document("nested", "Nested text."), session=session)
            deeper = session.begin_nested()
            assert ready.delete("outer", session=session)["document"] == 1
            deeper.rollback()
        session.commit()
    assert uris(query) == ["nested", "outer"]
    assert sorted(drain(ready)) == ["nested", "outer"]
    stored = ready.get("outer")
    assert stored is not None and stored.content == "Outer text."
    engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_an_error_inside_a_savepoint_leaves_the_transaction_alive(
    ready: RagDB, ragdb_url: str, query: Query, driver: str
) -> None:
    engine = create_engine(make_url(ragdb_url).set(drivername=f"postgresql+{driver}"))
    with Session(engine) as session:
        with pytest.raises((BadDocument, ConfigError)), session.begin_nested():
            ready.add(Document("x" * 2001, "Text."), session=session)
        ready.add(Document("good", "Text."), session=session)
        session.commit()
    assert uris(query) == ["good"]
    engine.dispose()


def test_a_collection_that_was_rolled_back_is_made_again(rag: RagDB, ragdb_url: str, query: Query) -> None:
    engine = create_engine(make_url(ragdb_url).set(drivername="postgresql+psycopg"))
    with Session(engine) as session:
        rag.add(Document("a", "Text."), session=session)
        session.rollback()
        assert query("select count(*) from ragdb.collection") == [(0,)]
        rag.add(Document("a", "Text."), session=session)
        session.commit()
    assert uris(query) == ["a"]
    engine.dispose()


def test_connections_scoped_sessions_and_autocommit_work(ready: RagDB, ragdb_url: str, query: Query) -> None:
    engine = create_engine(make_url(ragdb_url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        ready.add(Document("connection", "Text."), session=connection)
        connection.rollback()
        assert uris(query) == []
        ready.add(Document("connection", "Text."), session=connection)
        connection.commit()
    scoped = scoped_session(sessionmaker(engine))
    ready.add(Document("scoped", "Text."), session=scoped)
    scoped.commit()
    scoped.remove()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        ready.add(Document("autocommit", "Text."), session=connection)
        assert uris(query) == ["autocommit", "connection", "scoped"], "each statement is its own transaction"
    engine.dispose()


def test_a_psycopg_connection_is_a_session_too(ready: RagDB, ragdb_url: str, query: Query) -> None:
    with psycopg.connect(ragdb_url) as conn:
        conn.execute("create table own (id int)")
        added = ready.add(Document("a", ROUTER), session=conn)
        assert (added.ingest_state, added.chunks) == ("queued", 1)
        with conn.transaction():
            ready.add(Document("b", ROUTER), session=conn)
            raise psycopg.Rollback
        assert drain(ready, conn) == ["a"]
        assert ready.search("zirconium", session=conn)[0].uri == "a"
        assert ready.ask("Which zirconium button?", session=conn).run_id is not None
        conn.rollback()
    assert uris(query) == [] and query("select to_regclass('own'), (select count(*) from ragdb.run)") == [(None, 0)]
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        ready.add(Document("c", ROUTER), session=conn)
        assert uris(query) == ["c"]
        assert ready.get("c", session=conn) is not None


def test_what_cannot_be_a_session_is_refused_with_what_can(ready: RagDB, ragdb_url: str) -> None:
    document = Document("a", "Text.")

    async def program() -> None:
        engine = create_async_engine(make_url(ragdb_url).set(drivername="postgresql+psycopg"))
        async with AsyncSession(engine) as session:
            with pytest.raises(ConfigError, match=r"await rag\.aio\.add"):
                ready.add(document, session=session)
        async with engine.connect() as connection:
            with pytest.raises(ConfigError, match=r"await rag\.aio\.add"):
                ready.add(document, session=connection)
            # and the way that it names
            await ready.aio.add(document, session=connection)
            await connection.rollback()
        await engine.dispose()
        raw = await asyncpg.connect(**_parts(ragdb_url))
        with pytest.raises(ConfigError, match=r"ragdb\.submit_document"):
            await ready.aio.add(document, session=raw)
        await raw.close()
        async with await psycopg.AsyncConnection.connect(ragdb_url) as conn:
            with pytest.raises(ConfigError, match="AsyncSession"):
                await ready.aio.add(document, session=conn)

    asyncio.run(program())
    other = psycopg2.connect(ragdb_url)
    for given in (other, other.cursor(), create_engine(ragdb_url), ragdb_url):
        with pytest.raises(ConfigError, match="session is a"):
            ready.add(document, session=given)
    other.close()


def test_async_sessions_roll_back_to_a_savepoint(ready: RagDB, ragdb_url: str, query: Query) -> None:
    async def program(driver: str) -> None:
        parts = make_url(ragdb_url)
        url = parts.set(drivername=f"postgresql+{driver}", query={} if driver == "asyncpg" else parts.query)
        arguments = {"host": parts.query["host"]} if driver == "asyncpg" and "host" in parts.query else {}
        engine = create_async_engine(url, connect_args=arguments)
        async with AsyncSession(engine) as session:
            await ready.aio.add(Document(f"{driver}/kept", "Text."), session=session)
            savepoint = await session.begin_nested()
            await ready.aio.add(Document(f"{driver}/gone", "Text."), session=session)
            await savepoint.rollback()
            await session.commit()
        await engine.dispose()

    for driver in ("asyncpg", "psycopg"):
        asyncio.run(program(driver))
    assert uris(query) == ["asyncpg/kept", "psycopg/kept"]


def _parts(url: str) -> dict[str, Any]:
    given = psycopg.conninfo.conninfo_to_dict(url)
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
    return {names[name]: value for name, value in given.items() if name in names}


def test_plain_sql_with_parameters_of_every_client(ready: RagDB, ragdb_url: str, query: Query) -> None:
    body = "# It's\r\n\r\nThe 100% \\ zirconium 'anchor' :name $1."
    arguments = "'help', {0}, {1}, title => {2}, metadata => {3}"

    conn = psycopg2.connect(ragdb_url)
    with conn, conn.cursor() as cursor:
        cursor.execute(
            "select ingest_state, changed from ragdb.submit_document(" + arguments.format(*["%s"] * 4) + ")",
            ("psycopg2.md", body, "T", '{"n": 1}'),
        )
        assert cursor.fetchall() == [("queued", True)]
    conn.close()
    with psycopg.connect(ragdb_url) as three:
        three.execute(
            "select * from ragdb.submit_document(" + arguments.format(*["%s"] * 4) + ")", ("psycopg.txt", body, None, '{"n": 1}')
        )

    async def with_asyncpg() -> None:
        raw = await asyncpg.connect(**_parts(ragdb_url))
        row = await raw.fetchrow(
            "select * from ragdb.submit_document(" + arguments.format("$1", "$2", "$3", "$4") + ")",
            "asyncpg.csv",
            "name,price\nanchor,3",
            "T",
            '{"n": 1}',
        )
        assert (row["ingest_state"], row["changed"]) == ("queued", True)
        await raw.close()

    asyncio.run(with_asyncpg())
    script = (
        "select ingest_state from ragdb.submit_document('help', :'uri', :'body', title => :'title', metadata => :'meta') \\g\n"
    )
    values = {"uri": "psql", "body": body + " Of psql.", "title": "T", "meta": '{"n": 1}'}
    version = int(query("show server_version_num")[0][0]) // 10000
    done = subprocess.run(
        [embedded.bin_path(version) / "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", *(f"--set={k}={v}" for k, v in values.items()), ragdb_url],
        input=script, capture_output=True, text=True, check=False, env={**os.environ, "PGCLIENTENCODING": "UTF8"},
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("queued", "")

    assert sorted(drain(ready)) == ["asyncpg.csv", "psql", "psycopg.txt", "psycopg2.md"]
    headings = {hit.uri: hit.heading_path for hit in ready.search("zirconium anchor", k=20, where={"n": 1})}
    assert headings == {"psql": ("It's",), "psycopg2.md": ("It's",), "psycopg.txt": (), "asyncpg.csv": ()}, (
        "cut as the suffix says"
    )
    stored = ready.get("psql")
    assert stored is not None and stored.content == body.replace("\r\n", "\n") + " Of psql."


def test_the_media_type_and_pages_may_be_said_in_sql(ready: RagDB, query: Query) -> None:
    query(
        "select * from ragdb.submit_document('help', 'plain', E'# no heading\\n\\nzirconium', options => '{\"media_type\": \"text/plain\"}')"
    )
    query(
        "select * from ragdb.submit_document('help', 'paged.pdf', 'First vanadium. Second tantalum.', options => '{\"pages\": [0, 16]}')"
    )
    drain(ready)
    assert ready.search("zirconium")[0].heading_path == ()
    assert {hit.page for hit in ready.search("vanadium tantalum", where={"uri": "paged.pdf"})} == {1, 2}
