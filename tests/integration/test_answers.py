"""From a question to an answer: evidence, citations, budgets, failing models. LLM-01, LLM-02, LLM-06."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB, presets
from ragdb.errors import ContextTooSmall, EmptyQuery, LLMError
from ragdb.testing import FakeEmbedder, FakeLLM

Query = Callable[..., list[tuple[Any, ...]]]

ROUTER = "# Router\n\n## Reset\n\nHold the button for ten seconds.\n\n## Lights\n\nThe router has four lights.\n"
LUNCH = "# Canteen\n\nLunch starts at noon.\n"
JAPANESE = "# 経費\n\n## 上限\n\n月次上限は 60,000 円です。\n\n## 申請\n\n部門長が承認します。\n"


def with_llm(url: str, llm: FakeLLM, *documents: Document, **kwargs: Any) -> RagDB:
    rag = RagDB(url, collection="help", embedder=FakeEmbedder(), llm=llm, **kwargs)
    for document in documents or (Document("router.md", ROUTER, title="Router"), Document("lunch.md", LUNCH)):
        rag.add(document)
    return rag


# --- extractive -----------------------------------------------------------------------------------


def test_without_a_model_the_answer_is_quoted_and_says_so(rag: RagDB) -> None:
    rag.add(Document("router.md", ROUTER, title="Router"))
    rag.add(Document("lunch.md", LUNCH))
    answer = rag.ask("When does lunch start?")
    assert (answer.outcome, answer.mode) == ("answered", "extractive")
    assert "Lunch starts at noon." in answer.text
    first = answer.citations[0]
    assert (first.uri, first.heading_path, first.number) == ("lunch.md", ("Canteen",), 1)
    stored = rag.get(first.uri)
    assert stored is not None and stored.content is not None
    assert stored.content[first.start : first.end] == first.quote
    assert f"[{first.number}]" in answer.text
    assert "lunch.md" in answer.sources


@pytest.mark.parametrize("size", [64, 500])
def test_rows_of_a_table_are_quoted_below_its_header(ragdb_url: str, size: int) -> None:
    head = "| Part | Stock |\n| --- | --- |\n"
    table = head + "".join(f"| part{n:03d} | {n * 7} |\n" for n in range(60))
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), chunker=f"markdown:{size}") as rag:
        rag.add(Document("stock.md", f"# Stock\n\n{table}"))
        answer = rag.ask("What is the stock of part055?")
        early = rag.ask("What is the stock of part000?")
    first = answer.citations[0]
    assert f"{head}{first.quote}" in answer.text
    assert "| part055 | 385 |" in first.quote and head not in first.quote
    assert first.quote == f"# Stock\n\n{table}"[first.start : first.end]
    assert early.text.count(head) == 1, "also where it is quoted anyway"


@pytest.mark.parametrize("question", ["How many employees are there?", "社長の趣味は？", "the who"])
def test_what_is_not_in_the_documents_is_said_to_be_missing(rag: RagDB, question: str) -> None:
    for n in range(30):
        rag.add(Document(f"d{n}", f"Page {n} about router part {n}."))
    rag.add(Document("ja", JAPANESE))
    answer = rag.ask(question)
    assert (answer.outcome, answer.citations) == ("not_in_documents", ())
    assert ("文書" in answer.text) == ("趣味" in question)


def test_evidence_is_a_rare_word_or_a_cosine_above_the_floor(ragdb_url: str, query: Query) -> None:
    class Far(FakeEmbedder):
        """Every question is far from every passage, unless it is the very same text."""

        evidence_floor = 0.9

        def embed_query(self, text: str) -> list[float]:
            return super().embed_query(text) if text.startswith("same:") else [1.0] + [0.0] * 7

    with RagDB(ragdb_url, collection="help", embedder=Far()) as rag:
        for n in range(40):
            rag.add(Document(f"d{n}", f"common words on page {n}"))
        rag.add(Document("rare", "common words about zirconium"))
        assert rag.ask("zirconium?").outcome == "answered"
        assert rag.ask("common words?").outcome == "not_in_documents"
        assert rag.ask("the zirconium wedding anniversary cake recipe of grandmother").outcome == "not_in_documents"
        query("update ragdb.embedding_model set evidence_floor = -1")
        assert rag.ask("common words??").outcome == "answered"


def test_hiragana_pairs_alone_are_no_evidence(rag: RagDB) -> None:
    rag.add(Document("ja", JAPANESE))
    rag.add(Document("ja2", "これはどこですか。それはここです。"))
    assert rag.ask("どこですか").outcome == "not_in_documents"


# --- LLM-06 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("question", "said"), [("anything", "No documents"), ("何かありますか", "文書")])
def test_nothing_retrieved_costs_no_call(ragdb_url: str, question: str, said: str) -> None:
    llm = FakeLLM("never")
    with with_llm(ragdb_url, llm) as rag:
        answer = rag.ask(question, where={"tenant": "Z"})
    assert (answer.outcome, answer.citations, len(llm.calls)) == ("nothing_retrieved", (), 0)
    assert said in answer.text
    assert answer.run_id


def test_a_collection_that_does_not_exist_yet_has_nothing_to_retrieve(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="none", embedder=FakeEmbedder()) as rag:
        assert rag.search("anything").hits == ()
        assert rag.ask("anything").outcome == "nothing_retrieved"


@pytest.mark.parametrize("question", ["", "   ", "\u3000\n"])
def test_an_empty_question_is_an_error(rag: RagDB, question: str) -> None:
    with pytest.raises(EmptyQuery):
        rag.ask(question)
    with pytest.raises(EmptyQuery):
        rag.search(question)


# --- with a model ---------------------------------------------------------------------------------


def test_a_models_citations_resolve_to_spans_and_false_ones_do_not(ragdb_url: str) -> None:
    llm = FakeLLM("Hold the button for ten seconds [1][9]. It helps.")
    with with_llm(ragdb_url, llm) as rag:
        answer = rag.ask("How do I reset the router?")
    assert (answer.outcome, answer.mode, [c.number for c in answer.citations]) == ("answered", "llm", [1])
    assert answer.citations[0].uri == "router.md"
    assert answer.uncited == ("It helps.",)
    assert llm.calls[0].prompt.rstrip().endswith("How do I reset the router?")
    assert "[9]" in next(s.note for s in answer.stages if s.stage == "synthesize")


def test_the_prompt_is_in_the_language_of_the_question(ragdb_url: str) -> None:
    llm = FakeLLM("60,000 円 [1]")
    with with_llm(ragdb_url, llm, Document("ja.md", JAPANESE)) as rag:
        rag.ask("月次上限はいくらですか")
        assert "抜粋" in llm.calls[-1].prompt


def test_a_model_may_say_that_the_answer_is_not_there(ragdb_url: str) -> None:
    with with_llm(ragdb_url, FakeLLM("NOT_IN_DOCUMENTS")) as rag:
        answer = rag.ask("How do I reset the router?")
    assert (answer.outcome, answer.citations) == ("not_in_documents", ())


@pytest.mark.parametrize("nothing", [None, "", "\n ", "<think>never closed"])
def test_an_empty_answer_is_tried_once_more_and_then_said(ragdb_url: str, nothing: str | None, query: Query) -> None:
    llm = FakeLLM(nothing)
    with with_llm(ragdb_url, llm) as rag:
        answer = rag.ask("How do I reset the router?")
    assert (answer.outcome, answer.citations, len(llm.calls)) == ("llm_failed", (), 2)
    assert "router#reset#00" in answer.text
    assert query("select outcome, answer <> '' from ragdb.run where verb = 'ask'") == [("llm_failed", True)]


def test_the_second_try_counts(ragdb_url: str) -> None:
    llm = FakeLLM(["", "Ten seconds [1]."])
    with with_llm(ragdb_url, llm) as rag:
        assert rag.ask("How do I reset the router?").outcome == "answered"
    assert len(llm.calls) == 2


def test_a_failing_model_is_an_outcome_with_the_passages(ragdb_url: str) -> None:
    with with_llm(ragdb_url, FakeLLM(LLMError("the server is gone"))) as rag:
        answer = rag.ask("How do I reset the router?")
    assert answer.outcome == "llm_failed"
    assert answer.error == "the server is gone"
    assert "the server is gone" not in answer.text, "for who runs it, not for who reads it"


def test_nul_in_an_answer_is_stored_as_a_space(ragdb_url: str, query: Query) -> None:
    with with_llm(ragdb_url, FakeLLM("Ten\x00seconds [1].")) as rag:
        assert "\x00" not in rag.ask("How do I reset the router?").text
    assert query("select answer from ragdb.run where verb = 'ask'") == [("Ten seconds [1].",)]


# --- LLM-01 ---------------------------------------------------------------------------------------


def test_a_window_that_the_output_fills_is_refused_when_configured(ragdb_url: str) -> None:
    with pytest.raises(ContextTooSmall, match=r"8192.*8192"):
        RagDB(ragdb_url, llm=FakeLLM("x", context_window=8192, max_output_tokens=8192))


def test_a_prompt_that_leaves_nothing_is_refused_before_any_call(ragdb_url: str) -> None:
    llm = FakeLLM("x", context_window=600, max_output_tokens=512)
    with with_llm(ragdb_url, llm) as rag, pytest.raises(ContextTooSmall, match="RAGDB_LLM_CONTEXT_WINDOW"):
        rag.ask("How do I reset the router?")
    assert llm.calls == []


def test_a_very_long_question_is_refused_before_any_call(ragdb_url: str) -> None:
    llm = FakeLLM("x", context_window=8192, max_output_tokens=512)
    with with_llm(ragdb_url, llm) as rag, pytest.raises(ContextTooSmall, match="shorter question"):
        rag.ask("router " * 10_000)
    assert llm.calls == []


def test_what_fits_is_packed_whole_and_best_first(ragdb_url: str) -> None:
    documents = [Document(f"d{n}", f"ルーター{'部品' * 60}の説明その{n}。") for n in range(5)]
    llm = FakeLLM("はい [1]", context_window=900, max_output_tokens=256)
    with with_llm(ragdb_url, llm, *documents) as rag:
        answer = rag.ask("ルーター部品の説明", k=5)
        packed = next(s for s in answer.stages if s.stage == "pack")
        ranked = next(s for s in answer.stages if s.stage == "validate")
    assert 0 < len(packed.chunk_ids) < 5
    assert set(packed.chunk_ids) == set((ranked.chunk_ids + sum(ranked.dropped.values(), ()))[: len(packed.chunk_ids)])
    assert packed.dropped["token budget"]
    sent = sum(llm.count_tokens(m.content) for m in llm.calls[0].messages)
    assert sent + llm.max_output_tokens <= llm.context_window


# --- expand and pack --------------------------------------------------------------------------------


def test_neighbours_come_along_and_stay_in_their_document(ragdb_url: str) -> None:
    llm = FakeLLM("ok [1]")
    with with_llm(
        ragdb_url, llm, Document("a.md", "# T\n\n## A\n\naaa\n\n## B\n\nzirconium\n\n## C\n\nccc\n"), Document("b.md", "bbb")
    ) as rag:
        rag.ask("zirconium", k=1)
        assert "aaa" in llm.calls[-1].prompt and "ccc" in llm.calls[-1].prompt and "bbb" not in llm.calls[-1].prompt
        rag.ask("zirconium", k=1, pipeline=Pipeline(window=0))
        assert "aaa" not in llm.calls[-1].prompt


def test_hits_of_one_document_that_meet_become_one_passage(ragdb_url: str) -> None:
    llm = FakeLLM("ok [1]")
    text = "# T\n\n## A\n\nzirconium one\n\n## B\n\nzirconium two\n\n## C\n\nzirconium three\n"
    with with_llm(ragdb_url, llm, Document("a.md", text)) as rag:
        answer = rag.ask("zirconium")
    assert llm.calls[-1].prompt.count("zirconium two") == 1
    assert len(next(s for s in answer.stages if s.stage == "expand").chunk_ids) == 1


# --- runs -----------------------------------------------------------------------------------------


def test_every_stage_leaves_a_row_and_the_log_reads_like_the_documentation(
    rag: RagDB, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    rag.add(Document("router.md", ROUTER, title="Router"))
    with caplog.at_level(logging.INFO, logger="ragdb.run"):
        answer = rag.ask("How do I reset the router?")
    assert query("select stage, name from ragdb.run_stage where run_id = %s order by step", answer.run_id) == [
        ("retrieve", "lexical"), ("retrieve", "semantic"), ("fuse", ""), ("validate", "evidence"), ("expand", ""), ("pack", ""), ("synthesize", "extractive"),
    ]  # fmt: skip
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("1b retrieve semantic -> 2 chunks  (") for line in lines)
    assert any(" | router#reset#00 | " in line for line in lines)
    assert query("select outcome, mode, question from ragdb.run where run_id = %s", answer.run_id) == [
        ("answered", "extractive", "How do I reset the router?")
    ]
    assert query("select number, uri, quote is not null from ragdb.citation where run_id = %s and number = 1", answer.run_id) == [
        (1, "router.md", True)
    ]
    explained = str(rag.explain(answer.run_id or 0))
    for part in ("retrieve lexical", "retrieve semantic", "fuse", "router#reset#00", "synthesize extractive"):
        assert part in explained
    in_sql = query("select distinct stage from ragdb.explain(%s)", answer.run_id)
    assert {s for (s,) in in_sql} == {s.stage for s in answer.stages}


def test_a_failing_embedder_leaves_the_lexical_leg_and_the_trace_says_so(ragdb_url: str) -> None:
    from ragdb.errors import EmbedderError

    embedder = FakeEmbedder()
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        rag.add(Document("router.md", ROUTER))
        embedder.fail = EmbedderError("the model is not well", transient=True)
        result = rag.search("reset")
        assert [h.uri for h in result][:1] == ["router.md"]
        assert any("not well" in s.note for s in result.stages)
        with pytest.raises(EmbedderError):
            rag.search("reset again", pipeline=presets.naive)


def test_naive_reads_the_semantic_leg_alone(rag: RagDB) -> None:
    rag.add(Document("router.md", ROUTER))
    result = rag.search("reset", pipeline=presets.naive)
    assert [s.name for s in result.stages if s.stage == "retrieve"] == ["semantic"]
    assert all(set(h.ranks) == {"semantic"} for h in result)


def test_a_question_asked_again_is_not_embedded_again(rag: RagDB, query: Query) -> None:
    rag.add(Document("router.md", ROUTER))
    rag.search("reset the router")
    embedder = rag.context.embedder()
    calls = embedder.calls  # type: ignore[attr-defined]
    rag.search("reset the router")
    assert embedder.calls == calls  # type: ignore[attr-defined]
    assert query("select ranks ? 'semantic' from ragdb.search('reset the router', collection => 'help', k => 1)") == [(True,)]


def test_a_pipeline_is_data(rag: RagDB) -> None:
    import json

    pipeline = Pipeline(name="mine", weights={"lexical": 0.5}, window=2)
    assert Pipeline.from_dict(json.loads(json.dumps(pipeline.to_dict()))) == pipeline
    from ragdb.errors import ConfigError

    for wrong in ({"legs": ()}, {"legs": ("graph",)}, {"candidates": 0}, {"weights": {"lexical": -1}}, {"window": -1}):
        with pytest.raises(ConfigError):
            Pipeline(**wrong)
    with pytest.raises(ConfigError, match="nonsense"):
        Pipeline.from_dict({"nonsense": 1})


def test_a_reranker_object_sorts_and_ties_keep_the_fused_order(ragdb_url: str) -> None:
    class Length:
        def score(self, query: str, passages: Any) -> list[float]:
            return [float(len(p)) for p in passages]

    class Broken:
        def score(self, query: str, passages: Any) -> list[float]:
            return [float("nan")] * len(passages)

    class Flat:
        def score(self, query: str, passages: Any) -> list[float]:
            return [0.5] * len(passages)

    def order(reranker: Any) -> list[str]:
        with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), reranker=reranker) as rag:
            for n in range(4):
                rag.add(Document(f"d{n}", "battery " + "word " * n))
            return [h.uri for h in rag.search("battery")]

    fused = order(None)
    assert order(Length()) == ["d3", "d2", "d1", "d0"]
    assert order(Broken()) == fused
    assert order(Flat()) == fused
