"""The queue inside one process: fairness, batches over documents, failures that stay with their document, rights and waits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ragdb import Document, RagDB
from ragdb.db.pool import Database
from ragdb.errors import EmbedderError
from ragdb.ingest import queue, worker
from ragdb.ingest.listening import Listener
from ragdb.ingest.outage import backoff
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]


def submit(query: Query, *uris: str, collection: str = "help", content: str = "alpha text of {}") -> None:
    for uri in uris:
        query("select ragdb.submit_document(%s, %s, %s)", collection, uri, content.format(uri))


def once(rag: RagDB, **options: Any) -> queue.Report:
    return queue.run(rag.context, queue.Options(once=True, **options))


def test_a_long_queue_keeps_no_short_one_waiting(query: Query) -> None:
    for name in ("long", "short", "shorter"):
        query("select ragdb.create_collection(%s)", name)
    query("select count(*) from generate_series(1, 500) n, ragdb.submit_document('long', 'd' || n, 'x')")
    submit(query, "a", "b", collection="short")
    submit(query, "c", collection="shorter")
    last, seen = None, []
    for _ in range(3):
        rows = query("select collection, collection_id from ragdb.claim_jobs('w', 10, after_collection => %s)", last)
        last = rows[-1][1]
        seen.append([row[0] for row in rows])
    assert seen == [["long"] * 10, ["short"] * 2 + ["shorter"] + ["long"] * 7, ["long"] * 10]
    assert query("select count(*), count(distinct job_id) from ragdb.job where state = 'processing'") == [(30, 30)]
    left_out = query("select collection_id from ragdb.collection where name = 'long'")[0][0]
    assert query("select count(*) from ragdb.claim_jobs('w', 10, without => array[%s::bigint])", left_out) == [(0,)]


def test_what_is_not_due_or_is_locked_is_passed_over(query: Query, ragdb_url: str) -> None:
    query("select ragdb.create_collection('help')")
    submit(query, "a", "b", "c")
    query("update ragdb.job set run_after = now() + interval '1 hour' where job_id = (select min(job_id) from ragdb.job)")
    with psycopg.connect(ragdb_url) as other:
        other.execute("select from ragdb.document where uri = 'b' for update")
        assert query("select uri from ragdb.claim_jobs('w', 10)") == [("c",)]


def test_one_call_of_the_embedder_holds_texts_of_many_documents(rag: RagDB, query: Query) -> None:
    rag.context.ensure_collection(rag.context.database)
    submit(query, *(f"d{n}" for n in range(200)))
    embedder = rag.context.embedder()
    report = once(rag)
    assert (report.ready, report.failed) == (200, 0)
    assert embedder.calls <= 20  # type: ignore[attr-defined]
    assert len(embedder.texts) == 200  # type: ignore[attr-defined]
    # each vector stands with its own text
    for uri in ("d0", "d77", "d199"):
        wanted = FakeEmbedder().embed_query(f"alpha text of {uri}")
        [(distance,)] = query(
            "select (v <-> %s::float8[]::vector) from ragdb.embedding join ragdb.chunk using (chunk_id) join ragdb.document using (document_id) where uri = %s",
            wanted,
            uri,
        )
        assert distance < 1e-4


def test_a_bad_document_in_a_mixed_batch_fails_alone(ragdb_url: str, query: Query) -> None:
    def fail(texts: list[str]) -> None:
        if any("bad" in text for text in texts):
            raise EmbedderError("cannot read this")

    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(fail=fail)) as rag:
        rag.context.ensure_collection(rag.context.database)
        submit(query, "a", "b", "bad", "c", "d")
        told: list[tuple[str, str]] = []
        report = queue.run(rag.context, queue.Options(once=True), told=lambda done: told.append((done.row["uri"], done.state)))
    assert (report.ready, report.failed) == (4, 1)
    assert sorted(told) == [("a", "ready"), ("b", "ready"), ("bad", "failed"), ("c", "ready"), ("d", "ready")]
    assert query("select uri, reason, failed_at is not null from ragdb.failed_jobs") == [
        ("bad", "EmbedderError: cannot read this", True)
    ]


def test_too_few_vectors_for_a_mixed_batch_shift_none(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.context.ensure_collection(rag.context.database)
        embedder = rag.context.embedder()
        embedder.fail = lambda texts: None if len(texts) == 1 else [[1.0] * 8] * (len(texts) - 1)  # type: ignore[attr-defined]
        submit(query, "a", "b", "c", "d")
        assert once(rag).ready == 4
        assert query(
            "select count(*) from ragdb.embedding e1 join ragdb.embedding e2 on e1.chunk_id < e2.chunk_id and e1.v = e2.v"
        ) == [(0,)]


def test_a_model_that_is_down_costs_few_documents_an_attempt(ragdb_url: str, query: Query) -> None:
    embedder = FakeEmbedder()
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        rag.context.ensure_collection(rag.context.database)
        submit(query, *(f"d{n}" for n in range(60)))
        embedder.fail = EmbedderError("busy", transient=True)
        report = once(rag)
        assert report.failed == 3
        assert query("select attempts, count(*) from ragdb.job group by 1 order by 1") == [(0, 57), (1, 3)]
        assert query("select count(*) from ragdb.job where state = 'processing'") == [(0,)]
        embedder.fail = None
        assert query("select ragdb.retry_jobs()") == [(3,)]
        assert once(rag).ready == 60


def test_each_collection_is_embedded_by_its_own_model(ragdb_url: str, query: Query, caplog: pytest.LogCaptureFixture) -> None:
    fake = "ragdb.testing.fakes:FakeEmbedder"
    query("select ragdb.create_collection('eight', ragdb.register_model(%s, 8))", fake)
    query("select ragdb.create_collection('sixteen', ragdb.register_model(%s, 16))", f"{fake}:16")
    query("select ragdb.create_collection('unknown', ragdb.register_model('nobody.has:This', 4))")
    query("select ragdb.create_collection('none')")
    for name in ("eight", "sixteen", "unknown", "none"):
        submit(query, "a", "b", collection=name)
    logging.getLogger("ragdb").propagate = True
    with RagDB(ragdb_url, collection="x") as rag, caplog.at_level(logging.WARNING, "ragdb"):
        report = once(rag)
        again = once(rag)
    assert (report.ready, report.failed, len(report.unserved), again.ready) == (4, 0, 2, 0)
    assert query("select dims, count(*) from ragdb.embedding group by 1 order by 1") == [(8, 2), (16, 2)]
    assert query("select state, attempts, count(*) from ragdb.job group by 1, 2") == [("queued", 0, 4)]
    # other tests may have added handlers: the same record then stands here twice
    told = {id(record) for record in caplog.records if "'unknown' is left to other workers" in record.getMessage()}
    assert len(told) == 2, "one line a worker"


def test_a_newer_text_that_comes_meanwhile_makes_the_batch_stale_for_that_document_only(ragdb_url: str, query: Query) -> None:
    def change(texts: list[str]) -> None:
        if any("text of b" in text for text in texts):
            query("select ragdb.submit_document('help', 'b', 'newer')")

    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(fail=change)) as rag:
        rag.context.ensure_collection(rag.context.database)
        submit(query, "a", "b", "c")
        assert once(rag).ready == 3
        assert query("select uri, content from ragdb.chunk join ragdb.document using (document_id) order by 1") == [
            ("a", "alpha text of a"),
            ("b", "newer"),
            ("c", "alpha text of c"),
        ]


def test_a_collection_that_got_another_model_meanwhile_stores_no_vector_of_the_old_one(rag: RagDB, query: Query) -> None:
    rag.context.ensure_collection(rag.context.database)
    db = rag.context.database
    db.call("put_document", collection="help", document={"uri": "a", "content": "x"})
    job = db.call("claim_jobs", worker="w")[0]
    worker.cut_if_needed(db, job, rag.context.chunking())
    [row] = db.call("texts_to_embed", job_ids=[job["job_id"]], after_ordinals=[-1], how_many=5)
    query("update ragdb.collection set active_model_id = ragdb.register_model('another', 8)")
    stored = db.call(
        "store_batch",
        job_ids=[job["job_id"]],
        lease_tokens=[job["lease_token"]],
        chunk_ids=[row["chunk_id"]],
        numbers=[1.0] * 8,
        finished=[job["job_id"]],
        model=rag.context.embedder().name,
    )
    assert stored == [{"job_id": job["job_id"], "outcome": "moved"}]
    assert query("select count(*) from ragdb.embedding") == [(0,)]


def test_a_batch_waits_for_no_lock_and_so_deadlocks_with_nobody(rag: RagDB, ragdb_url: str, query: Query) -> None:
    rag.context.ensure_collection(rag.context.database)
    submit(query, "a", "b", "c")
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    before = query(deadlocks)
    embedded = threading.Event()
    embedder = rag.context.embedder()
    embedder.fail = lambda _texts: embedded.set()  # type: ignore[attr-defined]
    done: list[queue.Report] = []
    with psycopg.connect(ragdb_url) as application:
        # it holds the last document, and wants the first one while the worker stores
        locked = threading.Event()

        def work() -> None:
            done.append(once(rag))

        thread = threading.Thread(target=work)
        embedder.fail = lambda _texts: (embedded.set(), locked.wait(30), None)[2]  # type: ignore[attr-defined]
        thread.start()
        assert embedded.wait(30)
        application.execute("select from ragdb.document where uri = 'c' for update")
        locked.set()
        time.sleep(1)
        application.execute("select from ragdb.document where uri = 'a' for update")
        application.commit()
        thread.join(60)
    assert done[0].ready == 3
    assert query(deadlocks) == before


def test_what_is_idle_does_other_work_and_jobs_come_first(rag: RagDB, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    rag.context.ensure_collection(rag.context.database)
    submit(query, "a")
    seen: list[int] = []

    def task(context: Any) -> int:
        seen.append(query("select count(*) from ragdb.job")[0][0])
        return 1 if len(seen) < 3 else 0

    monkeypatch.setattr(queue.vector_sets, "fill_some", lambda context, collection=None: task(context))
    assert once(rag).ready == 1
    assert seen == [0, 0, 0]


def test_an_attempt_that_stored_something_is_given_back_when_its_worker_dies(rag: RagDB, query: Query) -> None:
    db = rag.context.database
    rag.context.ensure_collection(db)
    submit(query, "a")
    job = db.call("claim_jobs", worker="w")[0]
    worker.cut_if_needed(db, job, rag.context.chunking())
    [row] = db.call("texts_to_embed", job_ids=[job["job_id"]], after_ordinals=[-1], how_many=5)
    assert query("select suspect from ragdb.job") == [(True,)]
    db.call("store_vectors", **worker.held_by(job), chunk_ids=[row["chunk_id"]], numbers=[1.0] * 8)
    assert query("select ragdb.release_jobs('w')") == [(1,)]
    assert query("select state, attempts, lost from ragdb.job") == [("queued", 0, 1)]


def test_a_dead_worker_is_no_evidence_against_jobs_in_company_which_are_claimed_alone_from_then_on(query: Query) -> None:
    query("select ragdb.create_collection('help')")
    submit(query, "a", "b", "c")
    assert query("select count(*) from ragdb.claim_jobs('w', 10)") == [(3,)]
    assert query("select ragdb.release_jobs('w')") == [(3,)]
    assert query("select distinct state, attempts, lost from ragdb.job") == [("queued", 0, 1)]
    assert query("select uri, attempts from ragdb.claim_jobs('w', 10)") == [("a", 1)]
    assert query("select ragdb.release_jobs('w', 'ended')") == [(1,)]
    assert query("select attempts, lost from ragdb.job where job_id = (select min(job_id) from ragdb.job)") == [(0, 1)]


def test_a_first_outage_counts_and_from_the_second_one_on_jobs_are_claimed_alone(query: Query) -> None:
    query("select ragdb.create_collection('help')")
    submit(query, "a", "b")
    states = []
    for _ in range(2):
        query("select ragdb.claim_jobs('w', 10)")
        query("select ragdb.release_jobs('w', 'outage')")
        states.append(query("select distinct state, attempts, lost from ragdb.job"))
    assert states == [[("queued", 1, 0)], [("queued", 1, 1)]]
    with pytest.raises(psycopg.DatabaseError, match="reason is"):
        query("select ragdb.release_jobs('w', 'whatever')")


def test_a_worker_that_hears_nothing_polls_and_says_so_once(
    ragdb_url: str, ragdb_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Database):
        """Sends to another database than it listens in, as if a pooler stood in between."""

        def connection(self) -> Any:
            return elsewhere.connection_unchecked()

    class Elsewhere:
        def connection_unchecked(self) -> Any:
            from contextlib import contextmanager
            from types import SimpleNamespace

            @contextmanager
            def opened() -> Any:
                with psycopg.connect(ragdb_server, autocommit=True) as conn:
                    yield SimpleNamespace(connection=conn)

            return opened()

    elsewhere = Elsewhere()
    logging.getLogger("ragdb").propagate = True
    stop = threading.Event()
    listener = Listener(Deaf(ragdb_url), lambda _collection: None, stop, patience=0.5)
    with caplog.at_level(logging.WARNING, "ragdb"):
        listener.start()
        end = time.monotonic() + 30
        while listener.state == "starting" and time.monotonic() < end:
            time.sleep(0.05)
    stop.set()
    assert listener.state == "deaf"
    assert sum("it polls" in line for line in caplog.messages) == 1


def test_waits_grow_and_are_spread_over_the_whole_time() -> None:
    waits = {attempt: [backoff(attempt, first=10, most=600, least=1) for _ in range(300)] for attempt in (1, 3, 20)}
    assert all(1 <= wait <= 10 for wait in waits[1]) and max(waits[1]) - min(waits[1]) > 6
    assert all(1 <= wait <= 40 for wait in waits[3]) and max(waits[3]) > 20
    assert all(1 <= wait <= 600 for wait in waits[20]) and max(waits[20]) > 300


def test_adding_in_process_wakes_no_worker(rag: RagDB, ragdb_url: str) -> None:
    rag.context.ensure_collection(rag.context.database)
    with psycopg.connect(ragdb_url, autocommit=True) as ear:
        ear.execute("listen ragdb_job")
        assert rag.add(Document("a", "alpha")).ingest_state == "ready"
        assert list(ear.notifies(timeout=0.5)) == []
