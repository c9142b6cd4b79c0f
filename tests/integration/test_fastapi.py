"""examples/fastapi_app.py as a client sees it, and what a request that fails leaves behind."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from ragdb import RagDB
from ragdb.db.connect import sqlalchemy_url
from ragdb.testing import FakeEmbedder, drain

pytest.importorskip("fastapi")
from fastapi import Depends
from fastapi.testclient import TestClient

Query = Callable[..., list[tuple[Any, ...]]]
ROUTER = {"tenant_id": 7, "title": "Router", "body": "# Reset\n\nHold the zirconium button of the router for ten seconds."}
TABLES = (
    "article",
    "ragdb.document",
    "ragdb.document_revision",
    "ragdb.chunk",
    "ragdb.chunk_place",
    "ragdb.section",
    "ragdb.job",
)


def load() -> Any:
    path = Path(__file__).parents[2] / "examples" / "fastapi_app.py"
    spec = importlib.util.spec_from_file_location("fastapi_app", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["fastapi_app"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def app(ragdb_url: str) -> Any:
    module = load()
    return module.create_app(module.Settings(database_url=ragdb_url), embedder=FakeEmbedder())


@pytest.fixture
def client(app: Any) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


def left(query: Query) -> dict[str, int]:
    return {table: query(f"select count(*) from {table}")[0][0] for table in TABLES}


def test_an_article_is_written_asked_about_changed_and_deleted(client: TestClient, rag: RagDB) -> None:
    made = client.post("/articles", json=ROUTER)
    assert (made.status_code, made.json()["ingest_state"]) == (201, "queued")
    uri = f"article/{made.json()['id']}"
    assert drain(rag) == [uri]
    found = client.get("/search", params={"question": "zirconium", "tenant_id": 7}).json()
    assert [hit["uri"] for hit in found] == [uri]
    assert client.get("/search", params={"question": "zirconium", "tenant_id": 8}).json() == []
    answer = client.get("/ask", params={"question": "How long do I hold the zirconium button?", "tenant_id": 7}).json()
    assert answer["outcome"] == "answered" and "ten seconds" in answer["text"] and answer["citations"][0]["uri"] == uri

    changed = client.put(f"/articles/{made.json()['id']}", json={**ROUTER, "body": "Pull the vanadium lever."})
    assert changed.json()["ingest_state"] == "queued"
    assert drain(rag) == [uri]
    assert (
        client.get("/search", params={"question": "vanadium", "tenant_id": 7}).json()[0]["content"] == "Pull the vanadium lever."
    )

    receipt = client.delete(f"/articles/{made.json()['id']}").json()
    assert (receipt["document"], receipt["chunks"], receipt["answers_blanked"]) == (1, 1, 1)
    assert client.get("/search", params={"question": "vanadium", "tenant_id": 7}).json() == []
    assert client.put("/articles/1", json=ROUTER).status_code == 404


def test_a_request_that_fails_after_its_document_leaves_nothing(app: Any, query: Query) -> None:
    module = load()
    seen: list[dict[str, int]] = []

    @app.post("/broken")
    async def broken(
        session: Any = Depends(module.session_of, scope="function"),  # noqa: B008  FastAPI's way
        rag: Any = Depends(module.rag_of),  # noqa: B008
    ) -> None:
        row = module.Article(**ROUTER)
        session.add(row)
        await session.flush()
        added = await rag.aio.add(row.as_document(), session=session)
        assert added.ingest_state == "queued" and added.chunks == 1
        counts = {}
        for table in TABLES:
            counts[table] = (await session.execute(module.text(f"select count(*) from {table}"))).scalar_one()
        seen.append(counts)
        raise RuntimeError("after rag.add")

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/broken").status_code == 500
        assert seen == [dict.fromkeys(TABLES, 1)], "inside the request all of it was there"
        assert left(query) == dict.fromkeys(TABLES, 0)
        assert query("select count(*) from ragdb.collection") == [(0,)], "not even the collection that it would have made"
        assert client.post("/articles", json=ROUTER).status_code == 201, "the connection is good for the next request"
        assert left(query) == dict.fromkeys(TABLES, 1)


def test_a_commit_that_fails_is_no_success_for_the_client(app: Any, query: Query) -> None:
    with TestClient(app, raise_server_exceptions=False) as client:
        query("alter table article add unique (title) deferrable initially deferred")
        assert client.post("/articles", json=ROUTER).status_code == 201
        assert client.post("/articles", json=ROUTER).status_code == 500
    assert left(query) == dict.fromkeys(TABLES, 1)


def test_bad_input_is_the_clients_error(client: TestClient, query: Query) -> None:
    assert client.post("/articles", json={**ROUTER, "title": ""}).status_code == 422
    assert client.post("/articles", json=ROUTER).status_code == 201
    empty = client.get("/search", params={"question": "  ", "tenant_id": 7})
    assert (empty.status_code, "question" in empty.text) == (422, True)
    assert client.get("/health").json() == {"status": "ok"}


def test_many_requests_at_once_share_the_pools(client: TestClient, query: Query, rag: RagDB) -> None:
    def one(number: int) -> int:
        made = client.post("/articles", json={**ROUTER, "title": f"Router {number}"})
        found = client.get("/search", params={"question": "zirconium", "tenant_id": 7})
        return max(made.status_code, found.status_code)

    client.post("/articles", json=ROUTER)
    drain(rag)
    with ThreadPoolExecutor(12) as threads:
        assert set(threads.map(one, range(48))) == {201}
    assert left(query)["ragdb.document"] == 49
    assert len(drain(rag)) == 48


def test_the_fixture_of_an_application_overrides_its_transaction(app: Any, ragdb_url: str, query: Query) -> None:
    """As docs/testing.md shows it: everything a test does is rolled back."""
    module = load()

    async def program() -> None:
        engine = create_async_engine(sqlalchemy_url(ragdb_url))
        async with engine.connect() as connection:
            await connection.begin()
            await connection.run_sync(module.Base.metadata.create_all)
            session = AsyncSession(bind=connection, join_transaction_mode="create_savepoint", expire_on_commit=False)
            rag = RagDB(ragdb_url, collection="help", embedder=FakeEmbedder())
            session.add(row := module.Article(**ROUTER))
            await session.flush()
            await rag.aio.add(row.as_document(), session=session)
            await session.commit()
            uris = await connection.run_sync(lambda sync: drain(rag, sync))
            assert uris == [row.uri]
            assert (await rag.aio.search("zirconium", session=session))[0].uri == row.uri
            await session.close()
            await connection.rollback()
            rag.close()
        await engine.dispose()

    asyncio.run(program())
    assert query("select count(*) from ragdb.document") == [(0,)]
