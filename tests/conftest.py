"""Fixtures of the whole suite; the database ones are the product's own (ragdb.testing.plugin)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from ragdb import RagDB
from ragdb.testing import FakeEmbedder

pytest_plugins = ["ragdb.testing.plugin"]

Query = Callable[..., list[tuple[Any, ...]]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `postgres(16, 18)` run on each of these, unless the surroundings say on which server tests run."""
    mark = metafunc.definition.get_closest_marker("postgres")
    chosen = "RAGDB_TEST_DATABASE_URL" in os.environ or "RAGDB_TEST_POSTGRES" in os.environ
    if mark and not chosen and "ragdb_server" in metafunc.fixturenames:
        metafunc.parametrize("ragdb_server", mark.args, ids=[f"postgresql{v}" for v in mark.args], indirect=True, scope="session")


@pytest.fixture
def rag(ragdb_url: str) -> Iterator[RagDB]:
    """A RagDB with the fake embedder on a fresh database, collection `help`."""
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as made:
        yield made


@pytest.fixture
def query(ragdb_url: str) -> Iterator[Query]:
    """Runs one statement in the test's database and returns its rows."""
    with psycopg.connect(ragdb_url, autocommit=True, row_factory=tuple_row) as conn:

        def run(sql: str, *values: Any) -> list[tuple[Any, ...]]:
            cursor = conn.execute(sql, values or None)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder with judged corpora, from RAGDB_TEST_DATA; tests skip without it."""
    folder = os.environ.get("RAGDB_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RAGDB_TEST_DATA names no folder with judged corpora")
    return Path(folder)
