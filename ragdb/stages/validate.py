"""validate: which hits stand as evidence. Without any, the answer is "not in the documents".

A hit is evidence when it holds a rare word of the question (`rare`: in at most a fifth of the chunks, or in at most
ten) and its words are half of what the question asks about (`evidence`: the share of the content words, by idf), or
when its cosine passes the model's calibrated floor. Two-character lexemes with hiragana are no content words.
"""

from __future__ import annotations

from ragdb.types import Hit, Outcome, Ranking

# docs/pipeline.md, "Evidence": calibrated on questions with and without an answer.
MIN_SHARE = 0.5


def is_evidence(hit: Hit, floor: float | None) -> bool:
    """Whether one hit is evidence for its question; `floor` is the embedding model's cosine floor, None: no floor."""
    if floor is not None and hit.similarity is not None and hit.similarity >= floor:
        return True
    return bool(hit.rare) and hit.evidence >= MIN_SHARE


def evident(ranking: Ranking, floor: float | None) -> Outcome[tuple[int, ...]]:
    """Chunk ids of the hits that are evidence, in their order."""
    ids = tuple(hit.chunk_id for hit in ranking.hits if is_evidence(hit, floor))
    known = set(ids)
    weak = tuple(hit.chunk_id for hit in ranking.hits if hit.chunk_id not in known)
    note = f"{len(ids)} of {len(ranking.hits)} hits are evidence"
    if not ids and ranking.hits:
        note += f"; {_nearest(ranking, floor)}"
    return Outcome(ids, {"no evidence": weak} if weak else {}, note)


def _nearest(ranking: Ranking, floor: float | None) -> str:
    """How near the hits came to being evidence, for who wonders why there was no answer."""
    best = max(ranking.hits, key=lambda hit: (bool(hit.rare), hit.evidence))
    # its id, not its label: the note is kept, and a deleted document's headings are not
    words = f"best by words: chunk {best.chunk_id} holds {best.evidence:.2f} of the question, {MIN_SHARE} is needed"
    words += f" (rare: {', '.join(best.rare)})" if best.rare else ", and no rare word of it"
    cosines = [hit.similarity for hit in ranking.hits if hit.similarity is not None]
    if floor is None or not cosines:
        return words
    return f"{words}; best cosine {max(cosines):.3f}, {floor} is needed"
