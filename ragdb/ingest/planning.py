"""What would make the documents of a folder equal to it: which files are new, changed, renamed or gone.

A document belongs to the folder whose path stands before its `source`, under a uri with the prefix; no other is looked
at. Of a file whose size and time are as they were nothing is opened; one whose time alone differs is hashed. Nothing is
written here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragdb.context import Context
from ragdb.db.caller import Row, from_json
from ragdb.errors import ConfigError, SyncRefused
from ragdb.ingest import folder as files
from ragdb.ingest.clean import clean_text
from ragdb.ingest.folder import Failed, File, Selection
from ragdb.ingest.source_state import Reading, SourceState, look, sha256
from ragdb.readers import LINES
from ragdb.readers.decode import shown
from ragdb.types import Document, StoredDocument

_PAGE = 5000


@dataclass(frozen=True, slots=True)
class Known:
    """A document of the folder, as the database has it."""

    uri: str
    source: str
    state: SourceState | None
    ingest_state: str

    @property
    def many(self) -> bool:
        """Whether it came from a file of many documents."""
        return Path(self.source).suffix.lower() in LINES


@dataclass(frozen=True, slots=True)
class Renamed:
    """A document whose file has another name now."""

    was: Known
    file: File


@dataclass(frozen=True, slots=True)
class Plan:
    """`own`: how many documents are the folder's; `before` their uris. `lines`: of files of many documents that will be read,
    the uris in them. `touched`: files whose time alone is another."""

    folder: str
    prefix: str
    own: int
    selection: Selection
    added: tuple[File, ...] = ()
    changed: tuple[File, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    deleted: tuple[Known, ...] = ()
    touched: Mapping[str, SourceState] = field(default_factory=dict)
    unchanged: int = 0
    waiting: int = 0
    failed: tuple[Failed, ...] = ()
    before: frozenset[str] = frozenset()
    lines: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def refused(self) -> str | None:
        """Why this is more than happens by itself: the folder is not there or empty, or most of its documents would go."""
        going = len(self.deleted)
        if not going:
            return None
        if not os.path.isdir(self.folder):
            why = f"{self.folder} is not there"
        elif not self.selection.files:
            why = f"{self.folder} holds no file to read"
        elif 2 * going > self.own:
            why = f"more than half of what came from {self.folder} is not there any more"
        else:
            return None
        return (
            f"{why}, and {going} of its {self.own} documents would be deleted; is a disk missing? Nothing was changed. "
            "To see what would go: --dry-run; to let it go: --yes"
        )


def plan(
    context: Context,
    folder: str | Path,
    *,
    prefix: str = "",
    glob: str | None = None,
    embed: bool = True,
    only: Sequence[str] | None = None,
) -> Plan:
    """Compares the folder with its documents. `only`: paths in it, everything that is not below one of them is left out.

    `embed`: a document that waits for its vectors is work to do. Raises ConfigError where `folder` is a file, and
    SyncRefused where there is neither such a folder nor a document from it.
    """
    root = Path(folder)
    base = absolute(root)
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{shown(root)} is a file; sync takes a folder. To add it: ragdb add {shown(root)}")
    there = root.is_dir()
    selection = files.find([root], prefix=prefix, glob=glob) if there else Selection()
    if only is not None:
        selection = replace(selection, files=tuple(file for file in selection.files if _below(file.source, only)))
    known = [row for start in (only if only is not None else [base]) for row in _known(context, start, prefix)]
    known = list({row.uri: row for row in known}.values())
    if not there and not known:
        raise SyncRefused(f"there is no folder {shown(root)}, and no document came from it")
    found, clashes = files.clashing([_cleaned(file) for file in selection.files])
    selection = replace(selection, files=tuple(found), failed=(*selection.failed, *clashes))
    return _Comparing(context, base, prefix, glob, selection, known, embed=embed).plan()


def absolute(folder: Path) -> str:
    """The folder as `document.source` has it before a file's name, without a / at the end."""
    return clean_text(shown(os.path.abspath(folder)).rstrip("/"))[0]


def _below(source: str, only: Iterable[str]) -> bool:
    return any(source == path or source.startswith(f"{path}/") for path in only)


def _cleaned(file: File) -> File:
    """A carriage return in a file's name is stored as a newline."""
    return replace(file, uri=clean_text(file.uri)[0])


def _source(file: File) -> str:
    return clean_text(file.source)[0]


