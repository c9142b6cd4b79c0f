"""An embedder and a language model without a model: deterministic, counted, and made to fail on demand.

`FakeEmbedder` adds up one pseudo-random direction a word (a pair of characters in Chinese, Japanese, Korean), so texts
that share words are near each other. Both have names that `ragdb.adapters` resolves back to the same fake.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragdb.db import probe
from ragdb.errors import EmbedderError
from ragdb.openai_api import estimate_tokens
from ragdb.types import Completion, Message

_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TERMS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_TOKENS = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+|[^\w\s]")

Failure: TypeAlias = BaseException | type[BaseException] | Callable[[list[str]], Sequence[Sequence[float]] | None]
Scripted: TypeAlias = str | Completion | BaseException | None
Script: TypeAlias = (
    Scripted | Callable[[Sequence[Message]], Scripted] | Sequence[Scripted | Callable[[Sequence[Message]], Scripted]]
)


class FakeEmbedder:
    """Vectors of length 1, never zero. `calls` counts the calls, `texts` holds what was embedded, questions too.

    The fixed text that a model is known by (ragdb.db.probe) is answered, and neither counted nor failed.
    `fail`: an exception to raise at every call, or a function of the texts, which may raise, return the vectors to give
    instead (one too few, NaN), or None for the usual ones. Blank text raises EmbedderError.
    """

    max_tokens = 512

    def __init__(self, dimension: int = 8, *, name: str | None = None, fail: Failure | None = None) -> None:
        self.dimension = dimension
        own = f"{__name__}:{type(self).__name__}"
        self.name = name or (own if dimension == 8 else f"{own}:{dimension}")
        self.fail = fail
        self.calls = 0
        self.texts: list[str] = []
        self._lock = threading.Lock()

    @classmethod
    def load(cls, model: str = "") -> FakeEmbedder:
        """`ragdb.testing.fakes:FakeEmbedder` has 8 dimensions, `ragdb.testing.fakes:FakeEmbedder:16` has 16."""
        return cls(int(model or 8))

    def count_tokens(self, text: str) -> int:
        """Words, single CJK characters and punctuation marks."""
        return len(_TOKENS.findall(text))

    def embed_query(self, text: str) -> list[float]:
        return self._embed([text])[0]

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return self._embed(list(texts))

    def _embed(self, texts: list[str]) -> list[list[float]]:
        if texts == [probe.TEXT]:
            return [self._vector(probe.TEXT)]
        with self._lock:
            self.calls += 1
            self.texts += texts
        for index, text in enumerate(texts):
            if not text.strip():
                raise EmbedderError(f"text {index} for {self.name} is blank ({text!r}); leave blank texts out before embedding")
        if isinstance(self.fail, (BaseException, type)):
            raise self.fail
        instead: Sequence[Sequence[float]] | None = self.fail(texts) if self.fail else None
        return [self._vector(text) for text in texts] if instead is None else [list(vector) for vector in instead]

    def _vector(self, text: str) -> list[float]:
        total = [0.0] * self.dimension
        for term in _terms(text) or [text]:
            # twice an odd number minus 255 is never 0, so no term is without direction
            total = [t + 2 * b - 255 for t, b in zip(total, hashlib.shake_256(_bytes(term)).digest(self.dimension), strict=True)]
        norm = math.sqrt(sum(x * x for x in total))
        return [x / norm for x in total] if norm else [1.0, *[0.0] * (self.dimension - 1)]


def _terms(text: str) -> list[str]:
    terms: list[str] = []
    for run in _TERMS.findall(unicodedata.normalize("NFKC", text).casefold()):
        if re.match(f"[{_CJK}]", run) and len(run) > 1:
            terms += (run[i : i + 2] for i in range(len(run) - 1))
        else:
            terms.append(run)
    return terms


def _bytes(term: str) -> bytes:
    return term.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class LLMCall:
    """What one call to a FakeLLM got."""

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None
    temperature: float
    max_tokens: int | None
    deadline: float | None

    @property
    def prompt(self) -> str:
        """All messages as one text, for `assert "..." in call.prompt`."""
        return "\n\n".join(message.content for message in self.messages)


class FakeLLM:
    """Says what it is told to. `answers`: one answer for every call, or a list, one a call.

    An answer is a text, None (a server without content), a Completion, an exception to raise, or a function of the
    messages that returns one of these. A call more than the list has is an AssertionError. `calls` records every call.
    """

    def __init__(
        self, answers: Script = "A fake answer [1].", *, context_window: int = 8192, max_output_tokens: int = 512
    ) -> None:
        self.name = f"{__name__}:{type(self).__name__}"
        self.context_window = context_window
        self.max_output_tokens = max_output_tokens
        self.calls: list[LLMCall] = []
        self._answers = answers
        self._lock = threading.Lock()

    @classmethod
    def load(cls, model: str = "") -> FakeLLM:
        """`ragdb.testing.fakes:FakeLLM`, or `ragdb.testing.fakes:FakeLLM:the answer to give`."""
        fake = cls(model) if model else cls()
        fake.name += f":{model}" if model else ""
        return fake

    def count_tokens(self, text: str) -> int:
        """An estimate, on the high side (`ragdb.openai_api.estimate_tokens`)."""
        return estimate_tokens(text)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Completion:
        answer = self._next(LLMCall(tuple(messages), schema, temperature, max_tokens, deadline))
        if isinstance(answer, Completion):
            return answer
        text = answer or ""
        prompt = sum(self.count_tokens(message.content) for message in messages)
        return Completion(text, prompt, self.count_tokens(text), "stop", self.name)

    def stream(
        self,
        messages: Sequence[Message],
        *,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Iterator[str | Completion]:
        answer = self._next(LLMCall(tuple(messages), None, temperature, max_tokens, deadline))
        text = answer.text if isinstance(answer, Completion) else answer or ""
        yield from re.findall(r"\S+\s*|\s+", text)
        prompt = sum(self.count_tokens(message.content) for message in messages)
        yield dataclasses.replace(
            answer if isinstance(answer, Completion) else Completion("", prompt, self.count_tokens(text), "stop", self.name),
            text="",
        )

    def _next(self, call: LLMCall) -> str | Completion | None:
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
        script = self._answers
        if isinstance(script, Sequence) and not isinstance(script, str):
            assert number <= len(script), (
                f"call {number} to a FakeLLM with {len(script)} answers; it asked: {call.prompt[-300:]!r}"
            )
            script = script[number - 1]
        answer = script(call.messages) if callable(script) else script
        if isinstance(answer, BaseException):
            raise answer
        return answer
