"""One request to a server that speaks OpenAI's HTTP interface: JSON back, or a ModelError that names what to change.

Shared by the embedder and the language model. Answers are read as JSON here, not by the library, which hands on an HTML
page of a proxy as if it were an answer. The API key never stands in a message.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from ragdb.adapters import require
from ragdb.deadline import within
from ragdb.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
OPENAI_URL = "https://api.openai.com/v1"
_PLACEHOLDER_KEY = "no-key"  # local servers want none, the library wants one
_PIECES = re.compile(r"[A-Za-z\u00aa-\u024f]+|\s+|.")
_LONG_WORD = 10
_GRACE = 0.2  # seconds, for what keeps the deadline itself
_WORDS = re.compile(r"[A-Za-z\u00aa-\u024f]+")
_OTHER = re.compile(r"[^\W\d_a-zA-Z\u00aa-\u024f]")
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size)|maximum context|too many tokens|prompt is too long|input is too long", re.IGNORECASE
)


class ServerFailure(ModelError):
    """What the adapters raise. `reason` is for their own decisions: `timeout`, `too_long`, or `refused` (the server does
    not take something in the request)."""

    reason: str = ""


@dataclass(frozen=True)
class Server:
    """Where the model is, and how to name the settings that belong to it (`RAGDB_LLM`: `RAGDB_LLM_BASE_URL`, ...)."""

    model: str
    base_url: str
    setting: str
    error: type[ServerFailure]
    key: str = field(repr=False)
    timeout: float
    make: Callable[[], openai.OpenAI] = field(repr=False)
    _clients: dict[int, openai.OpenAI] = field(default_factory=dict, repr=False)

    @property
    def client(self) -> openai.OpenAI:
        """The library's client of this process: after a fork two would read each other's answers from one connection."""
        pid = os.getpid()
        if pid not in self._clients:
            self._clients[pid] = self.make()
        return self._clients[pid]

    @property
    def shown(self) -> str:
        """The model and the server's address, without a password in it."""
        parts = urlsplit(self.base_url)
        return f"{self.model} at {urlunsplit(parts._replace(netloc=parts.netloc.rpartition('@')[2]))}"

    def fail(self, message: str, *, transient: bool = False, reason: str = "") -> ServerFailure:
        failure = self.error(self.hide(message), transient=transient)
        failure.reason = reason
        return failure

    def hide(self, text: str) -> str:
        password = urlsplit(self.base_url).password
        for secret in (self.key if self.key != _PLACEHOLDER_KEY else None, password):
            text = text.replace(secret, "***") if secret else text
        return text


