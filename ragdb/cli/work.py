"""worker: embeds what waits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ragdb.cli.output import counted, json_line, note, say
from ragdb.cli.state import State, verb
from ragdb.errors import ConfigError


def worker(
    state: State,
    once: Annotated[bool, typer.Option("--once", help="Do what waits now, then end.")] = False,
) -> None:
    """Embed the documents that wait.

    Those of every collection, or of the one you name.
    """
    if not once:
        raise ConfigError("a worker that stays is not offered yet; run it from cron or a loop: ragdb worker --once")
    from ragdb.ingest import collections, documents
    from ragdb.rag import RagDB

    settings = state.settings()
    url = state.place(settings).url
    done: list[dict[str, Any]] = []
    with RagDB(url) as rag:
        names = [row["collection"] for row in collections.listed(rag.context.database) if row["waiting"]]
    if "collection" in settings.model_fields_set:
        names = [settings.collection]
    for name in names:
        with state.rag(new=True, collection=name) as rag:
            for uri, ingest_state, error in documents.drain(rag.context):
                reason = str(error) if error else None
                done.append({"collection": name, "uri": uri, "ingest_state": ingest_state, "error": reason})
                if not state.json:
                    say(f"{ingest_state:<10}  {name}  {uri}")
                if error:
                    again = "; it will be tried again" if ingest_state == "queued" else ""
                    note(f"failed: {uri}: {error}{again}")
    if state.json:
        json_line({"documents": done})
    elif not done:
        say("nothing waits")
    failed = sum(1 for item in done if item["error"])
    if failed:
        note(f"{counted(failed, 'document')} of {len(done)} failed")
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    verb(app)(worker)
