"""A sweep: one run for every combination of settings. Other chunks are a collection beside, whose vectors are made once.

The collection beside is called `help~markdown:128` and stays for the next sweep, which brings it up to date; text that any
chunk of the database has already is not embedded again. `drop` removes such collections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ragdb.context import Context
from ragdb.db.caller import one
from ragdb.errors import ConfigError
from ragdb.evaluate import running, sets
from ragdb.evaluate.how import How, about
from ragdb.evaluate.settings import Point, grid_of
from ragdb.evaluate.types import EvalRun
from ragdb.ingest import documents
from ragdb.pipeline import Pipeline

if TYPE_CHECKING:
    from ragdb.rag import RagDB

_BESIDE = "~"
_LONGEST = 200  # characters of a collection's name
_SIZE = re.compile(r":[0-9]+$")  # of `markdown:128`, `my_package.cut:MyChunker:128`


def sweep(
    rag: RagDB,
    eval_set: str,
    grid: Mapping[str, Sequence[str]],
    *,
    base: Pipeline,
    how: How | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[EvalRun]:
    """Runs the set for each combination of `grid`: settings of a pipeline, `chunk_size` (tokens) and `chunker`, each with its
    values as text. Combinations that were run before come from their stored runs."""
    judged = sets.read(rag, eval_set)
    points = grid_of(base, grid)
    runs = []
    for point in points:
        name = judged.collection
        if point.chunk_size or point.chunker:
            name = beside(rag, judged.collection, point, progress=progress).collection
        runs += running.run(rag, eval_set, [point.pipeline], how=how, collection=name, progress=progress)
    return runs


def beside(rag: RagDB, collection: str, point: Point, *, progress: Callable[[str, int, int], None] | None = None) -> Context:
    """The same documents, cut by another chunker, as a collection beside; made, or brought up to date."""
    source = about(rag, collection)
    info = source.info() or {}
    chunker = point.chunker or _SIZE.sub("", str(info.get("chunker") or "markdown"))
    if point.chunk_size:
        if _SIZE.search(chunker):
            raise ConfigError(f"chunker {chunker!r} has a size already; sweep over chunker, or over chunk_size")
        chunker = f"{chunker}:{point.chunk_size}"
    name = f"{collection}{_BESIDE}{chunker}"
    if len(name) > _LONGEST:
        raise ConfigError(
            f"the collection beside would be called {name[:40]}...{name[-20:]}, {len(name)} characters where {_LONGEST} are the "
            "most; a sweep over chunks needs a collection with a shorter name"
        )
    context = source.sibling(name, embedder=info.get("model"), analyzer=True, chunker=chunker)
    context.chunking()  # a name that means nothing leaves no collection behind
    queued, after = 0, ""
    while True:
        row = one(source.database.call("copy_collection", collection=collection, into=name, chunker=chunker, after_uri=after))
        queued += row["queued"]
        if row["last_uri"] is None:
            break
        after = row["last_uri"]
    for done, (uri, _, error) in enumerate(documents.drain(context), start=1):
        if error is not None:
            raise ConfigError(f"{uri} could not be made ready in {name}: {error}")
        if progress:
            progress(name, done, max(done, queued))
    return context


def collections_beside(rag: RagDB, collection: str) -> list[str]:
    """The collections that sweeps made of this one: each is called by its chunker, as no `help~notes` of a person's is."""
    rows = rag.context.database.call("list_collections")
    names = [row["collection"] for row in rows if row["collection"].startswith(f"{collection}{_BESIDE}")]
    chunkers = {name: (about(rag, name).info() or {}).get("chunker") for name in names}
    return [name for name in names if name == f"{collection}{_BESIDE}{chunkers[name]}"]


def drop(rag: RagDB, collection: str) -> list[str]:
    """Removes the collections that sweeps made of this one, with their documents; returns their names."""
    names = collections_beside(rag, collection)
    for name in names:
        while rag.context.database.call("drop_collection", collection=name)[0]["left_over"]:
            pass
    return names


def best(runs: Sequence[EvalRun], metric: str) -> list[tuple[EvalRun, float]]:
    """The runs with a mean of the metric, best first; equal means in the order of the sweep."""
    from ragdb.evaluate import comparing, measures

    found = [(run, mean[metric].value) for run in runs if metric in (mean := comparing.means(run, [metric]))]
    sign = 1 if measures.lower_is_better(metric) else -1
    return sorted(found, key=lambda one: sign * one[1])
