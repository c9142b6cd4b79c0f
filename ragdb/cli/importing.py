"""import: many documents from JSON Lines, by COPY, with or without their vectors."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ragdb.cli.output import counted, json_line, note, say
from ragdb.cli.state import State, verb
from ragdb.errors import BadDocument, ConfigError


def import_(
    state: State,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines; - reads standard input.", show_default=False)],
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that made the vectors of a new collection.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Documents a transaction.")] = 500,
) -> None:
    """Add many documents from JSON Lines.

    A line: {"uri": "a/1", "content": "...", "title": "...", "metadata": {}, "chunks": [{"start": 0, "end": 120}],
    "vectors": [[0.1, ...]]}; only uri and content are needed. "vector" stands for a document that is one chunk.
    Documents with vectors are ready at once, the others wait for: ragdb worker --once.
    """
    from ragdb.ingest import bulk
    from ragdb.readers import jsonl

    began = time.monotonic()
    states: Counter[str] = Counter()
    chunks = 0

    def progress(more: int) -> None:
        nonlocal chunks
        chunks += more
        if sys.stderr.isatty():
            print(f"\r{chunks} chunks", end="", file=sys.stderr, flush=True)

    try:
        source = nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8-sig")  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    try:
        with source as lines, state.rag(new=True, embedder=embedder) as rag:
            for added in bulk.load(rag.context, jsonl.documents(lines), progress=progress, batch=batch):
                states[added.ingest_state] += 1
    except UnicodeDecodeError as error:
        raise BadDocument(
            f"{file} is not UTF-8 ({error.reason} at byte {error.start} of a block); convert it: iconv -f CP932 -t UTF-8"
        ) from error
    if sys.stderr.isatty() and chunks:
        print(file=sys.stderr)
    seconds = time.monotonic() - began
    if state.json:
        json_line({"documents": dict(states), "chunks": chunks, "seconds": round(seconds, 2)})
        return
    say(f"{counted(sum(states.values()), 'document')}, {counted(chunks, 'chunk')}, {seconds:.1f} s")
    if states["queued"]:
        note(f"{counted(states['queued'], 'document')} wait to be embedded: ragdb worker --once")


def register(app: typer.Typer) -> None:
    verb(app, name="import")(import_)
