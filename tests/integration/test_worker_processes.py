"""Workers as real processes: killed, stopped, told to end, and the server restarted under them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ragdb import Pipeline, RagDB
from ragdb.db import embedded, schema
from ragdb.errors import DatabaseError, DatabaseUnreachable
from ragdb.ingest import queue
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
Start = Callable[..., subprocess.Popen[str]]
LEXICAL = Pipeline(legs=("lexical",), window=0)

# An embedder that a worker's process finds by its name: slow as the environment says, and deadly for one word.
SLOWLY = """
import os, time
from ragdb.testing import FakeEmbedder

class Slow(FakeEmbedder):
    def __init__(self):
        super().__init__(name="slowly:Slow")
    @classmethod
    def load(cls, model=""):
        return cls()
    def embed_passages(self, texts):
        if any("killer" in text for text in texts):
            os.kill(os.getpid(), 9)
        if any("poison" in text for text in texts):
            raise ValueError("poison found")
        open("embedding", "w").close()  # in the worker's folder: the model is at work
        time.sleep(float(os.environ.get("SLOWLY", "0.02")))
        return super().embed_passages(texts)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `ragdb worker` with options, on a database; what is left of them is killed at the end."""
    (tmp_path / "slowly.py").write_text(SLOWLY)
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(root), str(tmp_path), os.environ.get("PYTHONPATH")]))
    started: list[subprocess.Popen[str]] = []

    def run(url: str, *options: str, slowly: float = 0.02, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ragdb.cli.main", "worker", *options],
            env={**os.environ, "PYTHONPATH": path, "RAGDB_DATABASE_URL": url, "SLOWLY": str(slowly), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


def collection(query: Query, name: str = "help") -> None:
    query("select ragdb.create_collection(%s, ragdb.register_model('slowly:Slow', 8))", name)


def submit(query: Query, count: int, *, first: int = 0, name: str = "help") -> None:
    query(
        "select count(*) from generate_series(%s::int, %s::int) n, "
        "ragdb.submit_document(%s, 'd' || n, format(E'# Page %%s\n\nalpha %%s\n\n## More\n\nbeta %%s\n', n, n, n))",
        first,
        first + count - 1,
        name,
    )


def until(true: Callable[[], bool], seconds: float = 120, what: str = "it did not happen") -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def is_true(query: Query, condition: str) -> Callable[[], bool]:
    return lambda: query(f"select {condition}") == [(True,)]


def assert_all_ready(query: Query, documents: int) -> None:
    """Every document ready, each chunk once, no orphan, nothing left in the queue."""
    assert (
        query(
            "select uri, d.ingest_state, j.attempts, j.lost, j.last_error from ragdb.document d left join ragdb.job j using (document_id) where d.ingest_state <> 'ready' or j.job_id is not null"
        )
        == []
    )
    assert query("select count(*) from ragdb.document") == [(documents,)]
    assert query("select count(*), count(distinct content) from ragdb.chunk") == [(2 * documents, 2 * documents)]
    assert query("select count(*), count(distinct chunk_id) from ragdb.chunk_place") == [(2 * documents, 2 * documents)]
    assert query("select count(*) from ragdb.embedding") == [(2 * documents,)]
    assert query("select count(*) from ragdb.document_revision") == [(documents,)]
    assert query("select count(*) from ragdb.section") == [(2 * documents,)]


def ended(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str]:
    _, err = process.communicate(timeout=seconds)
    return process.returncode, err


def test_workers_that_are_killed_again_and_again_lose_nothing_and_fail_nothing(
    ragdb_url: str, query: Query, start: Start
) -> None:
    collection(query)
    submit(query, 200)
    workers = [start(ragdb_url, "--poll", "0.5"), start(ragdb_url, "--poll", "0.5")]
    for n in range(6):
        # at a moment when it has jobs in hand
        own = f"count(*) > 0 from ragdb.job where state = 'processing' and leased_by like '%%:{workers[n % 2].pid}:%%'"
        until(is_true(query, own))
        workers[n % 2].kill()  # nobody has waited for it yet: to the system it is still there
        workers[n % 2] = start(ragdb_url, "--poll", "0.5")
    assert query("select count(*) from ragdb.job where state = 'failed' or attempts > max_attempts") == [(0,)]
    until(is_true(query, "not exists (select from ragdb.job)"))
    assert_all_ready(query, 200)
    for worker in workers:
        worker.terminate()
        assert ended(worker)[0] == 0


def test_a_killer_and_a_poison_fail_alone_after_the_good_ones_are_ready(ragdb_url: str, query: Query, start: Start) -> None:
    collection(query)
    query("select ragdb.submit_document('help', 'killer', 'killer'), ragdb.submit_document('help', 'poison', 'poison')")
    submit(query, 5)
    query("update ragdb.job set max_attempts = 3")
    kills = 0
    end = time.monotonic() + 100
    while query("select count(*) from ragdb.job where state <> 'failed'") != [(0,)]:
        assert time.monotonic() < end
        query("update ragdb.job set run_after = now() where state = 'queued' and last_error is not null")
        worker = start(ragdb_url, "--once")
        code, _ = ended(worker)
        kills += code == -signal.SIGKILL
    assert query("select count(*) from ragdb.document where ingest_state = 'ready'") == [(5,)]
    bad = query("select uri, state, attempts, reason from ragdb.failed_jobs order by uri")
    assert [row[:3] for row in bad] == [("killer", "failed", 3), ("poison", "failed", 3)]
    assert "stopped without a word on attempt 3 of 3, with this document alone" in bad[0][3]
    assert "ValueError: poison found" in bad[1][3]
    # once in company, then three times alone
    assert kills == 4
    assert query("select ragdb.retry_jobs('help')") == [(2,)]
    assert query("select distinct state, attempts, lost, last_error from ragdb.job") == [("queued", 0, 0, None)]
    assert query("select count(*) from ragdb.document where ingest_state = 'queued' and last_error is null") == [(2,)]


def test_the_job_of_a_machine_that_died_is_taken_after_its_lease(ragdb_url: str, query: Query, start: Start) -> None:
    collection(query)
    submit(query, 1)
    dead = start(ragdb_url, "--lease", "3", slowly=60)
    until(is_true(query, "exists (select from ragdb.job where state = 'processing')"))
    dead.kill()
    # of a process on another machine nothing is known here
    query("update ragdb.job set leased_by = 'elsewhere:1:x'")
    other = start(ragdb_url, "--poll", "0.3", slowly=1)
    until(is_true(query, "exists (select from ragdb.job where state = 'processing' and leased_by not like 'elsewhere%%')"))
    assert query("select attempts, lost from ragdb.job") == [(2, 1)]
    until(is_true(query, "not exists (select from ragdb.job)"))
    assert_all_ready(query, 1)
    other.terminate()
    assert ended(other)[0] == 0


def test_a_worker_that_was_stopped_beyond_its_lease_changes_nothing_when_it_wakes(
    ragdb_url: str, query: Query, start: Start
) -> None:
    collection(query)
    submit(query, 3)
    late = start(ragdb_url, "--lease", "1.5", "--poll", "0.3", slowly=3)
    until(is_true(query, "(select count(*) from ragdb.job where state = 'processing') = 3"))
    late.send_signal(signal.SIGSTOP)
    quick = start(ragdb_url, "--poll", "0.3")
    until(is_true(query, "not exists (select from ragdb.job)"))
    query("select count(*) from generate_series(0, 2) n, ragdb.submit_document('help', 'd' || n, 'a newer text ' || n)")
    until(is_true(query, "not exists (select from ragdb.job) and (select min(ready_revision) = 2 from ragdb.document)"))
    tables = ("document", "document_revision", "chunk", "chunk_place", "section", "embedding", "job")

    def rows() -> list[list[tuple[Any, ...]]]:
        return [query(f"select t::text, xmin::text from ragdb.{table} t order by 1") for table in tables]

    before = rows()
    late.send_signal(signal.SIGCONT)
    time.sleep(4)  # what it embeds takes three seconds; then it tries to store
    late.terminate()
    assert ended(late)[0] == 0
    assert rows() == before
    assert len(before[2]) == 3
    quick.terminate()
    assert ended(quick)[0] == 0


def test_sigterm_finishes_the_batch_in_hand_and_gives_back_the_rest(ragdb_url: str, query: Query, start: Start) -> None:
    collection(query)
    submit(query, 200)
    worker = start(ragdb_url, "--concurrency", "2", slowly=0.5)
    until(is_true(query, "exists (select from ragdb.document where ingest_state = 'ready')"))
    worker.terminate()
    code, err = ended(worker)
    assert (code, "worker ended" in err) == (0, True)
    assert query(
        "select count(*) filter (where state = 'processing'), max(attempts), max(lost), count(*) > 0 from ragdb.job"
    ) == [(0, 0, 0, True)]
    assert query("select count(*) from ragdb.document where ingest_state = 'processing'") == [(0,)]


def test_a_model_that_outlasts_the_grace_period_loses_its_jobs_not_their_attempts(
    ragdb_url: str, query: Query, start: Start, tmp_path: Path
) -> None:
    collection(query)
    submit(query, 2)
    worker = start(ragdb_url, "--grace", "0.5", slowly=120)
    until((tmp_path / "embedding").exists)
    worker.send_signal(signal.SIGINT)
    assert ended(worker, 20)[0] == 0
    assert query("select distinct state, attempts, lost, run_after <= clock_timestamp() from ragdb.job") == [
        ("queued", 0, 0, True)
    ]


def test_a_second_signal_ends_at_once(ragdb_url: str, query: Query, start: Start, tmp_path: Path) -> None:
    collection(query)
    submit(query, 2)
    worker = start(ragdb_url, slowly=120)
    until((tmp_path / "embedding").exists)
    worker.terminate()
    time.sleep(1)
    assert worker.poll() is None, "it has thirty seconds"
    worker.terminate()
    assert ended(worker, 10)[0] == -signal.SIGTERM


def test_a_notification_wakes_a_worker_long_before_it_polls(ragdb_url: str, query: Query, start: Start) -> None:
    collection(query)
    worker = start(ragdb_url, "--poll", "600")
    until(is_true(query, "exists (select from pg_stat_activity where datname = current_database() and query like 'listen%%')"))
    time.sleep(1)
    submit(query, 3)
    until(is_true(query, "not exists (select from ragdb.job)"), 20)
    worker.terminate()
    assert ended(worker)[0] == 0


def test_without_notifications_a_worker_polls_and_nothing_is_sent(ragdb_url: str, query: Query, start: Start) -> None:
    collection(query)
    database = psycopg.conninfo.conninfo_to_dict(ragdb_url)["dbname"]
    query(f"alter database {database} set ragdb.notify = 'off'")
    worker = start(ragdb_url, "--no-listen", "--poll", "0.3")
    with psycopg.connect(ragdb_url, autocommit=True) as ear, psycopg.connect(ragdb_url, autocommit=True) as writer:
        ear.execute("listen ragdb_job")
        writer.execute("select ragdb.submit_document('help', 'd', 'alpha')")
        until(is_true(query, "exists (select from ragdb.document where ingest_state = 'ready')"))
        assert list(ear.notifies(timeout=0.5)) == []
        writer.execute("set ragdb.notify = 'on'")
        writer.execute("select ragdb.submit_document('help', 'd', 'beta')")
        assert [message.payload for message in ear.notifies(timeout=5, stop_after=1)] == ["help"]
    worker.terminate()
    assert ended(worker)[0] == 0


def test_leases_hold_whatever_the_zones_of_server_and_worker_are(ragdb_url: str, query: Query, start: Start) -> None:
    collection(query)
    submit(query, 1)
    database = psycopg.conninfo.conninfo_to_dict(ragdb_url)["dbname"]
    query(f"alter database {database} set timezone = 'Asia/Tokyo'")
    first = start(ragdb_url, "--lease", "30", slowly=60, TZ="America/New_York")
    until(is_true(query, "exists (select from ragdb.job where state = 'processing')"))
    left = "extract(epoch from leased_until - clock_timestamp())"
    assert query(f"select {left} > 20 and {left} <= 30 from ragdb.job") == [(True,)]
    second = start(ragdb_url, "--once", TZ="Pacific/Kiritimati")
    assert ended(second)[0] == 0
    assert query("select attempts, lost from ragdb.job") == [(1, 0)], "a lease that holds is nobody else's"
    first.kill()


@contextmanager
def own_server() -> Iterator[tuple[Path, str]]:
    home = Path(tempfile.mkdtemp(prefix="rw-", dir="/tmp"))
    try:
        url = embedded.start(home)
        schema.upgrade(url)
        yield home, url
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


def crash(home: Path) -> None:
    """As `pg_ctl stop -m immediate` does: no checkpoint, no farewell."""
    pid = int(next(home.glob("pg*/postmaster.pid")).read_text().splitlines()[0])
    os.kill(pid, signal.SIGQUIT)
    until(lambda: not Path(f"/proc/{pid}").exists() if Path("/proc").exists() else not embedded.running(home), 20)


def test_workers_and_readers_go_on_after_the_server_was_restarted(start: Start) -> None:
    if os.environ.get("RAGDB_TEST_DATABASE_URL"):
        pytest.skip("needs a server of its own to restart")
    documents = 200
    with own_server() as (home, url):

        def query(sql: str, *values: Any) -> list[tuple[Any, ...]]:
            with psycopg.connect(url, autocommit=True) as conn:
                cursor = conn.execute(sql, values or None)  # type: ignore[call-overload]
                return cursor.fetchall() if cursor.description else []

        collection(query)
        submit(query, documents)
        workers = [start(url, "--poll", "0.5", slowly=0.1) for _ in range(2)]
        stop = threading.Event()
        answered: list[float] = []
        errors: list[Exception] = []

        def read() -> None:
            with RagDB(url, collection="help", embedder=FakeEmbedder(name="slowly:Slow"), record=0) as reader:
                while not stop.is_set():
                    try:
                        reader.search("alpha", pipeline=LEXICAL)
                        answered.append(time.monotonic())
                    except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseError) as error:
                        errors.append(error)
                    time.sleep(0.05)

        reading = threading.Thread(target=read)
        reading.start()
        try:
            for part in (1, 2):
                until(
                    is_true(
                        query,
                        f"(select count(*) from ragdb.document where ingest_state = 'ready') > {part * 40} "
                        "and exists (select from ragdb.job where state = 'processing')",
                    )
                )
                crash(home)
                embedded.start(home)
                back = time.monotonic()
                until(lambda moment=back: bool(answered) and answered[-1] > moment, 20, "the reader did not come back")
            try:
                until(is_true(query, "not exists (select from ragdb.job)"))
            except AssertionError:
                pytest.fail(
                    f"still there: {query('select state, attempts, lost, leased_until - now(), leased_by, last_error from ragdb.job limit 5')}"
                )
        finally:
            stop.set()
            reading.join()
        assert_all_ready(query, documents)
        for worker in workers:
            worker.terminate()
            code, err = ended(worker)
            assert code == 0, err
            assert err.count("the database is away") <= 2, err


def test_a_worker_that_starts_while_the_server_is_away_waits_and_says_so(start: Start) -> None:
    if os.environ.get("RAGDB_TEST_DATABASE_URL"):
        pytest.skip("needs a server of its own to stop")
    with own_server() as (home, url):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("select ragdb.create_collection('help', ragdb.register_model('slowly:Slow', 8))")
            conn.execute("select ragdb.submit_document('help', 'd1', 'alpha')")
        embedded.stop(home)
        worker = start(url, "--poll", "0.2")
        assert worker.stderr is not None
        while "trying again for 60 seconds" not in (line := worker.stderr.readline()):
            assert line, "the worker ended"
        embedded.start(home)
        with psycopg.connect(url, autocommit=True) as conn:
            until(lambda: conn.execute("select ingest_state from ragdb.document").fetchall() == [("ready",)])
        worker.terminate()
        assert worker.wait(60) == 0


def test_a_server_that_stays_away_ends_the_worker_with_the_reason(tmp_path: Path) -> None:
    nowhere = f"postgresql://nobody@/nothing?host={tmp_path}"
    began = time.monotonic()
    with RagDB(nowhere) as rag, pytest.raises(DatabaseUnreachable):
        queue.run(rag.context, queue.Options(patience=1.0))
    assert time.monotonic() - began < 30


def test_the_queue_is_shown_and_retried_by_command(ragdb_url: str, query: Query, start: Start, tmp_path: Path) -> None:
    collection(query)
    submit(query, 2)
    query("select ragdb.submit_document('help', 'poison', 'poison')")
    query("update ragdb.job set max_attempts = 1")
    assert ended(start(ragdb_url, "--once"))[0] == 1

    def ragdb(*words: str) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parents[2]
        path = os.pathsep.join(filter(None, [str(root), str(tmp_path), os.environ.get("PYTHONPATH")]))
        return subprocess.run(
            [sys.executable, "-m", "ragdb.cli.main", *words],
            env={**os.environ, "PYTHONPATH": path, "RAGDB_DATABASE_URL": ragdb_url},
            capture_output=True,
            text=True,
            check=False,
        )

    seen = json.loads(ragdb("queue", "--json").stdout)
    [row] = seen["collections"]
    assert (row["failed"], row["waiting"], row["last_minute"], row["last_hour"]) == (1, 0, 2, 2)
    [failure] = seen["failures"]
    assert (failure["uri"], failure["attempts"]) == ("poison", 1)
    assert "poison found" in failure["reason"]
    assert "failed      help  poison  (attempt 1 of 1)" in ragdb("queue").stdout
    assert ragdb("queue", "retry").returncode == 1
    assert ragdb("queue", "retry", "unknown", "-c", "help").returncode == 1
    assert ragdb("queue", "retry", "poison", "-c", "help").stdout == "1 document queued again\n"
    assert query("select state, attempts from ragdb.job") == [("queued", 0)]
    assert ended(start(ragdb_url, "--once"))[0] == 1
    assert json.loads(ragdb("queue", "retry", "--all", "--json").stdout) == {"retried": 1}
