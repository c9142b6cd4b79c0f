"""pack: the passages that fit the token budget, best first, placed 1, 3, 5, ... 6, 4, 2.

Models read the ends of a long context best (Liu et al. 2023, "Lost in the Middle"). `[n]` follows the rank. A passage
that does not fit is shown without its neighbours; one whose hit does not fit either is dropped and the trace says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ragdb.errors import ContextTooSmall
from ragdb.prompts import rendered
from ragdb.protocols import CountTokens
from ragdb.types import Outcome, Passage


def pack(passages: Sequence[Passage], *, budget: int, count_tokens: CountTokens) -> Outcome[tuple[Passage, ...]]:
    """The chosen passages in reading order, renumbered from 1 by rank. `budget` is in tokens of `count_tokens`.

    Raises ContextTooSmall where not one hit fits.
    """
    chosen: list[Passage] = []
    dropped: list[int] = []
    shrunk = 0
    left = budget
    for passage in passages:
        fitting = _fitting(dataclasses.replace(passage, number=len(chosen) + 1), left, count_tokens)
        if fitting is None:
            dropped += [hit.chunk_id for hit in passage.hits]
            continue
        shrunk += fitting.content != passage.content
        lost = {hit.chunk_id for hit in passage.hits} - {hit.chunk_id for hit in fitting.hits}
        dropped += sorted(lost)
        chosen.append(fitting)
        left -= fitting.tokens
    if passages and not chosen:
        smallest = min(count_tokens(passage.hits[0].content) for passage in passages)
        raise ContextTooSmall(
            f"{budget} tokens are left for passages, but the smallest has {smallest}; "
            "raise RAGDB_LLM_CONTEXT_WINDOW, lower RAGDB_LLM_MAX_TOKENS, or ask a shorter question"
        )
    note = f"{budget - left} of {budget} tokens" + (f", {shrunk} passages without neighbours" if shrunk else "")
    return Outcome(reading_order(chosen), {"token budget": tuple(dropped)} if dropped else {}, note)


def reading_order(ranked: Sequence[Passage]) -> tuple[Passage, ...]:
    """Rank 1 first, rank 2 last, the others towards the middle."""
    return (*ranked[0::2], *reversed(ranked[1::2]))


def _fitting(passage: Passage, left: int, count_tokens: CountTokens) -> Passage | None:
    """The passage, or only its best hit, whichever fits into what is left."""
    best = passage.hits[0]
    alone = dataclasses.replace(passage, content=best.content, start=best.start, end=best.end, hits=(best,))
    for form in (passage, alone):
        tokens = count_tokens(rendered(form) + "\n\n")
        if tokens <= left:
            return dataclasses.replace(form, tokens=tokens)
    return None
