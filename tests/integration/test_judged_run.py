"""Answers of a run, judged by a model: scores, and every verdict as a row, also those that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ragdb import Document, RagDB, presets
from ragdb.evaluate import EvalQuestion, How, Judgement, run, sets
from ragdb.evaluate.judge import Judge
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.types import Message

Query = Callable[..., list[tuple[Any, ...]]]


def answer(messages: Sequence[Message]) -> str:
    return "Hold the button of the router for ten seconds [1]."


def judging(messages: Sequence[Message]) -> str:
    prompt = messages[0].content
    if prompt.startswith("Break"):
        return json.dumps({"statements": ["The button of the router is held for ten seconds."]})
    if prompt.startswith("Was the passage"):
        return "I would rather not say."
    return json.dumps({"1": {"why": "it says so", "verdict": True}})


@pytest.fixture
def asked(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(64), llm=FakeLLM(answer)) as rag:
        rag.add(Document("router.md", "# Router\n\nHold the button of the router for ten seconds to reset it."))
        sets.make(rag, "help")
        question = EvalQuestion("q1", "How do I reset the router?", (Judgement("router.md"),), reference="Hold its button.")
        sets.put_questions(rag, "help", [question])
        yield rag


def test_scores_and_verdicts_of_a_judged_run_are_rows(asked: RagDB, query: Query) -> None:
    how = How(answers=True, judge=Judge(FakeLLM(judging)))
    (found,) = run(asked, "help", [presets.hybrid], how=how)
    scores = found.by_key()["q1"].scores
    assert (scores["faithfulness"], scores["context_recall"]) == (1.0, 1.0)
    assert "context_precision" not in scores and "answer_relevance" not in scores  # broken; no embedder
    rows = query("select metric, step, value, broken, raw, temperature from ragdb.eval_verdict order by eval_verdict_id")
    assert [row[:4] for row in rows] == [
        ("faithfulness", "statements", None, None),
        ("faithfulness", "verdicts", 1.0, None),
        ("context_precision", "context 1", None, "no JSON with a verdict"),
        ("context_recall", "verdicts", 1.0, None),
    ]
    assert rows[2][4] == "I would rather not say." and {row[5] for row in rows} == {0.0}


def test_what_a_judge_wrote_goes_with_the_document_it_was_about(asked: RagDB, query: Query) -> None:
    run(asked, "help", [presets.hybrid], how=How(answers=True, judge=Judge(FakeLLM(judging))))
    asked.delete("router.md")
    assert query("select count(*) from ragdb.eval_verdict where raw is not null") == [(0,)]
    assert query("select count(*) from ragdb.eval_verdict where value = 1") == [(2,)]  # the figures stay
