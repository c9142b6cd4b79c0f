"""The rerank stage: right scores to right chunks, long texts in parts, and the fused order wherever the model is not right."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragdb import Pipeline
from ragdb.errors import ConfigError, RerankerError
from ragdb.openai_api import estimate_tokens
from ragdb.stages.rerank import rerank
from ragdb.types import Hit, Query, Ranking
from ragdb.windows import first_window, windows


def hit(chunk_id: int, content: str, **more: Any) -> Hit:
    values: dict[str, Any] = {
        "label": f"c{chunk_id}",
        "document_id": chunk_id,
        "collection": "help",
        "uri": f"u{chunk_id}",
        "title": None,
        "heading_path": (),
        "status": "active",
        "context": "",
        "start": 0,
        "end": len(content),
        "page": None,
        "metadata": {},
        "score": 1 / chunk_id,
    }
    return Hit(chunk_id=chunk_id, content=content, **(values | more))


def ranking(*contents: str) -> Ranking:
    return Ranking.of([hit(n, content) for n, content in enumerate(contents, start=1)], "fused")


class Fake:
    """Scores by a function of the text; keeps what it was asked."""

    max_tokens = 512

    def __init__(self, score: Callable[[str], float]) -> None:
        self._score = score
        self.calls: list[tuple[str, list[str]]] = []

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.calls.append((query, list(passages)))
        return [self._score(text) for text in passages]


def order(found: Ranking) -> list[int]:
    return list(found.chunk_ids)


def test_nothing_is_asked_for_nothing_and_blank_passages_come_last() -> None:
    fake = Fake(lambda text: {"root A": 0.1, "root D": 0.9}[text])
    assert order(rerank(Query("root"), ranking(), fake, keep=20).value) == []
    assert fake.calls == []
    found = rerank(Query("root"), ranking("root A", "", "  ", "root D"), fake, keep=20).value
    assert order(found) == [4, 1, 2, 3]
    assert fake.calls == [("root", ["root A", "root D"])]
    assert [h.rerank_score for h in found.hits] == [0.9, 0.1, None, None]


def test_scores_belong_to_their_own_chunks_and_equal_texts_are_scored_once() -> None:
    fused = Ranking.of([hit(1, "same", uri="a", start=5), hit(2, "other", uri="b"), hit(3, "same", uri="c", start=9)], "fused")
    fake = Fake({"same": 0.1, "other": 0.9}.__getitem__)
    found = rerank(Query("q"), fused, fake, keep=3).value
    assert [(h.chunk_id, h.uri, h.start, h.rerank_score) for h in found.hits] == [
        (2, "b", 0, 0.9),
        (1, "a", 5, 0.1),
        (3, "c", 9, 0.1),
    ]
    assert fake.calls[0][1] == ["same", "other"]
    assert fused.chunk_ids == (1, 2, 3), "the caller's list is as it was"


def vault(text: str) -> float:
    """A cross-encoder that sees the first 512 words of what it is given."""
    seen = " ".join(text.split()[:512])
    return 1.0 if "heliotrope" in seen else 0.3 if "vault" in seen else 0.0


def test_a_long_passage_is_scored_in_parts_and_a_long_question_leaves_room() -> None:
    fused = ranking("The vault is blue.", "filler " * 4000 + "The vault code word is heliotrope.")
    fake = Fake(vault)
    outcome = rerank(Query("What is the vault code word?"), fused, fake, keep=2)
    assert order(outcome.value) == [2, 1]
    assert "1 long passage in parts" in outcome.note
    assert all(len(text.split()) + len(query.split()) <= 512 for query, texts in fake.calls for text in texts)
    outcome = rerank(Query("What is the vault code word? " * 130), fused, fake, keep=2)
    assert order(outcome.value) == [2, 1]
    assert "of the question its first" in outcome.note


@given(st.text(max_size=400), st.integers(1, 40))
def test_windows_hold_every_word_and_fit(text: str, limit: int) -> None:
    parts = windows(text, limit, estimate_tokens)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(estimate_tokens(part) <= limit or len(part) == 1 for part in parts)
    assert text.startswith(first_window(text, limit, estimate_tokens))


class Returns:
    def __init__(self, *scores: Any) -> None:
        self.scores = scores

    def score(self, query: str, passages: Sequence[str]) -> Any:
        return list(self.scores)


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def score(self, query: str, passages: Sequence[str]) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("reranker", "why"),
    [
        (Returns(0.1), "1 scores for 3 passages"),
        (Returns(0.1, 0.2, 0.3, 0.4), "4 scores for 3 passages"),
        (Returns(0.1, math.nan, 0.3), "not all scores are finite"),
        (Returns(0.1, math.inf, 0.3), "not all scores are finite"),
        (Returns("a", 0.2, 0.3), "could not convert"),
        (Raises(RerankerError("no such model")), "no such model"),
        (Raises(ValueError()), "ValueError"),
    ],
)
def test_whatever_a_reranker_does_the_fused_order_stands_and_the_note_says_why(reranker: Any, why: str) -> None:
    outcome = rerank(Query("q"), ranking("a", "b", "c", "d"), reranker, keep=3)
    assert order(outcome.value) == [1, 2, 3, 4]
    assert outcome.note.startswith("kept the fused order: ")
    assert why in outcome.note
    assert outcome.dropped == {}


def test_equal_scores_keep_the_order_and_numpy_numbers_will_do() -> None:
    import numpy as np

    assert order(rerank(Query("q"), ranking("a", "b", "c"), Returns(0.5, 0.5, 0.5), keep=3).value) == [1, 2, 3]
    scores = np.array([0.1, 0.5, 0.3], dtype=np.float32)
    found = rerank(Query("q"), ranking("a", "b", "c"), Returns(*scores), keep=3).value
    assert order(found) == [2, 3, 1]
    assert all(type(score) is float for score in found.scores)


def test_what_scores_too_little_falls_with_its_reason() -> None:
    outcome = rerank(Query("q"), ranking("a", "b", ""), Returns(0.2, 0.7), keep=3, min_score=0.5)
    assert order(outcome.value) == [2, 3]
    assert outcome.dropped == {"scored below 0.5": (1,)}


def test_blending_holds_the_fused_places_against_the_rerankers() -> None:
    fused = ranking("a", "b", "c", "d")
    scores = Returns(0.1, 0.2, 0.3, 0.4)
    assert order(rerank(Query("q"), fused, scores, keep=4, weight=1.0).value) == [4, 3, 2, 1]
    assert order(rerank(Query("q"), fused, scores, keep=4, weight=0.0).value) == [1, 2, 3, 4]
    assert order(rerank(Query("q"), fused, scores, keep=4, weight=0.9).value) == [4, 3, 2, 1]


def test_between_batches_the_time_is_looked_at() -> None:
    class Slow(Fake):
        batch_size = 1

        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            time.sleep(0.05)
            return super().score(query, passages)

    slow = Slow(len)
    outcome = rerank(Query("q"), ranking("a", "bb", "ccc", "dddd"), slow, keep=4, timeout=0.08)
    assert order(outcome.value) == [1, 2, 3, 4]
    assert "when the time was over" in outcome.note
    assert len(slow.calls) < 4


def test_a_reranker_that_takes_a_deadline_is_told_what_is_left() -> None:
    told: list[float] = []

    class Timed:
        def score(self, query: str, passages: Sequence[str], *, deadline: float) -> list[float]:
            told.append(deadline)
            return [0.0] * len(passages)

    rerank(Query("q"), ranking("a", "b"), Timed(), keep=2, timeout=3.0)
    assert len(told) == 1
    assert 2.5 < told[0] <= 3.0


def test_a_model_without_japanese_is_warned_about_on_japanese_text(caplog: pytest.LogCaptureFixture) -> None:
    class English(Fake):
        def knows_japanese(self) -> bool:
            return False

    note = rerank(Query("在宅勤務手当は？"), ranking("手当", "休暇"), English(len), keep=2).note
    assert "no Japanese words" in note
    assert "multilingual" in caplog.text
    assert "Japanese" not in rerank(Query("allowance"), ranking("pay", "leave"), English(len), keep=2).note


@pytest.mark.parametrize(
    "wrong",
    [{"rerank_weight": 2}, {"rerank_weight": True}, {"rerank_timeout": -1}, {"rerank_min_score": math.nan}, {"rerank": "yes"}],
)
def test_a_pipeline_refuses_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Pipeline(**wrong)
