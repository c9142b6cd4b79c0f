"""What calls of models cost: noted where a call is made, gathered around a stage, whichever object makes it.

`with counted() as calls: ...` gathers the calls of this thread; `complete` asks a language model and notes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragdb.protocols import LLM
from ragdb.types import Completion, Message, Passage


@dataclass(frozen=True, slots=True)
class Call:
    """One call; token counts are the server's, None where it said none (and where it failed)."""

    model: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    failed: bool = False


_gathered: ContextVar[list[Call] | None] = ContextVar("ragdb_calls", default=None)


@contextmanager
def counted() -> Iterator[list[Call]]:
    """The calls made inside, in order; threads that are started inside count for themselves."""
    calls: list[Call] = []
    token = _gathered.set(calls)
    try:
        yield calls
    finally:
        _gathered.reset(token)


def note(call: Call) -> None:
    """Adds a call to what is gathered; nothing happens where nobody counts."""
    calls = _gathered.get()
    if calls is not None:
        calls.append(call)


def complete(llm: LLM, messages: Sequence[Message], *, passages: Sequence[Passage] | None = None, **how: Any) -> Completion:
    """`llm.complete`, noted; with `passages` its `complete_from`. Raises what they raise, noted as failed."""
    try:
        ask = llm.complete if passages is None else partial(llm.complete_from, passages)  # type: ignore[attr-defined]
        completion: Completion = ask(messages, **how)
    except Exception:
        note(Call(llm.name, failed=True))
        raise
    note(Call(llm.name, completion.prompt_tokens, completion.completion_tokens))
    return completion


def summed(stage: str, name: str, calls: Sequence[Call]) -> list[Mapping[str, Any]]:
    """One row a model: stage, name, model, calls, failed, prompt_tokens, completion_tokens (what is known of them)."""
    return [
        {
            "stage": stage,
            "name": name,
            "model": model,
            "calls": len(of_model),
            "failed": sum(call.failed for call in of_model),
            "prompt_tokens": sum(call.prompt_tokens or 0 for call in of_model),
            "completion_tokens": sum(call.completion_tokens or 0 for call in of_model),
        }
        for model in dict.fromkeys(call.model for call in calls)
        for of_model in [[call for call in calls if call.model == model]]
    ]
