"""What kind of text a document is: what it says itself, else what the suffix of its uri says, else Markdown."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ragdb.types import Document

# Suffixes whose readers bring something other than Markdown.
_BY_SUFFIX = {
    ".txt": "text/plain",
    ".text": "text/plain",
    ".log": "text/plain",
    ".pdf": "text/plain",
    ".csv": "text/csv",
    ".tsv": "text/csv",
}


def media_type(document: Document) -> str:
    """Returns text/markdown, text/plain or text/csv."""
    if document.media_type is not None:
        return document.media_type
    path = re.split("[?#]", document.uri)[0] if "://" in document.uri else document.uri
    return of_suffix(PurePosixPath(path).suffix)


def of_suffix(suffix: str) -> str:
    """As `media_type`, of what the reader for a suffix brings."""
    return _BY_SUFFIX.get(suffix.lower(), "text/markdown")
