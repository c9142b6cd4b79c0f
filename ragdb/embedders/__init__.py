"""Texts to vectors. One file an adapter; what comes back from any of them is checked here, before it is stored.

A vector that is missing, too short, NaN or zero does not fail in PostgreSQL at the right place, or not at all:
it makes a chunk that no search finds. So every call goes through `embed_checked` or `embed_query_checked`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ragdb.errors import EmbedderError, RagDBError
from ragdb.protocols import Embedder


def embed_checked(
    embedder: Embedder,
    texts: Sequence[str],
    *,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
) -> list[list[float]]:
    """One vector a text, in order, each of `embedder.dimension` finite floats and not zero.

    `progress(n)` is called after each batch with the number of texts done so far. Raises EmbedderError: permanent for
    blank text and for vectors that cannot be stored, transient where the same call may pass later (a wrong count too:
    servers drop items under load).
    """
    for index, text in enumerate(texts):
        _refuse_blank(embedder, index, text)
    vectors: list[list[float]] = []
    for first in range(0, len(texts), max(1, batch_size)):
        batch = list(texts[first : first + max(1, batch_size)])
        found = list(_called(embedder, embedder.embed_passages, batch))
        if len(found) != len(batch):
            raise EmbedderError(
                f"{embedder.name} returned {len(found)} vectors for {len(batch)} texts ({first} to {first + len(batch) - 1}); "
                "nothing of this batch was kept; run it again, and look at the embedding server's log if it repeats",
                transient=True,
            )
        vectors += (checked_vector(embedder, vector, f"text {first + i}") for i, vector in enumerate(found))
        if progress:
            progress(len(vectors))
    return vectors


def embed_query_checked(embedder: Embedder, text: str) -> list[float]:
    """The vector of a question, checked as the passages are."""
    _refuse_blank(embedder, 0, text)
    return checked_vector(embedder, _called(embedder, embedder.embed_query, text), "the question")


def checked_vector(embedder: Embedder, vector: Sequence[float], what: str) -> list[float]:
    """The vector as Python floats. Raises EmbedderError where it cannot be stored or compared."""
    values = [float(x) for x in vector]
    if len(values) != embedder.dimension:
        raise EmbedderError(
            f"{embedder.name} returned {len(values)} dimensions for {what}, {embedder.dimension} were expected; "
            "the model behind this name is another one now: name the one that made the stored vectors, or use another collection"
        )
    broken = next((i for i, x in enumerate(values) if not math.isfinite(x)), None)
    if broken is not None:
        raise EmbedderError(
            f"{embedder.name} returned {values[broken]} at position {broken} of the vector of {what}; "
            "such a vector cannot be compared: check the model's precision (float16 overflows) or its server"
        )
    if not any(values):
        raise EmbedderError(
            f"{embedder.name} returned a zero vector for {what}; it has no direction to compare: check the model or its server"
        )
    return values


def _refuse_blank(embedder: Embedder, index: int, text: str) -> None:
    if not text.strip():
        raise EmbedderError(f"text {index} for {embedder.name} is blank ({text!r}); leave blank texts out before embedding")


def _called(embedder: Embedder, embed: Callable[[Any], Any], given: Any) -> Any:
    """Any failure as EmbedderError; an unknown one counts as transient, for the queue's attempts bound the retries."""
    try:
        return embed(given)
    except RagDBError:
        raise
    except Exception as error:
        raise EmbedderError(f"{embedder.name} failed: {type(error).__name__}: {error}", transient=True) from error
