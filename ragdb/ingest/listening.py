"""Hears NOTIFY on the channel of the queue, on a connection of its own, and falls silent where there is nothing to hear.

Behind PgBouncer in transaction mode LISTEN fails or, worse, succeeds and hears nothing. So a first message is sent
over another connection: where it does not come, the workers poll, and one line says so.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import tenacity

from ragdb.db import schema
from ragdb.db.connect import libpq_url
from ragdb.db.pool import Database
from ragdb.ingest.outage import is_outage

logger = logging.getLogger("ragdb.ingest")

CHANNEL = "ragdb_job"
_PROBE = "probe:"
_LOOK = 0.5  # seconds between two looks at whether to stop


class Listener:
    """Calls `heard(collection)` for each message, and with None whenever some may have been missed."""

    def __init__(
        self, database: Database, heard: Callable[[str | None], None], stop: threading.Event, *, patience: float = 3.0
    ) -> None:
        self._database = database
        self._heard = heard
        self._stop = stop
        self._patience = patience
        self.state = "starting"  # then listening, or deaf: the workers poll
        self._thread = threading.Thread(target=self._run, name="ragdb-listen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_outage),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=30),
            sleep=tenacity.sleep_using_event(self._stop),
            stop=tenacity.stop_when_event_set(self._stop),
            reraise=True,
        )
        while not self._stop.is_set():
            try:
                # anew after each loss, or the waits would grow over the whole life of the process
                again(self._listen)
            except psycopg.Error as error:
                if self._stop.is_set():
                    return
                self._deaf(f"LISTEN failed: {error}".strip())
            if self.state == "deaf":
                return

    def _deaf(self, reason: str) -> None:
        self.state = "deaf"
        logger.warning("no notifications reach this worker, it polls: %s", reason)

    def _listen(self) -> None:
        url = libpq_url(self._database.target)
        with psycopg.connect(url, autocommit=True, **schema.named(url)) as conn:
            conn.execute(f"listen {CHANNEL}")
            if self.state != "listening" and not self._hears(conn):
                if not self._stop.is_set():
                    self._deaf("is PgBouncer in transaction mode in between? Give --no-listen to leave this out")
                return
            self.state = "listening"
            self._heard(None)
            try:
                while not self._stop.is_set():
                    for message in conn.notifies(timeout=_LOOK):
                        if not message.payload.startswith(_PROBE):
                            self._heard(message.payload)
            except psycopg.OperationalError as error:
                # the connection did its work: what comes now is a new loss, with short waits again
                logger.info("the connection that listens was lost: %s", error)

    def _hears(self, conn: psycopg.Connection[Any]) -> bool:
        probe = _PROBE + secrets.token_hex(8)
        with self._database.connection() as caller:
            caller.connection.execute("select pg_notify(%s, %s)", [CHANNEL, probe])
        until = time.monotonic() + self._patience
        while time.monotonic() < until and not self._stop.is_set():
            if any(message.payload == probe for message in conn.notifies(timeout=0.2)):
                return True
        return False
