"""What tells an outage of the database from an error of a document, and how long to wait before the next attempt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import tenacity

from ragdb.errors import DatabaseUnreachable

# Connection exceptions, and what a server says that stops, crashes or has not yet started.
_CLASSES = ("08", "57P")


def is_outage(error: BaseException) -> bool:
    """Whether the server or the way to it is gone: the same call passes when it is back, whatever it was about."""
    if isinstance(error, (DatabaseUnreachable, psycopg.InterfaceError)):
        return True
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate is None or error.sqlstate.startswith(_CLASSES))


def in_conflict(error: BaseException) -> bool:
    """Whether two transactions were in each other's way (deadlock, serialization): the same call passes at once."""
    return isinstance(error, (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure))


def backoff(attempt: int, *, first: float, most: float, least: float = 0.0) -> float:
    """Seconds to wait after the `attempt`th failure (from 1): exponential, with full jitter.

    Who failed together does not come back together: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    wait = tenacity.wait_random_exponential(multiplier=first, max=most, min=least)
    state: Any = SimpleNamespace(attempt_number=attempt)
    return float(wait(state))
