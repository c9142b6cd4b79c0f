"""Makes one pending document ready: claim its job, cut the text if nobody has, embed what lacks a vector, flip.

Many at once: ragdb.ingest.batch; a process that stays: ragdb.ingest.queue.

No transaction is open while the model runs. Every write carries the job's lease token, so a worker that was too
slow changes nothing.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from ragdb.chunkers import Chunking
from ragdb.db import probe
from ragdb.db.caller import Caller, Row, one, value
from ragdb.db.pool import Database
from ragdb.embedders import embed_checked
from ragdb.errors import ModelError, NotCut, RagDBError, StaleLease, StaleModel
from ragdb.ingest.lease import renewed
from ragdb.ingest.outage import backoff, is_outage
from ragdb.ingest.prepare import in_parts
from ragdb.protocols import Embedder
from ragdb.types import Document

logger = logging.getLogger("ragdb.ingest")

Progress = Callable[[int], None]
#: Of a large text: how many of its chunks are written so far, and how many there are.
CutProgress = Callable[[int, int], None]
# Texts a call, where the embedder names no other number: every batch is stored, so that an end in between loses little.
BATCH = 32
_BEAT = 60.0  # seconds; a lease is five minutes


@cache
def _name(pid: int) -> str:
    # The last part tells this process from an earlier one of the same number (in containers: always 1).
    return f"{socket.gethostname()}:{pid}:{secrets.token_hex(4)}"


def worker_name() -> str:
    return _name(os.getpid())


def release_dead(db: Caller) -> int:
    """Gives back the jobs of processes of this machine that are gone (killed, a power cut); returns how many.

    Without it they would wait for their lease to run out.
    """
    gone = [row["worker"] for row in db.call("job_holders") if _is_gone(str(row["worker"]))]
    return sum(int(value(db.call("release_jobs", worker=worker))) for worker in gone)


def _is_gone(worker: str) -> bool:
    """Whether a worker was a process of this machine that is gone. Of other machines nothing is known here."""
    process, _, own = worker.rpartition(":")
    host, _, pid = process.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return own.partition(".")[0] != worker_name().rpartition(":")[2]  # behind the point: which of its loops
    if _is_zombie(int(pid)):
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _is_zombie(pid: int) -> bool:
    """Dead, but its parent has not asked yet (in a container the parent may never ask)."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"Z"]
    except OSError:
        return False


def claim(db: Caller, *, collection: str | None = None, document_id: int | None = None) -> Row | None:
    """The next job that is due, now leased to this process; None where nothing waits."""
    rows = db.call("claim_jobs", worker=worker_name(), only_collection=collection, only_document=document_id)
    return rows[0] if rows else None


def work(
    db: Caller,
    job: Row,
    embedder: Embedder,
    chunking: Chunking,
    *,
    vectors: Sequence[Sequence[float]] | None = None,
    progress: Progress | None = None,
    document: Document | None = None,
    cutting: CutProgress | None = None,
) -> str:
    """Makes one claimed job's document ready; returns its new ingest_state. A failure is recorded, then raised.

    `vectors`, one per chunk in order, are stored instead of embedding. `document` is the job's, where it is at hand.
    """
    held = held_by(job)
    with _kept(db, held):
        return _worked(db, job, held, embedder, chunking, vectors, progress, document, cutting)


def _worked(
    db: Caller,
    job: Row,
    held: dict[str, Any],
    embedder: Embedder,
    chunking: Chunking,
    vectors: Sequence[Sequence[float]] | None,
    progress: Progress | None,
    document: Document | None,
    cutting: CutProgress | None,
) -> str:
    try:
        cut_if_needed(db, job, chunking, document, cutting)
        if vectors is not None:
            places = db.call("revision_chunks", document_id=job["document_id"], revision=job["revision"])
            _store(db, held, [row["chunk_id"] for row in places], vectors, embedder.name)
        else:
            _embed_missing(db, job, held, embedder, progress)
        db.call("finish_job", **held)
        return "ready"
    except StaleLease:
        logger.info("%s: another worker or a newer text has it now", job["uri"])
        return str(value(db.call("document_state", document_id=job["document_id"])))
    except StaleModel:
        # Another set became active meanwhile: again at once, with its model. The document is not to blame.
        db.call("release_job", **held)
        raise
    except Exception as error:
        try:
            fail(db, job, error)
        except Exception as second:
            if not is_outage(second):
                raise
            logger.info("%s: its failure could not be recorded, the lease will run out: %s", job["uri"], second)
        raise
    except BaseException:
        # Ctrl-C says nothing about the document; this process lives on and would hold the job until its lease ends.
        db.call("release_job", **held)
        raise