def connect(
    model: str,
    *,
    base_url: str | None,
    api_key: str | None,
    setting: str,
    error: type[ServerFailure],
    timeout: float,
    max_retries: int,
) -> Server:
    """A server to ask. No environment variable is read: not the application's OPENAI_API_KEY, which is not for us to spend."""
    require("openai", "openai")
    import openai

    key = (api_key or "").strip() or (_PLACEHOLDER_KEY if base_url else "")
    if not key:
        raise error(
            f"no API key for {model} at {OPENAI_URL}; set {setting}_API_KEY, or {setting}_BASE_URL to a server that needs none "
            "(OPENAI_API_KEY is not read)"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{setting}_API_KEY holds a character that cannot stand in an HTTP header; copy the key again")
    url = (base_url or OPENAI_URL).strip().rstrip("/")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(
            f"{setting}_BASE_URL is {base_url!r}; write it with its scheme and path, as in http://127.0.0.1:8080/v1"
        )
    make = partial(openai.OpenAI, base_url=url, api_key=key, timeout=timeout, max_retries=max_retries)
    server = Server(model, url, setting, error, key, timeout, make)
    _ = server.client  # what is wrong with its arguments is said now
    return server


def post(server: Server, create: Callable[..., Any], body: Mapping[str, Any], *, deadline: float | None = None) -> dict[str, Any]:
    """The JSON object that `create` (a `.with_streaming_response.create` of the library) gets for `body`.

    `deadline` is a moment of `time.monotonic()`. It is looked at between the pieces of the answer, and the whole runs on a
    thread that is left behind: a server that sends a byte now and then, of its headers too, keeps every read short.
    """

    def work() -> tuple[bytes, str]:
        with failures_of(server), create(**body, timeout=seconds_left(server, deadline)) as response:
            raw = b"".join(received(server, response.iter_bytes(), deadline))
        return raw, response.headers.get("content-type", "")

    return parsed(server, *in_time(server, deadline, work))


def in_time(server: Server, deadline: float | None, work: Callable[[], T]) -> T:
    """The result of work that may hang, or the error that says so."""
    if deadline is None:
        return work()
    try:
        return within(seconds_left(server, deadline) + _GRACE, work)
    except TimeoutError:
        raise _out_of_time(server) from None


def received(server: Server, pieces: Iterable[bytes], deadline: float | None) -> Iterator[bytes]:
    """The pieces of a body as they come, while the deadline is not over."""
    for piece in pieces:
        seconds_left(server, deadline)
        yield piece


def events(server: Server, pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to `[DONE]`. Raises where the stream ends without an end."""
    rest = b""
    ended = False
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or not data:
                continue
            if data == b"[DONE]":
                return
            event = parsed(server, data, "text/event-stream")
            ended = ended or any(choice.get("finish_reason") for choice in event.get("choices") or () if isinstance(choice, dict))
            yield event
    if not ended:
        raise server.fail(f"the stream from {server.shown} broke off before its end; run it again", transient=True)


def parsed(server: Server, raw: bytes, content_type: str) -> dict[str, Any]:
    """The answer as a JSON object. Raises where the server answered something else, and shows its beginning."""
    text = raw.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and not value.get("error"):
        return value
    if isinstance(value, dict):
        raise server.fail(f"{server.shown} answered with an error: {_short(json.dumps(value['error'], ensure_ascii=False))}")
    if "html" in content_type or text[:1] == "<":
        kind = "an HTML page"
    else:
        kind = "broken JSON" if text and value is None else "no JSON object"
    raise server.fail(
        f"{server.shown} answered {kind} ({content_type or 'no content type'}): {_short(text)!r}; "
        f"look whether {server.setting}_BASE_URL is the interface's address, often ending in /v1, or whether a proxy answers",
        # a page or half an answer is what a proxy sends while the server behind it restarts
        transient=kind != "no JSON object",
    )


def seconds_left(server: Server, deadline: float | None) -> float:
    """The timeout for the next wait. Raises a transient error when the deadline is over."""
    if deadline is None:
        return server.timeout
    left = deadline - time.monotonic()
    if left <= 0:
        raise _out_of_time(server)
    return left


@contextmanager
def failures_of(server: Server) -> Iterator[None]:
    """Inside, whatever goes wrong with the request comes out as the adapter's own error."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001  errors of the HTTP library come through unwrapped, httpx's or httpx2's by version
        raise _translated(server, error) from _safe_cause(server, error)


def _translated(server: Server, error: Exception) -> ServerFailure:
    """What went wrong and which setting to change. Transient: timeout, connection, 408, 409, 429, 5xx."""
    import openai

    if isinstance(error, openai.APITimeoutError) or "Timeout" in type(error).__name__:
        return _out_of_time(server)
    if isinstance(error, openai.APIStatusError):
        return _refused(server, error)
    if isinstance(error, openai.APIConnectionError):
        why = error.__cause__ or error
        return server.fail(
            f"no connection to {server.shown} ({type(why).__name__}: {why}); start it, or correct {server.setting}_BASE_URL",
            transient=True,
        )
    return server.fail(
        f"the request to {server.shown} broke off: {type(error).__name__}: {_short(str(error))}; run it again", transient=True
    )


def _safe_cause(server: Server, error: Exception) -> Exception | None:
    """The error to chain from, unless it (or what it came from) quotes the key."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return None if any(server.hide(str(link)) != str(link) for link in chain) else error


def _is_too_long(error: Exception) -> bool:
    """Did the server refuse because the prompt does not fit?"""
    return getattr(error, "code", None) == "context_length_exceeded" or bool(_TOO_LONG.search(str(error)))


def estimate_tokens(text: str) -> int:
    """An estimate, on the high side: 1.15 times what Qwen and 1.25 times what XLM-R count for examples/handbook
    as a whole; a small table may have a fifth more than estimated.

    A token for 5 letters of a Latin word (3 in a long one, 2 with accents), for each digit, each mark and each character
    of other scripts; two above U+FFFF. Dividing all characters by 3.5 gave half the tokens of a table or a URL.
    """
    count = 0
    for piece in _PIECES.findall(text):
        first = piece[0]
        if first.isspace():
            count += len(piece) > 1 or first == "\n"
            count += sum(1 for character in piece if character > "\x7f")  # an ideographic space is a token, often two
        elif len(piece) == 1:
            count += 2 if first > "\uffff" else 1
        else:
            letters = (3 if len(piece) > _LONG_WORD else 5) if piece.isascii() else 2
            count += -(-len(piece) // letters)
    return count


def fewest_tokens(text: str) -> int:
    """A floor that no tokenizer in use goes below: a token for a Latin word, one for four letters of other scripts. Lines and
    dots are often drawn in one token for many, so they are not counted."""
    return sum(1 for _ in _WORDS.finditer(text)) + sum(1 for _ in _OTHER.finditer(text)) // 4


def _refused(server: Server, error: openai.APIStatusError) -> ServerFailure:
    said = _short(_words(error))
    status = error.status_code
    # llama-cpp-python answers 500 where it does not know a form of response_format
    refused = status in (400, 422) or (status == 500 and "response_format" in said)
    transient = status in (408, 409, 425, 429) or (status >= 500 and not refused)
    prefix = server.setting
    if _is_too_long(error):
        advice = (
            "set RAGDB_LLM_CONTEXT_WINDOW to what the server really has, or RAGDB_LLM_MAX_TOKENS lower"
            if prefix == "RAGDB_LLM"
            else "the text is longer than the model takes: make chunks smaller"
        )
        return server.fail(f"the prompt is too long for {server.shown}: {said}; {advice}", reason="too_long")
    if status == 429 and getattr(error, "code", None) == "insufficient_quota":
        return server.fail(
            f"{server.shown} refused: the quota is used up ({said}); pay for more, or set {prefix}_API_KEY to another key"
        )
    advice = {
        401: f"set {prefix}_API_KEY to a key that {prefix}_BASE_URL accepts",
        403: f"the key in {prefix}_API_KEY may not use this model; set another key or {prefix}",
        404: f"set {prefix} to a model that the server has, and look whether {prefix}_BASE_URL ends as it should, often in /v1",
        413: "send less at once: the request is too big for the server",
        429: "the server asks for a pause; run it again later",
    }.get(
        status, "the server failed; run it again, and look at its log" if status >= 500 else f"see {prefix} and {prefix}_BASE_URL"
    )
    reason = "refused" if refused else ""
    return server.fail(f"{server.shown} answered {status}: {said}; {advice}", transient=transient, reason=reason)


def _out_of_time(server: Server) -> ServerFailure:
    advice = " (or RAGDB_LLM to a faster model, or RAGDB_LLM_MAX_TOKENS lower)" if server.setting == "RAGDB_LLM" else ""
    return server.fail(
        f"{server.shown} did not finish in time; run it again, or set {server.setting}_BASE_URL to a server that is up{advice}",
        transient=True,
        reason="timeout",
    )


def _words(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping):
        return str(body.get("message") or body.get("detail") or dict(body))
    return str(body or error)


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}..."
