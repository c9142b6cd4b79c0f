"""Compression: of a passage the sentences that matter for the question, whole and in their order, in so many tokens.

Scored by the reranker where there is one, else by the embedder (cosine); with `llm` a language model picks them by number.
What is left out is shown as `...`. Nothing is rewritten, so every sentence still stands in the document.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from ragdb.adapters import sendable
from ragdb.deadline import within
from ragdb.embedders import embed_checked, embed_query_checked
from ragdb.errors import LLMError
from ragdb.llms.calls import complete
from ragdb.llms.replies import json_value
from ragdb.prompts import OURS, Prompts, language_of
from ragdb.protocols import LLM, CountTokens, Embedder, Reranker
from ragdb.sentences import sentences
from ragdb.types import Message, Passage

logger = logging.getLogger("ragdb.run")

#: Scores of texts for a question, higher is better.
Score = Callable[[str, Sequence[str]], Sequence[float]]
_GAP = " ... "
_SCHEMA = {
    "type": "object",
    "properties": {"keep": {"type": "array", "items": {"type": "integer"}}},
    "required": ["keep"],
    "additionalProperties": False,
}


class Compressor:
    """`compress(passage, tokens)` for pack: its best sentences that fit, or None where none does or scoring fails.

    A passage is scored once, however often it is asked for in fewer tokens. `failed`: why the last that failed did; None: none.
    """

    def __init__(self, question: str, score: Score, count_tokens: CountTokens) -> None:
        self.failed: str | None = None
        self._question = question
        self._score = score
        self._count_tokens = count_tokens
        self._known: dict[str, list[float]] = {}

    def __call__(self, passage: Passage, tokens: int) -> str | None:
        texts = [passage.content[start:end] for start, end in sentences(passage.content)]
        scores = self._scores(passage, texts) if texts else []
        kept: set[int] = set()
        for n in sorted(range(len(scores)), key=lambda n: (-scores[n], n)):
            if scores[n] > -math.inf and self._count_tokens(_joined(texts, kept | {n})) <= tokens:
                kept.add(n)
        return _joined(texts, kept) if kept else None

    def _scores(self, passage: Passage, texts: Sequence[str]) -> list[float]:
        """One for each text; [] where they cannot be had."""
        if passage.content not in self._known:
            try:
                scores = [float(score) for score in self._score(self._question, texts)]
                if len(scores) != len(texts):
                    raise ValueError(f"{len(scores)} scores for {len(texts)} sentences")
                if unusable := [score for score in scores if math.isnan(score) or score == math.inf]:
                    raise ValueError(f"a score is {unusable[0]}")
            except Exception as error:  # noqa: BLE001  whatever a model does: the passage is packed as it is
                logger.warning("compression failed: %s: %s", type(error).__name__, sendable(str(error)))
                self.failed = str(error) or type(error).__name__
                scores = []
            self._known[passage.content] = scores
        return self._known[passage.content]


def by_reranker(reranker: Reranker, timeout: float) -> Score:
    """The reranker's scores of the sentences; one that hangs is left behind after `timeout` seconds."""
    return lambda question, texts: within(timeout, lambda: reranker.score(question, list(texts)))


def by_embedder(load: Callable[[], Embedder]) -> Score:
    """Cosine of sentence and question; vectors of embedders have length 1 or are brought to it. Loaded when it is needed."""

    def score(question: str, texts: Sequence[str]) -> list[float]:
        embedder = load()
        asked = embed_query_checked(embedder, question)
        return [_cosine(asked, vector) for vector in embed_checked(embedder, list(texts))]

    return score


def by_llm(llm: LLM, timeout: float, prompts: Prompts = OURS) -> Score:
    """1 for the sentences that the model names, the others are left out: one call a passage."""

    def score(question: str, texts: Sequence[str]) -> list[float]:
        listed = "\n".join(f"[{n}] {' '.join(sendable(text).split())}" for n, text in enumerate(texts, start=1))
        prompt = prompts.template("compress", language_of(question)).substitute(question=sendable(question), sentences=listed)
        reply = complete(llm, [Message("user", prompt)], schema=_SCHEMA, temperature=0.0, max_tokens=256, deadline=timeout)
        value = json_value(reply.text, "keep")
        keep = value.get("keep") if isinstance(value, dict) else value
        if not isinstance(keep, list):
            raise LLMError(f"{llm.name} named no sentences; it said {' '.join(reply.text.split())[:80]!r}")
        named = {n for n in keep if isinstance(n, int)}
        return [1.0 if n in named else -math.inf for n in range(1, len(texts) + 1)]

    return score


def _joined(texts: Sequence[str], kept: set[int]) -> str:
    parts = []
    before = -1
    for n in sorted(kept):
        parts.append(("" if before < 0 and n == 0 else _GAP if n > before + 1 else " ") + texts[n])
        before = n
    return "".join(parts).strip() + (_GAP.rstrip() if before < len(texts) - 1 else "")


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    length = (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
    return dot / length if length else 0.0
