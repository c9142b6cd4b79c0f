"""Anthropic's models, with citations of their own: passages go as documents, and what the model says it took from which
becomes `[n]` behind the words, as if it had been written there.

Everything after that is the same as for any other model: the marks are checked against the passages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ragdb.adapters import require, sendable
from ragdb.deadline import within
from ragdb.errors import ConfigError, ContextTooSmall, LLMError, ModelError
from ragdb.llms.retrying import retried
from ragdb.openai_api import ServerFailure, estimate_tokens
from ragdb.types import Completion, Message, Passage

_WINDOW = 200_000


class AnthropicLLMError(ServerFailure, LLMError):
    """An LLMError that knows why the server failed."""


class AnthropicLLM:
    """`anthropic:MODEL`. Every failure is an LLMError that names the setting to change."""

    example: ClassVar[str] = "anthropic:claude-sonnet-4-5"

    def __init__(self, model: str, make: Callable[[], Any], context_window: int, max_output_tokens: int, timeout: float) -> None:
        self.name = f"anthropic:{model}"
        self.context_window = context_window
        self.max_output_tokens = max_output_tokens
        self._model = model
        self._make = make
        self._timeout = timeout
        self._clients: dict[int, Any] = {}
        self._leave_out: set[str] = set()  # what this model does not take

    @classmethod
    def load(
        cls,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        context_window: int = _WINDOW,
        max_output_tokens: int = 1024,
        timeout: float = 120.0,
    ) -> AnthropicLLM:
        """The model; nothing is sent yet. ANTHROPIC_API_KEY is not read: it is not for us to spend."""
        require("anthropic", "anthropic")
        import anthropic

        if not model:
            raise ConfigError(f"anthropic needs a model; set RAGDB_LLM to anthropic:MODEL, as in {cls.example}")
        key = (api_key or "").strip()
        if not key:
            raise LLMError(f"no API key for anthropic:{model}; set RAGDB_LLM_API_KEY (ANTHROPIC_API_KEY is not read)")
        if not (key.isascii() and key.isprintable()):
            raise ConfigError("RAGDB_LLM_API_KEY holds a character that cannot stand in an HTTP header; copy the key again")
        if max_output_tokens < 1 or context_window <= max_output_tokens:
            raise ContextTooSmall(
                f"a context window of {context_window} tokens with {max_output_tokens} for the answer has no room for a prompt; "
                "set RAGDB_LLM_CONTEXT_WINDOW higher or RAGDB_LLM_MAX_TOKENS lower (at least 1)"
            )

        def make() -> Any:
            return anthropic.Anthropic(api_key=key, auth_token=None, base_url=base_url, max_retries=0, timeout=timeout)

        return cls(model, make, context_window, max_output_tokens, timeout)

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
        """One answer. Raises LLMError, within `deadline` seconds."""
        return self.complete_from((), messages, schema=schema, temperature=temperature, max_tokens=max_tokens, deadline=deadline)

    def stream(
        self,
        messages: Sequence[Message],
        *,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Iterator[str | Completion]:
        """The answer in pieces, then what it took. Raises LLMError, also half way."""
        yield from self.stream_from((), messages, temperature=temperature, max_tokens=max_tokens, deadline=deadline)

    def complete_from(
        self,
        passages: Sequence[Passage],
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Completion:
        """One answer from passages that are given as documents; `[n]` stands behind what was taken from passage n."""
        until = None if deadline is None else time.monotonic() + deadline
        body = self._body(passages, messages, schema, temperature, max_tokens)
        answer = self._asked(lambda sent: self._client.messages.create(**sent, timeout=self._left(until)), body, until)
        text = "".join(_marked(block, passages) for block in answer.content if block.type == "text")
        return Completion(text, _sent(answer.usage), answer.usage.output_tokens, _reason(answer.stop_reason), answer.model)

    def stream_from(
        self,
        passages: Sequence[Passage],
        messages: Sequence[Message],
        *,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Iterator[str | Completion]:
        """`complete_from` in pieces."""
        until = None if deadline is None else time.monotonic() + deadline
        body = {**self._body(passages, messages, None, temperature, max_tokens), "stream": True}
        events = self._asked(lambda sent: self._client.messages.create(**sent, timeout=self._left(until)), body, until)
        prompt = written = None
        reason = model = None
        cited: list[int] = []
        with events, _failures(self):
            for event in events:
                self._left(until)
                if event.type == "message_start":
                    prompt, model = _sent(event.message.usage), event.message.model
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    yield event.delta.text
                elif event.type == "content_block_delta" and event.delta.type == "citations_delta":
                    cited.append(event.delta.citation.document_index)
                elif event.type == "content_block_stop" and cited:
                    yield _marks(cited, passages)
                    cited = []
                elif event.type == "message_delta":
                    reason, written = event.delta.stop_reason, event.usage.output_tokens
        yield Completion("", prompt, written, _reason(reason), model)

    @property
    def _client(self) -> Any:
        pid = os.getpid()  # after a fork two processes would read each other's answers from one connection
        if pid not in self._clients:
            self._clients[pid] = self._make()
        return self._clients[pid]

    def _body(
        self,
        passages: Sequence[Passage],
        messages: Sequence[Message],
        schema: Mapping[str, Any] | None,
        temperature: float,
        max_tokens: int | None,
    ) -> dict[str, Any]:
        system = "\n\n".join(sendable(m.content) for m in messages if m.role == "system")
        said: list[dict[str, Any]] = [{"role": m.role, "content": sendable(m.content)} for m in messages if m.role != "system"]
        if passages and said:
            said[-1]["content"] = [*map(_document, passages), {"type": "text", "text": said[-1]["content"]}]
        # Beside the library's own arguments: which of these it has depends on its version.
        extra: dict[str, Any] = {"temperature": temperature}
        if schema:
            extra["output_config"] = {"format": {"type": "json_schema", "schema": dict(schema)}}
        return {
            "model": self._model,
            "messages": said,
            "max_tokens": max_tokens or self.max_output_tokens,
            **({"system": system} if system else {}),
            "extra_body": {name: value for name, value in extra.items() if name not in self._leave_out},
        }

    def _asked(self, call: Callable[[Mapping[str, Any]], Any], body: dict[str, Any], until: float | None) -> Any:
        """Asks; a temperature or a schema that the model does not take is left out, for the rest of this object's life."""
        while True:
            try:
                return retried(lambda: self._in_time(lambda: call(body), until), until)
            except AnthropicLLMError as error:
                refused = [name for name in body["extra_body"] if name in str(error)]
                if error.reason != "refused" or not refused:
                    raise
                self._leave_out.add(refused[0])
                del body["extra_body"][refused[0]]

    def _in_time(self, call: Callable[[], Any], until: float | None) -> Any:
        def work() -> Any:
            with _failures(self):
                return call()

        if until is None:
            return work()
        try:
            return within(self._left(until) + 0.2, work)
        except TimeoutError:
            raise self.fail("did not finish in time", transient=True, reason="timeout") from None

    def _left(self, until: float | None) -> float:
        left = self._timeout if until is None else until - time.monotonic()
        if left <= 0:
            raise self.fail("did not finish in time", transient=True, reason="timeout")
        return left

    def fail(self, message: str, *, transient: bool = False, reason: str = "") -> AnthropicLLMError:
        failure = AnthropicLLMError(f"{self.name} {message}", transient=transient)
        failure.reason = reason
        return failure


