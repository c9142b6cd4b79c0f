"""Behind PgBouncer in transaction mode, and with prepared statements gone: no error, no setting left behind. DB-01."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ragdb import Document, RagDB
from ragdb.db import hnsw
from ragdb.ingest import queue
from ragdb.testing import FakeEmbedder

PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]))


def fill(url: str) -> None:
    with RagDB(url, collection="help", embedder=FakeEmbedder()) as rag:
        for n in range(30):
            rag.add(Document(f"d{n}", f"Page {n} about the {('router', 'battery', 'antenna')[n % 3]} and part{n % 7}."))
    hnsw.build(url, hnsw.models(url)[0])
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("update ragdb.collection set exact_limit = 0")  # so that searches change settings


def _account(folder: Path) -> pwd.struct_passwd:
    """Who runs PgBouncer, which refuses to be root: the embedded server's user, who may enter its socket's folder."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("pgserver", "postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, account.pw_uid, account.pw_gid)
        return account
    pytest.skip("there is no account to run PgBouncer with")


@pytest.fixture
def bouncer(ragdb_url: str) -> Iterator[str]:
    """URL of the test's database through a PgBouncer with two server connections."""
    if PROGRAM is None:
        pytest.skip("the program pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    server = psycopg.conninfo.conninfo_to_dict(ragdb_url)
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    account = _account(folder)
    keep = {key: str(value) for key, value in server.items() if key in ("host", "port", "user", "password", "dbname")}
    target = " ".join(f"{key}='{value}'" for key, value in keep.items())
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"""[databases]
{server["dbname"]} = {target}
[pgbouncer]
listen_port = 6432
unix_socket_dir = {folder}
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
auth_type = any
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
"""
    )
    config.chmod(0o644)
    options: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen([PROGRAM, config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    url = f"postgresql://any@/{server['dbname']}?host={folder}&port=6432"
    try:
        _wait(process, url, folder)
        yield url
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    until = time.monotonic() + 20
    while not _answers(url):
        log = folder / "log"
        said = log.read_text(errors="replace") if log.exists() else ""
        assert process.poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def test_searches_and_adds_at_once_through_two_server_connections(bouncer: str, ragdb_url: str) -> None:
    fill(ragdb_url)
    with RagDB(bouncer, collection="help", embedder=FakeEmbedder()) as rag:

        def found() -> list[int]:
            return [hit.chunk_id for hit in rag.search("battery part3", k=3, where={"uri": {"prefix": "d"}})]

        wanted = found()

        def search(_thread: int) -> bool:
            return all(found() == wanted for _ in range(30))

        def add(_thread: int) -> bool:
            return all(rag.add(Document(f"new{n}", f"Another page {n}.")).ingest_state == "ready" for n in range(30))

        with ThreadPoolExecutor(5) as threads:
            done = [*(threads.submit(search, n) for n in range(4)), threads.submit(add, 0)]
            assert all(future.result(timeout=100) for future in done)
        assert rag.get("new29") is not None

    # Two transactions at once are two server connections, so these are all there are.
    with psycopg.connect(bouncer) as one, psycopg.connect(bouncer) as two:
        shown = []
        for conn in (one, two):
            conn.execute("select '[1]'::vector")  # loads the library, whose settings these are
            shown.append([conn.execute(f"show {name}".encode()).fetchone() for name in ("hnsw.ef_search", "enable_sort")])
        assert shown == [[("40",), ("on",)]] * 2
        [(pids,)] = one.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
        ).fetchall()
        assert pids == 2
        # transaction mode keeps no session: nothing of ours may hold a lock that outlives its transaction
        assert one.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchall() == [(0,)]


def test_prepared_statements_that_are_gone_change_nothing(ragdb_url: str) -> None:
    fill(ragdb_url)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        wanted = rag.search("battery part3").hits
        for call in range(20):
            if call == 8:
                with rag.context.database.connection() as caller:
                    caller.connection.execute("deallocate all")
            assert rag.search("battery part3").hits == wanted
        with rag.context.database.connection() as caller:
            caller.connection.execute("select '[1]'::vector")
            assert caller.connection.execute("show hnsw.ef_search").fetchone() == ("40",)


def test_a_worker_behind_transaction_mode_hears_nothing_says_so_once_and_polls(
    bouncer: str, ragdb_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    ready: list[str] = []
    logging.getLogger("ragdb").propagate = True
    with RagDB(bouncer, collection="help", embedder=FakeEmbedder()) as rag, caplog.at_level(logging.WARNING, "ragdb"):
        rag.context.ensure_collection(rag.context.database)
        options = queue.Options(concurrency=2, poll=0.3)
        worker = threading.Thread(
            target=lambda: queue.run(rag.context, options, stop=stop, told=lambda done: ready.append(done.row["uri"]))
        )
        worker.start()
        with psycopg.connect(ragdb_url, autocommit=True) as conn:
            until = time.monotonic() + 60
            for n in range(20):
                conn.execute("select ragdb.submit_document('help', %s, 'alpha text')", [f"w{n}"])
                time.sleep(0.1)
            while len(ready) < 20 or not any("it polls" in line for line in caplog.messages):
                assert time.monotonic() < until, (ready, caplog.messages)
                time.sleep(0.1)
        stop.set()
        worker.join(60)
    assert not worker.is_alive()
    assert sorted(ready) == sorted(f"w{n}" for n in range(20))
    assert sum("it polls" in line for line in caplog.messages) == 1
