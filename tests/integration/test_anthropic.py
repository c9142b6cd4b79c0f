"""Anthropic's own citations: passages go as documents, and what the model took from which comes back as `[n]`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.adapters import load_llm
from ragdb.errors import ConfigError, ContextTooSmall, LLMError
from ragdb.testing import FakeEmbedder
from ragdb.testing.server import FakeOpenAIServer, Reply
from ragdb.types import Message

pytest.importorskip("anthropic", reason="needs the extra anthropic")

Query = Callable[..., list[tuple[Any, ...]]]
ASK = [Message("system", "Be brief."), Message("user", "When?")]
BLOCKS = [("Hold the button", [0]), (" and wait", []), (" for ten seconds.", [1, 0])]


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as fake:
        fake.answers("/v1/messages", lambda body: Reply.message(BLOCKS, stream=bool(body.get("stream"))))
        yield fake


def llm(server: FakeOpenAIServer, **how: Any) -> Any:
    return load_llm("anthropic:claude", base_url=server.base_url.removesuffix("/v1"), api_key="secret-key", **how)


def refused(status: int, message: str) -> Reply:
    return Reply.json({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, status=status)


def test_what_the_model_took_from_a_passage_is_cited(server: FakeOpenAIServer, ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=llm(server)) as rag:
        rag.add(Document("a", "# Reset\n\nHold the router button.", title="Router"))
        rag.add(Document("b", "# Wait\n\nWait ten seconds for the router."))
        whole = rag.ask("How do I reset the router button?", pipeline=Pipeline(window=0))
        stream = rag.stream("How do I reset the router button?", pipeline=Pipeline(window=0))
        said = "".join(map(str, stream))
    [body, streamed] = server.bodies("messages")
    documents = [part for part in body["messages"][-1]["content"] if part["type"] == "document"]
    assert all(document["citations"] == {"enabled": True} for document in documents)
    assert body["messages"][-1]["content"][-1] == {"type": "text", "text": "How do I reset the router button?"}
    assert "Hold the router button" not in body["system"]
    assert streamed["stream"] is True
    first, second = (document["source"]["data"] for document in documents)
    order = {citation.number: citation.quote for citation in whole.citations}
    numbers = [n for text in (first, second) for n, quote in order.items() if quote in text or text in quote]
    assert whole.text == f"Hold the button[{numbers[0]}] and wait for ten seconds.[{numbers[1]}][{numbers[0]}]"
    assert said == whole.text
    assert stream.answer is not None
    assert stream.answer.citations == whole.citations
    assert (stream.answer.usage["prompt_tokens"], whole.usage["prompt_tokens"]) == (7, 7)


def test_a_schema_and_a_temperature_that_are_refused_are_left_out(server: FakeOpenAIServer) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        for name in ("temperature", "output_config"):
            if name in body:
                return refused(400, f"{name}: not supported by this model")
        return Reply.message([("yes", [])])

    server.answers("/v1/messages", answer)
    model = llm(server)
    for _ in range(2):
        assert model.complete(ASK, schema={"type": "object"}).text == "yes"
    assert len(server.bodies("messages")) == 4
    assert server.bodies("messages")[-1].keys() >= {"model", "messages", "max_tokens", "system"}


@pytest.mark.parametrize(
    ("reply", "why", "transient"),
    [
        (refused(401, "invalid x-api-key"), "set RAGDB_LLM_API_KEY", False),
        (refused(404, "model: claude"), "set RAGDB_LLM to a model", False),
        (refused(400, "prompt is too long: 9 tokens > 5"), "RAGDB_LLM_CONTEXT_WINDOW", False),
        (refused(529, "Overloaded"), "run it again later", True),
    ],
)
def test_a_refusal_names_the_setting_and_hides_the_key(server: FakeOpenAIServer, reply: Reply, why: str, transient: bool) -> None:
    server.answers("/v1/messages", reply)
    with pytest.raises(LLMError, match=why) as caught:
        llm(server).complete(ASK, deadline=5)
    assert caught.value.transient == transient
    assert "secret-key" not in str(caught.value)


def test_a_busy_server_is_asked_again_and_a_slow_one_is_left(server: FakeOpenAIServer) -> None:
    server.answers("/v1/messages", refused(429, "slow down"), Reply.message([("yes", [])]))
    assert llm(server).complete(ASK, deadline=10).text == "yes"
    server.answers("/v1/messages", Reply("late", delay=20))
    for ask in (lambda m: m.complete(ASK, deadline=0.5), lambda m: list(m.stream(ASK, deadline=0.5))):
        began = time.monotonic()
        with pytest.raises(LLMError, match="did not finish in time"):
            ask(llm(server))
        assert time.monotonic() - began < 3


def test_what_is_missing_is_said_when_it_is_made() -> None:
    with pytest.raises(LLMError, match="set RAGDB_LLM_API_KEY"):
        load_llm("anthropic:claude")
    with pytest.raises(ConfigError, match="anthropic needs a model"):
        load_llm("anthropic", api_key="k")
    with pytest.raises(ContextTooSmall, match="no room for a prompt"):
        load_llm("anthropic:claude", api_key="k", context_window=100, max_output_tokens=100)
