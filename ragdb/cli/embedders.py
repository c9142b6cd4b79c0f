"""embedder list, embedder index: the vector sets, and the HNSW index of each."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ragdb.cli.output import columns, counted, json_line, note, on_terminal, say
from ragdb.cli.state import State, verb

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ragdb.db.hnsw import Built, Model

app = typer.Typer(help="List embedding models; index their vectors.", no_args_is_help=True)


@verb(app, name="list")
def list_(state: State) -> None:
    """List the embedding models, each with its vectors and its index."""
    from ragdb.db import hnsw

    found = hnsw.models(state.place(state.settings()).url)
    if state.json:
        json_line({"models": [_as_dict(model) for model in found]})
        return
    heads = ("model", "dimensions", "vectors", "index", "collections")
    columns(
        heads,
        [(m.name, str(m.dims), f"{m.vectors:,}", _index(m), ", ".join(m.collections) or "none") for m in found],
    )
    note(counted(len(found), "model"))


@verb(app)
def index(
    state: State,
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="As `ragdb embedder list` shows it; else the collection's you name, else all."),
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the DDL and do nothing.")] = False,
    m: Annotated[int, typer.Option("--m", min=2, max=100, help="Links of a vector in the graph.")] = 16,
    ef_construction: Annotated[
        int, typer.Option(min=4, max=1000, help="Candidates for them; more is slower to build and finds more.")
    ] = 64,
) -> None:
    """Build the HNSW index of a model's vectors.

    Searches and writes go on meanwhile. Until it is there, searches compare every matching chunk. An index that a
    build left unfinished is dropped first; a valid one is left as it is.
    """
    from ragdb.db import hnsw

    settings = state.settings()
    url = state.place(settings).url
    collection = settings.collection if "collection" in settings.model_fields_set and model is None else None
    models = hnsw.chosen(hnsw.models(url), name=model, collection=collection)
    if sql:
        _print_ddl(state, models, hnsw.script(url, models, m=m, ef_construction=ef_construction))
        return
    done: list[dict[str, Any]] = []
    for each in models:
        with _Watch(each) as watch:
            built = hnsw.build(url, each, m=m, ef_construction=ef_construction, progress=watch.progress, said=note)
        done.append(
            {**_as_dict(built.model), "action": built.action, "repaired": built.repaired, "seconds": round(built.seconds, 1)}
        )
        if not state.json:
            say(_sentence(built))
    if state.json:
        json_line({"models": done})
    elif not models:
        say("there is no embedding model yet; adding a document records its model")


def _print_ddl(state: State, models: list[Model], statements: dict[int, list[str]]) -> None:
    if state.json:
        json_line({"models": [{**_as_dict(model), "sql": statements[model.model_id]} for model in models]})
        return
    for model in models:
        say(f"-- {model.name}: {_remark(model)}".replace("\n", " "))
        for statement in statements[model.model_id]:
            say(statement + ";")


def _remark(model: Model) -> str:
    if not model.indexable:
        return _too_long(model)
    kept = f"{model.index} is there and valid"
    return kept if model.state == "valid" else f"{model.dims} dimensions; outside a transaction, as the owner of ragdb's tables"


def _sentence(built: Built) -> str:
    model = built.model
    if built.action == "none":
        return f"{model.name}: {_too_long(model)}"
    facts = f"{counted(model.vectors, 'vector')}, {model.size / 1e6:,.0f} MB"
    if built.action == "kept":
        return f"{model.name}: {model.index} is there and valid ({facts})"
    return f"{model.name}: built {model.index} ({facts}) in {built.seconds:.0f} s"


def _too_long(model: Model) -> str:
    from ragdb.db.hnsw import MAX_DIMS

    return (
        f"{model.dims:,} dimensions are more than the {MAX_DIMS:,} that an HNSW index holds; "
        "there is no index, and search compares every matching chunk"
    )


def _index(model: Model) -> str:
    if not model.indexable:
        return "too many dimensions"
    return f"{model.size / 1e6:,.0f} MB" if model.state == "valid" else model.state


def _as_dict(model: Model) -> dict[str, Any]:
    return {
        "model": model.name,
        "model_id": model.model_id,
        "dims": model.dims,
        "collections": list(model.collections),
        "vectors": model.vectors,
        "index": model.index if model.indexable else None,
        "state": model.state if model.indexable else "too many dimensions",
        "bytes": model.size,
    }


class _Watch:
    """The progress of a build on stderr: a bar on a terminal, elsewhere one line when it begins."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def progress(self, phase: str, done: int, total: int) -> None:
        if not self._begun:
            self._begin()
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=phase, completed=min(done, total), total=total or None)

    def _begin(self) -> None:
        self._begun = True
        if not on_terminal(sys.stderr):
            note(f"building {self._model.index} over {counted(self._model.vectors, 'vector')} of {self._model.name}")
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn(self._model.index, markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._bar.start()
