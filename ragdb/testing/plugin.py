"""pytest fixtures: a fresh, migrated database for every test that asks, copied from a template in milliseconds.

    # conftest.py
    pytest_plugins = ["ragdb.testing.plugin"]

    def test_articles_are_found(ragdb_url):
        rag = RagDB(ragdb_url, embedder=FakeEmbedder())

The server is RAGDB_TEST_DATABASE_URL (a role that may create databases, pgvector available), else an embedded one
(extra `local`; RAGDB_TEST_POSTGRES=16 or 18) in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from ragdb.db import schema
from ragdb.db.connect import libpq_url


def _on(server: str, database: str) -> str:
    return libpq_url(make_url(server).set(database=database))


def _run(server: str, *statements: sql.Composed | sql.SQL) -> None:
    with psycopg.connect(server, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


@pytest.fixture(scope="session")
def ragdb_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a PostgreSQL server for tests; an embedded one stops and disappears at the end.

    Parametrized indirectly, its parameter is the version of the embedded one.
    """
    given = os.environ.get("RAGDB_TEST_DATABASE_URL")
    if given:
        yield libpq_url(given)
        return
    from ragdb.db import embedded

    # A short path: a socket's may not be longer than about 100 characters.
    home = Path(tempfile.mkdtemp(prefix="ragdb-test-", dir="/tmp" if Path("/tmp").is_dir() else None))  # noqa: S108
    version = getattr(request, "param", None) or os.environ.get("RAGDB_TEST_POSTGRES", "18")
    url = embedded.start(home, version=int(version))
    try:
        # Nothing in here outlives the tests.
        _run(
            url,
            *(sql.SQL(f"alter system set {s} = off") for s in ("fsync", "full_page_writes", "synchronous_commit")),
            sql.SQL("select pg_reload_conf()"),
        )
        yield url
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _create(server: str, name: str, template: str) -> None:
    _run(server, sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template)))


def _drop(server: str, name: str) -> None:
    _run(server, sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def ragdb_template(ragdb_server: str) -> Iterator[str]:
    """Name of a migrated database that others are copied from."""
    name = f"ragdb_template_{uuid.uuid4().hex[:8]}"
    locale = "locale_provider builtin builtin_locale 'C.UTF-8' lc_collate 'C' lc_ctype 'C'"
    with psycopg.connect(ragdb_server) as conn:
        modern = conn.info.server_version >= 170000
    how = sql.SQL("create database {} template template0 encoding 'UTF8' " + (locale if modern else "")).format(
        sql.Identifier(name)
    )
    _run(ragdb_server, how)
    _run(_on(ragdb_server, name), sql.SQL("create extension vector"))
    schema.upgrade(_on(ragdb_server, name))
    yield name
    _drop(ragdb_server, name)


@pytest.fixture
def ragdb_url(ragdb_server: str, ragdb_template: str) -> Iterator[str]:
    """URL of a fresh database with ragdb's schema and nothing in it."""
    name = f"ragdb_{uuid.uuid4().hex[:12]}"
    _create(ragdb_server, name, ragdb_template)
    yield _on(ragdb_server, name)
    _drop(ragdb_server, name)


@pytest.fixture
def ragdb_empty_database(ragdb_server: str) -> Iterator[Callable[..., str]]:
    """Makes databases without ragdb in them: `make()` returns the URL of a fresh one."""
    made: list[str] = []

    def make(template: str = "template0") -> str:
        name = f"ragdb_{uuid.uuid4().hex[:12]}"
        _create(ragdb_server, name, template)
        made.append(name)
        return _on(ragdb_server, name)

    yield make
    for name in made:
        _drop(ragdb_server, name)


__all__: list[Any] = ["ragdb_empty_database", "ragdb_server", "ragdb_template", "ragdb_url"]
