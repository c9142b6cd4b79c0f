"""worker: makes ready what waits."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragdb.cli.output import counted, json_line, note, say
from ragdb.cli.state import State, verb

if TYPE_CHECKING:
    from ragdb.ingest.batch import Done


def worker(
    state: State,
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, then end.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=64, help="Loops that work at once.")] = 1,
    poll: Annotated[float, typer.Option("--poll", min=0.05, metavar="SECONDS", help="Look for work at least so often.")] = 5.0,
    no_listen: Annotated[bool, typer.Option("--no-listen", help="Poll only (PgBouncer in transaction mode).")] = False,
    grace: Annotated[float, typer.Option("--grace", min=0, metavar="SECONDS", help="Time to finish when told to end.")] = 30.0,
    lease: Annotated[
        float, typer.Option("--lease", min=1, metavar="SECONDS", help="A worker that is silent for so long loses its documents.")
    ] = 300.0,
) -> None:
    """Cut and embed the documents that wait, until told to end.

    Those of every collection, each with its own model, or of the one you name. Any number of workers share the work.
    """
    from ragdb.from_settings import arguments
    from ragdb.ingest import queue
    from ragdb.ingest.worker import worker_name
    from ragdb.rag import RagDB

    settings = state.settings()
    url, keywords = state.place(settings).url, arguments(settings)
    keywords.pop("embedder", None)  # each collection has its own
    options = keywords.get("options", {})
    # Working is no question: it may fetch a model that is not here yet.
    keywords["options"] = {**options, "embedder": {**options.get("embedder", {}), "download": True}}
    only = settings.collection if "collection" in settings.model_fields_set else None
    how = queue.Options(concurrency, only, once, poll, not no_listen, grace, lease)
    done: list[dict[str, Any]] = []
    with RagDB(url, **keywords) as rag:
        if not once:
            note(f"worker {worker_name()} waits for documents; SIGTERM or Ctrl-C ends it")
        report = queue.run(rag.context, how, told=lambda item: _tell(state, item, done, once=once), signals=True)
    for reason in report.unserved.values():
        if once:
            note(f"left to other workers: {reason}")
    if once:
        _sum_up(state, done, report)
        if report.failed or report.unserved:
            raise typer.Exit(1)
    else:
        note(f"worker ended: {report.ready} ready, {report.failed} failed, {report.gave_back} given back")
    sys.stdout.flush()
    if report.hanging:
        # A model that is still at work in a thread would hold up the end, or break it.
        os._exit(0)


def _tell(state: State, item: Done, done: list[dict[str, Any]], *, once: bool) -> None:
    name, uri = item.row["collection"], item.row["uri"]
    if once:
        reason = str(item.error) if item.error else None
        done.append({"collection": name, "uri": uri, "ingest_state": item.state, "error": reason})
    if not state.json and (once or state.verbose):
        say(f"{item.state:<10}  {name}  {uri}")
    if item.error:
        again = "; it will be tried again" if item.state == "queued" else ""
        note(f"failed: {uri}: {item.error}{again}")


def _sum_up(state: State, done: list[dict[str, Any]], report: Any) -> None:
    if state.json:
        json_line({"documents": done})
    elif report.filled:
        say(f"{counted(report.filled, 'vector')} made for sets that do not answer yet: ragdb embedder list")
    elif not done and not report.unserved:
        say("nothing waits")
    if report.failed:
        note(f"{counted(report.failed, 'document')} of {len(done)} failed")


def register(app: typer.Typer) -> None:
    verb(app)(worker)
