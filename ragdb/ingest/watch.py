"""Tables of the application whose rows are documents: watched by triggers, and backfilled a batch at a time.

What they do stands in SQL (ragdb.watch_table, ragdb.backfill_table, the view ragdb.watched_tables); this is for programs
that would rather call Python, and for `ragdb watch`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from ragdb.context import Context
from ragdb.db.caller import Row, from_json, one, value
from ragdb.db.pool import Database
from ragdb.errors import ConfigError

_WAIT = 0.5  # seconds between looks at rows that another transaction holds


@dataclass(frozen=True)
class Backfilled:
    """One batch: rows compared, documents put and deleted, rows that another transaction holds; `done` with the last one."""

    rows: int
    put: int
    deleted: int
    waiting: int
    done: bool


def watch(
    context: Context,
    table: str,
    *,
    id: str,
    content: str,
    title: str | None = None,
    metadata: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Row:
    """Makes the rows of `table` documents of the context's collection: watch_id, uri_prefix, triggers.

    `id`, `content` and `title` are columns, `metadata` is {key: column}; `options` as in docs/watch.md. Again with other
    arguments it changes the watch. The rows that are there already are brought in by `backfill`.
    Raises ConfigError, AccessDenied.
    """
    context.ensure_collection(context.database)
    return _on(
        context.database,
        "watch_table",
        table=table,
        id=id,
        content=content,
        title=title,
        metadata=dict(metadata or {}),
        collection=context.collection,
        options=dict(options or {}),
    )


def backfill(db: Database, table: str, *, collection: str | None = None, batch: int = 500) -> Iterator[Backfilled]:
    """Compares every row with its document, then every document with its row; each batch is a transaction of its own.

    Stopped in between it goes on there when it is called again.
    """
    while True:
        done = Backfilled(**_on(db, "backfill_table", table=table, batch=batch, collection=collection))
        yield done
        if done.done:
            return
        if done.waiting and not done.rows:
            time.sleep(_WAIT)


def unwatch(db: Database, table: str | int, *, collection: str | None = None, documents: bool = False) -> dict[str, int]:
    """Ends a watch, by its table or (of a table that is gone) its number; counts of watches and of deleted documents."""
    if isinstance(table, int):
        receipt = _on(db, "unwatch", watch_id=table, documents=documents)
    else:
        receipt = _on(db, "unwatch_table", table=table, collection=collection, documents=documents)
    return {name: int(count) for name, count in from_json(value([receipt])).items()}


def watched(db: Database) -> list[Row]:
    """The rows of ragdb.watched_tables. Counts rows and documents."""
    with db.connection() as caller, caller.connection.cursor(row_factory=dict_row) as cursor:
        return list(cursor.execute("select * from ragdb.watched_tables").fetchall())


def _on(db: Database, function: str, **arguments: Any) -> Row:
    """The row of a function that takes a table. A name that is no table's is the caller's to correct."""
    try:
        return one(db.call(function, **arguments))
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.InvalidName) as error:
        raise ConfigError(f"{error.diag.message_primary}; name the table with its schema, such as app.articles") from error