class _failures:
    """Inside, whatever goes wrong with the request comes out as an LLMError that names what to change."""

    def __init__(self, llm: AnthropicLLM) -> None:
        self._llm = llm

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        import anthropic

        if error is None or isinstance(error, (ModelError, GeneratorExit)) or not isinstance(error, Exception):
            return
        if isinstance(error, anthropic.APITimeoutError):
            raise self._llm.fail("did not finish in time", transient=True, reason="timeout") from None
        if isinstance(error, anthropic.APIStatusError):
            raise self._refused(error) from None
        why = error.__cause__ or error
        raise self._llm.fail(
            f"cannot be reached ({type(why).__name__}); look at the network, or correct RAGDB_LLM_BASE_URL", transient=True
        ) from None

    def _refused(self, error: Any) -> AnthropicLLMError:
        status = error.status_code
        said = " ".join(str(error.body.get("error", error.body) if isinstance(error.body, dict) else error).split())[:300]
        long = "prompt is too long" in said
        advice = {
            401: "set RAGDB_LLM_API_KEY to a key that is accepted",
            403: "the key in RAGDB_LLM_API_KEY may not use this model; set another key or RAGDB_LLM",
            404: "set RAGDB_LLM to a model that there is",
            429: "the server asks for a pause; run it again later",
        }.get(status, "the server failed; run it again later" if status >= 500 else "see RAGDB_LLM")
        advice = "set RAGDB_LLM_CONTEXT_WINDOW to what the model has" if long else advice
        transient = status in (408, 409, 429) or status >= 500
        reason = "too_long" if long else "refused" if status in (400, 422) else ""
        return self._llm.fail(f"answered {status}: {said}; {advice}", transient=transient, reason=reason)


def _document(passage: Passage) -> dict[str, Any]:
    return {
        "type": "document",
        "title": sendable(" > ".join([passage.title or passage.uri, *passage.heading_path]))[:500],
        "source": {"type": "text", "media_type": "text/plain", "data": sendable(passage.content) or " "},
        "citations": {"enabled": True},
    }


def _marked(block: Any, passages: Sequence[Passage]) -> str:
    return str(block.text) + _marks([citation.document_index for citation in block.citations or ()], passages)


def _marks(documents: Sequence[int], passages: Sequence[Passage]) -> str:
    return "".join(f"[{passages[n].number}]" for n in dict.fromkeys(documents) if 0 <= n < len(passages))


def _reason(stopped: str | None) -> str | None:
    return {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}.get(stopped or "", stopped)


def _sent(usage: Any) -> int:
    """All that was read, from the cache of prompts too."""
    return int(usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0))


Adapter = AnthropicLLM
