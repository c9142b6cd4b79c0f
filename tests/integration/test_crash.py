"""kill -9 in the middle: what was begun is finished by the next run; nothing twice, nothing left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ragdb import Document, RagDB
from ragdb.errors import StaleLease
from ragdb.ingest import worker
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
DOCUMENTS = 200

PROGRAM = """
import sys, time
from ragdb import Document, RagDB
from ragdb.testing import FakeEmbedder

class Slow(FakeEmbedder):
    def __init__(self):
        super().__init__(name="ragdb.testing.fakes:FakeEmbedder")
    def embed_passages(self, texts):
        time.sleep(0.02)
        return super().embed_passages(texts)

rag = RagDB(sys.argv[1], collection="help", embedder=Slow())
for n in range(int(sys.argv[2])):
    rag.add(Document(f"d{n}", f"# Page {n}\\n\\nalpha {n}\\n\\n## More\\n\\nbeta {n}\\n"))
print("done")
"""


def start(url: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, str(DOCUMENTS)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "the program got nowhere"
        time.sleep(0.02)


def test_a_killed_run_is_completed_by_the_next_one(ragdb_url: str, query: Query) -> None:
    for progress in (5, 60):
        process = start(ragdb_url)
        wait_until(lambda enough=progress: query("select count(*) >= %s from ragdb.document", enough) == [(True,)])
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = query("select count(*) from ragdb.document where ingest_state = 'ready'")[0][0]
    assert 0 < killed < DOCUMENTS

    finished = start(ragdb_url)
    out, _ = finished.communicate(timeout=120)
    assert (finished.returncode, out.strip()) == (0, b"done")
    left = query(
        "select d.uri, d.ingest_state, j.state, j.leased_by, j.attempts from ragdb.document d left join ragdb.job j using (document_id) where d.ingest_state <> 'ready'"
    )
    assert left == []
    assert query("select count(*) from ragdb.document") == [(DOCUMENTS,)]
    assert query("select count(*), count(distinct content) from ragdb.chunk") == [(2 * DOCUMENTS, 2 * DOCUMENTS)]
    assert query("select count(*) from ragdb.chunk_place") == [(2 * DOCUMENTS,)]
    assert query("select count(*) from ragdb.embedding") == [(2 * DOCUMENTS,)]
    assert query("select count(*) from ragdb.job") == [(0,)]
    assert query("select count(*) from ragdb.document_revision") == [(DOCUMENTS,)]


def test_a_lease_that_ran_out_goes_to_another_worker_and_the_late_one_changes_nothing(rag: RagDB, query: Query) -> None:
    rag.context.ensure_collection(rag.context.database)
    query("select ragdb.submit_document('help', 'd', 'alpha text')")
    db = rag.context.database
    late = worker.claim(db, collection="help")
    assert late is not None
    assert worker.claim(db, collection="help") is None, "a leased job is nobody else's"
    query("update ragdb.job set leased_until = clock_timestamp() - interval '1 second'")
    second = worker.claim(db, collection="help")
    assert second is not None
    assert second["attempts"] == 2
    assert worker.work(db, second, FakeEmbedder(), rag.context.chunking()) == "ready"
    with pytest.raises(StaleLease):
        db.call("store_vectors", job_id=late["job_id"], lease_token=late["lease_token"], chunk_ids=[1], numbers=[1.0] * 8)
    assert worker.work(db, late, FakeEmbedder(), rag.context.chunking()) == "ready"
    assert query("select count(*) from ragdb.chunk") == [(1,)]


def test_a_job_whose_worker_always_dies_ends_as_failed(rag: RagDB, query: Query) -> None:
    rag.context.ensure_collection(rag.context.database)
    query("select ragdb.submit_document('help', 'd', 'alpha text')")
    for _ in range(5):
        assert query("select count(*) from ragdb.claim_jobs('killer')") == [(1,)]
        query("update ragdb.job set leased_until = clock_timestamp() - interval '1 second'")
    assert query("select count(*) from ragdb.claim_jobs('killer')") == [(0,)]
    assert query(
        "select j.state, j.attempts, d.ingest_state, d.last_error like '%%killer%%' from ragdb.job j join ragdb.document d using (document_id)"
    ) == [("failed", 5, "failed", True)]


def test_a_transient_failure_waits_and_a_permanent_one_does_not_come_back(ragdb_url: str, query: Query) -> None:
    from ragdb.errors import EmbedderError
    from ragdb.testing import drain

    embedder = FakeEmbedder(fail=EmbedderError("busy", transient=True))
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        with pytest.raises(EmbedderError):
            rag.add(Document("d", "alpha text"))
        assert query("select state, run_after > clock_timestamp(), last_error from ragdb.job") == [
            ("queued", True, "EmbedderError: busy")
        ]
        assert drain(rag) == []
        query("update ragdb.job set run_after = now()")
        embedder.fail = EmbedderError("never")
        with pytest.raises(EmbedderError):
            drain(rag)
        assert query("select state from ragdb.job") == [("failed",)]
        assert drain(rag) == []
        embedder.fail = None
        assert rag.add(Document("d", "alpha text")).ingest_state == "ready"


def test_stopping_the_server_in_the_middle_of_the_flip_keeps_the_old_text(rag: RagDB, ragdb_url: str) -> None:
    rag.add(Document("d", "old text"))
    with psycopg.connect(ragdb_url) as conn:
        conn.execute('select ragdb.put_document(\'help\', \'{"uri": "d", "content": "new text"}\')')
        conn.rollback()
    assert rag.search("old")[0].content == "old text"
