"""pack: the passages that fit the token budget, best first, placed 1, 3, 5, ... 6, 4, 2.

Models read the ends of a long context best (Liu et al. 2023, "Lost in the Middle"). `[n]` follows the rank. A passage
that says what a better one says goes. One that does not fit is shown without its neighbours, or, where the pipeline
compresses, as its sentences that matter; one whose hit does not fit either is dropped. The trace says so each time.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Sequence

from ragdb.errors import ContextTooSmall
from ragdb.prompts import rendered
from ragdb.protocols import CountTokens
from ragdb.types import Outcome, Passage

_SAME = 0.9
_RUN = 5
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def pack(
    passages: Sequence[Passage],
    *,
    budget: int,
    count_tokens: CountTokens,
    compress: Callable[[Passage, int], str | None] | None = None,
) -> Outcome[tuple[Passage, ...]]:
    """The chosen passages in reading order, renumbered from 1 by rank. `budget` is in tokens of `count_tokens`.

    `compress(passage, tokens)` gives the passage's text in so many tokens, or None. Its span stays the whole one: a
    citation points into the document. Raises ContextTooSmall where not one hit fits.
    """
    chosen: list[Passage] = []
    dropped: list[int] = []
    shrunk = compressed = 0
    left = budget
    passages, repeated = _distinct(passages)
    for place, passage in enumerate(passages):
        numbered = dataclasses.replace(passage, number=len(chosen) + 1)
        # what is left is shared with those that follow
        share = left // (len(passages) - place)
        fitting = None
        if compress is not None and count_tokens(rendered(numbered) + "\n\n") > share:
            fitting = _compressed(numbered, share, count_tokens, compress)
            compressed += fitting is not None
        fitting = fitting or _fitting(numbered, left, count_tokens)
        if fitting is None:
            dropped += [hit.chunk_id for hit in passage.hits]
            continue
        shrunk += (fitting.start, fitting.end) != (passage.start, passage.end)
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
    note += f", {compressed} compressed" if compressed else ""
    fell = {"token budget": tuple(dropped), "says what a better one says": repeated}
    return Outcome(reading_order(chosen), {why: ids for why, ids in fell.items() if ids}, note)


def reading_order(ranked: Sequence[Passage]) -> tuple[Passage, ...]:
    """Rank 1 first, rank 2 last, the others towards the middle."""
    return (*ranked[0::2], *reversed(ranked[1::2]))


def _distinct(passages: Sequence[Passage]) -> tuple[list[Passage], tuple[int, ...]]:
    """The passages without those that nearly repeat a better one, and the chunks of these.

    Nearly: nine tenths of its runs of five characters stand in the better one, and every number does: two versions of a page
    differ by a number.
    """
    kept: list[tuple[Passage, frozenset[str], frozenset[str]]] = []
    repeated: list[int] = []
    for passage in passages:
        runs, numbers = _runs(passage.content)
        if runs and any(len(runs & other) >= _SAME * len(runs) and numbers <= known for _, other, known in kept):
            repeated += [hit.chunk_id for hit in passage.hits]
        else:
            kept.append((passage, runs, numbers))
    return [passage for passage, _, _ in kept], tuple(repeated)


def _runs(text: str) -> tuple[frozenset[str], frozenset[str]]:
    plain = "".join(unicodedata.normalize("NFKC", text).casefold().split())
    return frozenset(plain[n : n + _RUN] for n in range(max(1, len(plain) - _RUN + 1))), frozenset(_NUMBER.findall(plain))


def _compressed(
    passage: Passage, share: int, count_tokens: CountTokens, compress: Callable[[Passage, int], str | None]
) -> Passage | None:
    head = count_tokens(rendered(dataclasses.replace(passage, content="")) + "\n\n")
    text = compress(passage, share - head) if share > head else None
    if not text:
        return None
    short = dataclasses.replace(passage, content=text)
    tokens = count_tokens(rendered(short) + "\n\n")
    return dataclasses.replace(short, tokens=tokens) if tokens <= share else None


def _fitting(passage: Passage, left: int, count_tokens: CountTokens) -> Passage | None:
    """The passage, or only its best hit, whichever fits into what is left."""
    best = passage.hits[0]
    alone = dataclasses.replace(passage, content=best.content, start=best.start, end=best.end, hits=(best,))
    for form in (passage, alone):
        tokens = count_tokens(rendered(form) + "\n\n")
        if tokens <= left:
            return dataclasses.replace(form, tokens=tokens)
    return None
