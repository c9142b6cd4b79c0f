"""Evaluation end to end: a set is imported, pipelines are run, a planted fault is refused, and the stage is named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB, presets
from ragdb.errors import ConfigError, EmbedderError, LLMError
from ragdb.evaluate import EvalQuestion, How, Judgement, compare, exporting, gate, importing, means, run, runs, sets, sweep
from ragdb.evaluate.comparing import alive, lost, values
from ragdb.evaluate.settings import pipeline_of
from ragdb.evaluate.sweeping import best, drop
from ragdb.testing import FakeEmbedder, FakeLLM

pytest.importorskip("ir_measures")  # the extra eval

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = pipeline_of("hybrid:legs=lexical,rerank=false")
PARTS = ("router", "printer", "scanner", "camera", "speaker", "monitor", "keyboard", "tablet")


def page(part: str) -> str:
    return (
        f"# The {part}\n\nThe {part} is in the cupboard of the office.\n\n## Resetting the {part}\n\n"
        f"Hold the button of the {part} for ten seconds until the {part} lamp blinks.\n\n"
        f"## Buying\n\nA new {part} is ordered by mail from the shop.\n"
    )


@pytest.fixture
def rag(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), chunker="markdown:64") as made:
        for part in PARTS:
            made.add(Document(f"{part}.md", page(part)))
        made.add(Document("router-old.md", page("router").replace("ten seconds", "a minute"), status="archived"))
        made.context.database.call("refresh_lexical_stats")
        questions = [
            EvalQuestion(
                f"q{n}",
                f"How do I reset the {part}?",
                (Judgement(f"{part}.md", 1, quote=f"Hold the button of the {part} for ten seconds"),),
                tags=("reset",),
            )
            for n, part in enumerate(PARTS, start=1)
        ]
        questions += [
            EvalQuestion("p1", "Which button of the router is held?", (Judgement("router.md", 2),), paraphrase_of="q1"),
            EvalQuestion("t1", "Where is the camera?", (Judgement("camera.md"), Judgement("speaker.md", 0, trap=True))),
            EvalQuestion("u1", "Who won the chess championship in Reykjavik?", tags=("none",)),
        ]
        sets.make(made, "help", description="how things are reset")
        sets.put_questions(made, "help", questions)
        yield made


def test_a_set_is_what_was_put_into_it(rag: RagDB) -> None:
    found = sets.read(rag, "help")
    assert (found.collection, found.description, len(found.questions)) == ("help", "how things are reset", 11)
    first = found.by_key()["q1"]
    assert first.judgements == (Judgement("router.md", 1, quote="Hold the button of the router for ten seconds"),)
    assert found.by_key()["t1"].traps == {"speaker.md"}
    assert not found.by_key()["u1"].answerable
    put = sets.put_questions(rag, "help", [dataclasses.replace(first, judgements=(Judgement("router.md", 3),))])
    assert (put.added, put.changed) == (0, 1)
    put = sets.put_questions(rag, "help", [again := sets.read(rag, "help").by_key()["q1"]])
    assert (put.added, put.changed, put.judgements) == (0, 0, 1)
    assert (again.judgements, again.eval_question_id) == ((Judgement("router.md", 3),), first.eval_question_id)
    with pytest.raises(ConfigError, match=r"no evaluation set 'halp'.*There are: help"):
        sets.read(rag, "halp")
    with pytest.raises(ConfigError, match="comes twice"):
        sets.put_questions(rag, "help", [first, first])


def test_a_run_measures_each_pipeline_and_the_same_again_asks_nothing(rag: RagDB, query: Query) -> None:
    told: list[tuple[str, int, int]] = []
    naive, hybrid = run(rag, "help", [presets.naive, presets.hybrid], progress=lambda *at: told.append(at))
    assert told[0] == ("naive", 0, 11)
    assert told[-1] == ("hybrid", 11, 11)
    assert naive.finished_at is not None
    assert {result.key for result in hybrid.results} == {q.key for q in sets.read(rag, "help").questions}
    # without a relevant document a question counts for contamination and refusal only
    unanswerable = hybrid.by_key()["u1"].scores
    assert unanswerable.keys() == {"contamination@5", "refusal"}
    assert unanswerable["refusal"] == 1.0
    assert means(hybrid)["ndcg@10"].n == 10
    assert means(hybrid)["ndcg@10"].value > 0.8
    assert hybrid.by_key()["q1"].scores["citation_precision"] > 0
    # traces are stored, marked, and left out where people look for questions that people asked
    assert query("select count(*) from ragdb.run where eval_run_id = %s", hybrid.eval_run_id) == [(11,)]
    assert query("select count(*) from ragdb.list_runs('help')") == [(0,)]
    assert query("select coalesce(sum(runs), 0) from ragdb.run_outcome") == [(0,)]
    told.clear()
    stored = run(rag, "help", [presets.hybrid], progress=lambda *at: told.append(at))[0]
    assert stored.cached
    assert told == []
    assert stored.results == hybrid.results
    # another metric is computed from what is stored
    more = run(rag, "help", [presets.hybrid], how=How(metrics=("success@1", "stability@5")))[0]
    assert more.cached
    assert set(values(more, "stability@5")) == {"q1", "p1"}
    assert means(more)["success@1"].value > 0.5
    # the collection changed: it is another run
    rag.add(Document("fax.md", page("fax")))
    assert not run(rag, "help", [presets.hybrid])[0].cached


def test_what_broke_off_goes_on_and_what_could_not_be_asked_is_asked_again(rag: RagDB, query: Query) -> None:
    class Breaking(FakeEmbedder):
        broken = True

        def embed_query(self, text: str) -> Sequence[float]:
            if self.broken and "camera" in text:
                raise EmbedderError("the embedder is away")
            return super().embed_query(text)

    embedder = Breaking(name=FakeEmbedder().name)
    with RagDB(rag.context.database.target, collection="help", embedder=embedder) as other:
        first = run(other, "help", [presets.naive])[0]
        assert first.finished_at is None
        assert {result.key for result in first.results if result.error} == {"q4", "t1"}
        embedder.broken = False
        asked: list[tuple[int, int]] = []
        second = run(other, "help", [presets.naive], progress=lambda name, done, of: asked.append((done, of)))[0]
    assert second.eval_run_id == first.eval_run_id
    assert second.finished_at is not None
    assert asked == [(9, 11), (10, 11), (11, 11)]
    assert not any(result.error for result in second.results)


def test_the_funnel_says_where_the_evidence_was_lost(rag: RagDB) -> None:
    whole = run(rag, "help", [presets.hybrid])[0]
    assert alive(whole)["indexed"] == 1.0
    assert list(alive(whole)) == ["indexed", "chunk", "lexical", "semantic", "fuse", "found", "validate", "pack", "cited"]
    # one candidate: most evidence is not among what a leg returns
    narrow = run(rag, "help", [Pipeline(name="narrow", candidates=1, legs=("semantic",), window=0)])[0]
    assert lost(narrow).get("retrieve", 0) > 0
    # a document that is gone
    rag.delete("monitor.md")
    without = run(rag, "help", [presets.hybrid])[0]
    assert without.by_key()["q6"].lost_at == "indexed"
    assert lost(without)["indexed"] == 1
    assert without.by_key()["q6"].scores["ndcg@10"] == 0.0


def test_a_quote_that_is_cut_in_the_middle_is_lost_at_its_chunk(rag: RagDB) -> None:
    found = sweep(rag, "help", {"chunker": ["sliding:8/0"]}, base=LEXICAL)[0]
    assert found.collection == "help~sliding:8/0"
    assert lost(found)["chunk"] >= 6
    whole = run(rag, "help", [LEXICAL])[0]
    refused = gate(sets.read(rag, "help"), whole, found, max_drop=None)
    assert [d.metric for d, _ in refused.failures] == ["alive:chunk"]
    assert refused.comparison.worst_stage == "chunk"
    assert drop(rag, "help") == ["help~sliding:8/0"]
    with pytest.raises(ConfigError, match="finished"):
        gate(sets.read(rag, "help"), dataclasses.replace(found, finished_at=None), found)


FAULTS: dict[str, tuple[Pipeline, How, str, str]] = {
    # name: pipeline, how it is asked, the metric that falls, the stage that is named
    "one candidate": (Pipeline(name="x", candidates=1, legs=("semantic",), rerank=False), How(), "recall@20", "retrieve"),
    "all weight on the worse leg": (
        Pipeline(name="x", weights={"lexical": 0.0, "semantic": 1.0}, rerank=False),
        How(k=1),
        "ndcg@10",
        "fuse",
    ),
    "filter off": (LEXICAL, How(where={"status": "any"}), "contamination@5", ""),
    "reranker inverted": (dataclasses.replace(LEXICAL, name="x", rerank=True), How(k=1), "citation_recall", "rerank"),
}


class Inverted:
    """A reranker that likes best what shares fewest words with the question."""

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        words = set(query.lower().rstrip("?").split())
        return [-float(sum(word in passage.lower() for word in words)) for passage in passages]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_gate_refuses_a_planted_fault_and_names_its_stage(rag: RagDB, fault: str) -> None:
    pipeline, how, metric, stage = FAULTS[fault]
    with RagDB(rag.context.database.target, collection="help", embedder=FakeEmbedder(), reranker=Inverted()) as faulty:
        judged = sets.read(faulty, "help")
        good = run(faulty, "help", [LEXICAL], how=dataclasses.replace(how, where={}))[0]
        bad = run(faulty, "help", [pipeline], how=how)[0]
    passed = gate(judged, good, good)
    assert passed.passed
    assert passed.reason == "no metric is worse than allowed"
    refused = gate(judged, good, bad, max_drop={metric: 0.0})
    assert not refused.passed
    assert refused.failures[0][0].metric == metric
    if fault == "filter off":
        assert "contamination@5 counts archived 0 -> 9; the status is filtered at retrieve" in refused.reason
    if stage:
        assert refused.comparison.worst_stage == stage
        assert f"most is lost at {stage}" in refused.reason
    # what was not measured is not passed
    assert gate(judged, good, bad, max_drop={"faithfulness": 0.1}).missing == ("faithfulness",)


def test_a_comparison_has_differences_by_tag_and_the_questions_that_fell_most(rag: RagDB) -> None:
    before, after = run(rag, "help", [LEXICAL, Pipeline(name="narrow", candidates=1, legs=("semantic",))])
    found = compare(sets.read(rag, "help"), before, after)
    by_metric = {difference.metric: difference for difference in found.differences}
    assert by_metric["recall@20"].change < 0
    assert by_metric["recall@20"].low <= by_metric["recall@20"].change <= by_metric["recall@20"].high
    assert set(found.by_tag) == {"reset", "none"}
    assert [c.after - c.before for c in found.changes] == sorted(c.after - c.before for c in found.changes)
    same = compare(sets.read(rag, "help"), before, before)
    assert all(d.change == 0 and d.p == 1 for d in same.differences)


def test_exported_runs_give_pytrec_eval_the_same_figures(rag: RagDB) -> None:
    hybrid = run(rag, "help", [presets.hybrid])[0]
    judged = sets.read(rag, "help")
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels: dict[str, dict[str, int]] = {}
    for line in exporting.trec_qrels(judged):
        key, _, uri, grade = line.split()
        qrels.setdefault(key, {})[uri] = int(grade)
    ranked: dict[str, dict[str, float]] = {}
    for line in exporting.trec_run(hybrid):
        key, _, uri, _, score, name = line.split()
        assert name == "hybrid"
        ranked.setdefault(key, {})[uri] = float(score)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.20", "P.5"}).evaluate(ranked)
    for key in qrels:
        ours = hybrid.by_key()[key].scores
        assert ours["ndcg@10"] == pytest.approx(theirs[key]["ndcg_cut_10"], abs=1e-12)
        assert ours["recall@20"] == pytest.approx(theirs[key]["recall_20"], abs=1e-12)
        assert ours["precision@5"] == pytest.approx(theirs[key]["P_5"], abs=1e-12)
    with pytest.raises(ConfigError, match="blanks"):
        list(exporting.trec_qrels(dataclasses.replace(judged, questions=(EvalQuestion("a b", "?", (Judgement("x"),)),))))


def test_a_sweep_runs_every_combination_and_embeds_no_text_twice(rag: RagDB) -> None:
    class Counting(FakeEmbedder):
        passages = 0

        def embed_passages(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            Counting.passages += len(texts)
            return super().embed_passages(texts)

    with RagDB(rag.context.database.target, collection="help", embedder=Counting(name=FakeEmbedder().name)) as counting:
        found = sweep(
            counting,
            "help",
            {"candidates": ["5", "50"], "weights": ["0.3/0.7", "0.7/0.3"], "chunk_size": ["64"]},
            base=presets.hybrid,
        )
        assert [one.name for one in found] == [
            f"hybrid:candidates={c},weights={w},chunk_size=64" for c in ("5", "50") for w in ("0.3/0.7", "0.7/0.3")
        ]
        assert {one.collection for one in found} == {"help~markdown:64"}
        assert Counting.passages == 0  # the same chunks: their vectors are there
        assert best(found, "ndcg@10")[0][1] >= best(found, "ndcg@10")[-1][1]
        # once more: all of it is stored
        again = sweep(
            counting,
            "help",
            {"candidates": ["5", "50"], "weights": ["0.3/0.7", "0.7/0.3"], "chunk_size": ["64"]},
            base=presets.hybrid,
        )
        assert [one.eval_run_id for one in again] == [one.eval_run_id for one in found]
        assert all(one.cached for one in again)
        with pytest.raises(ConfigError, match="no setting 'candidate'"):
            sweep(counting, "help", {"candidate": ["5"]}, base=presets.hybrid)
    # what changed in the collection changes in the one beside
    rag.add(Document("fax.md", page("fax")))
    rag.delete("tablet.md")
    rag.context.database.call("set_fusion", collection="help", fusion={"rrf_k": 20})
    sweep(rag, "help", {"chunk_size": ["64"]}, base=presets.hybrid)
    # with the settings that were tuned: chunks alone differ
    assert rag.context.database.call("collection_info", collection="help~markdown:64")[0]["fusion"] == {"rrf_k": 20}
    beside = {row["uri"] for row in rag.context.database.call("list_documents", collection="help~markdown:64")}
    assert "fax.md" in beside
    assert "tablet.md" not in beside
    assert drop(rag, "help") == ["help~markdown:64"]
    assert [row["collection"] for row in rag.context.database.call("list_collections")] == ["help"]


def test_gold_context_separates_the_writing_from_the_search(rag: RagDB) -> None:
    llm = FakeLLM("Hold the button for ten seconds [1].")
    with RagDB(rag.context.database.target, collection="help", embedder=FakeEmbedder(), llm=llm) as writer:
        gold = run(writer, "help", [presets.hybrid], how=How(context="gold", answers=True))[0]
    assert {result.key for result in gold.results} == {f"q{n}" for n in range(1, 9)} | {"p1", "t1"}
    answered = [result for result in gold.results if result.key.startswith("q")]
    assert {result.outcome for result in answered} == {"answered"}
    assert all(result.scores["citation_precision"] == 1.0 for result in answered)
    assert "ndcg@10" not in gold.results[0].scores


def test_an_answer_that_failed_is_an_error_and_lost_nothing(rag: RagDB) -> None:
    llm = FakeLLM(lambda messages: LLMError("the model is away"))
    with RagDB(rag.context.database.target, collection="help", embedder=FakeEmbedder(), llm=llm) as writer:
        found = run(writer, "help", [presets.hybrid], how=How(answers=True))[0]
    assert found.finished_at is None
    failed = [result for result in found.results if result.outcome == "llm_failed"]
    assert len(failed) >= 8
    assert all(result.error and not result.funnel for result in failed)
    assert "cited" not in lost(found)


def test_a_deleted_document_leaves_no_words_in_results(rag: RagDB, query: Query) -> None:
    found = run(rag, "help", [presets.hybrid])[0]
    assert "router" in (found.by_key()["q1"].answer or "")
    rag.delete("router.md")
    after = runs.get(rag.context.database, found.eval_run_id).by_key()["q1"]
    assert after.answer is None
    assert after.uris == found.by_key()["q1"].uris
    assert sets.read(rag, "help").by_key()["q1"].judgements == (Judgement("router.md", 1),)


def test_summary_says_what_the_means_are(rag: RagDB, query: Query) -> None:
    found = run(rag, "help", [presets.hybrid])[0]
    ((mean, low, high, n),) = query(
        "select mean, low, high, n from ragdb.eval_summary where eval_run_id = %s and metric = 'ndcg@10'", found.eval_run_id
    )
    assert mean == pytest.approx(means(found)["ndcg@10"].value)
    assert low <= mean <= high
    assert n == 10
    assert sets.delete(rag, "help") == {"questions": 11, "runs": 1}
    assert query("select count(*) from ragdb.eval_result") == [(0,)]
    assert query("select count(*) from ragdb.run where eval_run_id is not null") == [(0,)]


def test_settings_that_mean_nothing_are_refused_with_what_there_is(rag: RagDB) -> None:
    with pytest.raises(ConfigError, match="no pipeline is called 'hybird'; there are naive"):
        pipeline_of("hybird")
    with pytest.raises(ConfigError, match="has no setting 'candidate'"):
        pipeline_of("hybrid:candidate=3")
    with pytest.raises(ConfigError, match=r"weights is '0.3'; it is a number for each of lexical/semantic"):
        pipeline_of("hybrid:weights=0.3")
    assert pipeline_of("hybrid:weights=0.3/0.7,rewrite=hyde+multi").weights == {"lexical": 0.3, "semantic": 0.7}
    with pytest.raises(ConfigError, match="no metric 'ndgc@10'"):
        How(metrics=("ndgc@10",))
    with pytest.raises(ConfigError, match="two pipelines are called hybrid"):
        run(rag, "help", [presets.hybrid, presets.hybrid])
    sets.make(rag, "empty")
    with pytest.raises(ConfigError, match="no accepted questions"):
        run(rag, "empty", [presets.hybrid])
    with pytest.raises(ConfigError, match="there is none; set RAGDB_LLM"):
        run(rag, "help", [presets.hybrid], how=How(answers=True))


def test_names_of_files_are_found_among_the_uris(rag: RagDB, tmp_path: Path) -> None:
    rows = [
        {"qid": "a", "query": "reset?", "relevant_docs": ["router"], "trap_docs": ["router-old"], "category": "happy"},
        {"qid": "b", "query": "chess?", "relevant_docs": [], "trap_docs": ["nowhere"], "category": "sad"},
    ]
    file = tmp_path / "golden.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    questions, unknown, by_name = importing.matched(rag, "help", importing.read_rows(file).questions)
    assert questions[0].judgements == (Judgement("router.md"), Judgement("router-old.md", 0, trap=True))
    assert questions[0].tags == ("happy",)
    assert (unknown, by_name) == (["nowhere"], 2)
