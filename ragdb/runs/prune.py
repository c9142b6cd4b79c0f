"""prune: runs and caches grow with every question; this deletes what is old, in batches that hold nobody up."""

from __future__ import annotations

from datetime import timedelta

from ragdb.db.caller import Row
from ragdb.runs.explain import HasDatabase


def prune(rag: HasDatabase, *, runs: timedelta | None = None, caches: timedelta = timedelta(days=30)) -> dict[str, int]:
    """Deletes runs older than `runs` (None: none) with all that belongs to them, and cached rewrites and vectors of questions
    older than `caches`. Returns how many of each; for the owner or a writer.
    """
    deleted: dict[str, int] = {}
    while True:
        rows: list[Row] = rag.context.database.call("prune", runs=runs, caches=caches)
        for row in rows:
            deleted[row["what"]] = deleted.get(row["what"], 0) + row["deleted"]
        if not any(row["deleted"] for row in rows):
            return deleted
