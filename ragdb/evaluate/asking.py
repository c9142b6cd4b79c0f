"""One call of a judging model, made into a Verdict: what it wrote, what that took, and why it cannot be used if it cannot."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ragdb.adapters import sendable
from ragdb.errors import ConfigError
from ragdb.evaluate.types import Verdict
from ragdb.evaluate.verdicts import Unusable
from ragdb.llms.calls import complete
from ragdb.llms.replies import json_value
from ragdb.openai_api import fewest_tokens
from ragdb.prices import Prices
from ragdb.prompts import Prompts
from ragdb.protocols import LLM
from ragdb.types import Completion, Message

T = TypeVar("T")


class Asking:
    """Asks one model by prompts that are files, each with a schema; `timeout` is seconds a call."""

    def __init__(self, llm: LLM, prompts: Prompts, *, temperature: float, timeout: float, prices: Prices) -> None:
        self.name = llm.name
        self._llm = llm
        self._prompts = prompts
        self._temperature = temperature
        self._timeout = timeout
        self._prices = prices

    def asked(
        self,
        metric: str,
        step: str,
        prompt: str,
        language: str,
        schema: Mapping[str, Any],
        read: Callable[[str], T],
        values: Mapping[str, str],
    ) -> tuple[Verdict, T | None]:
        """One call: its verdict, and what `read` made of the reply; None where the verdict is broken.

        Raises ConfigError where a setting is wrong: no call would pass.
        """
        template = self._prompts.template(prompt, language)
        text = template.substitute({name: sendable(value) for name, value in values.items()})
        found = Verdict(metric, step, self.name, self.prompt_hash(prompt, language), self._temperature, raw=None)
        if too_long := self._too_long(text):
            return replace(found, broken=too_long), None
        began = time.monotonic()
        try:
            reply = complete(
                self._llm, [Message("user", text)], schema=schema, temperature=self._temperature, deadline=self._timeout
            )
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a model does: a broken verdict, and the evaluation goes on
            usage = {"ms": _ms(began), "failed": 1}
            return replace(found, broken=failure("the call failed", error), usage=usage), None
        found = replace(found, raw=sendable(reply.text or ""), usage=self._usage(reply, _ms(began)))
        try:
            _check_whole(reply, text)
            if (said := _leaves(json_value(reply.text))) and any(said <= given for given in _examples(template.template)):
                raise Unusable("it wrote the example of the prompt")  # as small models do
            return found, read(reply.text)
        except Unusable as error:
            return replace(found, broken=sendable(str(error))), None

    def prompt_hash(self, prompt: str, language: str) -> str:
        """sha256 of a prompt's text, its places not filled in."""
        return hashlib.sha256(self._prompts.template(prompt, language).template.encode("utf-8")).hexdigest()

    def _too_long(self, prompt: str) -> str | None:
        tokens, room = self._llm.count_tokens(prompt), self._llm.context_window - self._llm.max_output_tokens
        if tokens <= room:
            return None
        return (
            f"not asked: the prompt has about {tokens} tokens, and the window of {self.name} has room for {room}; "
            "judge with fewer contexts, or by a model with a larger window"
        )

    def _usage(self, reply: Completion, ms: float) -> dict[str, Any]:
        tokens = {"prompt_tokens": reply.prompt_tokens or 0, "completion_tokens": reply.completion_tokens or 0}
        cost = self._prices.of({"model": self.name, "calls": 1, "failed": 0, **tokens})
        return {**tokens, "ms": ms} if cost is None else {**tokens, "ms": ms, "cost": cost}


def _examples(prompt: str) -> list[set[str | bool]]:
    """What each example in JSON holds."""
    return [_leaves(json_value(line[line.index("{") :])) for line in prompt.splitlines() if "{" in line]


def _leaves(value: Any) -> set[str | bool]:
    """The texts and truths of a reply; empty where it says nothing in words."""
    if isinstance(value, (str, bool)):
        return {value.strip() if isinstance(value, str) else value} - {""}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = {leaf for part in parts for leaf in _leaves(part)}
    return found if any(isinstance(leaf, str) for leaf in found) or not isinstance(value, dict) else set()


def _check_whole(reply: Completion, prompt: str) -> None:
    """Raises Unusable for a reply that is empty or cut off, or was made from a part of the prompt."""
    if reply.finish_reason == "length":
        raise Unusable(f"cut off after {reply.completion_tokens or 'the most'} tokens; raise RAGDB_LLM_MAX_TOKENS")
    if not (reply.text or "").strip():
        raise Unusable(f"empty, finish reason {reply.finish_reason or 'not given'}")
    fewest = fewest_tokens(prompt)
    if reply.prompt_tokens and reply.prompt_tokens < fewest:
        raise Unusable(
            f"the server read {reply.prompt_tokens} tokens of a prompt that has at least {fewest}: "
            "its window is smaller than it says; set RAGDB_LLM_CONTEXT_WINDOW"
        )


def failure(what: str, error: Exception) -> str:
    """One line, as it is stored."""
    return sendable(f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:500]}")


def _ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
