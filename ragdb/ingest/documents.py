"""Adding, reading and deleting documents: everything slow first, then one short transaction.

Without a session the document is embedded here and comes back `ready`. With the caller's session it is written in
that transaction and comes back `queued`: a worker embeds it after the commit.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragdb.chunkers import Chunking
from ragdb.context import Context
from ragdb.db.caller import Caller, Row, from_json, one, value
from ragdb.errors import BadDocument, EmbedderMismatch, StaleModel
from ragdb.ingest import worker
from ragdb.ingest.clean import clean_document, clean_text
from ragdb.ingest.prepare import columns, payload
from ragdb.types import Added, Document, StoredDocument

logger = logging.getLogger("ragdb.ingest")

# Characters from which a text goes to the database by itself and its chunks some at a time.
_LARGE = 2_000_000
_LARGEST = 250_000_000  # bytes: PostgreSQL's limit for a string in jsonb, 256 MB, less the rest


def add(
    context: Context,
    document: Document,
    *,
    session: Any = None,
    progress: worker.Progress | None = None,
    embed: bool = True,
    cutting: worker.CutProgress | None = None,
) -> Added:
    """Adds or changes one document; see RagDB.add. `embed` False leaves the embedding to a worker, as with a session."""
    document, warnings = clean_document(document)
    for warning in warnings:
        logger.warning("%s: %s", document.uri, warning)
    db = context.caller(session)
    embedder = context.embedder(db)
    _check_vectors(document, embedder.name, embedder.dimension)
    chunking = context.chunking(db)
    if document.title is None and context.info(db) is not None:
        # The title stands above every chunk: one that is kept must be known before the text is cut.
        kept = value(db.call("document_title", collection=context.collection, uri=document.uri))
        document = dataclasses.replace(document, title=kept)
    later = _cut_later(document, chunking)
    here = (session is None and embed) or document.vectors is not None
    row, told = _put(context, db, document, chunking, warnings, later=later, notify=not here)
    added = _added(row, told)
    if added.ingest_state != "ready" and here:
        added = dataclasses.replace(added, ingest_state=_finish(context, db, added, document, progress, cutting))
        if later:
            added = dataclasses.replace(added, chunks=_chunks_of(db, context.collection, document.uri))
    if session is None and added.changed:
        _refresh_stats(context, added.chunks)
    return added


def _cut_later(document: Document, chunking: Chunking) -> bool:
    """Whether the text is stored first and cut as part of its job.

    A large one travels in parts; and where a model is asked, no transaction may be open, and what fails is tried again.
    """
    return document.chunks is None and (len(document.content) > _LARGE or chunking.needs_model)


def _put(
    context: Context, db: Caller, document: Document, chunking: Chunking, warnings: Sequence[str], *, later: bool, notify: bool
) -> tuple[Row, Sequence[str]]:
    if not later:
        made = payload(document, chunking, warnings)
        context.ensure_collection(db)
        # Given vectors replace those that any twin of the text has, so they always pass through the queue.
        # What is embedded here at once wakes no worker, which would be faster and leave nothing to do.
        options = {"queue": document.vectors is not None, "notify": notify}
        return one(db.call("put_document", collection=context.collection, document=made, options=options)), made["warnings"]
    size = len(document.content.encode())
    if size > _LARGEST:
        raise BadDocument(
            f"{document.uri!r} has {size:,} bytes of text, at most {_LARGEST:,} are stored as one document; split it"
        )
    context.ensure_collection(db)
    made = {**columns(document, warnings), "chunking": chunking.recipe}
    return one(
        db.call("put_text", collection=context.collection, content=document.content, document=made, options={"notify": notify})
    ), warnings


def _finish(
    context: Context,
    db: Caller,
    added: Added,
    document: Document,
    progress: worker.Progress | None,
    cutting: worker.CutProgress | None,
) -> Any:
    while True:
        # before the claim: what cannot be loaded holds no job
        embedder, chunking = context.embedder(db), context.chunking(db)
        job = worker.claim(db, document_id=added.document_id)
        if job is None and worker.release_dead(db):
            job = worker.claim(db, document_id=added.document_id)
        if job is None:
            return _wait(db, added.document_id)
        try:
            return worker.work(
                db,
                job,
                embedder,
                chunking,
                vectors=document.vectors,
                progress=progress,
                document=document,
                cutting=cutting,
            )
        except StaleModel:
            # Given vectors are of the model that was active; the others are made again, with the new one.
            if document.vectors is not None or value(db.call("document_state", document_id=added.document_id)) != "queued":
                raise
            context.info(db)


def _wait(db: Caller, document_id: int, seconds: float = 10.0) -> str:
    """A worker was faster: what it makes of the document, or `processing` after a while."""
    until = time.monotonic() + seconds
    state = ""
    while time.monotonic() < until:
        state = str(value(db.call("document_state", document_id=document_id)))
        if state not in ("queued", "processing"):
            break
        time.sleep(0.2)
    return state


def _check_vectors(document: Document, model: str, dimension: int) -> None:
    for number, vector in enumerate(() if document.vectors is None else document.vectors):
        if len(vector) != dimension:
            raise EmbedderMismatch(
                f"vector {number} of {document.uri!r} has {len(vector)} dimensions, but {model!r} has {dimension}; "
                "give vectors of the collection's model"
            )


def _chunks_of(db: Caller, collection: str, uri: str) -> int:
    rows = db.call("list_documents", collection=collection, where={"status": "any", "uri": uri}, how_many=1)
    return int(rows[0]["chunks"]) if rows else 0


def _added(row: Row, warnings: Sequence[str]) -> Added:
    return Added(
        document_id=row["document_id"],
        uri=row["uri"],
        ingest_state=row["ingest_state"],
        chunks=row["chunks"],
        reused=row["reused"],
        changed=row["changed"],
        updated=row["updated"],
        warnings=tuple(warnings),
    )


def _refresh_stats(context: Context, chunks: int) -> None:
    """Looks at the document frequencies when the corpus may have moved by a fifth: a logarithmic number of times."""
    context.written += chunks
    if context.written > 0.2 * context.counted:
        refresh_stats(context)


def refresh_stats(context: Context, db: Caller | None = None) -> None:
    """Counts document frequencies again if the corpus has moved enough."""
    db = db or context.database
    db.call("refresh_lexical_stats", collection=context.collection, only_if_moved=True)
    context.counted = context.counts(db)["n_chunks"]
    context.written = 0


def drain(
    context: Context, *, session: Any = None, progress: worker.Progress | None = None
) -> Iterator[tuple[str, str, Exception | None]]:
    """Works on everything of the collection that is due now; yields (uri, ingest_state, error) for each document.

    With `session` all of it happens in that transaction.
    """
    db = context.caller(session)
    if (info := context.info(db)) is None:
        return
    context.check_analyzer(info)
    worker.release_dead(db)
    while (job := worker.claim(db, collection=context.collection)) is not None:
        try:
            state = worker.work(db, job, context.embedder(db), context.chunking(db), progress=progress)
        except StaleModel:
            context.info(db)  # it is queued again, and is embedded with the model that is active now
        except Exception as error:  # noqa: BLE001
            # Recorded with the job by `work`; one bad document must not stop the others.
            logger.warning("%s: %s", job["uri"], error)
            yield job["uri"], str(value(db.call("document_state", document_id=job["document_id"]))), error
        else:
            yield job["uri"], state, None
    refresh_stats(context, db)


def delete(context: Context, uri: str, *, session: Any = None) -> dict[str, int]:
    """Deletes one document; the receipt counts what went with it."""
    db = context.caller(session)
    if context.info(db) is None:
        return {"document": 0}
    receipt = from_json(value(db.call("delete_document", collection=context.collection, uri=clean_text(uri)[0])))
    return {name: int(count) for name, count in receipt.items()}


def get(context: Context, uri: str, *, session: Any = None) -> StoredDocument | None:
    """One document with its text; None where there is none."""
    db = context.caller(session)
    if context.info(db) is None:
        return None
    rows = db.call("get_document", collection=context.collection, uri=clean_text(uri)[0])
    return _stored(rows[0]) if rows else None


def listed(context: Context, where: Mapping[str, Any] | None = None) -> Iterator[StoredDocument]:
    """The documents of the collection by uri, without their text; all statuses unless `where` says otherwise."""
    filters = {"status": "any", **(where or {})}
    after = ""
    while rows := context.database.call(
        "list_documents", collection=context.collection, where=filters, how_many=500, after_uri=after
    ):
        yield from map(_stored, rows)
        after = rows[-1]["uri"]


def chunks(context: Context, uri: str) -> list[Row]:
    """The chunks of a document in order, as plain rows."""
    return context.database.call("document_chunks", collection=context.collection, uri=clean_text(uri)[0])


def _stored(row: Row) -> StoredDocument:
    decoded: Row = {name: from_json(row[name]) for name in ("metadata", "found", "source_state") if name in row}
    return StoredDocument(**{**row, **decoded, "warnings": tuple(row["warnings"])})
