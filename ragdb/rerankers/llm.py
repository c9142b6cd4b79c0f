"""A language model as reranker: it reads all passages at once and writes them down in order (listwise, as RankGPT does).

Sun et al. 2023, "Is ChatGPT Good at Search?". Scores are places, n for the best; what it leaves out comes last.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from ragdb import adapters
from ragdb.adapters import sendable
from ragdb.errors import ConfigError, RerankerError
from ragdb.llms.calls import complete
from ragdb.llms.replies import json_value
from ragdb.prompts import OURS, Prompts, language_of
from ragdb.protocols import LLM
from ragdb.types import Message

_RULES = 500  # tokens of the prompt around question and passages
_LABEL = 8  # and of a passage's number
_NUMBER = re.compile(r"\d{1,5}")
_ARROWS = re.compile(r"\[\d{1,5}\](?:\s*>\s*\[\d{1,5}\])+")
_SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "array", "items": {"type": "integer"}}},
    "required": ["order"],
    "additionalProperties": False,
}


class LLMReranker:
    """`llm` is the language model of the answers, `llm:openai:NAME` another one."""

    example: ClassVar[str] = "llm"

    def __init__(self, llm: LLM, prompts: Prompts = OURS) -> None:
        self._llm = llm
        self._prompts = prompts
        self.name = f"llm:{llm.name}"
        self._room = llm.context_window - llm.max_output_tokens - _RULES
        # Of twenty passages each gets its share of the window.
        self.max_tokens = max(64, self._room // 20)

    @classmethod
    def load(cls, model: str = "", *, llm: LLM | None = None, llm_options: Any = None, prompts: Prompts = OURS) -> LLMReranker:
        """`llm` and `llm_options` come from the RagDB: its language model, and the options of one given by name."""
        if model:
            return cls(adapters.load_llm(model, defaults=llm_options or {}), prompts)
        if llm is None:
            raise ConfigError("the reranker llm needs a language model: RAGDB_LLM, RagDB(..., llm=...), or llm:openai:NAME")
        return cls(llm, prompts)

    def count_tokens(self, text: str) -> int:
        return self._llm.count_tokens(text)

    def score(self, query: str, passages: Sequence[str], *, deadline: float | None = None) -> list[float]:
        until = None if deadline is None else time.monotonic() + deadline
        counts = [self._llm.count_tokens(text) + _LABEL for text in passages]
        size = self._fitting(counts, self._llm.count_tokens(query))
        order = list(range(len(passages)))
        # more than fit are read from the last ones up, the better half of each window along with the next (RankGPT)
        for start in _starts(len(passages), size):
            window = order[start : start + size]
            left = None if until is None else max(0.0, until - time.monotonic())
            order[start : start + size] = [window[n] for n in self._sorted(query, [passages[n] for n in window], left)]
        places = {n: float(len(passages) - place) for place, n in enumerate(order)}
        return [places[n] for n in range(len(passages))]

    def _fitting(self, counts: Sequence[int], question: int) -> int:
        """How many passages one prompt holds, whichever they are."""
        left, largest = self._room - question, sorted(counts, reverse=True)
        size = next((n for n in range(len(counts), 0, -1) if sum(largest[:n]) <= left), 0)
        if size < min(2, len(counts)):
            raise RerankerError(
                f"{self.name}: a window of {self._llm.context_window} tokens does not hold two passages of {largest[0]} and "
                f"{self._llm.max_output_tokens} of output; raise RAGDB_LLM_CONTEXT_WINDOW or lower RAGDB_LLM_MAX_TOKENS"
            )
        return size

    def _sorted(self, query: str, passages: Sequence[str], deadline: float | None) -> list[int]:
        """The places of the passages, the best first; what the model leaves out comes last, as it was."""
        listed = "\n\n".join(f"[{n}] {' '.join(sendable(text).split())}" for n, text in enumerate(passages, start=1))
        prompt = self._prompts.template("rerank", language_of(query)).substitute(question=sendable(query), passages=listed)
        reply = complete(self._llm, [Message("user", prompt)], schema=_SCHEMA, temperature=0.0, deadline=deadline)
        order = _order(json_value(reply.text, "order"), len(passages)) or _written(reply.text, len(passages))
        if not order:
            raise RerankerError(f"{self.name} wrote no order of the passages: {' '.join(reply.text.split())[:120]!r}")
        return [*order, *(n for n in range(len(passages)) if n not in order)]


def _starts(count: int, size: int) -> list[int]:
    """Where windows of `size` begin, the last one first, each half a window above the one before."""
    starts = list(range(max(0, count - size), 0, -max(1, size // 2)))
    return [*starts, 0]


def _written(text: str, count: int) -> list[int]:
    """An order as RankGPT's prompt has it: [2] > [1] > [3]."""
    found = _ARROWS.search(text)
    return _order([int(n) for n in _NUMBER.findall(found[0])], count) if found else []


def _order(value: Any, count: int) -> list[int]:
    """Places from 0, each once, of what the model wrote as numbers from 1."""
    # A lone number in brackets is a word about one passage and no order of them.
    listed = value.get("order") if isinstance(value, dict) else value if isinstance(value, list) and len(value) > 1 else None
    found: list[int] = []
    for item in listed if isinstance(listed, list) else ():
        text = str(item).strip().removesuffix(".0").strip("[]") if not isinstance(item, bool) else ""
        if text.isdecimal() and len(text) < 6 and 1 <= int(text) <= count and int(text) - 1 not in found:
            found.append(int(text) - 1)
    return found


Adapter = LLMReranker