def _known(context: Context, folder: str, prefix: str) -> Iterator[Known]:
    last: Row = {"source": "", "document_id": 0}
    while rows := context.database.call(
        "documents_below",
        collection=context.collection,
        folder=folder,
        prefix=prefix,
        after_source=last["source"],
        after_id=last["document_id"],
        how_many=_PAGE,
    ):
        for row in rows:
            yield Known(row["uri"], row["source"], SourceState.stored(from_json(row["source_state"])), row["ingest_state"])
        last = rows[-1]


class _Comparing:
    def __init__(
        self,
        context: Context,
        base: str,
        prefix: str,
        glob: str | None,
        selection: Selection,
        known: Sequence[Known],
        *,
        embed: bool,
    ) -> None:
        self.context, self.base, self.prefix, self.glob, self.selection = context, base, prefix, glob, selection
        self.known, self.embed = known, embed
        self.by_source: dict[str, list[Known]] = defaultdict(list)
        for row in known:
            self.by_source[row.source].append(row)
        self.reading: Reading | None = None
        self.added: list[File] = []
        self.changed: list[File] = []
        self.failed: list[Failed] = []
        self.touched: dict[str, SourceState] = {}
        self.lines: dict[str, frozenset[str]] = {}
        self.twice: list[tuple[str, str]] = []
        self.unchanged = self.waiting = 0

    def plan(self) -> Plan:
        for file in self.selection.files:
            (self._many if file.many else self._one)(file)
        self._refuse_others()
        gone = list(self._gone())
        renamed = self._renamed(gone)
        moved = {one.was.uri for one in renamed}
        new = {one.file.uri for one in renamed}
        deleted = [row for row in gone if row.uri not in moved] + list(self._lines_gone())
        return Plan(
            folder=self.base or "/",
            prefix=self.prefix,
            own=len(self.known),
            selection=replace(self.selection, twice=tuple(self.twice)),
            added=tuple(file for file in self.added if file.uri not in new),
            changed=tuple(self.changed),
            renamed=tuple(renamed),
            deleted=tuple(deleted),
            touched=self.touched,
            unchanged=self.unchanged,
            waiting=self.waiting,
            failed=(*self.selection.failed, *self.failed),
            before=frozenset(row.uri for row in self.known),
            lines=self.lines,
        )

    # --- files that are there ---------------------------------------------------------------------

    def _one(self, file: File) -> None:
        source = _source(file)
        same = self.by_source.get(source, [])
        self.twice += [(row.uri, file.uri) for row in same if row.uri != file.uri]
        mine = [row for row in same if row.uri == file.uri]
        now = self._looked_at(file)
        if now is None:
            return
        if not mine:
            self.added.append(file)
        else:
            self._compared(file, source, mine, now)

    def _many(self, file: File) -> None:
        source = _source(file)
        mine = self.by_source.get(source, [])
        now = self._looked_at(file)
        if now is None:
            return
        if mine and self._compared(file, source, mine, now):
            return
        if not mine:
            self.added.append(file)
        uris = [made.uri if isinstance(made, Document) else None for _, made in files.numbered(file)]
        if None in uris:  # nobody knows whose line that was
            uris += [row.uri for row in mine]
        self.lines[source] = frozenset(clean_text(uri)[0] for uri in uris if uri is not None)

    def _looked_at(self, file: File) -> SourceState | None:
        path = Path(file.path)
        try:
            now = look(path)
        except OSError as error:
            self.failed.append(Failed(file.name, f"it cannot be read: {error.strerror}"))
            return None
        if not os.access(path, os.R_OK):
            self.failed.append(Failed(file.name, "it cannot be read: Permission denied; what was read of it before stays"))
            return None
        return now

    def _compared(self, file: File, source: str, mine: Sequence[Known], now: SourceState) -> bool:
        """Sorts a file that was read before; returns whether it is the same."""
        path = Path(file.path)
        waits = [row for row in mine if row.ingest_state in ("queued", "processing")]
        state = mine[0].state
        # in the middle of a file of many documents some are read, some are not
        whole = state is not None and all(row.state == state for row in mine)
        unfinished = any(row.ingest_state == "failed" for row in mine) or bool(waits and self.embed)
        if state is None or not whole or unfinished or state.read_with != self._read_with(path):
            same = False
        elif state.looks_like(now):
            same = True
        else:
            same = state.size == now.size and self._hash(path) == state.sha256
            if same:
                self.touched[source] = replace(state, mtime_ns=now.mtime_ns)
        if same:
            self.unchanged += len(mine) - len(waits)
            self.waiting += len(waits)
        else:
            self.changed.append(file)
        return same

    def _read_with(self, path: Path) -> str:
        # only where something is there to compare with: the embedder of a new collection need not be loaded to look
        self.reading = self.reading or Reading(self.context)
        return self.reading.read_with(path)

    @staticmethod
    def _hash(path: Path) -> str | None:
        try:
            return sha256(path)
        except OSError:
            return None  # reading it will say so

    def _refuse_others(self) -> None:
        """A new file under the uri of a document that came from elsewhere is refused; that document stays as it is."""
        there = {document.uri: document for document in files.stored(self.context, [f.uri for f in self.added if not f.many])}
        kept = []
        for file in self.added:
            if not file.many and (why := refuse(self.base, file, file.uri, there.get(file.uri))):
                self.failed.append(Failed(file.name, why))
            else:
                kept.append(file)
        self.added = kept

    # --- files that are not -----------------------------------------------------------------------

    def _gone(self) -> Iterator[Known]:
        present = {_source(file) for file in self.selection.files}
        wanted = {file.uri for file in self.selection.files if not file.many}.union(*self.lines.values())
        unlisted = [failure.path for failure in self.selection.failed]
        for row in self.known:
            if row.source in present or row.uri in wanted:
                continue
            if self.glob and not files.matches(row.source[len(self.base) + 1 :], self.glob):
                continue
            try:
                os.lstat(row.source)  # a file that this sync passes over (hidden, behind a link) keeps its document
            except (FileNotFoundError, NotADirectoryError):
                yield row
            except OSError as error:
                if not _below(row.source, (os.path.abspath(path) for path in unlisted)):
                    self.failed.append(Failed(row.source, f"whether it is there cannot be told: {error.strerror}"))

    def _lines_gone(self) -> Iterator[Known]:
        """What a file of many documents does not hold any more."""
        wanted = frozenset[str]().union(*self.lines.values())
        for source in self.lines:
            yield from (row for row in self.by_source.get(source, []) if row.uri not in wanted)

    def _renamed(self, gone: Sequence[Known]) -> list[Renamed]:
        """Pairs a file that is gone with a new one of the same bytes, of the same name where there is a choice."""
        candidates: dict[tuple[int, str], list[Known]] = defaultdict(list)
        for row in gone:
            if row.state is not None and row.state.sha256 and row.state.size and not row.many:
                candidates[row.state.size, row.state.sha256].append(row)
        sizes = {size for size, _ in candidates}
        pairs = []
        for file in self.added:
            if file.many or file.size not in sizes:
                continue
            some = candidates.get((file.size, self._hash(Path(file.path)) or ""))
            if some:
                name = Path(file.path).name
                best = next((row for row in some if Path(row.source).name == name), some[0])
                some.remove(best)
                pairs.append(Renamed(best, file))
        return pairs


