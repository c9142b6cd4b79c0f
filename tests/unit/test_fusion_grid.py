"""Which settings of fuse are tried, and which of those that measure alike is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from ragdb import presets
from ragdb.errors import ConfigError
from ragdb.evaluate.fusion_grid import Grid, Setting, neighbours
from ragdb.evaluate.settings import grid_of, pipeline_of
from ragdb.evaluate.tuning import _best, _dealt, _plateaus
from ragdb.evaluate.types import EvalQuestion


def test_the_defaults_are_on_the_grid_and_nearest_to_themselves() -> None:
    cells = Grid().cells(10)
    default = Setting.of(presets.hybrid)
    assert default in cells.values()
    assert min(cells.values(), key=lambda setting: setting.distance) == default
    assert default.distance == (0, 0.0)


def test_a_leg_alone_is_tried_once() -> None:
    alone = [setting for setting in Grid().cells(10).values() if setting.lexical in (0, 1)]
    assert alone == [
        Setting({"lexical": 0.0, "semantic": 1.0}, 60, 50),
        Setting({"lexical": 1.0, "semantic": 0.0}, 60, 50),
    ]


def test_lists_that_no_search_makes_are_not_tried() -> None:
    assert {setting.candidates for setting in Grid().cells(30).values()} == {50, 100}
    with pytest.raises(ConfigError, match="all below the 200"):
        Grid().cells(200)


@pytest.mark.parametrize("given", [{"lexical": (1.1,)}, {"rrf_k": ()}, {"rrf_k": (1.5,)}, {"candidates": (0,)}])
def test_a_grid_out_of_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Grid(**given)


def test_neighbours_are_one_step_away() -> None:
    assert set(neighbours((1, 1, 1))) == {(0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2)}


QUESTIONS = [f"q{n}" for n in range(50)]


def alike(value: float) -> dict[str, float]:
    """The same for each question: any difference is certain."""
    return dict.fromkeys(QUESTIONS, value)


def test_a_plateau_wins_over_a_peak_that_stands_alone() -> None:
    cells = Grid(lexical=(0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8), rrf_k=(60,), candidates=(50,)).cells(10)
    means = {0.1: 0.30, 0.2: 0.44, 0.3: 0.30, 0.4: 0.30, 0.6: 0.40, 0.7: 0.41, 0.8: 0.37}
    scores = {place: alike(means[setting.lexical]) for place, setting in cells.items()}
    assert cells[_best(cells, scores, QUESTIONS)].lexical == pytest.approx(0.7)
    assert _plateaus(scores, ["q1"])[1, 0, 0] == [pytest.approx((0.30 + 0.44 + 0.30) / 3)]


def test_of_settings_that_cannot_be_told_apart_the_nearest_to_the_defaults_is_chosen() -> None:
    cells = Grid().cells(10)
    # better on 26 questions, worse on 24
    mixed = {key: 0.4 + (0.1 if n % 2 or n > 47 else -0.1) for n, key in enumerate(QUESTIONS)}
    scores = {place: mixed if setting.rrf_k < 60 else alike(0.4) for place, setting in cells.items()}
    assert cells[_best(cells, scores, QUESTIONS)] == Setting.of(presets.hybrid)
    # the same mean, of every question
    scores = {place: alike(sum(mixed.values()) / 50) if setting.rrf_k < 60 else alike(0.4) for place, setting in cells.items()}
    assert cells[_best(cells, scores, QUESTIONS)].rrf_k < 60


def test_a_question_and_its_paraphrases_are_in_one_fold() -> None:
    questions = [EvalQuestion(f"q{n}", "?") for n in range(20)]
    questions += [EvalQuestion(f"p{n}", "?", paraphrase_of=f"q{n}") for n in range(20)]
    dealt = _dealt(questions, 5, 1)
    assert sorted(key for fold in dealt for key in fold) == sorted(q.key for q in questions)
    assert {len(fold) for fold in dealt} == {8}
    assert all(fold >= {f"q{key[1:]}", f"p{key[1:]}"} for fold in dealt for key in fold)
    assert dealt == _dealt(questions, 5, 1) != _dealt(questions, 5, 2)


@pytest.mark.parametrize("folds", [0, 1, 21, 2.0])
def test_folds_that_cannot_be_dealt_are_refused(folds: Any) -> None:
    with pytest.raises(ConfigError, match="folds"):
        _dealt([EvalQuestion(f"q{n}", "?") for n in range(20)], folds, 1)


def test_what_a_text_writes_out_is_not_replaced_by_what_a_collection_keeps() -> None:
    kept = {"weights": {"lexical": 0.3}, "rrf_k": 20, "candidates": 100}
    assert pipeline_of("hybrid").with_fusion(kept).candidates == 100
    assert pipeline_of("hybrid:window=2").with_fusion(kept).candidates == 100
    assert pipeline_of("hybrid:candidates=50").with_fusion(kept).candidates == 50
    assert pipeline_of("hybrid:candidates=50,tuned=true").with_fusion(kept).candidates == 100
    swept = grid_of(presets.hybrid, {"candidates": ["20", "50"]})
    assert [point.pipeline.with_fusion(kept).candidates for point in swept] == [20, 50]
