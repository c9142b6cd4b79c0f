"""Several claimed jobs made ready together: each call of the embedder holds texts of many documents.

A document is finished as soon as its own vectors are stored. One that cannot be cut, embedded or stored fails alone:
what goes wrong for a mixed batch is done again document by document. No transaction is open while the model runs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ragdb.chunkers import Chunking
from ragdb.db.caller import Caller, Row, value
from ragdb.embedders import embed_checked
from ragdb.errors import StaleLease, StaleModel
from ragdb.ingest.outage import in_conflict, is_outage
from ragdb.ingest.worker import BATCH, cut_if_needed, fail, held_by
from ragdb.protocols import Embedder

logger = logging.getLogger("ragdb.ingest")

# So many documents in a row that fail, each by itself, are not to blame: the model is.
_IN_A_ROW = 3
_TEXTS = 512  # about so many are fetched at once: the chunks of a large document are as large as it is


@dataclass(eq=False)
class Claimed:
    """A claimed job with what makes it ready."""

    row: Row
    embedder: Embedder
    chunking: Chunking
    after: int = -1  # ordinal of the last of its texts that was fetched
    chunks: int = 0  # embedded so far


@dataclass(frozen=True)
class Done:
    """What became of a claimed job: its document's state, and why where it failed."""

    row: Row
    state: str
    error: Exception | None = None
    chunks: int = 0


class ModelDown(Exception):
    """Nothing that this model is given comes back: the jobs that are left are not to blame."""

    def __init__(self, model: str, error: Exception) -> None:
        super().__init__(f"{model}: {error}")
        self.model = model
        self.error = error


