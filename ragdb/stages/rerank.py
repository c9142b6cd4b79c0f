"""rerank: a cross-encoder's scores of (question, chunk), in the user's own words. Equal scores keep the fused order.

Whatever goes wrong, the fused order stands and the note says why: a model that fails, too few scores, one that is not
finite, no time left. A passage longer than the model reads is scored in parts, and its best part counts.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ragdb.adapters import sendable
from ragdb.deadline import within
from ragdb.openai_api import estimate_tokens
from ragdb.prompts import language_of
from ragdb.protocols import Reranker
from ragdb.types import Hit, Outcome, Query, Ranking
from ragdb.windows import first_window, windows

logger = logging.getLogger("ragdb.run")

_MAX_TOKENS = 512  # of question and passage together, where the reranker does not say
_GRACE = 0.5  # seconds
_MARKS = 8  # tokens around and between the two, at most


class _Unusable(Exception):
    """Why the scores cannot be used."""


def rerank(
    question: Query,
    ranking: Ranking,
    reranker: Reranker,
    *,
    keep: int,
    min_score: float | None = None,
    weight: float = 1.0,
    rrf_k: int = 60,
    timeout: float = 10.0,
) -> Outcome[Ranking]:
    """The first `keep` of the ranking, sorted again, and the rest behind them as it was: deeper pages show no chunk twice.

    Blank chunks stand behind the scored ones. `min_score`: what scores less falls, and what was not scored too. `weight`
    below 1 blends: places by the reranker and by fuse, each as weight / (rrf_k + place), as in Reciprocal Rank Fusion.
    `timeout`: seconds for all calls together.
    """
    head, tail = ranking.hits[:keep], ranking.hits[keep:]
    dropped: dict[str, tuple[int, ...]] = {}
    scored = [hit for hit in head if hit.content.strip()]
    blank = [hit for hit in head if not hit.content.strip()]
    if not scored:
        return Outcome(Ranking.of(ranking.hits, "reranked"), dropped, note="nothing to rerank")
    try:
        scores, note = _scores(question.text, [hit.content for hit in scored], reranker, timeout)
    except Exception as error:  # noqa: BLE001  whatever a reranker does: the order before it is an answer too
        if not isinstance(error, _Unusable):
            logger.warning("%s failed: %s: %s", _name(reranker), type(error).__name__, sendable(str(error)))
        why = str(error) or type(error).__name__
        return Outcome(Ranking.of(ranking.hits, "reranked"), dropped, note=f"kept the fused order: {why}", fell_back=True)
    best = _sorted(
        [dataclasses.replace(hit, rerank_score=score) for hit, score in zip(scored, scores, strict=True)], weight, rrf_k
    )
    if min_score is not None:
        low = tuple(hit.chunk_id for hit in best if (hit.rerank_score or 0.0) < min_score)
        best = [hit for hit in best if hit.chunk_id not in low]
        dropped |= {f"scored below {min_score:g}": low} if low else {}
        dropped |= {"not among the reranked": tuple(hit.chunk_id for hit in tail)} if tail else {}
        tail = ()
    best += [*blank, *tail]
    return Outcome(
        Ranking(
            tuple(h.chunk_id for h in best),
            tuple(h.score if h.rerank_score is None else h.rerank_score for h in best),
            "reranked",
            hits=tuple(best),
        ),
        dropped,
        ", ".join(part for part in (_name(reranker), note) if part),
    )


def _sorted(hits: list[Hit], weight: float, rrf_k: int) -> list[Hit]:
    # sorted() is stable, also in reverse.
    order = sorted(range(len(hits)), key=lambda i: hits[i].rerank_score or 0.0, reverse=True)
    if weight < 1:
        fused = {i: (1 - weight) / (rrf_k + place) for place, i in enumerate(range(len(hits)), start=1)}
        blended = {i: weight / (rrf_k + place) + fused[i] for place, i in enumerate(order, start=1)}
        order = sorted(range(len(hits)), key=lambda i: blended[i], reverse=True)
    return [hits[i] for i in order]


def _scores(question: str, texts: Sequence[str], reranker: Reranker, timeout: float) -> tuple[list[float], str]:
    """One score a text, and a line about what had to be cut. Equal texts are scored once."""
    until = time.monotonic() + timeout
    limit = int(getattr(reranker, "max_tokens", None) or _MAX_TOKENS)
    count: Callable[[str], int] = getattr(reranker, "count_tokens", None) or estimate_tokens
    # A long question may not push the passage out of the window.
    asked = first_window(question, max(1, limit // 2), count)
    room = max(1, limit - count(asked) - _MARKS)
    distinct = list(dict.fromkeys(texts))
    parts = []
    for text in distinct:
        if time.monotonic() > until:
            raise _Unusable(f"the passages were not even read when the time was over ({sum(map(len, texts))} characters)")
        parts.append(windows(text, room, count))
    flat = [part for of_one in parts for part in of_one]
    found = _called(reranker, asked, flat, until)
    scores = {}
    at = 0
    for text, of_one in zip(distinct, parts, strict=True):
        scores[text] = max(found[at : at + len(of_one)])
        at += len(of_one)
    notes = []
    knows_japanese = getattr(reranker, "knows_japanese", None)
    if callable(knows_japanese) and language_of(question + texts[0]) == "ja" and not knows_japanese():
        logger.warning("%s has no Japanese words; take a multilingual reranker: ragdb fetch-model", _name(reranker))
        notes.append("this model has no Japanese words")
    if asked != question:
        notes.append(f"of the question its first {len(asked)} characters")
    if long := sum(len(of_one) > 1 for of_one in parts):
        notes.append(f"{long} long passage{'s' if long > 1 else ''} in parts, {len(flat)} in all")
    return [scores[text] for text in texts], ", ".join(notes)


def _called(reranker: Reranker, question: str, texts: Sequence[str], until: float) -> list[float]:
    size = int(getattr(reranker, "batch_size", None) or len(texts))
    timed = "deadline" in inspect.signature(reranker.score).parameters
    found: list[float] = []
    for start in range(0, len(texts), size):
        left = until - time.monotonic()
        if left <= 0:
            raise _Unusable(f"{start} of {len(texts)} were scored when the time was over; see rerank_timeout")
        batch = list(texts[start : start + size])
        extra = {"deadline": left} if timed else {}
        try:
            # one that keeps deadlines says itself, and better, that it was late
            scores = within(left + _GRACE * timed, partial(reranker.score, question, batch, **extra))
        except TimeoutError as error:
            raise _Unusable(f"{start} of {len(texts)} were scored when the time was over; see rerank_timeout") from error
        if isinstance(scores, Mapping):
            raise _Unusable(f"a {type(scores).__name__} came instead of a list of scores")
        numbers = [float(score) for score in scores]
        if len(numbers) != len(batch):
            raise _Unusable(f"{len(numbers)} scores for {len(batch)} passages")
        if not all(map(math.isfinite, numbers)):
            raise _Unusable("not all scores are finite")
        found += numbers
    if time.monotonic() > until:
        raise _Unusable("the scores came after the time was over; see rerank_timeout")
    return found


def _name(reranker: Reranker) -> str:
    return str(getattr(reranker, "name", type(reranker).__name__))
