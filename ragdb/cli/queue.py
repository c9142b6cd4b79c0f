"""queue: what waits, how fast it goes, what failed and why; and another start for what failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from ragdb.cli.output import bold, counted, json_line, note, say
from ragdb.cli.state import Collection, DatabaseUrl, Home, Json, State, Verbose, state_of, verb
from ragdb.errors import ConfigError, UnknownCollection

app = typer.Typer(rich_markup_mode=None)

_REASONS = 20
_HEAD = (
    f"{'collection':<24} {'due':>8} {'retrying':>8} {'working':>8} {'lost':>6} {'failed':>8}  {'oldest':>10}  ready in 1 min, 1 h"
)


@app.callback(invoke_without_command=True, help="Show what waits and what failed, or try it again.")
def queue(
    ctx: typer.Context,
    failures: Annotated[
        int, typer.Option("--failures", min=0, help="Show at most so many of those that failed, newest first.")
    ] = _REASONS,
    collection: Collection = None,
    json: Json = False,
    verbose: Verbose = False,
    home: Home = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what waits, by collection and state, how fast documents become ready, and what failed and why."""
    state = state_of(ctx)
    state.take(database_url=database_url, home=home, collection=collection, json=json, verbose=verbose)
    if ctx.invoked_subcommand is None:
        _show(state, failures)


def _show(state: State, failures: int) -> None:
    from ragdb.ingest import queue_view

    with _opened(state) as (rag, only):
        seen = queue_view.seen(rag.context.database, collection=only, failures=failures)
    if state.json:
        json_line(seen)
        return
    told = ("waiting", "processing", "failed", "last_hour")
    busy = [row for row in seen["collections"] if only or any(row[name] for name in told)]
    if not busy:
        say("nothing waits, nothing failed")
        return
    say(bold(_HEAD))
    for row in busy:
        counts = f"{row['due']:>8} {row['retrying']:>8} {row['processing']:>8} {row['lost']:>6} {row['failed']:>8}"
        rate = f"{row['last_minute']}, {row['last_hour']}"
        say(f"{row['collection']:<24} {counts}  {_age(row['oldest_seconds']):>10}  {rate}")
    for row in seen["failures"]:
        state_word = "failed" if row["state"] == "failed" else "retrying"
        attempt = f"attempt {row['attempts']} of {row['max_attempts']}"
        say(f"{state_word:<10}  {row['collection']}  {row['uri']}  ({attempt}): {row['reason']}")
    if len(seen["failures"]) == failures:
        note(f"at most {failures} are shown; all of them are in the view ragdb.failed_jobs")
    if any(row["failed"] for row in busy):
        note(f"to try again: {state.command('queue retry --all')}")


def retry(
    state: State,
    uris: Annotated[list[str] | None, typer.Argument(metavar="[URI]...", help="Documents of the collection.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that failed: of the collection that is named, else of every one.")
    ] = False,
) -> None:
    """Give documents that failed, or wait to be tried again, a new start."""
    if bool(uris) == everything:
        raise ConfigError("name the documents to try again, or give --all")
    from ragdb.db.caller import value

    done: dict[str | None, int] = {}
    with _opened(state) as (rag, only):
        db = rag.context.database
        if everything:
            done[None] = int(value(db.call("retry_jobs", collection=only)))
        for uri in uris or ():
            done[uri] = int(value(db.call("retry_jobs", collection=rag.context.collection, uri=uri)))
    total = sum(done.values())
    missed = [uri for uri, n in done.items() if uri is not None and not n]
    for uri in missed:
        note(f"not failed, not waiting to be tried again, or not there: {uri}")
    if state.json:
        json_line({"retried": total})
    else:
        say(f"{counted(total, 'document')} queued again")
    if missed:
        raise typer.Exit(1)


class _opened:
    """A RagDB on the database, and the collection where one was named."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> tuple[Any, str | None]:
        from ragdb.ingest import collections
        from ragdb.rag import RagDB

        settings = self._state.settings()
        self._rag = RagDB(self._state.place(settings).url, collection=settings.collection)
        only = settings.collection if "collection" in settings.model_fields_set else None
        if only is not None:
            try:
                collections.require(self._rag.context)
            except UnknownCollection:
                self._rag.close()
                raise
        return self._rag, only

    def __exit__(self, *_error: object) -> None:
        self._rag.close()


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return str(timedelta(seconds=round(seconds)))


verb(app)(retry)
