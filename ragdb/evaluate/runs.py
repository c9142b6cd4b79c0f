"""Stored runs of an evaluation: found by id or name, read as values."""

from __future__ import annotations

import dataclasses
from typing import Any

from ragdb.db.caller import Caller, Row, from_json, value
from ragdb.errors import ConfigError
from ragdb.evaluate.types import EvalRun, Result, Step


def listed(db: Caller, *, eval_set: str | None = None, how_many: int = 50) -> list[EvalRun]:
    """Runs without their results, newest first."""
    return [_run(row) for row in db.call("eval_runs", eval_set=eval_set, how_many=how_many)]


def get(db: Caller, run_id: int) -> EvalRun:
    """A run with its results, by key. Raises ConfigError where there is none of this id."""
    rows = db.call("eval_runs", only_run=run_id)
    if not rows:
        raise ConfigError(f"there is no evaluation run {run_id}; list them with: ragdb eval runs")
    results = tuple(_result(row) for row in db.call("eval_results", eval_run_id=run_id))
    return dataclasses.replace(_run(rows[0]), results=results)


def find(db: Caller, eval_set: str, ref: str) -> EvalRun:
    """The run of this id, or the newest finished one of a set with this name. Raises ConfigError with those there are."""
    if is_number(ref):
        found = get(db, int(ref))
        if found.eval_set != eval_set:
            raise ConfigError(f"run {ref} is of the set {found.eval_set!r}, not of {eval_set!r}; runs are compared within a set")
        return found
    rows = [row for row in db.call("eval_runs", eval_set=eval_set, only_name=ref) if row["finished_at"] is not None]
    if not rows:
        there = ", ".join(f"{run.eval_run_id} ({run.name})" for run in listed(db, eval_set=eval_set)[:10]) or "none yet"
        raise ConfigError(f"the set {eval_set!r} has no finished run {ref!r}; there are {there}")
    return get(db, rows[0]["eval_run_id"])


def is_number(ref: str) -> bool:
    """Whether a text names a run by its number; sets have other names."""
    return ref.isascii() and ref.isdigit() and len(ref) < 19


def delete(db: Caller, run_id: int) -> int:
    """Deletes a run with its results and traces; returns how many there were, 0 or 1."""
    return int(value(db.call("delete_eval_run", eval_run_id=run_id)))


def marked(run: EvalRun, *, cached: bool) -> EvalRun:
    """`cached`: it had been made before, and nothing was asked."""
    return dataclasses.replace(run, cached=cached)


def _run(row: Row) -> EvalRun:
    return EvalRun(
        eval_run_id=row["eval_run_id"],
        name=row["name"],
        eval_set=row["eval_set"],
        collection=row["collection"],
        pipeline=from_json(row["pipeline"]),
        settings=from_json(row["settings"]),
        fingerprint=row["fingerprint"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


def _result(row: Row) -> Result:
    funnel: dict[str, Any] = from_json(row["funnel"])
    return Result(
        key=row["key"],
        chunk_ids=tuple(row["chunk_ids"]),
        uris=tuple(row["uris"]),
        statuses=tuple(row["statuses"]),
        funnel={stage: Step(**step) for stage, step in funnel.items()},
        scores=from_json(row["scores"]),
        outcome=row["outcome"],
        answer=row["answer"],
        error=row["error"],
        ms=row["ms"],
        stage_ms=from_json(row["stage_ms"]),
        cost=row["cost"],
        run_id=row["run_id"],
        document_ids=tuple(row["document_ids"]),
    )
