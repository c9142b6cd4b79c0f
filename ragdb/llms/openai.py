"""Chat completions from any server with OpenAI's interface: OpenAI, vLLM, llama.cpp, Ollama, LM Studio.

A deadline is the whole call's: the waiting, the retries, the reading. What a server does not know (a JSON schema, a
temperature) is left out once and for the rest of this object's life.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from ragdb.adapters import require, sendable
from ragdb.errors import ConfigError, ContextTooSmall, LLMError
from ragdb.llms.context_window import asked
from ragdb.llms.retrying import retried
from ragdb.openai_api import (
    OPENAI_URL,
    Server,
    ServerFailure,
    connect,
    estimate_tokens,
    events,
    failures_of,
    in_time,
    parsed,
    post,
    received,
    seconds_left,
)
from ragdb.types import Completion, Message

logger = logging.getLogger("ragdb.llms")

_WINDOW = 8192  # tokens, where nobody says
_ASK_AGAIN = 60.0  # seconds
# how a schema is sent, best first: OpenAI's form, llama-cpp-python's, not at all (the prompt asks for JSON as well)
_SCHEMA_FORMS = ("json_schema", "json_object", "none")


class OpenAILLMError(ServerFailure, LLMError):
    """An LLMError that knows why the server failed."""


class OpenAILLM:
    """`openai:MODEL`. Every failure is an LLMError that names the setting to change."""

    example: ClassVar[str] = "openai:gpt-4o-mini"

    def __init__(self, server: Server, *, context_window: int | None, max_output_tokens: int, encoding: str | None) -> None:
        self.name = f"openai:{server.model}"
        self._window = context_window
        self._ask_again = 0.0
        self.max_output_tokens = max_output_tokens
        self._server = server
        self._encoding = encoding
        self._schema_form = _SCHEMA_FORMS[0]
        self._with_temperature = True
        self._with_usage = True  # of a stream, asked for

    @classmethod
    def load(
        cls,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        context_window: int | None = None,
        max_output_tokens: int = 1024,
        encoding: str | None = None,
        timeout: float = 120.0,
    ) -> OpenAILLM:
        """The model; nothing is sent yet. Without `context_window` the server is asked for it at the first use.

        `encoding` (`o200k_base`) counts tokens with tiktoken instead of an estimate.
        """
        if not model:
            raise ConfigError(f"openai needs a model; set RAGDB_LLM to openai:MODEL, as in {cls.example}")
        if context_window is None and not base_url:
            context_window = _WINDOW  # OpenAI does not tell
        if max_output_tokens < 1 or (context_window is not None and context_window <= max_output_tokens):
            raise ContextTooSmall(
                f"a context window of {context_window} tokens with {max_output_tokens} for the answer has no room for a prompt; "
                "set RAGDB_LLM_CONTEXT_WINDOW higher or RAGDB_LLM_MAX_TOKENS lower (at least 1)"
            )
        # the retries are ours (tenacity): the library would give each of them the whole deadline again
        server = connect(
            model,
            base_url=base_url,
            api_key=api_key,
            setting="RAGDB_LLM",
            error=OpenAILLMError,
            timeout=timeout,
            max_retries=0,
        )
        return cls(server, context_window=context_window, max_output_tokens=max_output_tokens, encoding=encoding)

    @property
    def context_window(self) -> int:
        """Tokens of prompt and answer together: as configured, as the server says, else 8192. May ask the server, once."""
        if self._window is None and time.monotonic() >= self._ask_again:
            # a server that is down, or does not tell, is asked again later
            self._ask_again = time.monotonic() + _ASK_AGAIN
            self._window = asked(self._server)
            logger.info("%s: a context window of %s tokens", self._server.shown, self._window or f"{_WINDOW} (it does not say)")
        return self._window or _WINDOW

    @property
    def window_known(self) -> bool:
        """Can `context_window` be told without asking the server?"""
        return self._window is not None

    def count_tokens(self, text: str) -> int:
        """An estimate, on the high side (`ragdb.openai_api.estimate_tokens`), unless `encoding` was given."""
        return self._count(text)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Completion:
        """One answer; text "" where the server sent none. Raises LLMError, within `deadline` seconds."""
        until = None if deadline is None else time.monotonic() + deadline
        create = self._server.client.chat.completions.with_streaming_response.create
        body = self._body(messages, schema, temperature, max_tokens)

        def ask(sent: Mapping[str, Any]) -> dict[str, Any]:
            answer: dict[str, Any] = retried(lambda: post(self._server, create, sent, deadline=until), until)
            return answer

        return self._completion(self._asked(ask, body, schema))

    def stream(
        self,
        messages: Sequence[Message],
        *,
        temperature: float = 0.2,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> Iterator[str | Completion]:
        """The answer in pieces, then what it took. Retried before the first piece only; raises LLMError, also half way."""
        until = None if deadline is None else time.monotonic() + deadline
        body = {**self._body(messages, None, temperature, max_tokens), "stream": True}
        if self._with_usage:
            body["stream_options"] = {"include_usage": True}
        response = self._asked(lambda sent: retried(lambda: self._open(sent, until), until), body)
        with response:
            content_type = response.response.headers.get("content-type", "")
            with failures_of(self._server):
                pieces = received(self._server, response.response.iter_bytes(), until)
                if "event-stream" not in content_type:  # a server that cannot stream, or a proxy's page
                    answer = parsed(self._server, b"".join(pieces), content_type)
                    completion = self._completion(answer)
                    yield from filter(None, [completion.text])
                    yield replace(completion, text="")
                    return
                took = Completion("")
                for event in events(self._server, pieces):
                    yield from filter(None, [_delta(event)])
                    took = _took(took, event)
                yield took

    def _body(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None, temperature: float, max_tokens: int | None
    ) -> dict[str, Any]:
        # OpenAI renamed max_tokens and refuses the old name for newer models; other servers know the old one
        limit = "max_completion_tokens" if self._server.base_url == OPENAI_URL else "max_tokens"
        body: dict[str, Any] = {
            "model": self._server.model,
            "messages": [{"role": m.role, "content": sendable(m.content)} for m in messages],
            limit: max_tokens or self.max_output_tokens,
        }
        if self._with_temperature:
            body["temperature"] = temperature
        if schema is not None:
            _set_schema(body, schema, self._schema_form)
        return body

    def _asked(
        self, ask: Callable[[Mapping[str, Any]], Any], body: dict[str, Any], schema: Mapping[str, Any] | None = None
    ) -> Any:
        """Asks; what the server refuses and can be left out is left out, and stays so once it went through without."""
        form = self._schema_form if schema is not None else "none"
        while True:
            try:
                answer = ask(body)
                break
            except OpenAILLMError as error:
                unknown = [name for name in ("temperature", "stream_options") if name in body and name in str(error)]
                if error.reason != "refused" or not (unknown or form != "none"):
                    raise
                if unknown:
                    del body[unknown[0]]
                else:
                    form = "json_object" if form == "json_schema" and "json_object" in str(error) else "none"
                    _set_schema(body, schema or {}, form)
        self._with_temperature = "temperature" in body
        if "stream" in body:
            self._with_usage = "stream_options" in body
        if schema is not None:
            self._schema_form = form
        return answer

    def _open(self, sent: Mapping[str, Any], until: float | None) -> Any:
        create: Callable[..., Any] = self._server.client.chat.completions.create

        def work() -> Any:
            with failures_of(self._server):
                return create(**sent, timeout=seconds_left(self._server, until))

        return in_time(self._server, until, work)

    def _completion(self, answer: Mapping[str, Any]) -> Completion:
        try:
            choice = answer["choices"][0]
            content = choice["message"].get("content")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            shown = json.dumps(answer, ensure_ascii=False)[:200]
            raise self._server.fail(
                f"{self._server.shown} answered without choices[0].message: {shown}; is this a chat model? see RAGDB_LLM"
            ) from error
        used = answer.get("usage")
        usage = used if isinstance(used, Mapping) else {}
        return Completion(
            _text(content),
            _tokens(usage.get("prompt_tokens")),
            _tokens(usage.get("completion_tokens")),
            choice.get("finish_reason"),
            answer.get("model"),
        )

    @cached_property
    def _count(self) -> Callable[[str], int]:
        if self._encoding is None:
            # tiktoken is not used unasked: it fetches its tables from the network, without a timeout, at the first use
            return estimate_tokens
        require("tiktoken", "openai")
        import tiktoken  # type: ignore[import-not-found,unused-ignore]

        try:
            encode = tiktoken.get_encoding(self._encoding).encode_ordinary
        except Exception as error:
            raise LLMError(
                f"tiktoken has no table {self._encoding!r} ({type(error).__name__}: {error}); fetch it once "
                "where the network allows it and set TIKTOKEN_CACHE_DIR, or leave the option encoding out"
            ) from error
        return lambda text: len(encode(text))


def _set_schema(body: dict[str, Any], schema: Mapping[str, Any], form: str) -> None:
    body.pop("response_format", None)
    if form == "json_schema":
        body["response_format"] = {"type": form, "json_schema": {"name": "answer", "schema": dict(schema), "strict": True}}
    elif form == "json_object":
        body["response_format"] = {"type": form, "schema": dict(schema)}


def _delta(event: Mapping[str, Any]) -> str:
    """The text in one event of a stream; "" in those that carry a role, a thought or the usage."""
    choices = event.get("choices")
    delta = choices[0].get("delta") if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else None
    return _text(delta.get("content")) if isinstance(delta, Mapping) else ""


def _took(so_far: Completion, event: Mapping[str, Any]) -> Completion:
    """What an event tells beside text: why it ended (in one), the tokens (in another, often without choices)."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    used = event.get("usage")
    usage = used if isinstance(used, Mapping) else {}
    return Completion(
        "",
        _tokens(usage.get("prompt_tokens", so_far.prompt_tokens)),
        _tokens(usage.get("completion_tokens", so_far.completion_tokens)),
        choice.get("finish_reason") or so_far.finish_reason,
        event.get("model") or so_far.model,
    )


def _tokens(told: Any) -> int | None:
    """A count of tokens; None for what is none: some servers write texts there."""
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def _text(content: Any) -> str:
    if isinstance(content, list):  # parts, as some servers send them
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


Adapter = OpenAILLM
