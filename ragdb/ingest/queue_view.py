"""The queue as its views show it: depth, rate and failures of each collection, for the command line and a server."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from ragdb.db.pool import Database

_COLLECTIONS = """
select d.collection, d.waiting, d.due, d.retrying, d.processing, d.lost, d.failed,
       extract(epoch from d.oldest)::double precision as oldest_seconds, r.last_minute, r.last_hour
  from ragdb.queue_depth d join ragdb.queue_rate r using (collection)
 where %(collection)s::text is null or d.collection = %(collection)s
 order by d.collection
"""

_FAILURES = """
select collection, uri, state, attempts, max_attempts, reason, failed_at, next_attempt, lost
  from ragdb.failed_jobs
 where %(collection)s::text is null or collection = %(collection)s
 order by state, coalesce(failed_at, next_attempt) desc, job_id
 limit %(failures)s
"""


def seen(database: Database, *, collection: str | None = None, failures: int = 20) -> dict[str, Any]:
    """What is shown of the queue, to writers and the owner.

    `collections`: a row each with counts by state, the oldest's age in seconds, how many became ready in the last minute and
    hour. `failures`: those that were given up, then those that will be tried again, newest first.
    """
    values = {"collection": collection, "failures": failures}
    with database.connection() as caller, caller.connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_COLLECTIONS, values).fetchall()
        return {"collections": rows, "failures": cursor.execute(_FAILURES, values).fetchall()}
