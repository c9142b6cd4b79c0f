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
from ragdb.sentences import sentences
from ragdb.types import Outcome, Passage

_SPACES = re.compile(r"\s+")


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
    repeated: list[int] = []
    shrunk = compressed = 0
    left = budget
    count_tokens = _remembered(count_tokens)
    whole = [_tokens(dataclasses.replace(passage, number=n), count_tokens) for n, passage in enumerate(passages, start=1)]
    # Room for what is found stands before room for what is around it; where everything fits, that need not be counted.
    scarce = sum(whole) > budget
    needed = [_tokens(_hits_only(passage), count_tokens) if scarce else 0 for passage in passages]
    for place, passage in enumerate(passages):
        numbered = dataclasses.replace(passage, number=len(chosen) + 1)
        if any(_says_all(other, numbered) for other in chosen):
            repeated += [hit.chunk_id for hit in passage.hits]
            continue
        reserved = sum(needed[place + 1 :])
        fitting = _fitting(numbered, left, left - reserved, count_tokens)
        if compress is not None and (fitting is None or len(fitting.hits) < len(passage.hits)):
            share = left // (len(passages) - place)
            if (short := _compressed(numbered, share, count_tokens, compress)) is not None:
                fitting, compressed = short, compressed + 1
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
    fell = {"token budget": tuple(dropped), "says what a better one says": tuple(repeated)}
    return Outcome(reading_order(chosen), {why: ids for why, ids in fell.items() if ids}, note)


def _remembered(count_tokens: CountTokens) -> CountTokens:
    """The same, counting each text once: a tokenizer takes milliseconds for a passage."""
    known: dict[str, int] = {}

    def count(text: str) -> int:
        if text not in known:
            known[text] = count_tokens(text)
        return known[text]

    return count


def reading_order(ranked: Sequence[Passage]) -> tuple[Passage, ...]:
    """Rank 1 first, rank 2 last, the others towards the middle."""
    return (*ranked[0::2], *reversed(ranked[1::2]))


def _says_all(better: Passage, passage: Passage) -> bool:
    """Does a better passage, as it is shown, hold every sentence of this one, under the same title and headings?

    Spaces and marks aside and nothing else: two versions of a page differ by a number, a name or a "not".
    """
    if (better.title, better.heading_path) != (passage.title, passage.heading_path):
        return False
    return _sentences(passage.content) <= _sentences(better.content)


def _sentences(text: str) -> frozenset[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    found = (_SPACES.sub(" ", plain[start:end]).strip(" .。!?！？-*・") for start, end in sentences(plain))
    return frozenset(sentence for sentence in found if sentence)


def _compressed(
    passage: Passage, share: int, count_tokens: CountTokens, compress: Callable[[Passage, int], str | None]
) -> Passage | None:
    head = _tokens(dataclasses.replace(passage, content=""), count_tokens)
    # Texts put together may count a little more than each alone.
    for slack in (0, 16, 64):
        text = compress(passage, share - head - slack) if share - head > slack else None
        short = dataclasses.replace(passage, content=text or "")
        if text and (tokens := _tokens(short, count_tokens)) <= share:
            return dataclasses.replace(short, tokens=tokens)
    return None


def _fitting(passage: Passage, left: int, freely: int, count_tokens: CountTokens) -> Passage | None:
    """The passage where it fits into `freely`, else its hits alone, else its best hit, in what is left."""
    best = passage.hits[0]
    alone = dataclasses.replace(passage, content=best.content, start=best.start, end=best.end, hits=(best,))
    for form, room in ((passage, freely), (_hits_only(passage), left), (alone, left)):
        tokens = _tokens(form, count_tokens)
        if tokens <= room:
            return dataclasses.replace(form, tokens=tokens)
    return None


def _hits_only(passage: Passage) -> Passage:
    """The passage without what stands around its hits; its span is from the first of them to the last."""
    hits = sorted(passage.hits, key=lambda hit: hit.start)
    spans: list[list[int]] = []
    for hit in hits:
        if spans and hit.start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], hit.end)
        else:
            spans.append([hit.start, hit.end])
    at = passage.start
    text = "\n...\n".join(passage.content[start - at : end - at] for start, end in spans)
    return dataclasses.replace(passage, content=text, start=spans[0][0], end=spans[-1][1])


def _tokens(passage: Passage, count_tokens: CountTokens) -> int:
    return count_tokens(rendered(passage) + "\n\n")
