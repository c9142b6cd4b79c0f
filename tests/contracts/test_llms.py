"""What every language model keeps to. A new file in ragdb/llms with an Adapter is tested by being there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from ragdb import adapters
from ragdb.errors import LLMError
from ragdb.protocols import LLM
from ragdb.testing import FakeLLM, FakeOpenAIServer, Reply
from ragdb.types import Completion, Message

# answers to come -> a model that gives them; None: an answer without content, an int: an HTTP status or a failure
Make = Callable[[list[str | int | None]], LLM]
ASK = [Message("system", "Answer briefly."), Message("user", "When does snow duty begin?")]


def _openai(request: pytest.FixtureRequest) -> Make:
    if importlib.util.find_spec("openai") is None:
        pytest.skip("the package openai is not installed (extra: openai)")

    def make(answers: list[str | int | None]) -> LLM:
        replies = [Reply.error(a) if isinstance(a, int) else a for a in answers]
        server = FakeOpenAIServer(chat=replies).__enter__()
        request.addfinalizer(lambda: server.__exit__(None, None, None))
        return adapters.load_llm("openai:fake", base_url=server.base_url)

    return make


def _fake(request: pytest.FixtureRequest) -> Make:
    def make(answers: list[str | int | None]) -> LLM:
        return FakeLLM([LLMError("refused", transient=a >= 500) if isinstance(a, int) else a for a in answers])

    return make


def _anthropic(request: pytest.FixtureRequest) -> Make:
    if importlib.util.find_spec("anthropic") is None:
        pytest.skip("the package anthropic is not installed (extra: anthropic)")

    def make(answers: list[str | int | None]) -> LLM:
        server = FakeOpenAIServer().__enter__()
        request.addfinalizer(lambda: server.__exit__(None, None, None))
        left = list(answers)

        def answer(body: dict[str, Any]) -> Reply:
            said = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(said, int):
                return Reply.json({"type": "error", "error": {"type": "x", "message": "refused"}}, status=said)
            return Reply.message([(said, [])] if said else [], stream=bool(body.get("stream")))

        server.answers("/v1/messages", answer)
        return adapters.load_llm("anthropic:fake", base_url=server.base_url.removesuffix("/v1"), api_key="k")

    return make


MAKERS = {"openai": _openai, "anthropic": _anthropic, "fake": _fake}


@pytest.fixture(params=[*adapters.modules("llms"), "fake"])
def make(request: pytest.FixtureRequest) -> Make:
    assert request.param in MAKERS, f"a new language model {request.param!r}: say in MAKERS how this test makes one"
    return MAKERS[request.param](request)


def test_a_model_has_what_the_protocol_asks_and_room_for_a_prompt(make: Make) -> None:
    llm = make(["x"])
    assert isinstance(llm, LLM)
    assert 0 < llm.max_output_tokens < llm.context_window


def test_a_completion_carries_the_text(make: Make) -> None:
    completion = make(["At six [1]."]).complete(ASK, deadline=20)
    assert isinstance(completion, Completion)
    assert completion.text == "At six [1]."
    assert completion.finish_reason == "stop"


@pytest.mark.parametrize("said", [None, ""])
def test_an_answer_without_content_is_an_empty_text(make: Make, said: str | None) -> None:
    assert make([said]).complete(ASK).text == ""


def test_a_schema_may_be_given(make: Make) -> None:
    assert (
        make(['{"queries": []}']).complete(ASK, schema={"type": "object"}, temperature=0.0, max_tokens=50).text
        == '{"queries": []}'
    )


def test_the_pieces_of_a_stream_are_the_answer(make: Make) -> None:
    *pieces, took = make(["Snow duty begins at six 🌨 [1]."]).stream(ASK, deadline=20)
    assert isinstance(took, Completion)
    assert (took.text, bool(took.prompt_tokens), bool(took.completion_tokens)) == ("", True, True)
    assert "".join(str(piece) for piece in pieces) == "Snow duty begins at six 🌨 [1]."
    assert len(pieces) > 1
    assert all(pieces)


def test_a_refusal_is_a_permanent_error(make: Make) -> None:
    with pytest.raises(LLMError) as caught:
        make([401]).complete(ASK)
    assert not caught.value.transient
    with pytest.raises(LLMError):
        list(make([401]).stream(ASK))


def test_messages_with_nul_and_lone_surrogates_are_sent(make: Make) -> None:
    assert make(["ok"]).complete([Message("user", "x\x00y \ud83d end")]).text == "ok"


def test_tokens_of_japanese_are_not_underestimated(make: Make) -> None:
    llm = make(["x"])
    assert llm.count_tokens("") == 0
    assert llm.count_tokens("在宅勤務手当") >= 4
    assert 100 <= llm.count_tokens("word " * 100) <= 200


def test_the_recorded_name_finds_the_same_adapter_again(make: Make) -> None:
    llm = make(["x"])
    again = adapters.load_llm(llm.name, defaults={"base_url": "http://127.0.0.1:1/v1", "api_key": "k"})
    assert type(again) is type(llm)
    assert again.name == llm.name
