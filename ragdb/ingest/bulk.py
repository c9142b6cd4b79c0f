"""Many new documents at once, by COPY: for first loads, and for people who have their vectors already.

Each batch is one transaction: documents, texts, sections, chunks (lexemes and weights by the table's trigger), places
and, where vectors are given, embeddings. Documents with vectors are ready at once, the others wait for a worker. What
the collection has already, or a uri that comes again, goes the ordinary way, through `add`: the later one stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import psycopg
from pgvector import Vector
from psycopg.types.json import Jsonb

from ragdb.context import Context
from ragdb.db.caller import PsycopgCaller
from ragdb.errors import BadDocument
from ragdb.ingest import documents as ordinary
from ragdb.ingest.clean import clean_document
from ragdb.ingest.prepare import payload
from ragdb.types import Added, Document

_BATCH = 500

_COLUMNS = {
    "document": "document_id collection_id uri title status language owner version updated_at review_after metadata found source "
    "content_hash ready_revision pending_revision n_chunks ingest_state warnings",
    "document_revision": "document_id revision title content content_hash chunking media_type pages",
    "section": "section_id document_id revision ordinal parent_section_id heading level path start_at end_at",
    "chunk": "chunk_id document_id born_revision text_hash context content",
    "chunk_place": "document_id revision ordinal chunk_id previous_chunk_id next_chunk_id section_id label start_at end_at page",
    "embedding": "chunk_id model_id dims v",
    "job": "document_id collection_id revision",
}


def load(
    context: Context, documents: Iterable[Document], *, progress: Callable[[int], None] | None = None, batch: int = _BATCH
) -> Iterator[Added]:
    """Adds documents in batches; yields what became of each, in order.

    `progress(n)` is called with the number of chunks of each batch. Raises BadDocument before anything of its batch
    is written.
    """
    context.ensure_collection(context.database)
    info = context.info()
    assert info is not None
    waiting = iter(documents)
    while some := list(islice(waiting, batch)):
        chunking = context.chunking()
        if chunking.analyzer is not None:
            # The trigger takes an external analyzer's words only from put_document.
            yield from (ordinary.add(context, document) for document in some)
            continue
        cleaned = [clean_document(document) for document in some]
        made = [payload(document, chunking, warnings) for document, warnings in cleaned]
        with context.database.connection() as caller:
            conn = caller.connection
            known = _known(conn, info["collection_id"], [m["uri"] for m in made])
            fresh = {}
            for number, m in enumerate(made):
                if m["uri"] not in known:
                    known.add(m["uri"])
                    fresh[number] = m
            rows = _Rows(conn, info["collection_id"], info["model_id"], info["dims"], list(fresh.values()))
            for number, m in fresh.items():
                rows.add(cleaned[number][0], m)
            with conn.transaction():
                rows.copy()
                if rows.rows["job"]:
                    caller.call("wake_workers", collection=context.collection)
        results = dict(zip(fresh, rows.added, strict=True))
        chunks = 0
        for number, (document, _) in enumerate(cleaned):
            # What was there before, or earlier in the load: the ordinary way. No connection is held here.
            added = results.get(number) or ordinary.add(context, document, embed=False)
            chunks += added.chunks
            yield added
        if progress:
            progress(chunks)
    ordinary.refresh_stats(context)


def _known(conn: psycopg.Connection[Any], collection_id: int, uris: Sequence[str]) -> set[str]:
    rows = conn.execute("select uri from ragdb.document where collection_id = %s and uri = any(%s)", [collection_id, list(uris)])
    return {uri for (uri,) in rows}


class _Rows:
    """The rows of one batch, with all their ids taken from the sequences first, one query a table."""

    def __init__(
        self, conn: psycopg.Connection[Any], collection_id: int, model_id: int, dims: int, made: Sequence[dict[str, Any]]
    ) -> None:
        self.conn = conn
        self.collection_id = collection_id
        self.model_id = model_id
        self.dims = dims
        self.rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _COLUMNS}
        self.added: list[Added] = []
        self.ids = {
            "document": self._reserved("document", len(made)),
            "chunk": self._reserved("chunk", sum(len(m["chunks"]) for m in made)),
            "section": self._reserved("section", sum(len(m["sections"]) for m in made)),
        }

    def add(self, document: Document, made: dict[str, Any]) -> None:
        ready = document.vectors is not None or not made["chunks"]
        document_id = next(self.ids["document"])
        chunk_ids = list(islice(self.ids["chunk"], len(made["chunks"])))
        section_ids = list(islice(self.ids["section"], len(made["sections"])))
        content_hash = hashlib.sha256(f"{made['title'] or ''}\x1f{made['content']}".encode()).digest()
        self.rows["document"].append(
            (
                document_id,
                self.collection_id,
                made["uri"],
                made["title"],
                made["status"] or "active",
                made["language"],
                made["owner"],
                made["version"],
                made["updated_at"],
                made["review_after"],
                made["metadata"] or {},
                made["found"] or {},
                made["source"],
                f"\\x{content_hash.hex()}" if ready else None,
                1 if ready else 0,
                None if ready else 1,
                len(chunk_ids) if ready else 0,
                "ready" if ready else "queued",
                made["warnings"],
            )
        )
        self.rows["document_revision"].append(
            (document_id, 1, made["title"], made["content"], content_hash, made["chunking"], made["media_type"], made["pages"])
        )
        for section, own_id in zip(made["sections"], section_ids, strict=True):
            parent = None if section["parent"] is None else section_ids[section["parent"]]
            place = (
                section["ordinal"],
                parent,
                section["heading"],
                section["level"],
                section["path"],
                section["start"],
                section["end"],
            )
            self.rows["section"].append((own_id, document_id, 1, *place))
        for n, (chunk, chunk_id) in enumerate(zip(made["chunks"], chunk_ids, strict=True)):
            text_hash = hashlib.sha256(f"{chunk['context']}\x1f{chunk['content']}".encode()).digest()[:16]
            self.rows["chunk"].append((chunk_id, document_id, 1, text_hash, chunk["context"], chunk["content"]))
            before, after = chunk_ids[n - 1] if n else None, chunk_ids[n + 1] if n + 1 < len(chunk_ids) else None
            section_id = None if chunk["section"] is None else section_ids[chunk["section"]]
            self.rows["chunk_place"].append(
                (
                    document_id,
                    1,
                    n,
                    chunk_id,
                    before,
                    after,
                    section_id,
                    chunk["label"],
                    chunk["start"],
                    chunk["end"],
                    chunk["page"],
                )
            )
        if document.vectors is not None:
            self.rows["embedding"] += zip(
                chunk_ids, [self.model_id] * len(chunk_ids), [self.dims] * len(chunk_ids), self._vectors(document), strict=True
            )
        if not ready:
            self.rows["job"].append((document_id, self.collection_id, 1))
        state = "ready" if ready else "queued"
        self.added.append(Added(document_id, made["uri"], state, len(chunk_ids), warnings=tuple(made["warnings"])))  # type: ignore[arg-type]

    def _reserved(self, table: str, count: int) -> Iterator[int]:
        name = f"ragdb.{table}_{table}_id_seq"
        return (i for (i,) in self.conn.execute("select nextval(%s) from generate_series(1, %s)", [name, count]).fetchall())

    def _vectors(self, document: Document) -> list[str]:
        matrix = np.asarray(document.vectors, dtype=np.float64)
        if matrix.shape != (len(document.chunks or ()), self.dims):
            raise BadDocument(
                f"vectors of {document.uri!r} have shape {matrix.shape}; expected one of {self.dims} numbers a chunk"
            )
        length = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.all(np.isfinite(length)) or not np.all(length > 0):
            raise BadDocument(f"a vector of {document.uri!r} has NaN, infinite or only zero numbers; look at what made it")
        # as text: pgvector's type need not be looked up, in a schema that a writer may not know
        return [Vector(row).to_text() for row in (matrix / length).astype(np.float32)]

    def copy(self) -> None:
        """Writes all tables in the order of their foreign keys."""
        ready = [added.document_id for added in self.added if added.ingest_state == "ready"]
        caller = PsycopgCaller(self.conn)
        if ready:
            caller.call("hold_active_model", collection_id=self.collection_id, model_id=self.model_id)
        with self.conn.cursor() as cursor:
            for table, columns in _COLUMNS.items():
                names = ", ".join(columns.split())
                if table == "document":
                    # PostgreSQL refuses COPY into a table with row level security, for all but its owner.
                    rows = [dict(zip(columns.split(), row, strict=True)) for row in self.rows[table]]
                    cursor.execute(
                        f"insert into ragdb.document ({names}, ready_at) "  # noqa: S608 - our own names
                        f"select {names}, case when ingest_state = 'ready' then clock_timestamp() end "
                        "from jsonb_populate_recordset(null::ragdb.document, %s)",
                        [Jsonb(rows)],
                    )
                    continue
                with cursor.copy(f"copy ragdb.{table} ({names}) from stdin") as copy:
                    for row in self.rows[table]:
                        copy.write_row(row)
        if ready:
            caller.call("note_gaps", collection_id=self.collection_id, document_ids=ready)
