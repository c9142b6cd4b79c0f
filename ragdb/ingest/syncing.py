"""`sync(rag, folder)`: the documents that came from a folder become what the folder holds.

One step after the other, each stored before the next begins: an end in between keeps what was done, and the same call
goes on from there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from ragdb.context import Context
from ragdb.db import schema
from ragdb.errors import SyncRefused, SyncRunning
from ragdb.ingest import documents, planning, worker
from ragdb.ingest import folder as files
from ragdb.ingest.clean import clean_text
from ragdb.ingest.folder import Failed, File, Result
from ragdb.ingest.planning import Known, Plan
from ragdb.ingest.prepare import label_stem
from ragdb.ingest.source_state import Reading, SourceState, after
from ragdb.types import _Value

_PAGE = 500


class HasContext(Protocol):
    """A RagDB, as far as this module knows it."""

    @property
    def context(self) -> Context: ...


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one document. `was`: its uri before; `receipt`: what was deleted with it."""

    what: Literal["added", "changed", "renamed", "deleted", "unchanged"]
    uri: str
    result: Result | None = None
    was: str | None = None
    receipt: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Synced(_Value):
    """What a sync did, or with `dry_run` would do. `waiting` documents are for a worker to embed; `erased` sums the receipts."""

    folder: str
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[dict[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unchanged: int = 0
    waiting: int = 0
    failed: list[Failed] = field(default_factory=list)
    chunks: int = 0
    reused: int = 0
    embedded: int = 0
    erased: dict[str, int] = field(default_factory=dict)

    def take(self, step: Done | Failed) -> None:
        """Adds one step."""
        if isinstance(step, Failed):
            self.failed.append(step)
            return
        if step.what == "unchanged":
            self.unchanged += 1
        elif step.what == "renamed":
            self.renamed.append({"from": step.was or "", "to": step.uri})
        else:
            {"added": self.added, "changed": self.changed, "deleted": self.deleted}[step.what].append(step.uri)
        self.erased = dict(Counter(self.erased) + Counter(step.receipt))
        if step.result is not None:
            self.waiting += step.result.became in ("queued", "processing")
            self.embedded += step.result.embedded
            if step.result.added.changed:
                self.chunks += step.result.added.chunks
                self.reused += step.result.added.reused

    @property
    def did(self) -> bool:
        """Whether there was anything to do."""
        return bool(self.added or self.changed or self.renamed or self.deleted or self.failed)


def sync(
    rag: HasContext,
    folder: str | Path,
    *,
    prefix: str = "",
    glob: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    embed: bool = True,
    told: Callable[[Done | Failed], None] | None = None,
) -> Synced:
    """Makes the documents that came from `folder` equal to it: added, changed, renamed, deleted.

    Only documents whose `source` lies in the folder, under uris that begin with `prefix`, are its own. `dry_run` says what
    would be done, `embed` False leaves the embedding to a worker, `told` hears of each step. A file that cannot be read
    keeps its document and stands in `failed`.

    Raises SyncRefused where another sync of the folder runs, and, unless `yes`, where the folder is missing or empty or more
    than half of its documents would go; nothing was changed then.
    """
    context = rag.context
    if dry_run:
        return planned(planning.plan(context, folder, prefix=prefix, glob=glob, embed=embed))
    with locked(context, folder):
        worker.release_dead(context.database)
        made = planning.plan(context, folder, prefix=prefix, glob=glob, embed=embed)
        check(made, yes=yes)
        done = begun(made)
        for step in carried_out(context, made, embed=embed):
            done.take(step)
            if told:
                told(step)
    return done


def check(plan: Plan, *, yes: bool) -> None:
    """Raises SyncRefused where a plan deletes more than happens by itself."""
    if not yes and (why := plan.refused()):
        raise SyncRefused(why)


def begun(plan: Plan) -> Synced:
    """A report with what is known before the first step."""
    return Synced(plan.folder, unchanged=plan.unchanged, waiting=plan.waiting, failed=list(plan.failed))


def planned(plan: Plan) -> Synced:
    """A report of what would be done."""
    return Synced(plan.folder, **{**planning.told(plan), "failed": list(plan.failed)})


@contextmanager
def locked(context: Context, folder: str | Path) -> Iterator[None]:
    """Keeps a second sync of the same folder into the same collection out, on whatever machine; ends with the connection."""
    path = planning.absolute(Path(folder))
    with schema.connection(context.database.target) as conn:
        conn.autocommit = True
        conn.execute("select set_config('idle_session_timeout', '0', false)")
        row = conn.execute(
            "select pg_try_advisory_lock(hashtext('ragdb.sync'), hashtext(%s))", [f"{context.collection}\x1f{path}"]
        ).fetchone()
        if not row or not row[0]:
            raise SyncRunning(
                f"another sync of {path or '/'} into collection {context.collection!r} is running; wait for it, or end it"
            )
        try:
            yield
        finally:
            # said, not left to the end of the connection, which the server notices a moment later
            if not conn.closed and not conn.broken:
                conn.execute("select pg_advisory_unlock_all()")
            conn.close()


# --- the steps ------------------------------------------------------------------------------------


def carried_out(
    context: Context,
    plan: Plan,
    *,
    embed: bool = True,
    begun: Callable[[File], None] | None = None,
    progress: Callable[[int], None] | None = None,
    cutting: Callable[[int, int], None] | None = None,
) -> Iterator[Done | Failed]:
    """Does what the plan says, and yields what became of each document. What is new comes before what is gone, so that a
    text that moved finds its vectors."""
    add = partial(
        files.add_files,
        context,
        embed=embed,
        begun=begun,
        progress=progress,
        cutting=cutting,
        refuse=partial(planning.refuse, plan.folder.rstrip("/")),
    )
    _know(context, plan, list(plan.touched.items()))
    for one in plan.renamed:
        yield from _renamed(context, one.was, one.file, add)
    whole: dict[str, set[str]] = {}  # files of many documents that were read to their end, with the uris in them
    for group in _grouped([*plan.added, *plan.changed]):
        if group[0].many:
            yield from _many(context, plan, group[0], add, whole)
        else:
            for result in add(group):
                yield _done(result, plan.before)
    yield from _deleted(context, plan, whole)


def _grouped(some: Sequence[File]) -> Iterator[list[File]]:
    group: list[File] = []
    for file in some:
        if group and (file.many or group[0].many or len(group) == _PAGE):
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _done(result: Result | Failed, before: frozenset[str]) -> Done | Failed:
    if isinstance(result, Failed):
        return result
    uri = result.added.uri
    if result.became == "unchanged":
        return Done("unchanged", uri, result)
    return Done("changed" if uri in before else "added", uri, result)


def _know(context: Context, plan: Plan, states: Sequence[tuple[str, SourceState]], *, read: bool = False) -> None:
    for start in range(0, len(states), _PAGE):
        some = [{"source": source, "state": state.to_dict(), "read": read} for source, state in states[start : start + _PAGE]]
        context.database.call("know_sources", collection=context.collection, files={"files": some}, prefix=plan.prefix)


def _renamed(
    context: Context, was: Known, file: File, add: Callable[[list[File]], Iterator[Result | Failed]]
) -> Iterator[Done | Failed]:
    """The row keeps what people have set in it, its chunks and who quotes it; then the file is read under its new name."""
    cut_again = Path(was.uri).suffix.lower() != Path(file.uri).suffix.lower()
    context.database.call(
        "rename_document",
        collection=context.collection,
        uri=was.uri,
        new_uri=file.uri,
        source=clean_text(file.source)[0],
        stem=label_stem(file.uri),
        cut_again=cut_again,
    )
    for result in add([file]):
        yield result if isinstance(result, Failed) else Done("renamed", file.uri, result, was=was.uri)


def _many(
    context: Context, plan: Plan, file: File, add: Callable[[list[File]], Iterator[Result | Failed]], whole: dict[str, set[str]]
) -> Iterator[Done | Failed]:
    reading = Reading(context)
    path = Path(file.path)
    state = reading.before(path)
    failed = False
    seen: set[str] = set()
    for result in add([file]):
        if isinstance(result, Failed):
            failed = True
        else:
            seen.add(result.added.uri)
        yield _done(result, plan.before)
    if not failed and (state := after(path, state)) is not None:
        source = clean_text(file.source)[0]
        whole[source] = seen
        _know(context, plan, [(source, state)], read=True)


def _deleted(context: Context, plan: Plan, whole: dict[str, set[str]]) -> Iterator[Done]:
    """Looks again before each page: embedding may have taken hours, and a file may be back."""
    for start in range(0, len(plan.deleted), _PAGE):
        page = plan.deleted[start : start + _PAGE]
        rows = context.database.call(
            "documents_from", collection=context.collection, files={"sources": sorted({row.source for row in page})}
        )
        still = {(row["uri"], row["source"]) for row in rows}
        for row in page:
            if row.source in plan.lines:
                gone = row.source in whole and row.uri not in whole[row.source]
            else:
                gone = not _there(row.source)
            if gone and (row.uri, row.source) in still:
                receipt = documents.delete(context, row.uri)
                if receipt.get("document"):
                    yield Done("deleted", row.uri, receipt=receipt)
    if plan.deleted:
        documents.refresh_stats(context)


def _there(source: str) -> bool:
    try:
        os.lstat(source)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # nobody can tell
    return True
