"""fuse: Reciprocal Rank Fusion of all lists, in SQL. Looks at ranks, never at scores.

One list keeps its order. Chunks that are gone or hidden by now fall out; of several with the same text one stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ragdb.db.caller import Caller, Row, from_json
from ragdb.types import Hit, Outcome, Query, Ranking


def fuse(
    db: Caller,
    rankings: Sequence[Ranking],
    question: Query,
    *,
    collection: str,
    rrf_k: int,
    weights: Mapping[str, float],
    keep: int,
    further: float = 1.0,
    model_id: int | None = None,
    stored: bool = False,
) -> Outcome[Ranking]:
    """One ranking with the text of its first `keep` chunks; `score` is the RRF score.

    `weights` are by leg. The list of a further query of a leg is named `leg/1`, `leg/2`, ...; all further lists of a leg
    together weigh `further` times what the question's own list does. `model_id` is the vector set of the question's vector.
    `stored`: the settings are the collection's own, for the note.
    """
    lists = {_name(r): list(r.chunk_ids) for r in rankings}
    many = Counter(r.leg for r in rankings if r.query)
    by_list = {_name(r): weights.get(r.leg, 1.0) * (further / many[r.leg] if r.query else 1.0) for r in rankings}
    options: dict[str, Any] = {"rrf_k": rrf_k, "weights": by_list, "content_for": keep}
    if question.vector is not None:
        options["vector"] = [float(x) for x in question.vector]
    if model_id is not None:
        options["model_id"] = model_id
    if question.lexemes is not None:
        options["lexemes"] = list(question.lexemes)
    rows = db.call("fuse", lists=lists, question=question.text, collection=collection, options=options)
    hits = [_hit(row, collection) for row in rows]
    kept = {i for hit in hits for i in (hit.chunk_id, *hit.aliases)}
    aliases = tuple(i for hit in hits for i in hit.aliases)
    # In the order of the lists, so that a trace reads the same twice.
    rest = tuple(dict.fromkeys(i for r in rankings for i in r.chunk_ids if i not in kept))
    dropped = {"same text": aliases, f"below rank {keep} or no longer visible": rest}
    note = _note(rankings, rrf_k, weights) + (f", further lists of a leg together {further:g}" if many else "")
    note += ", settings of the collection" if stored else ""
    return Outcome(Ranking.of(hits, "fused"), {why: ids for why, ids in dropped.items() if ids}, note)


def _name(ranking: Ranking) -> str:
    return ranking.leg if ranking.query == 0 else f"{ranking.leg}/{ranking.query}"


def _note(rankings: Sequence[Ranking], rrf_k: int, weights: Mapping[str, float]) -> str:
    if len(rankings) == 1:
        return "one list: its order stays"
    return f"RRF of {len(rankings)} lists, k={rrf_k}" + (f", weights {dict(weights)}" if weights else "")


def _hit(row: Row, collection: str) -> Hit:
    return Hit(
        chunk_id=row["chunk_id"],
        label=row["label"],
        document_id=row["document_id"],
        collection=collection,
        uri=row["uri"],
        title=row["title"],
        heading_path=tuple(row["heading_path"]),
        status=row["status"],
        context=row["context"],
        content=row["content"],
        start=row["start_at"],
        end=row["end_at"],
        page=row["page"],
        metadata=from_json(row["metadata"]),
        updated_at=row["updated_at"],
        score=row["score"],
        ranks=from_json(row["ranks"]),
        similarity=row["similarity"],
        matched=from_json(row["matched"]),
        evidence=row["evidence"],
        rare=tuple(row["rare"]),
        aliases=tuple(row["aliases"]),
    )
