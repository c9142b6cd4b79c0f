"""What all rewriters share: one prompt, one call, a list of texts back, read with patience."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Self

from ragdb import adapters
from ragdb.adapters import sendable
from ragdb.errors import ConfigError, LLMError
from ragdb.llms.calls import complete
from ragdb.llms.replies import texts
from ragdb.prompts import OURS, Prompts, language_of, recent
from ragdb.protocols import LLM
from ragdb.types import Message, Query

_SCHEMA = {
    "type": "object",
    "properties": {"queries": {"type": "array", "items": {"type": "string"}}},
    "required": ["queries"],
    "additionalProperties": False,
}
_LABEL = re.compile(r"^(?:Q|A|Query|質問|クエリ)\s*\d*\s*[:：]\s*")
_NUMBERED = re.compile(r"(?:Q|Query|質問|クエリ)?\s*\d+", re.IGNORECASE)


@cache
def _said_in(prompt: str) -> frozenset[str]:
    """The lines of a prompt, and the texts of the JSON in it."""
    lines = [" ".join(line.split()) for line in prompt.splitlines()]
    return frozenset([*lines, *(text for line in lines if "{" in line for text in texts(line, most=100))])


class Prompted:
    """A rewriter whose work is its prompt. Subclasses say the name of the prompt, how many texts, and for which legs."""

    prompt: ClassVar[str]
    most: ClassVar[int] = 1
    longest: ClassVar[int] = 400  # characters of a text: what is longer is no query
    legs: ClassVar[tuple[str, ...] | None] = None
    temperature: ClassVar[float] = 0.0
    max_tokens: ClassVar[int] = 256

    def __init__(self, llm: LLM, prompts: Prompts = OURS) -> None:
        self._llm = llm
        self._prompts = prompts
        self.name = f"{self.prompt}:{llm.name}"

    @classmethod
    def load(cls, model: str = "", *, llm: LLM | None = None, llm_options: Any = None, prompts: Prompts = OURS) -> Self:
        """By the language model of the answers (`llm`), or by another one: `multi:openai:NAME`."""
        if model:
            return cls(adapters.load_llm(model, defaults=llm_options or {}), prompts)
        if llm is None:
            raise ConfigError(f"{cls.prompt} needs a language model: RAGDB_LLM, RagDB(..., llm=...), or {cls.prompt}:openai:NAME")
        return cls(llm, prompts)

    def cache_key(self, question: Query, history: Sequence[Message]) -> str:
        """What the result depends on, as text: another prompt or model is another key."""
        prompt = hashlib.sha256(self._filled(question.text, history).encode("utf-8", "replace")).hexdigest()
        return f"{self.name}\x1f{prompt}".replace("\x00", " ")

    def rewrite(self, question: Query, history: Sequence[Message], *, deadline: float | None = None) -> list[Query]:
        """One call; nothing where it wrote only the prompt's own words. Raises LLMError where it fails or wrote no text."""
        reply = complete(
            self._llm,
            [Message("user", self._filled(question.text, history))],
            schema=_SCHEMA,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            deadline=deadline,
        )
        # Small models write the prompt's own example, or names for queries instead of queries.
        said = _said_in(self._prompts.template(self.prompt, language_of(question.text)).template)
        written = [_LABEL.sub("", text) for text in texts(reply.text, most=self.most)]
        asked = question.text.casefold()
        own = [text for text in written if text not in said or text.casefold() in asked]
        found = [text for text in own if len(text) <= self.longest and not self._no_query(text)]
        if not written or (own and not found):
            raise LLMError(f"nothing to search with in {' '.join((reply.text or '').split())[:80]!r}")
        return [Query(text, origin=self.prompt, legs=self.legs) for text in found]

    def _no_query(self, text: str) -> bool:
        return len(text) < 2 or bool(_NUMBERED.fullmatch(text))

    def _filled(self, question: str, history: Sequence[Message]) -> str:
        said = "\n".join(f"{m.role}: {' '.join(m.content.split())}" for m in recent(history))
        return self._prompts.template(self.prompt, language_of(question)).substitute(
            question=sendable(question), history=sendable(said)
        )
