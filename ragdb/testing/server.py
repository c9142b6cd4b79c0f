"""A server on 127.0.0.1 that speaks OpenAI's interface and misbehaves on demand, for tests of what talks to it.

`with FakeOpenAIServer(chat=["first", Reply.error(429), "third"]) as server: load_llm("openai:any", base_url=server.base_url)`
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, TypeAlias

from ragdb.testing.fakes import FakeEmbedder


@dataclass(frozen=True)
class Reply:
    """One HTTP answer as it is sent. `delay` seconds before it; `drip` seconds before each byte of the body."""

    body: str | bytes
    status: int = 200
    content_type: str = "application/json"
    delay: float = 0.0
    drip: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False

    @classmethod
    def json(cls, value: Any, **more: Any) -> Reply:
        return cls(json.dumps(value, ensure_ascii=False), **more)

    @classmethod
    def error(cls, status: int, message: str = "refused", *, code: str | None = None, **more: Any) -> Reply:
        """OpenAI's form of an error."""
        return cls.json({"error": {"message": message, "code": code}}, status=status, **more)

    @classmethod
    def html(cls, body: str = "<!DOCTYPE html><html><title>502 Bad Gateway</title></html>", **more: Any) -> Reply:
        """What a proxy answers while the server behind it is down."""
        return cls(body, content_type="text/html", **more)

    @classmethod
    def broken(cls, **more: Any) -> Reply:
        """JSON that ends too early."""
        return cls('{"choices": [{"message": {"cont', **more)

    @classmethod
    def chat(cls, text: str | None, *, finish_reason: str = "stop", prompt_tokens: int = 7, **more: Any) -> Reply:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 3, "total_tokens": prompt_tokens + 3}
        return cls.json({"id": "1", "object": "chat.completion", "model": "fake", "choices": [choice], "usage": usage}, **more)

    @classmethod
    def stream(cls, pieces: Sequence[str], **more: Any) -> Reply:
        """Server-sent events, one a piece, then tokens; `cut=True` leaves out the end, as a server that died does."""
        chunks: list[dict[str, Any]] = [
            {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": p}}]} for p in pieces
        ]
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        chunks += [] if more.get("cut") else [{"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage}]
        events = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
        return cls("".join(events) + ("" if more.get("cut") else "data: [DONE]\n\n"), content_type="text/event-stream", **more)

    @classmethod
    def message(cls, blocks: Sequence[tuple[str, Sequence[int]]], *, stream: bool = False, **more: Any) -> Reply:
        """An answer in Anthropic's form: texts, each with the places (from 0) of the documents that it was taken from."""
        head = {"id": "1", "type": "message", "role": "assistant", "model": "fake", "stop_sequence": None}
        usage = {"input_tokens": 7, "output_tokens": 3}
        if not stream:
            content = [
                {"type": "text", "text": text, "citations": [_citation(place) for place in places]} for text, places in blocks
            ]
            return cls.json({**head, "content": content, "stop_reason": "end_turn", "usage": usage}, **more)
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}}
        ]
        for n, (text, places) in enumerate(blocks):
            deltas = [{"type": "text_delta", "text": piece} for piece in re.findall(r"\S+\s*|\s+", text)]
            deltas += [{"type": "citations_delta", "citation": _citation(place)} for place in places]
            events.append({"type": "content_block_start", "index": n, "content_block": {"type": "text", "text": ""}})
            events += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": n})
        events += [
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ]
        lines = (f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events)
        return cls("".join(lines), content_type="text/event-stream", **more)

    @classmethod
    def vectors(cls, vectors: Sequence[Sequence[Any]], *, indices: Sequence[int] | None = None, **more: Any) -> Reply:
        """Embeddings in the order given; `indices` are the texts that they say they belong to."""
        items = [
            {"object": "embedding", "index": i, "embedding": list(v)}
            for i, v in zip(indices or range(len(vectors)), vectors, strict=True)
        ]
        return cls.json(
            {"object": "list", "model": "fake", "data": items, "usage": {"prompt_tokens": 1, "total_tokens": 1}}, **more
        )


Answer: TypeAlias = str | Reply | Callable[[dict[str, Any]], str | Reply | None] | None


@dataclass(frozen=True)
class Request:
    """One request that came: the JSON body, and the headers in lower case."""

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]


class FakeOpenAIServer:
    """Answers `/v1/chat/completions`, `/v1/embeddings` and `/v1/rerank`.

    `chat`, `embeddings`, `rerank`: one answer for every request, or a list, one a request, the last one repeated. A text
    is what the model says (None: no content), a Reply is sent as it is, a function gets the request's JSON. Without
    `embeddings` the vectors are FakeEmbedder's. `requests` records what came. A GET is answered as a POST is.
    """

    def __init__(
        self,
        *,
        chat: Answer | Sequence[Answer] = "A fake answer [1].",
        embeddings: Answer | Sequence[Answer] = None,
        rerank: Answer | Sequence[Answer] = None,
        dimension: int = 8,
    ) -> None:
        self.requests: list[Request] = []
        self._scripts = {
            "/v1/chat/completions": _script(chat),
            "/v1/embeddings": _script(embeddings),
            "/v1/rerank": _script(rerank),
        }
        self._embedder = FakeEmbedder(dimension)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = _HTTPServer(self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def answers(self, path: str, *replies: Answer) -> None:
        """What to answer at another path, for what servers have beside OpenAI's interface."""
        self._scripts[path] = list(replies)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests whose path ends so (`embeddings`)."""
        return [request.body for request in self.requests if request.path.endswith(path)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def wait(self, seconds: float) -> None:
        """Sleeps, but not longer than the server lives: a test with a long delay ends when it has seen enough."""
        self._stopping.wait(seconds)

    def answer(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            script = self._scripts.get(request.path)
            if not script:
                return Reply.error(404, f"no route {request.path}")
            answer = script.pop(0) if len(script) > 1 else script[0]
        said = answer(request.body) if callable(answer) else answer
        if isinstance(said, Reply):
            return said
        if request.path == "/v1/embeddings":
            return Reply.vectors(self._embedder.embed_passages(request.body["input"]))
        return Reply.stream(re.findall(r"\S+\s*", said or "")) if request.body.get("stream") else Reply.chat(said)


def _citation(place: int) -> dict[str, Any]:
    at = {"document_index": place, "document_title": None, "start_char_index": 0, "end_char_index": 1}
    return {"type": "char_location", "cited_text": "x", **at}


def _script(answers: Answer | Sequence[Answer]) -> list[Answer]:
    if answers is None or isinstance(answers, (str, Reply)) or callable(answers):
        return [answers]
    return list(answers)


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, fake: FakeOpenAIServer) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _HTTPServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        reply = self.server.fake.answer(Request(self.path, body, {k.lower(): v for k, v in self.headers.items()}))
        self.server.fake.wait(reply.delay)
        try:
            self._send(reply)
        except OSError:
            self.close_connection = True  # the client went away: what a test of timeouts wants

    do_GET = do_POST

    def _send(self, reply: Reply) -> None:
        data = reply.body.encode("utf-8") if isinstance(reply.body, str) else reply.body
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        self.send_header("content-length", str(len(data) + (100 if reply.cut else 0)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(data), 1 if reply.drip else max(1, len(data))):
            self.wfile.write(data[start : start + 1] if reply.drip else data)
            self.server.fake.wait(reply.drip)
        self.close_connection = reply.cut

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the requests are in `requests`."""
