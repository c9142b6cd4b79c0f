"""Collections: what there is, and making one before its first document."""

from __future__ import annotations

import psycopg

from ragdb.context import Context
from ragdb.db.caller import Caller, Row
from ragdb.errors import ConfigError, UnknownCollection


def listed(db: Caller) -> list[Row]:
    """Every collection by name: collection, model, dims, text_search_config, documents, chunks, waiting."""
    return db.call("list_collections")


def require(context: Context) -> Row:
    """The collection's row. Raises UnknownCollection, with the names there are."""
    info = context.info()
    if info is None:
        names = ", ".join(row["collection"] for row in listed(context.database)) or "none yet"
        raise UnknownCollection(
            f"there is no collection {context.collection!r}; there are: {names}. "
            f"Adding a document makes it: ragdb add PATH --collection {context.collection}"
        )
    return info


def create(context: Context, *, text_search_config: str | None = None) -> Row:
    """Makes the context's collection with its embedder, and returns its row. Raises ConfigError where it is there already."""
    if (info := context.info()) is not None:
        raise ConfigError(
            f"collection {context.collection!r} exists already, with {context.counts()['n_documents']} documents "
            f"and the model {info['model']!r}; choose another name"
        )
    settings = context.collection_settings() | ({"text_search_config": text_search_config} if text_search_config else {})
    context.embedder()  # a model that cannot be loaded leaves no collection behind
    try:
        context.database.call("create_collection", collection=context.collection, settings=settings)
    except psycopg.errors.UndefinedObject as error:
        raise ConfigError(
            f"the server has no text search configuration {text_search_config!r}; psql lists those it has with \\dF "
            "(Chinese, Japanese and Korean need none: ragdb cuts them itself)"
        ) from error
    context.ensure_collection(context.database)
    return require(context)
