"""`ragdb embedder index`: built beside readers and writers, repaired where a build ended half-way. MIG-01, VEC-05."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from ragdb import Document, RagDB
from ragdb.cli.main import main
from ragdb.db import hnsw, schema
from ragdb.db.connect import libpq_url
from ragdb.db.pool import Database
from ragdb.errors import ConfigError, DatabaseError
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
VALID = "select indisvalid from pg_index where indexrelid = to_regclass('ragdb.embedding_hnsw_1')"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def cli(ragdb_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """The program in this process, on the test's database; what it does to the logging ends with the test."""
    for name in os.environ:
        if name.startswith("RAGDB_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    logger = logging.getLogger("ragdb")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["ragdb", *arguments])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return Ran(int(code or 0), out, err)

    yield run
    logger.handlers[:], logger.level, logger.propagate = before
    logger.setLevel(before[1])


@pytest.fixture
def filled(rag: RagDB) -> RagDB:
    for n in range(3):
        rag.add(Document(f"d{n}", f"Page {n} about the router."))
    return rag


def the_model(url: Any) -> hnsw.Model:
    [model] = hnsw.models(url)
    return model


@pytest.mark.usefixtures("filled")
def test_the_index_is_built_once_and_then_kept(cli: Cli, query: Query) -> None:
    first = cli("embedder", "index")
    assert first.code == 0
    assert "built embedding_hnsw_1 (3 vectors" in first.out
    assert query(VALID) == [(True,)]
    [(definition,)] = query("select pg_get_indexdef('ragdb.embedding_hnsw_1'::regclass)")
    assert "halfvec(8)" in definition
    assert "halfvec_cosine_ops" in definition
    assert "WHERE (model_id = 1)" in definition
    second = cli("embedder", "index", "--json")
    [report] = json.loads(second.out)["models"]
    assert (report["action"], report["repaired"], report["state"], report["vectors"]) == ("kept", False, "valid", 3)


@pytest.mark.usefixtures("filled")
def test_with_sql_the_ddl_is_printed_and_nothing_is_made(cli: Cli, query: Query, ragdb_url: str) -> None:
    printed = cli("embedder", "index", "--sql", "--m", "8", "--ef-construction", "32")
    assert printed.code == 0
    assert "m = 8, ef_construction = 32" in printed.out
    assert query(VALID) == []
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute(printed.out.encode())
    assert the_model(ragdb_url).state == "valid"
    assert "create index" not in cli("embedder", "index", "--sql").out


@pytest.mark.usefixtures("filled")
def test_an_invalid_leftover_is_dropped_built_again_and_said_so(cli: Cli, query: Query) -> None:
    assert cli("embedder", "index").code == 0
    query("update pg_index set indisvalid = false where indexrelid = 'ragdb.embedding_hnsw_1'::regclass")
    assert "invalid" in cli("embedder", "list").out
    assert "drop index concurrently" in cli("embedder", "index", "--sql").out
    repaired = cli("embedder", "index")
    assert repaired.code == 0
    assert "is invalid" in repaired.err
    assert query(VALID) == [(True,)]


def test_what_a_real_build_leaves_when_it_is_stopped_is_repaired(
    filled: RagDB, ragdb_url: str, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    with psycopg.connect(ragdb_url) as writer:
        writer.execute("lock table ragdb.embedding in row exclusive mode")
        with monkeypatch.context() as patched:
            patched.setenv("PGOPTIONS", "-c statement_timeout=700ms")
            with pytest.raises(DatabaseError, match="an invalid index is left"):
                hnsw.build(ragdb_url, the_model(ragdb_url))
    assert query(VALID) == [(False,)]
    assert filled.search("router").hits  # exact meanwhile
    said: list[str] = []
    built = hnsw.build(Database(ragdb_url), the_model(ragdb_url), said=said.append)
    assert (built.action, built.repaired, built.model.state) == ("built", True, "valid")
    assert len(said) == 1


@pytest.mark.usefixtures("filled")
def test_a_build_of_another_session_is_left_alone_and_its_progress_is_seen(ragdb_url: str) -> None:
    phases: list[str] = []

    def build() -> None:
        hnsw.build(ragdb_url, the_model(ragdb_url), progress=lambda phase, _done, _total: phases.append(phase))

    with psycopg.connect(ragdb_url) as writer:
        writer.execute("lock table ragdb.embedding in row exclusive mode")
        thread = threading.Thread(target=build)
        thread.start()
        until = time.monotonic() + 30
        while the_model(ragdb_url).state != "building" and time.monotonic() < until:
            time.sleep(0.05)
        with pytest.raises(DatabaseError, match="another session is building"):
            hnsw.build(ragdb_url, the_model(ragdb_url))
        # a look may come before the build waits
        while not any(phase.startswith("waiting for writers") for phase in phases) and time.monotonic() < until:
            time.sleep(0.05)
    thread.join(30)
    assert the_model(ragdb_url).state == "valid"
    assert any(phase.startswith("waiting for writers") for phase in phases)


def test_documents_are_added_and_found_while_the_index_is_built(filled: RagDB, ragdb_url: str) -> None:
    with psycopg.connect(ragdb_url) as old:
        old.execute("lock table ragdb.embedding in row exclusive mode")
        thread = threading.Thread(target=lambda: hnsw.build(ragdb_url, the_model(ragdb_url)))
        thread.start()
        filled.add(Document("late", "A late page about antennas."))
        assert filled.search("antennas")[0].uri == "late"
    thread.join(30)
    assert filled.search("antennas")[0].uri == "late"


@pytest.mark.parametrize("vector_schema", ["public", '"Ext Ra"'])
def test_the_owner_without_superuser_builds_it_wherever_pgvector_is(
    ragdb_empty_database: Callable[..., str], vector_schema: str
) -> None:
    url = ragdb_empty_database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"create schema if not exists {vector_schema}".encode())
        conn.execute(f"create extension vector schema {vector_schema}".encode())
        for role in ("app", "reader"):
            conn.execute(f"do $$ begin if to_regrole('{role}') is null then create role {role} login; end if; end $$".encode())
        conn.execute(f'alter database "{conn.info.dbname}" owner to app'.encode())
        conn.execute(f"grant usage on schema {vector_schema} to app".encode())
    owner, reader = (libpq_url(make_url(url).set(username=role)) for role in ("app", "reader"))
    schema.upgrade(owner)
    with RagDB(owner, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(Document("d", "Reset the router."))
        model = the_model(owner)
        with psycopg.connect(owner, autocommit=True) as conn:
            conn.execute("grant usage on schema ragdb to reader")
            conn.execute("grant select on all tables in schema ragdb to reader")
        with pytest.raises(DatabaseError, match="must be owner"):
            hnsw.build(reader, model)
        assert hnsw.build(owner, model).action == "built"
        assert rag.search("router")[0].uri == "d"


def test_more_than_four_thousand_dimensions_get_no_index_and_it_is_said(cli: Cli, ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="long", embedder=FakeEmbedder(4096)) as rag:
        rag.add(Document("a", "Reset the router."))
        ran = cli("embedder", "index")
        assert ran.code == 0
        assert "4,096 dimensions are more than the 4,000" in ran.out
        assert [line[:2] for line in cli("embedder", "index", "--sql").out.splitlines()] == ["--"]
        assert rag.search("router")[0].uri == "a"


def test_the_model_is_named_or_that_of_a_collection_or_all(cli: Cli, ragdb_url: str, query: Query) -> None:
    for dims, collection in ((8, "small"), (16, "large")):
        with RagDB(ragdb_url, collection=collection, embedder=FakeEmbedder(dims)) as rag:
            rag.add(Document("a", "Reset the router."))
    name = query("select name from ragdb.embedding_model where dims = 16")[0][0]
    assert [model["dims"] for model in json.loads(cli("embedder", "index", name, "--json").out)["models"]] == [16]
    assert [model["dims"] for model in json.loads(cli("embedder", "index", "-c", "small", "--json").out)["models"]] == [8]
    assert [model["action"] for model in json.loads(cli("embedder", "index", "--json").out)["models"]] == ["kept", "kept"]
    missing = cli("embedder", "index", "nothing")
    assert missing.code == 1
    assert name in missing.err
    listed = cli("embedder", "list")
    assert name in listed.out
    assert "small" in listed.out


@pytest.mark.usefixtures("filled")
def test_wrong_options_and_an_index_made_by_hand_are_refused(ragdb_url: str, query: Query) -> None:
    with pytest.raises(ConfigError, match="twice m"):
        hnsw.build(ragdb_url, the_model(ragdb_url), m=64, ef_construction=100)
    query("create index embedding_hnsw_1 on ragdb.embedding using hnsw ((v::vector(8)) vector_l2_ops) where model_id = 1")
    with pytest.raises(DatabaseError, match="is not the index that searches use"):
        hnsw.build(ragdb_url, the_model(ragdb_url))


@pytest.mark.usefixtures("filled")
def test_too_little_memory_is_said_before_building(ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    said: list[str] = []
    with psycopg.connect(ragdb_url) as conn:
        hint = hnsw._memory_hint(conn, replace(the_model(ragdb_url), vectors=10_000_000), 16)
    assert hint is not None
    assert "PGOPTIONS" in hint
    hnsw.build(ragdb_url, the_model(ragdb_url), said=said.append)
    assert said == []
