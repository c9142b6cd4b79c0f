"""A language model as reranker: it reads all passages at once and writes them down in order (listwise, as RankGPT does).

Sun et al. 2023, "Is ChatGPT Good at Search?". Scores are places, n for the best; what it leaves out comes last.
"""

from __future__ import annotations

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
        # Of twenty passages each gets its share of the window.
        self.max_tokens = max(64, (llm.context_window - llm.max_output_tokens - 500) // 20)

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
        listed = "\n\n".join(f"[{n}] {' '.join(sendable(text).split())}" for n, text in enumerate(passages, start=1))
        prompt = self._prompts.template("rerank", language_of(query)).substitute(question=sendable(query), passages=listed)
        reply = complete(self._llm, [Message("user", prompt)], schema=_SCHEMA, temperature=0.0, deadline=deadline)
        order = _order(json_value(reply.text), len(passages))
        if not order:
            raise RerankerError(f"{self.name} wrote no order of the passages: {' '.join(reply.text.split())[:120]!r}")
        rest = [n for n in range(len(passages)) if n not in order]
        places = {n: len(passages) - place for place, n in enumerate([*order, *rest])}
        return [float(places[n]) for n in range(len(passages))]


def _order(value: Any, count: int) -> list[int]:
    """Places from 0, each once, of what the model wrote as numbers from 1."""
    listed = value.get("order") if isinstance(value, dict) else value
    found: list[int] = []
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, int) and not isinstance(item, bool) and 1 <= item <= count and item - 1 not in found:
            found.append(item - 1)
    return found


Adapter = LLMReranker