def refuse(base: str, file: File, uri: str, stored: StoredDocument | None) -> str | None:
    """Why the document of this uri is not this folder's to change; None where it is, or where there is none."""
    if stored is None or (stored.source is not None and _below(stored.source, [base])):
        # another file of the folder: its document until that file is gone
        return files.taken(file, uri, stored)
    if stored.source is not None:
        try:
            if os.path.samefile(stored.source, file.path):
                return None
        except OSError:
            pass
    origin = f"came from {stored.source}" if stored.source else "was added by a program"
    return (
        f"the document {uri!r} {origin}, not from {base}; to keep both, give --prefix; "
        f"to put the file in its place, first: ragdb rm {uri}"
    )


def told(plan: Plan) -> dict[str, Any]:
    """The plan as the report of a sync has it. Of a file of many documents every line counts: which of them changed shows when
    they are read."""
    lines = sorted(frozenset[str]().union(*plan.lines.values()))
    return {
        "added": [*(file.uri for file in plan.added if not file.many), *(uri for uri in lines if uri not in plan.before)],
        "changed": [*(file.uri for file in plan.changed if not file.many), *(uri for uri in lines if uri in plan.before)],
        "renamed": [{"from": one.was.uri, "to": one.file.uri} for one in plan.renamed],
        "deleted": [row.uri for row in plan.deleted],
        "unchanged": plan.unchanged,
        "waiting": plan.waiting,
        "failed": [{"path": failure.path, "error": failure.error} for failure in plan.failed],
    }
