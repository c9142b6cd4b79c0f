"""freshen: between passages that fit about as well, the fresher document first. Off unless a pipeline asks for it.

Works on places, never on scores, so that it means the same behind fuse and behind a reranker.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ragdb.types import Hit, Outcome, Ranking


def freshen(ranking: Ranking, *, weight: float, half_life: float, keep: int, rrf_k: int = 60) -> Outcome[Ranking]:
    """The first `keep` hits sorted again by (1 - weight + weight * 0.5 ** (age / half_life)) / (rrf_k + place).

    `half_life` and age are in days, the age by the document's updated_at. A document without one counts as one half-life
    old. A date in the future counts as today. Scores of the ranking are these; those of the hits stay.
    """
    now = datetime.now(UTC)
    head, tail = ranking.hits[:keep], ranking.hits[keep:]
    worth = [_worth(hit, now, weight, half_life) / (rrf_k + place) for place, hit in enumerate(head, start=1)]
    order = sorted(range(len(head)), key=lambda i: (-worth[i], i))
    up = sum(place < i for place, i in enumerate(order))
    undated = sum(hit.updated_at is None for hit in head)
    note = f"prefers fresh documents: weight {weight:g}, half-life {half_life:g} days; {up} moved up"
    last = worth[order[-1]] if order else 0.0
    return Outcome(
        Ranking(
            tuple(head[i].chunk_id for i in order) + tuple(hit.chunk_id for hit in tail),
            tuple(worth[i] for i in order) + tuple(min(last, 1 / (rrf_k + keep + n)) for n in range(1, len(tail) + 1)),
            "freshened",
            hits=tuple(head[i] for i in order) + tail,
        ),
        note=note + (f", {undated} without a date" if undated else ""),
    )


def _worth(hit: Hit, now: datetime, weight: float, half_life: float) -> float:
    age = half_life if hit.updated_at is None else max(0.0, (now - hit.updated_at).total_seconds() / 86_400)
    return float(1 - weight + weight * 0.5 ** (age / half_life))
