"""A process that stays and makes ready what is queued: any number of them, on any machines.

Each loop claims some jobs, works them together (ragdb.ingest.batch) and claims again; where nothing is due it sleeps
until it is notified or its time to poll has come. All times that are compared are the database's; the clock here only
measures how long to sleep.
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tenacity

from ragdb.context import Context
from ragdb.db.caller import Row, value
from ragdb.db.pool import Database
from ragdb.ingest import documents, vector_sets
from ragdb.ingest.batch import Batch, Claimed, Done, Health, ModelDown
from ragdb.ingest.contexts import Contexts
from ragdb.ingest.lease import renewed
from ragdb.ingest.listening import Listener
from ragdb.ingest.outage import backoff, is_outage
from ragdb.ingest.worker import held_by, release_dead, worker_name

logger = logging.getLogger("ragdb.ingest")

_MOST_JOBS = 64  # claimed at once; fewer where they take long
_FIRST_JOBS = 8
_AIM = 2.0  # seconds for the jobs of one claim: others find work too, and little is lost when this process is killed
_DEAD = 30.0  # seconds between two looks for processes of this machine that died with jobs


@dataclass(frozen=True)
class Options:
    """How a worker works. Times in seconds."""

    concurrency: int = 1
    collection: str | None = None
    once: bool = False
    poll: float = 5.0
    listen: bool = True
    grace: float = 30.0
    lease: float = 300.0
    patience: float = 60.0  # for a database that does not answer at the start; later outages are waited for without end


@dataclass
class Report:
    """What a worker did, and the collections that it could not work for, with the reason."""

    ready: int = 0
    failed: int = 0
    filled: int = 0  # vectors of sets that do not answer yet
    unserved: dict[int, str] = field(default_factory=dict)
    gave_back: int = 0
    #: A model was still at work in a thread at the end of the grace period.
    hanging: bool = False


def run(
    context: Context,
    options: Options = Options(),
    *,
    told: Callable[[Done], None] | None = None,
    stop: threading.Event | None = None,
    signals: bool = False,
) -> Report:
    """Works until `stop` is set, or, with `options.once`, until nothing is due. Returns what it did.

    The collections' own recorded models are loaded, each once; `context` names the database, and the chunker, analyzer
    and models' options for all of them. With `signals` SIGTERM and SIGINT set `stop`, and a second one ends the process
    at once. Then the batch in hand is finished within `options.grace`, or its jobs are given back. An outage of the
    database is waited for; any other error of a loop ends the worker and is raised.
    """
    worker = _Worker(context, options, told or (lambda _done: None), stop or threading.Event())
    with _told_by_signals(worker) if signals else _as_it_is():
        return worker.run()


class _Worker:
    """One process: its loops, what they share, and its end."""

    def __init__(self, context: Context, options: Options, told: Callable[[Done], None], stop: threading.Event) -> None:
        # Its own connections: one for each loop and its heartbeat, however large the caller's pool is.
        self.database = Database(context.database.target, max_size=2 * options.concurrency + 2)
        self.context = context.sibling(context.collection, embedder=context.given_embedder, analyzer=True)
        self.context.database = self.database
        self.options = options
        self.stop = stop
        self.contexts = Contexts(self.context)
        if (embedder := context.loaded_embedder) is not None:
            self.contexts.offer(embedder)
        self.health = Health()
        self.report = Report()
        self.loops = [_Loop(self, number) for number in range(options.concurrency)]
        self._told = told
        self.lock = threading.Lock()
        self.error: BaseException | None = None

    def run(self) -> Report:
        try:
            self._reach()
            if self.options.listen and not self.options.once:
                Listener(self.database, self.heard, self.stop).start()
            for loop in self.loops:
                loop.thread.start()
            while not self.stop.is_set() and any(loop.thread.is_alive() for loop in self.loops):
                self.stop.wait(0.2)  # a plain join would let no signal through on some systems
            self._end()
        finally:
            self.stop.set()
            self.wake()
            if not any(loop.thread.is_alive() for loop in self.loops):
                self.database.close()
        if self.error is not None:
            raise self.error
        self.report.unserved = self.contexts.unserved
        return self.report

    def _reach(self) -> None:
        """The first call, which says a wrong schema or right at once. A server that restarts, or starts beside this process, is
        waited for a little: what is wrong is logged at once, for the address may be."""
        seconds = 0.0 if self.options.once else self.options.patience

        def told(state: tenacity.RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome is not None:
                logger.warning("%s; trying again for %g seconds", state.outcome.exception(), seconds)

        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_outage),
            stop=tenacity.stop_after_delay(seconds) | tenacity.stop_when_event_set(self.stop),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=5.0),
            sleep=tenacity.sleep_using_event(self.stop),
            before_sleep=told,
            reraise=True,
        )
        tries(self.database.call, "job_holders")

    def _end(self) -> None:
        """Lets the loops finish their batch; what is still in hand after the grace period is given back."""
        self.wake()
        until = time.monotonic() + self.options.grace
        for loop in self.loops:
            loop.thread.join(max(0.0, until - time.monotonic()))
        for loop in self.loops:
            if loop.thread.is_alive():
                self.report.hanging = True
                logger.warning("the batch of %s takes longer than %.0f s: its documents go back", loop.name, self.options.grace)
                try:
                    self.report.gave_back += int(value(self.database.call("release_jobs", worker=loop.name, reason="ended")))
                except Exception as error:
                    if not is_outage(error):
                        raise
                    logger.warning("the jobs of %s could not be given back, their lease will run out: %s", loop.name, error)

    def heard(self, collection: str | None) -> None:
        if collection is None or self.options.collection in (None, collection):
            self.wake()

    def wake(self) -> None:
        for loop in self.loops:
            loop.woken.set()

    def told(self, done: Done) -> None:
        with self.lock:
            if done.error is not None:
                self.report.failed += 1
            elif done.state == "ready":
                self.report.ready += 1
            self._told(done)


class _Loop:
    """One thread: claims, works, sleeps. It has a name of its own, by which its jobs are known."""

    def __init__(self, worker: _Worker, number: int) -> None:
        self.worker = worker
        self.first = number == 0
        self.name = f"{worker_name()}.{number}"
        self.woken = threading.Event()
        self.thread = threading.Thread(target=self._guarded, name=f"ragdb-worker-{number}", daemon=True)
        self._db = worker.database
        self._holding = False
        self._many = _FIRST_JOBS
        self._last_collection: int | None = None
        self._touched: dict[int, Context] = {}
        self._looked = float("-inf")
        self._pauses = 0

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001  raised by the worker's main thread
            self.worker.error = error
            self.worker.stop.set()

    def _run(self) -> None:
        stop = self.worker.stop
        while not stop.is_set():
            try:
                worked = self._through_outages(self._step)
            except tenacity.RetryError:
                return  # told to end while the server was away
            if worked or stop.is_set():
                continue
            if self.worker.options.once:
                return
            # not all at the same moment
            self.woken.wait(self.worker.options.poll * random.uniform(0.5, 1.0))  # noqa: S311

    def _through_outages(self, step: Callable[[], bool]) -> bool:
        stop = self.worker.stop
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_outage),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=15),
            sleep=tenacity.sleep_using_event(stop),
            stop=tenacity.stop_when_event_set(stop),
            before_sleep=self._say_outage,
        )
        state: dict[str, Any] = again.statistics
        result = again(step)
        if state.get("attempt_number", 1) > 1:
            logger.warning("%s: the database is back", self.name)
        return result

    def _say_outage(self, state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            logger.warning("%s: the database is away, trying again until it is back: %s", self.name, state.outcome.exception())

    def _step(self) -> bool:
        """Whether there was something to do. Raises an outage of the database."""
        if self._holding:
            # The server went away in the middle. Had one of these documents made it crash, its attempt would have to count.
            self._db.call("release_jobs", worker=self.name, reason="outage")
            self._holding = False
        if self.first and time.monotonic() - self._looked > _DEAD:
            self._looked = time.monotonic()
            if released := release_dead(self._db):
                logger.info("%d jobs of processes that died were given back", released)
        self.woken.clear()
        rows = self._claim()
        if not rows:
            return self._idle()
        began = time.monotonic()
        lease = self.worker.options.lease
        with renewed(
            lambda: self._db.call_unsynced("extend_leases", worker=self.name, lease=f"{lease} seconds"),
            every=lease / 5,
            what=f"the leases of {self.name}",
        ):
            self._work(rows)
        self._measure(len(rows), time.monotonic() - began)
        return True

    def _claim(self) -> list[Row]:
        options = self.worker.options
        # before the call: where its answer is lost, the jobs are ours all the same
        self._holding = True
        rows = self._db.call_unsynced(
            "claim_jobs",
            worker=self.name,
            how_many=self._many,
            lease=f"{options.lease} seconds",
            only_collection=options.collection,
            after_collection=self._last_collection,
            without=self.worker.contexts.left_alone(),
        )
        if not rows:
            self._holding = False
        else:
            self._last_collection = rows[-1]["collection_id"]
        return rows

    def _work(self, rows: list[Row]) -> None:
        worker = self.worker
        jobs: list[Claimed] = []
        contexts: dict[int, Context] = {}
        for collection_id, collection in dict.fromkeys((row["collection_id"], row["collection"]) for row in rows):
            context = worker.contexts.of(collection_id, collection)
            own = [row for row in rows if row["collection_id"] == collection_id]
            if context is None:
                for row in own:
                    self._db.call("release_job", **held_by(row))
                continue
            contexts[collection_id] = context
            embedder, chunking = context.embedder(self._db), context.chunking(self._db)
            jobs += [Claimed(row, embedder, chunking) for row in own]

        def told(done: Done) -> None:
            context = contexts[done.row["collection_id"]]
            if done.chunks:
                self._touched[done.row["collection_id"]] = context
                context.written += done.chunks
            worker.told(done)

        batch = Batch(self._db, lease=worker.options.lease, health=worker.health, stopped=worker.stop.is_set, told=told)
        try:
            batch.work(jobs)
        except ModelDown as down:
            self._pauses += 1
            seconds = backoff(self._pauses, first=2, most=60, least=1)
            logger.warning("documents in a row failed at %s, it gets %.0f s: %s", down.model, seconds, down.error)
            worker.contexts.pause(down.model, seconds)
            self._db.call("release_jobs", worker=self.name, reason="ended")
        else:
            self._pauses = 0
            if worker.stop.is_set():
                worker.report.gave_back += int(value(self._db.call("release_jobs", worker=self.name, reason="ended")))
        self._holding = False
        for context in contexts.values():
            if context.written > 0.2 * context.counted:
                documents.refresh_stats(context, self._db)

    def _measure(self, jobs: int, seconds: float) -> None:
        """So many jobs at once that they take about `_AIM` seconds; changes by a factor of 2 at most."""
        if jobs == self._many or seconds > _AIM:
            wanted = int(jobs * _AIM / max(seconds, 0.01))
            self._many = max(1, self._many // 2, min(wanted, 2 * self._many, _MOST_JOBS))

    def _idle(self) -> bool:
        for context in self._touched.values():
            if context.written:
                documents.refresh_stats(context, self._db)
        self._touched.clear()
        if self.worker.stop.is_set():
            return False
        # documents first; then what vector sets lack that do not answer yet
        filled = vector_sets.fill_some(self.worker.context, collection=self.worker.options.collection)
        with self.worker.lock:
            self.worker.report.filled += filled
        return filled > 0


@contextmanager
def _told_by_signals(worker: _Worker) -> Iterator[None]:
    """SIGTERM and SIGINT stop the worker; a second one does what it does to any program."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def told(number: int, _frame: Any) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        worker.stop.set()

    for number in before:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
