"""Prompts that users replace: what is not theirs stays ours, and what cannot be used is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragdb.errors import ConfigError
from ragdb.prompts import OURS, Prompts


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_replaced_text_is_used_and_the_others_stay(tmp_path: Path) -> None:
    mine = Prompts(
        folder(tmp_path, **{"en__answer.txt": "Be brief, for $$5.\n$passages", "ja__messages.toml": 'thanks = "はい"\n'})
    )
    assert mine.template("answer", "en").substitute(passages="P") == "Be brief, for $5.\nP"
    assert mine.template("answer", "ja") == OURS.template("answer", "ja")
    assert mine.message("thanks", "ja") == "はい"
    assert mine.message("farewell", "ja") == OURS.message("farewell", "ja")
    assert mine.message("waiting", "en", count="3") == OURS.message("waiting", "en", count="3")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("en__answer.txt", "no place", r"has nothing to be filled in; it needs \$passages"),
        ("en__answer.txt", "$passages $question", r"has \$passages, \$question to be filled in"),
        ("en__answer.txt", "$passages costs 5$", "begins no word"),
        ("en__anwser.txt", "$passages", "replaces nothing; ragdb has en/answer.txt"),
        ("fr__answer.txt", "$passages", "replaces nothing"),
        ("en__messages.toml", "thanks = 3", "thanks has to be a text"),
        ("en__messages.toml", 'thank = "x"', "has no use for thank"),
        ("en__messages.toml", "thanks", "is no TOML"),
        ("en__messages.toml", 'waiting = "wait"', r"needs \$count"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Prompts(folder(tmp_path, **{name: text}))


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which is no folder"):
        Prompts(tmp_path / "none")
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "answer.txt").write_bytes(b"\xff\xfe$passages")
    with pytest.raises(ConfigError, match="cannot be read as UTF-8"):
        Prompts(tmp_path)


def test_ours_are_alike_in_both_languages() -> None:
    ours = Path(__file__).parents[2] / "ragdb" / "prompts"
    names = {language: {path.name for path in (ours / language).iterdir()} for language in ("en", "ja")}
    assert names["en"] == names["ja"]
    for name in names["en"] - {"messages.toml"}:
        stem = name.removesuffix(".txt")
        assert set(OURS.template(stem, "en").get_identifiers()) == set(OURS.template(stem, "ja").get_identifiers()), name


def test_the_digest_is_that_of_the_words(tmp_path: Path) -> None:
    ours = Prompts().digest()
    assert Prompts().digest() == ours
    (tmp_path / "en").mkdir()
    text = Prompts().template("answer", "en").template
    (tmp_path / "en" / "answer.txt").write_text(text, encoding="utf-8")
    assert Prompts(tmp_path).digest() == ours
    (tmp_path / "en" / "answer.txt").write_text(text + "\nBe brief.", encoding="utf-8")
    assert Prompts(tmp_path).digest() != ours
