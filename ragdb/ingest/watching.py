"""Keeps a folder's documents as the folder is: a full sync at the start, then one for each batch of changes.

What the operating system tells of a folder is a hint, never the measure: each batch compares the files with what is
stored, and every ten minutes all of them, so that a lost event (a network disk, a full queue) costs time and no document.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import tenacity

from ragdb.adapters import require as _require
from ragdb.db.caller import value
from ragdb.errors import DatabaseUnreachable, SyncRefused, SyncRunning
from ragdb.ingest import planning, syncing, worker
from ragdb.ingest.folder import Failed
from ragdb.ingest.syncing import Done, HasContext, Synced
from ragdb.readers.decode import shown

logger = logging.getLogger("ragdb.ingest")

_QUIET = 500  # milliseconds without a change end a batch
_BATCH = 10_000  # milliseconds after which it ends anyway
_PULSE = 1_000  # milliseconds: how soon a stop is noticed
_ALL = 600.0  # seconds between looks at all files
_MANY = 200  # changed paths from which all files are looked at


@dataclass(frozen=True, slots=True)
class Batch:
    """What one sync of a watched folder did; `first`: the full one at the start."""

    synced: Synced
    first: bool = False


def require() -> Any:
    """The library that watches. Raises MissingExtra."""
    return _require("watchfiles", "files")


def watch(
    rag: HasContext,
    folder: str | Path,
    *,
    prefix: str = "",
    glob: str | None = None,
    yes: bool = False,
    embed: bool = True,
    told: Callable[[Done | Failed], None] | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Batch | SyncRefused]:
    """Yields what each sync did, until `stop` is set. A sync that is refused is yielded, and nothing was done in it.

    While the database cannot be reached it waits and looks at all files then. Raises what the first sync raises, and
    MissingExtra.
    """
    watchfiles = require()
    stop = stop or threading.Event()
    one = _Folder(rag, Path(folder), prefix, glob, yes=yes, embed=embed, told=told, stop=stop)
    yield Batch(one.sync(None), first=True)
    while not stop.is_set():
        if not one.path.is_dir():
            # not there for the moment: a disk that comes back
            stop.wait(_PULSE / 1000)
            continue
        until = 0.0
        # new folders: what was put into one before it was watched too is not told
        young: list[str] = []
        for changes in watchfiles.watch(
            one.path,
            watch_filter=one.concerns,
            debounce=_BATCH,
            step=_QUIET,
            rust_timeout=_PULSE,
            yield_on_timeout=True,
            stop_event=stop,
            ignore_permission_denied=True,
        ):
            if stop.is_set():
                return
            if not until:
                # at the first pulse: what changed before the watching began
                yield from one.followed(None)
                until = time.monotonic() + _ALL
            elif changes or young:
                paths = {path for _, path in changes}
                yield from one.followed(sorted({*paths, *young}))
                young = [path for path in paths if os.path.isdir(path)]
            if time.monotonic() > until or not one.path.is_dir():
                break


class _Folder:
    def __init__(
        self,
        rag: HasContext,
        path: Path,
        prefix: str,
        glob: str | None,
        *,
        yes: bool,
        embed: bool,
        told: Callable[[Done | Failed], None] | None,
        stop: threading.Event,
    ) -> None:
        self.rag, self.path, self.prefix, self.glob = rag, path, prefix, glob
        self.yes, self.embed, self.told, self.stop = yes, embed, told, stop
        self.base = Path(os.path.abspath(path))
        self.refused = ""

    def concerns(self, _change: Any, path: str) -> bool:
        """Hidden files, and what lies in hidden folders, are no documents."""
        try:
            return not any(part.startswith(".") for part in Path(path).relative_to(self.base).parts)
        except ValueError:
            return True

    def followed(self, paths: list[str] | None) -> Iterator[Batch | SyncRefused]:
        """A sync of what lies at or below the paths; None: of everything."""
        names = [shown(os.path.abspath(path)) for path in paths or ()]
        # of a batch that was refused nothing was done: the next one looks at everything
        everything = paths is None or len(names) > _MANY or os.fspath(self.base) in names or self.refused
        yield from self._tried(None if everything else names)

    def _tried(self, only: list[str] | None) -> Iterator[Batch | SyncRefused]:
        try:
            done = self._again(only)
        except SyncRefused as error:
            if str(error) != self.refused:  # said once
                self.refused = str(error)
                yield error
            return
        self.refused = ""
        if done.did:
            yield Batch(done)

    def _again(self, only: list[str] | None) -> Synced:
        """A sync that outlives a restart of the database and waits for another sync: all files are looked at then."""
        lost = False

        def failed(state: tenacity.RetryCallState) -> None:
            nonlocal lost
            lost = True
            logger.warning("trying again: %s", state.outcome and state.outcome.exception())

        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((psycopg.OperationalError, DatabaseUnreachable, SyncRunning)),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=30),
            stop=tenacity.stop_when_event_set(self.stop),
            sleep=tenacity.sleep_using_event(self.stop),
            before_sleep=failed,
            reraise=True,
        ):
            with attempt:
                if lost:
                    # what this process had in hand when the connection broke would wait for its lease to end
                    value(self.rag.context.database.call("release_jobs", worker=worker.worker_name()))
                return self.sync(None if lost else only)
        raise AssertionError("tenacity returns or raises")

    def sync(self, only: list[str] | None) -> Synced:
        context = self.rag.context
        with syncing.locked(context, self.path):
            worker.release_dead(context.database)
            how: dict[str, Any] = {"prefix": self.prefix, "glob": self.glob, "embed": self.embed}
            plan = planning.plan(context, self.path, only=only, **how)
            if plan.deleted and only is not None:
                # whether that is too much shows in the whole
                plan = planning.plan(context, self.path, **how)
            syncing.check(plan, yes=self.yes)
            done = syncing.begun(plan)
            for failure in plan.failed:
                if self.told:
                    self.told(failure)
            for step in syncing.carried_out(context, plan, embed=self.embed):
                done.take(step)
                if self.told:
                    self.told(step)
        return done
