"""ragdb's own connections: few, checked before use, and never held while a model runs."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from ragdb.db import schema
from ragdb.db.caller import PsycopgCaller, Row
from ragdb.db.connect import libpq_url

logger = logging.getLogger("ragdb.db")


class Database:
    """A pool that opens at the first use and checks the schema once. Safe across threads."""

    def __init__(self, target: Any, *, max_size: int = 8, timeout: float = 30.0) -> None:
        self.target = target
        self.max_size = max_size
        self.timeout = timeout
        self._url = libpq_url(target)
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._pid = 0
        self._lock = threading.Lock()
        _databases.add(self)

    def _opened(self) -> ConnectionPool[psycopg.Connection[Any]]:
        with self._lock:
            if self._pid != os.getpid():
                # A forked process must not touch its parent's connections; they are left, not closed.
                self._pool = None
            if self._pool is None:
                self._pid = os.getpid()
                # A plain connection first: its error is immediate and clear, the pool would retry in silence.
                with schema.connection(self.target) as conn:
                    schema.require(conn)
                self._pool = ConnectionPool(
                    self._url,
                    min_size=1,
                    max_size=self.max_size,
                    timeout=self.timeout,
                    open=True,
                    check=ConnectionPool.check_connection,
                    configure=_configure,
                    # prepare_threshold None: a server-side statement is lost behind PgBouncer's transaction mode.
                    kwargs={"autocommit": True, "prepare_threshold": None, **schema.named(self._url)},
                    name="ragdb",
                )
            return self._pool

    @contextmanager
    def connection(self) -> Iterator[PsycopgCaller]:
        """One pooled connection, autocommit; `caller.transaction()` for more than one statement."""
        pool = self._opened()
        try:
            try:
                conn = pool.getconn()
            except PoolClosed:
                # somebody closed it between the two lines: the object may be used again
                pool = self._opened()
                conn = pool.getconn()
        except PoolTimeout as error:
            raise schema.unreachable(self.target, error) from None
        try:
            yield PsycopgCaller(conn)
        finally:
            pool.putconn(conn)

    def call(self, function: str, /, **arguments: Any) -> list[Row]:
        with self.connection() as caller:
            return caller.call(function, **arguments)

    def call_unsynced(self, function: str, /, **arguments: Any) -> list[Row]:
        """The same, without waiting for the disk: for what is done again anyhow if the server crashes within the next second."""
        with self.connection() as caller, caller.transaction():
            caller.connection.execute("set local synchronous_commit = off")
            return caller.call(function, **arguments)

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None


def _renew_locks() -> None:
    """A lock that another thread held at the fork would leave the child waiting for ever."""
    for database in _databases:
        database._lock = threading.Lock()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _configure(conn: psycopg.Connection[Any]) -> None:
    conn.add_notice_handler(lambda notice: logger.debug("%s: %s", notice.severity, notice.message_primary))
