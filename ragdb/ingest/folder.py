"""Files to documents: which files of a folder are taken, under which uri, and adding them one by one.

The uri of a file is its path below the folder that was given, after a prefix; an address of the web is its own uri, and
the lines of a .jsonl bring theirs. A file given by itself is the document
that came from it before, if there is one, else its name. A uri never changes hands in silence: two files of one uri,
or a file whose uri belongs to another file that still exists, are refused with both paths.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import psycopg

from ragdb.context import Context
from ragdb.errors import ConfigError, DatabaseError, UnreadableFile
from ragdb.ingest import documents, source_state
from ragdb.ingest.source_state import Reading
from ragdb.readers import LINES, SUFFIXES, read_file, url
from ragdb.readers.decode import shown
from ragdb.types import Added, Document, StoredDocument

logger = logging.getLogger("ragdb.ingest")

Refuse = Callable[["File", str, StoredDocument | None], str | None]
Became = Literal["added", "updated", "unchanged", "queued", "processing"]
_PAGE = 500


@dataclass(frozen=True, slots=True)
class File:
    """A file that is to be added; a `path` that is a str is an address of the web.

    `alone`: given by itself, not found in a folder. `prefix` goes before the uris that the lines of a .jsonl bring.
    """

    path: Path | str
    uri: str
    size: int
    alone: bool = False
    prefix: str = ""

    @property
    def source(self) -> str:
        """What the document records as the place it came from."""
        return url.bare(self.path) if isinstance(self.path, str) else shown(os.path.abspath(self.path))

    @property
    def name(self) -> str:
        """What a message calls it."""
        return shown(self.path)

    @property
    def many(self) -> bool:
        """Whether it holds a document in each line."""
        return isinstance(self.path, Path) and self.path.suffix.lower() in LINES


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that was not added, and why."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What was found: files to add, refused ones, how many of each suffix have no reader, and uris stored twice from one file.

    `evaluation` are the questions and judgements of an evaluation set in BEIR's layout, which are no documents.
    """

    files: tuple[File, ...] = ()
    failed: tuple[Failed, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    twice: tuple[tuple[str, str], ...] = ()
    evaluation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one file; `embedded` counts the chunks that went through the model, `found` is what the text says."""

    file: File
    added: Added
    became: Became
    embedded: int
    found: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# --- which files ----------------------------------------------------------------------------------


def find(paths: Sequence[Path | str], *, prefix: str = "", glob: str | None = None) -> Selection:
    """The files that `paths` mean, folders searched to the bottom; hidden ones in them and links to folders are left out.

    A str may be an address (http, https), which is taken as it is: nothing is fetched here.
    """
    files: dict[str, File] = {}
    failed: list[Failed] = []
    skipped: Counter[str] = Counter()
    evaluation: list[str] = []
    for one in paths:
        if isinstance(one, str) and url.is_url(one):
            file = File(one, prefix + url.bare(one), 0, alone=True)
            files[file.source] = file
            continue
        given = Path(one)
        if not given.exists():
            failed.append(Failed(shown(given), "there is no such file or folder"))
            continue
        for path in [given] if given.is_file() else _walk(given, failed):
            relative = shown(path.name if path == given else path.relative_to(given).as_posix())
            if glob and path != given and not matches(relative, glob):
                continue
            if path != given and _judges(path, given):
                evaluation.append(relative)
                continue
            if path != given and path.suffix.lower() not in SUFFIXES:  # one that was named is read, and says why it cannot be
                skipped[path.suffix.lower() or "no suffix"] += 1
                continue
            file = File(path, prefix + relative, _size(path), alone=path == given, prefix=prefix)
            # A file that was named and lies in a named folder too is one file, with the folder's uri.
            if (known := files.get(file.source)) is None or known.alone:
                files[file.source] = file
    return Selection(tuple(files.values()), tuple(failed), dict(skipped.most_common()), evaluation=tuple(evaluation))


def _judges(path: Path, below: Path) -> bool:
    """Questions or judgements beside a corpus.jsonl: as documents they would hold the answers to what is asked."""
    if path.parent.name == "qrels" and path.parent != below:
        return (path.parent.parent / "corpus.jsonl").is_file()
    return (path.name == "queries.jsonl" or path.stem == "qrels") and (path.parent / "corpus.jsonl").is_file()


def _walk(folder: Path, failed: list[Failed]) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        failed.append(Failed(shown(str(error.filename)), f"the folder cannot be read: {error.strerror}"))

    for here, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(here, name)
            # What is neither a file nor a link to one (a pipe, a socket) would block the reader.
            # ~$report.docx is what Office keeps beside a document that is open
            if not name.startswith((".", "~$")) and (path.is_file() or path.is_symlink()):
                yield path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # gone, or a dead link: reading it will say so


def matches(relative: str, glob: str) -> bool:
    name = relative.rsplit("/", 1)[-1]
    return any(fnmatch.fnmatchcase(text, glob) for text in (name, relative, f"/{relative}"))


# --- under which uri ------------------------------------------------------------------------------


def settle(context: Context, found: Selection, *, prefix: str = "") -> Selection:
    """The selection with the uri rules applied: what the collection knows counts, and what clashes is refused."""
    mine: dict[str, list[str]] = defaultdict(list)  # the uris that came from a file before
    for start in range(0, len(found.files), _PAGE):
        sources = [file.source for file in found.files[start : start + _PAGE] if not file.many]
        for row in context.database.call("documents_from", collection=context.collection, files={"sources": sources}):
            if row["uri"].startswith(prefix):
                mine[row["source"]].append(row["uri"])
    files, failed = _given_before(found.files, mine)
    files, clashes = clashing(files)
    known = {document.uri: document for document in stored(context, [file.uri for file in files if not file.many])}
    kept, refused = [], []
    for file in files:
        if why := None if file.many else taken(file, file.uri, known.get(file.uri)):
            refused.append(Failed(file.name, why))
        else:
            kept.append(file)
    twice = tuple((old, file.uri) for file in kept if not prefix for old in mine[file.source] if old != file.uri)
    return dataclasses.replace(found, files=tuple(kept), failed=(*found.failed, *failed, *clashes, *refused), twice=twice)


def taken(file: File, uri: str, stored: StoredDocument | None) -> str | None:
    """Why the document of this uri is not the file's to change; None where it is."""
    other = stored.source if stored else None
    if not other or other == file.source or not os.path.exists(other):
        return None
    if isinstance(file.path, Path) and os.path.exists(file.path) and os.path.samefile(other, file.path):
        return None
    return (
        f"the document {uri!r} came from {other}, which still exists; to add {file.source} beside it, "
        f"give --prefix; to put it in its place, first: ragdb rm {uri}"
    )


def _given_before(files: Sequence[File], mine: Mapping[str, Sequence[str]]) -> tuple[list[File], list[Failed]]:
    """A file given by itself is the document that it was before."""
    settled, failed = [], []
    for file in files:
        uris = mine.get(file.source, ()) if file.alone and isinstance(file.path, Path) and not file.many else ()
        if file.uri in uris or not uris:
            settled.append(file)
        elif len(uris) == 1:
            settled.append(dataclasses.replace(file, uri=uris[0]))
        else:
            failed.append(
                Failed(
                    shown(file.path),
                    f"{len(uris)} documents came from this file ({', '.join(uris)}); say which with --prefix, "
                    "or remove one with: ragdb rm",
                )
            )
    return settled, failed


def clashing(files: Sequence[File]) -> tuple[list[File], list[Failed]]:
    """Of one uri there may be one file."""
    by_uri: dict[str, list[File]] = defaultdict(list)
    for file in files:
        if not file.many:
            by_uri[file.uri].append(file)
    failed = [
        Failed(
            shown(file.path),
            f"{' and '.join(other.source for other in same)} would both be the document {uri!r}; "
            "add them in two calls, one with --prefix, or add the folder above them",
        )
        for uri, same in by_uri.items()
        if len(same) > 1
        for file in same
    ]
    return [file for file in files if file.many or len(by_uri[file.uri]) == 1], failed


def stored(context: Context, uris: Sequence[str]) -> Iterator[StoredDocument]:
    """The documents of these uris, without their text."""
    if context.info() is None:
        return
    for start in range(0, len(uris), _PAGE):
        yield from documents.listed(context, {"uri": list(uris[start : start + _PAGE])})


# --- adding them ----------------------------------------------------------------------------------


def add_files(
    context: Context,
    files: Sequence[File],
    *,
    changes: Mapping[str, Any] | None = None,
    embed: bool = True,
    begun: Callable[[File], None] | None = None,
    progress: Callable[[int], None] | None = None,
    cutting: Callable[[int, int], None] | None = None,
    refuse: Refuse | None = None,
) -> Iterator[Result | Failed]:
    """Adds one file after the other; each is stored before the next one begins, and a bad one fails alone.

    A .jsonl gives a result for each of its lines, and a bad line fails alone.

    `changes` are fields of Document that win over what the file says of itself; `metadata` is laid over the file's.
    `refuse` says why the document of a line's uri is not the file's to change.
    Raises what concerns all of them: DatabaseError, ConfigError.
    """
    before = {document.uri: document for document in stored(context, [file.uri for file in files if not file.many])}
    reading = Reading(context) if files else None
    for file in files:
        if begun:
            begun(file)
        for made in _lines(context, file, refuse or taken) if file.many else [_document(context, file, reading)]:
            if isinstance(made, Failed):
                yield made
                continue
            document, known = made if isinstance(made, tuple) else (made, before.get(file.uri))
            try:
                yield add_document(
                    context, changed(document, changes or {}), file, known, embed=embed, progress=progress, cutting=cutting
                )
            except (DatabaseError, ConfigError, psycopg.OperationalError):
                raise
            except Exception as error:
                logger.debug("%s", file.path, exc_info=True)
                yield _failed(file, error, document.uri if file.many else "")


def _document(context: Context, file: File, reading: Reading | None) -> Document | Failed:
    rules = context.rules
    try:
        if not isinstance(file.path, Path):
            return dataclasses.replace(url.read_url(file.path, rules=rules), uri=file.uri)
        state = reading.before(file.path) if reading else None
        read = read_file(file.path, rules=rules)
        state = source_state.after(file.path, state)
        return dataclasses.replace(read, uri=file.uri, source_state=state.to_dict() if state else None)
    except Exception as error:  # whatever is wrong with one file stops no other
        logger.debug("%s", file.path, exc_info=True)
        return _failed(file, error)


def _failed(file: File, error: Exception, uri: str = "") -> Failed:
    told = str(error).removeprefix(f"{file.name}: ") or type(error).__name__
    return Failed(file.name, f"{uri}: {told}" if uri else told)


def _lines(context: Context, file: File, refuse: Refuse) -> Iterator[tuple[Document, StoredDocument | None] | Failed]:
    """Of each line of a .jsonl its document, with what is stored under its uri; or why it cannot be added."""
    seen: dict[str, int] = {}  # uri to its line
    lines = numbered(file)
    while batch := list(islice(lines, _PAGE)):
        uris = [made.uri for _, made in batch if isinstance(made, Document)]
        before = {document.uri: document for document in stored(context, uris)}
        for number, made in batch:
            if isinstance(made, Failed):
                yield made
            elif (first := seen.setdefault(made.uri, number)) != number:
                yield Failed(
                    file.name, f"line {number}: line {first} is the document {made.uri!r} already; give each line its own uri"
                )
            elif refused := refuse(file, made.uri, before.get(made.uri)):
                yield Failed(file.name, f"line {number}: {refused}")
            else:
                yield made, before.get(made.uri)


def numbered(file: File) -> Iterator[tuple[int, Document | Failed]]:
    from ragdb.readers import jsonl  # pydantic takes its time

    try:
        for number, made in jsonl.read_lines(Path(file.path)):
            if isinstance(made, Document):
                yield number, dataclasses.replace(made, uri=file.prefix + made.uri, source=file.source)
            else:
                yield number, _failed(file, made)
    except UnreadableFile as error:
        yield 0, _failed(file, error)


def changed(document: Document, changes: Mapping[str, Any]) -> Document:
    """The document with the fields that were given; empty metadata of a file says nothing about what is stored."""
    metadata = {**(document.metadata or {}), **(changes.get("metadata") or {})} or None
    given = {name: value for name, value in changes.items() if value is not None and name != "metadata"}
    found = document.found
    if found is not None:
        named = {*given, *(f"metadata.{key}" for key in changes.get("metadata") or {})}
        found = {name: {**said, "overruled": True} if name in named else said for name, said in found.items()}
    return dataclasses.replace(document, metadata=metadata, found=found, **given)


def add_document(
    context: Context,
    document: Document,
    file: File,
    before: StoredDocument | None,
    *,
    embed: bool = True,
    progress: Callable[[int], None] | None = None,
    cutting: Callable[[int, int], None] | None = None,
) -> Result:
    """Adds one document and says what that changed, compared with how it was `before`."""
    embedded = 0

    def count(n: int) -> None:
        nonlocal embedded
        embedded += n
        if progress:
            progress(n)

    added = documents.add(context, document, progress=count, embed=embed, cutting=cutting)
    became: Became = "unchanged"
    if added.ingest_state != "ready":
        # `processing` is another process's work: what this one began, it has ended.
        became = "processing" if added.ingest_state == "processing" else "queued"
    elif added.changed or before is None or before.ingest_state != "ready":
        became = "added"
    elif added.updated:
        became = "updated"
    return Result(file, added, became, embedded, document.found or {})
