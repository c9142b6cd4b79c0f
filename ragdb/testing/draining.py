"""What a worker would do, done now: for tests of programs that add documents in their own transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragdb.ingest import documents

if TYPE_CHECKING:
    from ragdb.rag import RagDB


def drain(rag: RagDB, session: Any = None) -> list[str]:
    """Embeds everything that waits and returns the uris; raises the first error.

    With `session` it works inside that transaction and sees its uncommitted documents, so that a test can search
    for what it added and roll everything back.
    """
    uris = []
    for uri, _state, error in documents.drain(rag.context, session=session):
        if error is not None:
            raise error
        uris.append(uri)
    return uris
