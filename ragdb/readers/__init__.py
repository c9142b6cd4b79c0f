"""Files to documents: the suffix picks the reader, and each reader is one file in this folder."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ragdb.errors import BadDocument, ConfigError, UnreadableFile
from ragdb.protocols import Reader
from ragdb.readers.decode import shown
from ragdb.types import Document

if TYPE_CHECKING:
    from ragdb.metadata import Rules

# suffix, in lower case, to the module of this package that reads it
SUFFIXES: Mapping[str, str] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".csv": "text",
    ".tsv": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".epub": "epub",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
#: Files that hold a document in each line.
LINES = (".jsonl", ".ndjson")


def read_file(path: str | Path, *, root: str | Path | None = None, rules: Rules | None = None) -> Document:
    """Returns the file as a document: `uri` is its path below `root` (else its name), `source` its absolute path.

    What the page says about itself (status, dates, owner, version) fills the document's fields, by `rules` (ragdb.metadata).

    Raises UnreadableFile (no reader for the suffix, binary, damaged, without text, unknown encoding, not there; a .jsonl,
    which is many documents), ConfigError (not below root) and MissingExtra (the package that reads such files).
    """
    path = Path(path)
    name = SUFFIXES.get(path.suffix.lower())
    if name is None:
        raise UnreadableFile(
            f"{shown(path)}: no reader for {path.suffix or 'a file without suffix'}; ragdb reads {', '.join(SUFFIXES)}: "
            "convert it, or pass its text as a Document"
        )
    document = reader(name).read(path)
    from ragdb.metadata import described  # which needs this package itself

    document = described(document, rules)
    return dataclasses.replace(document, uri=_uri(path, root), source=shown(os.path.abspath(path)))


def read_documents(path: str | Path, *, root: str | Path | None = None, rules: Rules | None = None) -> Iterator[Document]:
    """The documents of a file: one for each line of .jsonl, under its own uri; of any other file the one of `read_file`.

    Raises as `read_file` does, and BadDocument with the number of a bad line when its turn comes.
    """
    path = Path(path)
    if path.suffix.lower() not in LINES:
        yield read_file(path, root=root, rules=rules)
        return
    from ragdb.readers import jsonl

    for _, made in jsonl.read_lines(path):
        if isinstance(made, BadDocument):
            raise BadDocument(f"{shown(path)}: {made}") from made
        yield dataclasses.replace(made, source=made.source or shown(os.path.abspath(path)))


def reader(name: str) -> Reader:
    """The reader of a kind of files, by the name of its module."""
    # imported when a file asks for it: YAML and Markdown are not needed to import ragdb
    module = importlib.import_module(f"ragdb.readers.{name}")
    return cast(Reader, module.READER)


def _uri(path: Path, root: str | Path | None) -> str:
    if root is None:
        return shown(path.name)
    for whole, above in ((path.absolute(), Path(root).absolute()), (path.resolve(), Path(root).resolve())):
        if whole.is_relative_to(above):
            return shown(whole.relative_to(above).as_posix())
    raise ConfigError(f"{shown(path)} is not below {shown(root)}; give the folder that the file is in, or no root")
