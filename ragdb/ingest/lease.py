"""A lease is renewed by a thread beside the work, so that a slow model or a large text loses no job.

A process that is stopped or killed renews nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ragdb.errors import StaleLease

logger = logging.getLogger("ragdb.ingest")


@contextmanager
def renewed(renew: Callable[[], object], *, every: float, what: str) -> Iterator[None]:
    """Calls `renew` every so many seconds until the block ends, or StaleLease says that the lease is another's."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every):
            try:
                renew()
            except StaleLease:
                return  # the next write says so
            except Exception as error:  # noqa: BLE001  the server restarts; a lease outlives some beats
                logger.info("%s could not be renewed: %s", what, error)

    threading.Thread(target=beat, name="ragdb-lease", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
