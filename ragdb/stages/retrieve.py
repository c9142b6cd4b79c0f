"""retrieve: one leg's ranked list of chunk ids for one query. The filter holds before the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragdb.db.caller import Caller, one
from ragdb.errors import ConfigError
from ragdb.types import LEGS, Outcome, Query, Ranking


def retrieve(
    db: Caller,
    query: Query,
    leg: str,
    *,
    collection: str,
    candidates: int,
    where: Mapping[str, Any],
    number: int = 0,
    model_id: int | None = None,
) -> Outcome[Ranking]:
    """At most `candidates` chunks of one leg, best first; the note says by which path and how many chunks matched.

    `number` tells the lists of several queries apart. Scores are BM25 (lexical) or cosine (semantic).
    `model_id` is the vector set of the query's vector; None: the active one.
    """
    if leg == "lexical":
        options = {} if query.lexemes is None else {"lexemes": list(query.lexemes)}
        rows = db.call(
            "lexical_leg", question=query.text, collection=collection, candidates=candidates, where=dict(where), options=options
        )
    elif leg == "semantic":
        vector = None if query.vector is None else [float(x) for x in query.vector]
        chosen = {} if model_id is None else {"model_id": model_id}
        rows = db.call(
            "semantic_leg", query_vector=vector, collection=collection, candidates=candidates, where=dict(where), options=chosen
        )
    else:
        raise ConfigError(f"there is no leg {leg!r}; there are {', '.join(LEGS)}")
    row = one(rows)
    note = ", ".join(part for part in (row["path"], row["note"], _matched(row["matching"])) if part)
    return Outcome(Ranking(tuple(row["chunk_ids"]), tuple(row["scores"]), leg, path=row["path"], query=number), note=note)


def _matched(matching: int | None) -> str:
    return "" if matching is None else f"{matching} chunks match the filter"
