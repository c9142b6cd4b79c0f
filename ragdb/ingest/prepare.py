"""A document to what `ragdb.put_document` stores: cut, labelled, with everything that needs no database done first."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, count, islice
from typing import Any

from ragdb.chunkers import Chunking
from ragdb.chunkers.header import fit_header, index_header
from ragdb.errors import BadDocument
from ragdb.readers import SUFFIXES
from ragdb.types import Document, Section, Span

_SUFFIX = re.compile(f"({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)
_SPACE = re.compile(r"[\s#]+")
NO_TEXT = "no text to search: the document has no chunks (headings with nothing under any of them are none)"
_MAX_CHUNK = 60_000  # as the table's CHECK: bounds what one tsvector has to hold


def payload(document: Document, chunking: Chunking, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The `document` argument of `ragdb.put_document`: columns, sections and chunks. `document` is clean already."""
    spans = document.chunks if document.chunks is not None else chunking.spans(document)
    recipe = _given_recipe(document) if document.chunks is not None else chunking.recipe
    made = columns(document, [*warnings, *([] if spans else [NO_TEXT])])
    return {**made, "content": document.content, "chunking": recipe, **cut(document, spans, chunking)}


def columns(document: Document, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """What `ragdb.put_document` stores beside text and chunks."""
    return {
        "uri": document.uri,
        "title": document.title,
        "status": document.status,
        "language": document.language,
        "metadata": None if document.metadata is None else dict(document.metadata),
        "updated_at": _moment(document.updated_at),
        "review_after": _moment(document.review_after),
        "owner": document.owner,
        "version": document.version,
        "source": document.source,
        "source_state": None if document.source_state is None else dict(document.source_state),
        "media_type": document.media_type,
        "pages": None if document.pages is None else list(document.pages),
        "found": None if document.found is None else {name: dict(said) for name, said in document.found.items()},
        "warnings": list(warnings),
    }


def cut(document: Document, spans: Sequence[Span], chunking: Chunking) -> dict[str, Any]:
    """Spans as the `sections` and `chunks` of `ragdb.write_chunks`."""
    sections = list(_sections(spans))
    return {"sections": list(_section_rows(sections)), "chunks": list(_chunk_rows(document, spans, chunking, sections))}


def in_parts(document: Document, spans: Sequence[Span], chunking: Chunking, size: int = 1000) -> Iterator[dict[str, Any]]:
    """The same for a long document, `size` chunks at a time: all but the last part with `more`, sections in the first."""
    sections = list(_sections(spans))
    rows = _chunk_rows(document, spans, chunking, sections)
    done, first = 0, True
    while (part := list(islice(rows, size))) or first:
        done += len(part)
        yield {"sections": list(_section_rows(sections)) if first else [], "chunks": part, "more": done < len(spans)}
        first = False


def _section_rows(sections: Sequence[Section]) -> Iterator[dict[str, Any]]:
    number = {id(section): n for n, section in enumerate(sections)}
    for n, section in enumerate(sections):
        yield {
            "ordinal": n,
            "parent": number[id(section.parent)] if section.parent else None,
            "heading": section.heading,
            "level": section.level,
            "path": list(section.path),
            "start": section.start,
            "end": section.end,
        }


def _chunk_rows(
    document: Document, spans: Sequence[Span], chunking: Chunking, sections: Sequence[Section]
) -> Iterator[dict[str, Any]]:
    number = {id(section): n for n, section in enumerate(sections)}
    for ordinal, (span, label) in enumerate(zip(spans, _labels(document.uri, spans), strict=True)):
        content = document.content[span.start : span.end]
        if not content.strip():
            raise BadDocument(f"chunk {ordinal} of {document.uri!r} ({span.start}-{span.end}) is blank; leave it out")
        if len(content) > _MAX_CHUNK:
            raise BadDocument(
                f"chunk {ordinal} of {document.uri!r} has {len(content)} characters; at most {_MAX_CHUNK}: cut it smaller"
            )
        header = fit_header(index_header(document.title, span.heading_path), chunking.max_tokens, chunking.count_tokens)
        context = "\n".join(part for part in (header, span.context) if part)
        row = {
            "ordinal": ordinal,
            "content": content,
            "context": context,
            "start": span.start,
            "end": span.end,
            "page": span.page,
            "section": number[id(span.section)] if span.section else None,
            "label": label,
        }
        if chunking.analyzer is not None:
            row["lexemes"] = list(chunking.analyzer(f"{context}\n{content}" if context else content))
        yield row


def _sections(spans: Sequence[Span]) -> Iterator[Section]:
    """Every section that holds a chunk, its parents before it."""
    seen: set[int] = set()
    for span in spans:
        chain = []
        section = span.section
        while section is not None and id(section) not in seen:
            seen.add(id(section))
            chain.append(section)
            section = section.parent
        yield from reversed(chain)


def _labels(uri: str, spans: Sequence[Span]) -> Iterator[str]:
    """`document#heading#00`: counted in each section, so that a change in another one moves no label.

    Without a heading it is the page, `document#page-12#00`, else `top`. The second section of a name is `heading-2`.
    """
    stem = label_stem(uri)
    names: dict[Section | int | None, str] = {}
    taken: set[str] = set()
    alike: dict[str, Iterator[str]] = {}  # the names that sections of one heading get, as far as they are given out
    counted: Counter[str] = Counter()
    for span in spans:
        place = span.section or span.page
        if place not in names:
            heading = _SPACE.sub("-", span.section.heading.strip().lower())[:60].strip("-") if span.section else ""
            heading = heading or ("top" if span.page is None else f"page-{span.page}")
            numbered = alike.setdefault(heading, chain([heading], map(f"{heading}-{{}}".format, count(2))))
            names[place] = next(name for name in numbered if name not in taken)
            taken.add(names[place])
        name = names[place]
        yield f"{stem}#{name}#{counted[name]:02d}"
        counted[name] += 1


def label_stem(uri: str) -> str:
    """How the labels of a document's chunks begin: its uri without the suffix of a file."""
    return _SUFFIX.sub("", uri)


def _given_recipe(document: Document) -> str:
    digest = hashlib.sha256()
    for span in document.chunks or ():
        digest.update(repr((span.start, span.end, span.context, span.heading_path, span.page)).encode("utf-8", "replace"))
    if document.vectors is not None:
        import numpy as np

        digest.update(np.asarray(document.vectors, dtype=np.float64).tobytes())
    return f"given:{digest.hexdigest()[:16]}"


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