class Health:
    """How many documents in a row each model has failed at; shared by the loops of a process."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()

    def passed(self, model: str) -> None:
        self._failures[model] = 0

    def failed(self, model: str, error: Exception) -> None:
        """Raises ModelDown where the model, and not the document, must be at fault."""
        self._failures[model] += 1
        if self._failures[model] >= _IN_A_ROW:
            raise ModelDown(model, error)

    def failures(self, model: str) -> int:
        return self._failures[model]


class Batch:
    """Claimed jobs on their way. `lease` in seconds; `stopped` is asked between calls of a model.

    `told` hears what became of each job.
    """

    def __init__(
        self, db: Caller, *, lease: float, health: Health, stopped: Callable[[], bool], told: Callable[[Done], None]
    ) -> None:
        self._db = db
        self._lease = f"{lease} seconds"
        self._health = health
        self._stopped = stopped
        self._told = told

    def work(self, jobs: Sequence[Claimed]) -> None:
        """Makes the jobs' documents ready. Raises ModelDown, and an outage of the database as it is.

        Jobs that are not told of are left as they are, for their holder to give back: `stopped` said so, or ModelDown came.
        """
        ready = [job for job in jobs if self._cut(job)]
        for embedder in dict.fromkeys(job.embedder for job in ready):
            self._embed(embedder, [job for job in ready if job.embedder is embedder])

    def _cut(self, job: Claimed) -> bool:
        if self._stopped():
            return False
        if job.row["is_cut"]:
            return True
        try:
            cut_if_needed(self._db, job.row, job.chunking)
        except Exception as error:  # noqa: BLE001  recorded with the job; the other jobs go on
            self._failed(job, error)
            return False
        return True

    def _embed(self, embedder: Embedder, jobs: Iterable[Claimed]) -> None:
        live = {job.row["job_id"]: job for job in jobs}
        size = getattr(embedder, "batch_size", BATCH)
        many = size * max(1, _TEXTS // size)
        while live and not self._stopped():
            rows = self._db.call(
                "texts_to_embed", job_ids=list(live), after_ordinals=[job.after for job in live.values()], how_many=many
            )
            for row in rows:
                live[row["job_id"]].after = row["ordinal"]
            # the last one may have more
            open_end = rows[-1]["job_id"] if len(rows) == many else None
            left = Counter(row["job_id"] for row in rows)
            whole = [i for i in _before(live, open_end) if not left[i]]
            for start in range(0, len(rows), size):
                if self._stopped():
                    break
                some = [row for row in rows[start : start + size] if row["job_id"] in live]
                left.subtract(row["job_id"] for row in some)
                vectors = self._vectors(embedder, some, size, live)
                some = [row for row in some if row["job_id"] in live]
                whole += [i for i in dict.fromkeys(row["job_id"] for row in some) if not left[i] and i != open_end]
                self._store(embedder, live, some, vectors, whole)
                whole = []
            if whole:
                self._store(embedder, live, [], {}, whole)

    def _vectors(self, embedder: Embedder, rows: Sequence[Row], size: int, live: dict[int, Claimed]) -> dict[int, list[float]]:
        """The vectors by chunk; jobs whose texts cannot be embedded have failed and are out of `live`."""
        by_job: dict[int, list[Row]] = {}
        for row in rows:
            by_job.setdefault(row["job_id"], []).append(row)
        if len(by_job) > 1:
            try:
                vectors = _embedded(embedder, rows, size)
            except Exception as error:  # noqa: BLE001  whose it is, is found out below
                logger.info("%d documents could not be embedded together, each by itself now: %s", len(by_job), error)
            else:
                self._health.passed(embedder.name)
                return vectors
        vectors = {}
        for job_id, own in by_job.items():
            try:
                vectors.update(_embedded(embedder, own, size))
            except Exception as error:  # noqa: BLE001  recorded with the job; the other jobs go on
                self._failed(live.pop(job_id), error)
                self._health.failed(embedder.name, error)
            else:
                self._health.passed(embedder.name)
        return vectors

    def _store(
        self,
        embedder: Embedder,
        live: dict[int, Claimed],
        rows: Sequence[Row],
        vectors: dict[int, list[float]],
        whole: Sequence[int],
    ) -> None:
        """Stores vectors and finishes the jobs in `whole`, in one transaction."""
        counted = Counter(row["job_id"] for row in rows)
        jobs = [live[i] for i in dict.fromkeys([*counted, *whole])]
        if not jobs:
            return
        try:
            outcomes = self._db.call(
                "store_batch",
                job_ids=[job.row["job_id"] for job in jobs],
                lease_tokens=[job.row["lease_token"] for job in jobs],
                chunk_ids=[row["chunk_id"] for row in rows],
                numbers=_numbers(rows, vectors),
                finished=list(whole),
                model=embedder.name,
                lease=self._lease,
            )
        except Exception as error:
            if is_outage(error):
                raise
            logger.info("%d documents could not be stored together, each by itself now: %s", len(jobs), error)
            outcomes = [{"job_id": job.row["job_id"], "outcome": "busy"} for job in jobs]
        for row in outcomes:
            job = live[row["job_id"]]
            outcome = row["outcome"]
            if outcome == "busy":
                own = [r for r in rows if r["job_id"] == row["job_id"]]
                outcome = self._store_alone(job, own, vectors, finish=row["job_id"] in whole)
            if outcome in ("stored", "ready"):
                job.chunks += counted[row["job_id"]]
            if outcome == "stored":
                continue
            del live[row["job_id"]]
            if outcome == "ready":
                self._told(Done(job.row, "ready", chunks=job.chunks))
            elif outcome == "stale":
                self._stale(job)
            elif outcome == "moved":
                logger.info("%s: collection %s has another model by now", job.row["uri"], job.row["collection"])
                self._db.call("release_job", **held_by(job.row))

    def _store_alone(self, job: Claimed, rows: Sequence[Row], vectors: dict[int, list[float]], *, finish: bool) -> str:
        """Waits for the document's lock, where a batch does not. Returns what became of the job."""
        held = held_by(job.row)
        for attempt in range(3):
            try:
                if rows:
                    ids = [row["chunk_id"] for row in rows]
                    self._db.call(
                        "store_vectors",
                        **held,
                        chunk_ids=ids,
                        numbers=_numbers(rows, vectors),
                        lease=self._lease,
                        model=job.embedder.name,
                    )
                if finish:
                    self._db.call("finish_job", **held)
            except StaleLease:
                return "stale"
            except StaleModel:
                return "moved"
            except Exception as error:  # noqa: BLE001  recorded with the job; the other jobs go on
                if in_conflict(error) and attempt < 2:
                    continue
                self._failed(job, error)
                return "failed"
            return "ready" if finish else "stored"
        raise AssertionError("the last attempt returns")

    def _failed(self, job: Claimed, error: Exception) -> None:
        if is_outage(error):
            raise error
        if isinstance(error, StaleLease):
            self._stale(job)
            return
        self._told(Done(job.row, fail(self._db, job.row, error), error))

    def _stale(self, job: Claimed) -> None:
        logger.info("%s: another worker or a newer text has it now", job.row["uri"])
        state = str(value(self._db.call("document_state", document_id=job.row["document_id"])))
        self._told(Done(job.row, state))


def _before(ids: Iterable[int], end: int | None) -> list[int]:
    found = []
    for i in ids:
        if i == end:
            break
        found.append(i)
    return found


def _embedded(embedder: Embedder, rows: Sequence[Row], size: int) -> dict[int, list[float]]:
    vectors = embed_checked(embedder, [row["body"] for row in rows], batch_size=size)
    return dict(zip((row["chunk_id"] for row in rows), vectors, strict=True))


def _numbers(rows: Sequence[Row], vectors: dict[int, list[float]]) -> list[Any]:
    return [x for row in rows for x in vectors[row["chunk_id"]]]
