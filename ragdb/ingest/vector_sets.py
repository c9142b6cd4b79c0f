"""Changing the embedding model while searches go on: add a set, fill it, compare, activate, drop the old one.

A vector set is all embeddings of a collection by one model. The active one is what searches read; of every other that was
added workers make what is missing (`fill_some`). See docs/embedders.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragdb import adapters
from ragdb.context import Context
from ragdb.db import probe
from ragdb.db.caller import Row, one, value
from ragdb.embedders import embed_checked
from ragdb.errors import ConfigError, EmbedderError, RagDBError
from ragdb.ingest.comparison import Comparison, compare
from ragdb.protocols import Embedder

__all__ = ["Comparison", "Dropped", "activate", "add", "compare", "drop", "fill", "fill_some", "listed"]

logger = logging.getLogger("ragdb.ingest")

_CHUNKS = 256  # a claim: some calls of a model, and little lost with a process
_AGAIN = 5  # tries to store beside a writer that holds the document
_REFUSED = 3  # documents refused one after the other, before any went well
_UNLOADABLE = 60.0  # seconds until a model that could not be loaded is tried again


class HasContext(Protocol):
    """A RagDB."""

    @property
    def context(self) -> Context: ...


@dataclass(frozen=True, slots=True)
class Dropped:
    """What `drop` removed. `index`: it had an HNSW index; `forgotten`: no other collection uses the model."""

    model: str
    vectors: int
    index: bool
    forgotten: bool


def add(rag: HasContext, name: str, *, download: bool = True) -> Row:
    """Adds a vector set by the embedder `name` to the collection; returns its row as `listed` does.

    Nothing changes for searches; workers fill it from now on. Errors: UnknownName, MissingExtra, EmbedderMismatch where the
    name is recorded with other dimensions, or its model is not the one that it was.
    """
    context = rag.context
    _require(context)
    embedder = adapters.load_embedder(name, defaults={"download": download, **context.options.get("embedder", {})})
    db = context.database
    model_id = value(db.call("register_model", **context.model_row(embedder)))
    probe.verify(db, embedder, store=True)
    db.call("add_vector_set", collection=context.collection, model_id=model_id)
    return next(row for row in listed(rag) if row["model_id"] == model_id)


def listed(rag: HasContext, *, everywhere: bool = False) -> list[Row]:
    """The vector sets of the collection (or of all): collection, model_id, model, dims, active, missing, failing, last_error."""
    context = rag.context
    return context.database.call("vector_sets", **({} if everywhere else {"only_collection": context.collection}))


def activate(rag: HasContext, name: str, *, force: bool = False) -> Row:
    """Makes the set `name` the one that searches read, from the next question on; was, active, missing.

    Undone by activating the old one again. Raises ConfigError where the collection has no such set, and, unless `force`,
    where ready documents lack vectors of it.
    """
    context = rag.context
    row = one(context.database.call("activate_vector_set", collection=context.collection, model=name, force=force))
    context.info()
    return row


def fill_some(context: Context, *, collection: str | None = None, chunks: int = _CHUNKS) -> int:
    """Makes some of the vectors that sets lack, of all collections or of one; returns how many, 0 where nothing is due.

    For workers with nothing else to do; any number of processes share the work. What fails is tried again later, with its
    reason in ragdb.vector_gap, and is no error here.
    """
    for row in context.database.call("sets_to_fill", **({} if collection is None else {"only_collection": collection})):
        try:
            embedder = _embedder(context, row)
            done = _fill_part(context, row, embedder, chunks)
        except RagDBError as error:
            logger.warning("the vector set of %s in %s is not filled: %s", row["model"], row["collection"], error)
            continue
        if done:
            return done
    return 0


def fill(rag: HasContext, name: str, *, progress: Callable[[int], None] | None = None, chunks: int = _CHUNKS) -> int:
    """Fills the set `name` to its end, beside other processes that do; returns how many vectors were made here.

    `progress(n)` is called as n more are there. Raises EmbedderError where documents are left that the model fails at.
    """
    context = rag.context
    row = _set(rag, name)
    embedder = context.embedder_named(row["model"], dims=row["dims"])
    total = 0
    while True:
        done = _fill_part(context, row, embedder, chunks)
        total += done
        if done and progress:
            progress(done)
        if done:
            continue
        row = _set(rag, name)
        if not row["missing"]:
            return total
        if row["failing"]:
            raise EmbedderError(
                f"{row['missing']} chunks have no vector of {name}; {row['failing']} documents failed, for example: "
                f"{row['last_error']}; run it again when that is mended",
                transient=True,
            )
        time.sleep(0.5)  # other processes hold the rest


def drop(rag: HasContext, name: str, *, progress: Callable[[int], None] | None = None, batch: int = 5000) -> Dropped:
    """Removes a set that is not active: its vectors in batches, then its index and model where nobody else uses them.

    `progress(n)` is called as n more vectors are gone. An interrupted one is finished by the same call. Raises ConfigError
    for the active set; DatabaseError where the index belongs to another role.
    """
    from ragdb.db import hnsw

    context = rag.context
    db = context.database
    row = one(db.call("drop_vector_set", collection=context.collection, model=name))
    model_id, index = row["model_id"], False
    if not row["elsewhere"]:
        index = hnsw.drop(db, model_id)  # first: each vector would else be taken out of it
    vectors, after = 0, 0
    while after is not None:
        some = one(db.call("drop_vectors", collection=context.collection, model_id=model_id, after_chunk=after, how_many=batch))
        vectors, after = vectors + some["deleted"], some["last"]
        if progress and some["deleted"]:
            progress(some["deleted"])
    forgotten = not row["elsewhere"] and bool(value(db.call("drop_model", model_id=model_id)))
    return Dropped(name, vectors, index, forgotten)


def _require(context: Context) -> Row:
    info = context.info()
    if info is None or not info["model"]:
        raise ConfigError(
            f"collection {context.collection!r} has no embedding model yet: its first document records one, or make it with: "
            "ragdb collection create"
        )
    return info


def _set(rag: HasContext, name: str) -> Row:
    rows = listed(rag)
    for row in rows:
        if row["model"] == name:
            return row
    there = ", ".join(row["model"] for row in rows) or "none"
    raise ConfigError(
        f"collection {rag.context.collection!r} has no vector set of {name!r}; it has: {there}. Add it: ragdb embedder add {name}"
    )


def _embedder(context: Context, row: Row) -> Embedder:
    failed_at, error = context.unloadable.get(row["model"], (0.0, None))
    if error is not None and time.monotonic() - failed_at < _UNLOADABLE:
        raise error
    try:
        return context.embedder_named(row["model"], dims=row["dims"])
    except RagDBError as error:
        context.unloadable[row["model"]] = (time.monotonic(), error)
        raise


def _fill_part(context: Context, row: Row, embedder: Embedder, chunks: int) -> int:
    """One claim: embedded outside any transaction, then stored. Returns how many vectors are new, copies too."""
    db = context.database
    probe.verify(db, embedder, store=True)
    while claimed := db.call("claim_gaps", collection=row["collection"], model_id=row["model_id"], chunks=chunks):
        token = claimed[0]["lease_token"]
        held = {"model_id": row["model_id"], "lease_token": token}
        try:
            made = int(claimed[0]["copied"]) + _embed(context, held, embedder, claimed)
        except BaseException as error:
            # Ctrl-C, or a server that is down: others may take it at once, or after a pause.
            documents = sorted({c["document_id"] for c in claimed})
            reason = f"{type(error).__name__}: {error}"[:2000] if isinstance(error, Exception) else None
            delay = "30 seconds" if reason else "0"
            db.call("release_gaps", **held, document_ids=documents, delay=delay, **({"reason": reason} if reason else {}))
            raise
        if made:
            return made
    return 0


def _embed(context: Context, held: dict[str, Any], embedder: Embedder, claimed: Sequence[Row]) -> int:
    """Embeds and stores. Where the model refuses, document by document: one that it cannot read keeps the others from nothing."""
    size = getattr(embedder, "batch_size", 32)
    todo = [row for row in claimed if row["chunk_id"] is not None]
    try:
        vectors = _vectors(embedder, [row["body"] for row in todo], size)
    except EmbedderError as error:
        documents = sorted({row["document_id"] for row in claimed})
        if error.transient or len(documents) == 1:
            raise
    else:
        return _store(context, held, claimed, todo, vectors)
    stored, refused = 0, 0
    for document in documents:
        own = [row for row in claimed if row["document_id"] == document]
        try:
            stored += _embed(context, held, embedder, own)
        except EmbedderError as error:
            refused += 1
            if refused == _REFUSED and not stored:
                raise  # it is no matter of documents: a key, an address, another model
            logger.warning("document %s has no vectors of %s yet: %s", document, embedder.name, error)
            reason = f"{type(error).__name__}: {error}"[:2000]
            context.database.call("release_gaps", **held, document_ids=[document], delay="10 minutes", reason=reason)
    return stored


def _vectors(embedder: Embedder, texts: Sequence[str], size: int) -> dict[str, list[float]]:
    """Each text once, however many chunks have it."""
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, embed_checked(embedder, distinct, batch_size=size), strict=True))


def _store(
    context: Context, held: dict[str, Any], claimed: Sequence[Row], todo: Sequence[Row], vectors: dict[str, list[float]]
) -> int:
    documents = sorted({row["document_id"] for row in claimed})
    stored = 0
    for attempt in range(_AGAIN):
        some = [row for row in todo if row["document_id"] in set(documents)]
        done = one(
            context.database.call(
                "store_gaps",
                **held,
                document_ids=documents,
                chunk_ids=[row["chunk_id"] for row in some],
                numbers=[x for row in some for x in vectors[row["body"]]],
            )
        )
        stored += int(done["stored"])
        documents = list(done["busy"])
        if not documents:
            return stored
        time.sleep(0.1 * (attempt + 1))
    # Some transaction holds them for long: another time.
    context.database.call("release_gaps", **held, document_ids=documents, delay="5 seconds")
    return stored
