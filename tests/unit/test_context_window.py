"""The window of a model is asked of its server: each kind tells it in a place of its own."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ragdb.adapters import load_llm
from ragdb.testing.server import FakeOpenAIServer, Reply

VLLM = {"/v1/models": {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 40960}]}}
LLAMA_CPP = {
    "/v1/models": {"data": [{"id": "m", "meta": {"n_ctx_train": 32768}}]},
    "/props": {"default_generation_settings": {"n_ctx": 6144}},
}
LM_STUDIO = {
    "/v1/models": {"data": [{"id": "m"}]},
    "/api/v0/models/m": {"loaded_context_length": 5000, "max_context_length": 99999},
}
OLLAMA = {"/v1/models": {"data": [{"id": "m:latest"}]}, "/api/ps": {"models": [{"name": "m:latest", "context_length": 12288}]}}
OLLAMA_COLD = {"/api/ps": {"models": []}, "/api/show": {"parameters": "stop  x\nnum_ctx    16384\n"}}
OLLAMA_SILENT = {"/api/ps": {"models": []}, "/api/show": {"model_info": {"llama.context_length": 131072}}}


def server(told: dict[str, Any]) -> FakeOpenAIServer:
    fake = FakeOpenAIServer()
    for path, answer in told.items():
        fake.answers(path, Reply.json(answer))
    return fake


@pytest.mark.parametrize(
    ("told", "window"),
    [
        (VLLM, 40960),
        (LLAMA_CPP, 6144),
        (LM_STUDIO, 5000),
        (OLLAMA, 12288),
        (OLLAMA_COLD, 16384),
        (OLLAMA_SILENT, 4096),
        ({}, 8192),
        ({"/v1/models": {"data": "none"}, "/props": {"default_generation_settings": 3}}, 8192),
    ],
    ids=["vLLM", "llama.cpp", "LM Studio", "Ollama", "Ollama, not loaded", "Ollama, not told", "nobody says", "nonsense"],
)
def test_the_window_is_asked_of_the_server(told: dict[str, Any], window: int) -> None:
    with server(told) as fake:
        llm = load_llm("openai:m", base_url=fake.base_url)
        assert fake.requests == [], "nothing is asked before it is needed"
        assert llm.context_window == window
        asked = len(fake.requests)
        assert llm.context_window == window
        assert len(fake.requests) == asked, "and once"


def test_what_is_configured_is_not_asked() -> None:
    with server(VLLM) as fake:
        assert load_llm("openai:m", base_url=fake.base_url, context_window=2000).context_window == 2000
        assert fake.requests == []
    assert load_llm("openai:m", api_key="k").context_window == 8192


def test_a_server_that_hangs_costs_two_seconds() -> None:
    with FakeOpenAIServer() as fake:
        fake.answers("/v1/models", Reply("late", delay=30))
        began = time.monotonic()
        assert load_llm("openai:m", base_url=fake.base_url).context_window == 8192
        assert time.monotonic() - began < 4
