"""rerank: a cross-encoder's scores of (question, chunk), in the user's own words. Equal scores keep the fused order."""

from __future__ import annotations

import dataclasses
import math

from ragdb.protocols import Reranker
from ragdb.types import Outcome, Query, Ranking


def rerank(question: Query, ranking: Ranking, reranker: Reranker, *, keep: int) -> Outcome[Ranking]:
    """The first `keep` of the ranking, sorted again. Blank chunks keep their place behind the scored ones.

    Scores that are too few, too many or not finite leave the order as it was; the note says so.
    """
    head, tail = ranking.hits[:keep], ranking.hits[keep:]
    scored = [hit for hit in head if hit.content.strip()]
    blank = [hit for hit in head if not hit.content.strip()]
    if not scored:
        return Outcome(Ranking.of(head, "reranked"), note="nothing to rerank")
    scores = [float(s) for s in reranker.score(question.text, [hit.content for hit in scored])]
    if len(scores) != len(scored) or not all(map(math.isfinite, scores)):
        note = f"kept the fused order: {len(scores)} scores for {len(scored)} passages, or not all finite"
        return Outcome(Ranking.of(head, "reranked"), note=note)
    # sorted() is stable, also in reverse.
    order = sorted(range(len(scored)), key=lambda i: scores[i], reverse=True)
    best = [dataclasses.replace(scored[i], rerank_score=scores[i]) for i in order] + blank
    dropped = {"not among the reranked": tuple(hit.chunk_id for hit in tail)} if tail else {}
    return Outcome(
        Ranking(
            tuple(h.chunk_id for h in best),
            tuple(h.score if h.rerank_score is None else h.rerank_score for h in best),
            "reranked",
            hits=tuple(best),
        ),
        dropped,
    )