def _kept(db: Caller, held: dict[str, Any]) -> AbstractContextManager[None]:
    """Renews the lease meanwhile; not in a session's transaction, which is its caller's own."""
    if not isinstance(db, Database):
        return nullcontext()
    return renewed(lambda: db.call("extend_lease", **held), every=_BEAT, what=f"the lease of job {held['job_id']}")


def held_by(job: Row) -> dict[str, Any]:
    """What every write for a claimed job carries."""
    return {"job_id": job["job_id"], "lease_token": job["lease_token"]}


def unsynced(db: Caller) -> Callable[..., list[Row]]:
    """Calls functions without waiting for the disk, outside a session's transaction: a claim or a cut that a crash of the
    server undoes is done again, and the next stored vector, which does wait, takes it along."""
    return db.call_unsynced if isinstance(db, Database) else db.call


def cut_if_needed(
    db: Caller, job: Row, chunking: Chunking, document: Document | None = None, cutting: CutProgress | None = None
) -> None:
    """Cuts the text of a claimed job, where that is still to be done. Raises StaleLease where the job is no longer there."""
    rows = db.call("job_text", job_id=job["job_id"], with_content=document is None)
    if not rows:
        raise StaleLease(f"job {job['job_id']} is done or was replaced")
    text = one(rows)
    if text["is_cut"]:
        return
    document = document or Document(
        job["uri"], text["content"], title=text["title"], media_type=text["media_type"], pages=text["pages"]
    )
    spans = chunking.spans(document, lambda: _contexts(db, job))
    done = 0
    for part in in_parts(document, spans, chunking):
        unsynced(db)("cut_job", **held_by(job), chunking=chunking.recipe, pieces=part)
        done += len(part["chunks"])
        if cutting and done < len(spans):
            cutting(done, len(spans))


def _contexts(db: Caller, job: Row) -> dict[str, str]:
    rows = db.call("document_chunks", collection=job["collection"], uri=job["uri"])
    return {row["content"]: row["context"] for row in rows}


def _embed_missing(db: Caller, job: Row, held: dict[str, Any], embedder: Embedder, progress: Progress | None) -> None:
    size = getattr(embedder, "batch_size", BATCH)
    after = -1
    # some at a time: the chunks of a large document are as large as it is
    while todo := db.call(
        "chunks_to_embed",
        document_id=job["document_id"],
        revision=job["revision"],
        after_ordinal=after,
        how_many=size * max(1, 512 // size),
    ):
        after = todo[-1]["ordinal"]
        probe.verify(db, embedder, store=True)
        for start in range(0, len(todo), size):
            batch = todo[start : start + size]
            vectors = embed_checked(embedder, [row["body"] for row in batch], batch_size=size)
            _store(db, held, [row["chunk_id"] for row in batch], vectors, embedder.name)
            if progress:
                progress(len(batch))


def _store(db: Caller, held: dict[str, Any], chunk_ids: list[int], vectors: Sequence[Sequence[float]], model: str) -> None:
    numbers = [float(x) for vector in vectors for x in vector]
    db.call("store_vectors", **held, chunk_ids=chunk_ids, numbers=numbers, model=model)


def fail(db: Caller, job: Row, error: Exception) -> str:
    """Records a failed attempt of a claimed job; returns its document's state. An outage of the database counts for nothing."""
    outage = is_outage(error) or isinstance(error, NotCut)  # chunks that a crash of the server took are cut again
    permanent = isinstance(error, RagDBError) and not outage and not (isinstance(error, ModelError) and error.transient)
    reason = f"{type(error).__name__}: {error}".replace("\x00", " ")[:2000]
    try:
        if outage:
            db.call("release_job", **held_by(job))
            return "queued"
        delay = backoff(job["attempts"], first=10, most=600, least=1)
        return str(value(db.call("fail_job", **held_by(job), reason=reason, permanent=permanent, delay=f"{delay:.3f} seconds")))
    except StaleLease:
        logger.info("%s failed, but is no longer ours: %s", job["uri"], reason)
        return str(value(db.call("document_state", document_id=job["document_id"])))
