"""Which side of a trial a question is on."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ragdb import RagDB, Trial, presets
from ragdb.errors import ConfigError
from ragdb.from_settings import arguments
from ragdb.settings import load_settings


def test_a_conversation_never_changes_sides() -> None:
    trial = Trial("rerank", presets.advanced, 0.5)
    sides = {chat: trial.arm(chat) for chat in map(str, range(200))}
    again = Trial("rerank", presets.advanced, 0.5)
    assert all(again.arm(chat) == side for chat, side in sides.items() for _ in range(3))


def test_about_the_share_goes_to_the_other_pipeline() -> None:
    for share in (0.1, 0.5, 0.9):
        trial = Trial("rerank", presets.advanced, share)
        for asked in (str, lambda n: None):
            counted = Counter(trial.arm(asked(n)) for n in range(4000))
            # four standard errors
            assert abs(counted["treatment"] / 4000 - share) < 4 * math.sqrt(share * (1 - share) / 4000)


def test_all_or_none_is_all_or_none() -> None:
    assert {Trial("t", presets.naive, 0).arm(chat) for chat in (None, "a", "b")} == {"control"}
    assert {Trial("t", presets.naive, 1).arm(chat) for chat in (None, "a", "b")} == {"treatment"}


def test_where_the_share_grows_nobody_goes_back() -> None:
    chats = list(map(str, range(500)))
    small, large = Trial("rerank", presets.advanced, 0.1), Trial("rerank", presets.advanced, 0.4)
    assert {c for c in chats if small.arm(c) == "treatment"} < {c for c in chats if large.arm(c) == "treatment"}


def test_two_trials_divide_the_same_conversations_differently() -> None:
    chats = list(map(str, range(500)))
    one, other = (Trial(name, presets.advanced, 0.5) for name in ("one", "other"))
    same = sum(one.arm(c) == other.arm(c) for c in chats)
    assert 200 < same < 300


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"name": 3},
        {"share": 1.1},
        {"share": -0.1},
        {"share": True},
        {"share": math.nan},
        {"share": "0.1"},
        {"pipeline": "advanced"},
    ],
)
def test_what_cannot_be_a_trial_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Trial(**{"name": "rerank", "pipeline": presets.advanced, **given})


def test_something_else_than_a_trial_is_refused() -> None:
    with pytest.raises(ConfigError, match="trial is a str"):
        RagDB("postgresql://nowhere/none", trial="advanced")  # type: ignore[arg-type]


def test_the_settings_make_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "trial" not in arguments(load_settings())
    assert arguments(load_settings(trial_pipeline="advanced"))["trial"] == Trial("advanced", presets.advanced)
    Path("mine.json").write_text('{"name": "mine", "rrf_k": 20}', encoding="utf-8")
    monkeypatch.setenv("RAGDB_TRIAL_PIPELINE", "mine.json")
    monkeypatch.setenv("RAGDB_TRIAL_SHARE", "0.25")
    monkeypatch.setenv("RAGDB_TRIAL_NAME", "k 20")
    trial = arguments(load_settings())["trial"]
    assert (trial.name, trial.share, trial.pipeline.rrf_k) == ("k 20", 0.25, 20)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trial_share": "0.1"}, "RAGDB_TRIAL_PIPELINE"),
        ({"trial_name": "x"}, "RAGDB_TRIAL_PIPELINE"),
        ({"trial_pipeline": "naive", "trial_share": "2"}, "share of the questions, 0 to 1"),
    ],
)
def test_settings_that_make_no_trial_are_refused(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        load_settings(**given)


def test_a_pipeline_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no pipeline is called 'mine'"):
        arguments(load_settings(trial_pipeline="mine"))
