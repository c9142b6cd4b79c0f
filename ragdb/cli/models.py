"""fetch-model: puts a reranker on this machine, so that no question has to wait for a download."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ragdb import models
from ragdb.cli.output import json_line, on_terminal, say
from ragdb.cli.state import State, verb


def fetch_model(
    state: State,
    name: Annotated[str, typer.Argument(help="One of FlashRank's models.")] = models.DEFAULT_RERANKER,
    url: Annotated[str | None, typer.Option(help="Where its .zip is, if not on huggingface.co.", show_default=False)] = None,
) -> None:
    """Fetch a reranker into ragdb's folder.

    With RAGDB_RERANKER=auto, the default, pipelines that rerank (advanced, rag_fusion) then use it.
    """
    name = name.removeprefix("flashrank:")
    to = models.home(state.settings().home)
    there = (to / name).is_dir()
    if on_terminal(sys.stderr) and not there:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=None)
            folder = models.fetch(name, to=to, url=url, progress=lambda came, of: bar.update(task, completed=came, total=of))
    else:
        folder = models.fetch(name, to=to, url=url)
    if state.json:
        json_line({"model": name, "folder": str(folder), "fetched": not there})
    else:
        say(f"{'was there' if there else 'fetched'}: {folder}")


def register(app: typer.Typer) -> None:
    verb(app, name="fetch-model")(fetch_model)
