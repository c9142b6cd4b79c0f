"""A rerank server: Cohere, Jina, vLLM, Infinity, Text Embeddings Inference. `http:URL`, the URL of the very endpoint.

All take a question and texts and give `[{index, score}]`, in any order; two spellings of the request are in use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urldefrag, urlsplit, urlunsplit

from ragdb.adapters import require, sendable
from ragdb.deadline import within
from ragdb.errors import ConfigError, RerankerError
from ragdb.llms import calls
from ragdb.llms.calls import Call

_LARGEST = 10_000_000  # bytes of an answer


class HTTPReranker:
    """`http:https://api.jina.ai/v1/rerank#jina-reranker-v2-base-multilingual`; the model after `#` where the server wants one.

    `max_tokens` is what the server's model reads of question and passage together: longer passages go in windows.
    """

    example: ClassVar[str] = "http:http://127.0.0.1:8080/rerank"

    def __init__(self, url: str, model: str, api_key: str, max_tokens: int, timeout: float) -> None:
        self.url = url
        self.model = model
        self.max_tokens = max_tokens
        parts = urlsplit(url)
        self._shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.name = f"http:{self._shown}" + (f"#{model}" if model else "")
        self._timeout = timeout
        self._key = api_key
        self._texts_key = "documents"
        self.batch_size: int | None = None  # all at once

    @classmethod
    def load(
        cls,
        model: str,
        *,
        api_key: str | None = None,
        max_tokens: int = 512,
        batch_size: int | None = None,
        timeout: float = 10.0,
    ) -> HTTPReranker:
        """The server; nothing is sent yet. `batch_size`: texts of one request, where the server limits them."""
        require("requests", "rerank")
        try:
            url, name = urldefrag(model)
            parts = urlsplit(url)
        except ValueError as error:
            raise ConfigError(f"{model} is no address of a rerank server: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"a rerank server is named by its address; write RAGDB_RERANKER={cls.example}, not http:{model}")
        key = (api_key or "").strip()
        if not (key.isascii() and (key.isprintable() or not key)):
            raise ConfigError("RAGDB_RERANKER_API_KEY holds a character that cannot stand in an HTTP header; copy the key again")
        found = cls(url, name, key, max_tokens, timeout)
        found.batch_size = batch_size
        return found

    def score(self, query: str, passages: Sequence[str], *, deadline: float | None = None) -> list[float]:
        """Raises RerankerError, within `deadline` seconds (at most the timeout)."""
        until = time.monotonic() + min(self._timeout, deadline if deadline is not None else self._timeout)
        try:
            answer = within(until - time.monotonic(), lambda: self._answer(query, passages, until))
            scores = self._scores(answer, len(passages))
        except TimeoutError:
            # a server that sends its headers byte by byte: no read of it ever times out
            calls.note(Call(self.name, failed=True))
            raise self._failure("did not answer in time; look whether it is up, or give rerank_timeout more") from None
        except RerankerError:
            calls.note(Call(self.name, failed=True))
            raise
        calls.note(Call(self.name, _tokens(answer)))
        return scores

    def _answer(self, query: str, passages: Sequence[str], until: float) -> str:
        status, answer = self._asked(query, passages, until)
        if status in (400, 422) and self._texts_key == "documents":
            # Text Embeddings Inference calls them so
            self._texts_key = "texts"
            second, answered = self._asked(query, passages, until)
            if second == 200:
                status, answer = second, answered
            else:
                self._texts_key = "documents"  # the first answer tells what is wrong
        if status != 200:
            raise self._failure(f"answered {status}: {_short(answer)}; {_advice(status)}")
        return answer

    def _asked(self, query: str, passages: Sequence[str], until: float) -> tuple[int, str]:
        import requests
        import urllib3

        body: dict[str, Any] = {"query": sendable(query), self._texts_key: [sendable(text) for text in passages]}
        if self.model:
            body["model"] = self.model
        if self._texts_key == "documents":
            body |= {"top_n": len(passages), "return_documents": False}
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            with requests.post(
                self.url,
                json=body,
                headers=headers,
                auth=lambda request: request,  # or a ~/.netrc would take the place of the key
                timeout=_left(until),
                stream=True,
                allow_redirects=False,
            ) as response:
                raw = b""
                # Whatever has come, and no more: a server that sends a byte now and then keeps every read short.
                while piece := response.raw.read1(65536, decode_content=True):
                    raw += piece
                    _left(until)
                    if len(raw) > _LARGEST:
                        raise self._failure(f"answered more than {_LARGEST} bytes")
                return response.status_code, raw.decode("utf-8", "replace")
        except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError) as error:
            raise self._failure("did not answer in time; look whether it is up, or give rerank_timeout more") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise self._failure(f"cannot be reached ({type(error).__name__}); start it, or correct RAGDB_RERANKER") from error

    def _scores(self, answer: str, wanted: int) -> list[float]:
        try:
            found = json.loads(answer)
        except ValueError:
            raise self._failure(f"answered no JSON: {_short(answer)!r}; look whether the address is the endpoint's") from None
        rows = found.get("results", found.get("data")) if isinstance(found, dict) else found
        scores: dict[int, float] = {}
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                score = row.get("relevance_score", row.get("score"))
                if isinstance(row.get("index"), int) and isinstance(score, (int, float)):
                    scores[row["index"]] = float(score)
        if scores.keys() != set(range(wanted)):
            raise self._failure(f"gave {len(scores)} scores for {wanted} passages: {_short(answer)}")
        return [scores[n] for n in range(wanted)]

    def _failure(self, message: str) -> RerankerError:
        text = f"the rerank server {self._shown} {message}"
        return RerankerError(text.replace(self._key, "***") if self._key else text)


def _tokens(answer: str) -> int | None:
    """What the server says it read: Jina and vLLM in `usage`; others bill by the search."""
    found = json.loads(answer)
    usage = found.get("usage") if isinstance(found, dict) else None
    tokens = (usage.get("total_tokens") or usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else None


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _advice(status: int) -> str:
    if status in (401, 403):
        return "set RAGDB_RERANKER_API_KEY to a key that it accepts"
    if status == 404:
        return "the address is that of the endpoint itself, often ending in /rerank"
    return "see its log" if status >= 500 else "see RAGDB_RERANKER"


def _short(text: str, limit: int = 200) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}..."


Adapter = HTTPReranker
