"""Trials as their view shows them: what became of the questions in each arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from ragdb.db.caller import denied

if TYPE_CHECKING:
    from ragdb.db.pool import Database

_TRIALS = """
select * from ragdb.run_trial
 where (%(trial)s::text is null or trial = %(trial)s) and (%(collection)s::text is null or collection = %(collection)s)
 order by trial, collection, arm
"""


def trials(database: Database, *, trial: str | None = None, collection: str | None = None) -> list[dict[str, Any]]:
    """A row for each trial, collection and arm, with the columns of ragdb.run_trial; for the owner, writers and auditors.

    Raises AccessDenied for others.
    """
    with database.connection() as caller, caller.connection.cursor(row_factory=dict_row) as cursor:
        try:
            return cursor.execute(_TRIALS, {"trial": trial, "collection": collection}).fetchall()
        except psycopg.errors.InsufficientPrivilege as error:
            raise denied(str(error.diag.message_primary)) from error
