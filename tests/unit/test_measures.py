"""Metrics and statistics of an evaluation: what they are on lists that can be counted by hand."""

from __future__ import annotations

import math
import shutil

import pytest

from ragdb.errors import ConfigError
from ragdb.evaluate import measures, statistics
from ragdb.evaluate.types import EvalQuestion, Judgement, Result, Step


def test_retrieval_metrics_are_those_of_their_papers() -> None:
    qrels = {"q": {"a": 2, "b": 1, "c": 0}, "nothing found": {"a": 1}}
    found = measures.per_question(
        ["ndcg@10", "recall@2", "precision@2", "p@5", "mrr@10", "map@10", "success@1", "R@2"], qrels, {"q": ["c", "a", "x", "b"]}
    )
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    assert found["q"]["ndcg@10"] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert found["q"]["recall@2"] == found["q"]["R@2"] == 0.5
    assert found["q"]["precision@2"] == 0.5
    assert found["q"]["p@5"] == pytest.approx(0.4)
    assert found["q"]["mrr@10"] == 0.5
    assert found["q"]["map@10"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert found["q"]["success@1"] == 0.0
    assert set(found["nothing found"].values()) == {0.0}


@pytest.mark.skipif(shutil.which("perl") is None, reason="ERR is computed by a perl program")
def test_a_measure_that_reads_files_takes_names_with_blanks_and_letters() -> None:
    qrels = {"q one": {"a page.md": 1}, "質問": {"頁.md": 1}}
    found = measures.per_question(["ERR@10"], qrels, {"q one": ["a page.md", "b.md"], "質問": ["b.md", "頁.md"]})
    assert found["q one"]["ERR@10"] == pytest.approx(0.0625)
    assert found["質問"]["ERR@10"] == pytest.approx(0.03125)


def test_a_measure_that_no_program_here_computes_is_an_error_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"RBP\(p=0.8\) cannot be computed"):
        measures.per_question(["RBP(p=0.8)"], {"a": {"x": 1}}, {"a": ["x"]})


def test_a_metric_that_means_nothing_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no metric 'ndgc@10'; there are ndcg@k, recall@k"):
        measures.check(["ndgc@10"])


def test_contamination_counts_archived_drafts_and_traps_among_the_first_documents() -> None:
    question = EvalQuestion("q", "?", (Judgement("good"), Judgement("trap", 0, trap=True)))
    result = Result(
        "q",
        chunk_ids=(1, 2, 3, 4, 5),
        uris=("good", "old", "old", "trap", "other"),
        statuses=("active", "archived", "archived", "active", "active"),
    )
    assert measures.contamination(result, question, 2) == 0.5
    assert measures.contamination(result, question, 3) == pytest.approx(2 / 3)
    assert measures.contamination(result, question, 10) == 0.5  # of four documents
    assert measures.contamination(Result("q"), question, 5) == 0.0


def test_any_measure_of_the_library_works_whatever_documents_are_called() -> None:
    found = measures.per_question(
        ["ERR@10", "ndcg@10"], {"a question": {"my file.md": 1}}, {"a question": ["my file.md", "b\tc"]}
    )
    assert found == {"a question": {"ERR@10": 0.0625, "ndcg@10": 1.0}}


@pytest.mark.parametrize("name", ["recall", "contamination", "contamination@x", "stability@0"])
def test_a_metric_that_needs_its_k_says_so(name: str) -> None:
    with pytest.raises(ConfigError, match=r"has a k"):
        measures.check([name])


def test_a_short_list_that_comes_again_is_stable() -> None:
    assert measures.average_overlap(["a", "b"], ["a", "b"], 10) == 1.0
    assert measures.average_overlap(["a"], ["a", "b"], 10) == 0.75


def test_paraphrases_that_find_the_same_in_the_same_order_are_stable() -> None:
    questions = [EvalQuestion("a", "?"), EvalQuestion("b", "?", paraphrase_of="a"), EvalQuestion("alone", "?")]
    same = measures.stability(questions, {"a": ["x", "y"], "b": ["x", "y"], "alone": ["x"]}, 2)
    assert same == {"a": 1.0, "b": 1.0}
    turned = measures.stability(questions, {"a": ["x", "y"], "b": ["y", "x"], "alone": ["x"]}, 2)
    assert turned["a"] == 0.5
    assert measures.average_overlap([], [], 5) == 1.0


def test_a_mean_has_an_interval_that_holds_it_and_is_the_same_twice() -> None:
    values = [0.0, 1.0, 1.0, 0.5, 0.25] * 8
    found = statistics.mean(values)
    assert found.low < found.value < found.high
    assert found == statistics.mean(values)
    assert statistics.mean([0.7, 0.7]) == statistics.mean([0.7] * 2)
    assert (statistics.mean([0.7]).low, statistics.mean([0.7]).high) == (0.7, 0.7)
    with pytest.raises(ConfigError, match="no value"):
        statistics.mean([])


def test_a_difference_is_paired_and_counts_who_won() -> None:
    before = {str(n): n % 3 / 3 for n in range(60)}
    worse = {key: max(0.0, value - 0.2) for key, value in before.items()} | {"only here": 1.0}
    found = statistics.difference("ndcg@10", before, worse)
    assert found.n == 60
    assert found.p < 0.001
    assert (found.better, found.worse) == (0, 40)
    assert found.low <= found.change <= found.high < 0
    nothing = statistics.difference("ndcg@10", before, before)
    assert (nothing.change, nothing.p) == (0, 1)
    with pytest.raises(ConfigError, match="no question in common"):
        statistics.difference("ndcg@10", {"a": 1.0}, {"b": 1.0})


def test_evidence_is_lost_at_the_first_stage_that_does_not_have_it() -> None:
    def result(**stages: bool) -> Result:
        return Result("q", funnel={stage: Step(None, alive) for stage, alive in stages.items()})

    assert result(indexed=True, lexical=False, semantic=True, fuse=True, found=True).lost_at is None
    assert result(indexed=True, lexical=False, semantic=False, fuse=False, found=False).lost_at == "retrieve"
    assert result(indexed=True, lexical=True, semantic=True, fuse=True, rerank=False, found=False).lost_at == "rerank"
    assert result(indexed=False).lost_at == "indexed"
    assert Result("q").lost_at is None
