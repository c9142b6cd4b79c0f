"""Evaluation at its edges: copies, greetings, quotes that repeat, sets that changed since, what fails in the middle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.errors import ConfigError, EmbedderError, RagDBError
from ragdb.evaluate import EvalQuestion, How, Judgement, compare, gate, means, report, run, runs, sets, sweep
from ragdb.evaluate.scoring import measured
from ragdb.evaluate.settings import pipeline_of
from ragdb.evaluate.sweeping import drop
from ragdb.evaluate.types import EvalRun, Step
from ragdb.ingest import vector_sets
from ragdb.prompts import Prompts
from ragdb.testing import FakeEmbedder, FakeLLM

Query = Callable[..., list[tuple[Any, ...]]]

COPY = "# Alpha\n\nThe alpha device is reset with the red button on its back.\n"
LONG = "# Long\n\n" + "\n\n".join(
    f"## Part {n}\n\nPart {n} tells of gamma{n} and (a+b)*[c] for $5.00 in all. The same words stand here." for n in range(8)
)
HYBRID = pipeline_of("hybrid:rerank=false")


class Backwards:
    """A reranker that turns the list round."""

    name = "backwards"
    max_tokens = 512

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        return [float(place) for place in range(len(passages))]


@pytest.fixture
def rag(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="edge", embedder=FakeEmbedder(), chunker="markdown:64") as made:
        for n in range(3):
            made.add(Document(f"copy{n}.md", COPY))
        made.add(Document("long.md", LONG))
        made.add(Document("ja.md", "# 日本\n\n東京は日本の首都です。\u3000人口は約1400万人\nです。"))
        made.context.database.call("refresh_lexical_stats")
        sets.make(made, "edge")
        yield made


def asked(rag: RagDB, *questions: EvalQuestion, pipeline: str = "hybrid:rerank=false", k: int = 6) -> EvalRun:
    sets.put_questions(rag, "edge", questions)
    return run(rag, "edge", [pipeline_of(pipeline)], how=How(k=k))[0]


def test_a_copy_of_the_judged_text_counts_as_the_judged_one(rag: RagDB) -> None:
    question = "How is the alpha device reset with the red button?"
    given = [EvalQuestion(f"c{n}", question, (Judgement(f"copy{n}.md"),)) for n in range(3)]
    found = asked(rag, *given)
    assert [result.documents[0] for result in found.results] == ["copy0.md", "copy1.md", "copy2.md"]
    assert means(found)["ndcg@10"].value == 1.0
    assert {result.funnel["fuse"] for result in found.results} == {Step(1, True)}
    # a trap that stands for its copies stays a trap
    trap = asked(rag, EvalQuestion("c1", question, (Judgement("copy1.md"), Judgement("copy0.md", 0, trap=True))))
    assert trap.by_key()["c1"].documents[0] == "copy0.md"
    with RagDB(rag.context.database.target, collection="edge", embedder=FakeEmbedder(), reranker=Backwards()) as other:
        after = run(other, "edge", [pipeline_of("hybrid:rerank=true")])[0]
    funnels = [after.by_key()[key].funnel for key in ("c0", "c2")]
    assert funnels[0]["rerank"].rank is not None
    assert funnels[0]["rerank"] == funnels[1]["rerank"]


def test_a_greeting_is_neither_refused_nor_answered(rag: RagDB) -> None:
    found = asked(rag, EvalQuestion("g1", "Hello!", (Judgement("long.md"),)), EvalQuestion("g2", "Hello!"), pipeline="hybrid")
    answerable, hopeless = (found.by_key()[key] for key in ("g1", "g2"))
    assert (answerable.outcome, answerable.error, answerable.lost_at) == ("no_retrieval", None, "retrieve")
    assert answerable.scores["ndcg@10"] == 0.0
    assert not {"refusal", "false_refusal"} & {*answerable.scores, *hopeless.scores}


@pytest.mark.parametrize(
    ("uri", "words", "chunks"),
    [
        ("long.md", "The same words stand here.", 8),
        ("long.md", "gamma3 and (a+b)*[c]\n for  $5.00", 1),
        ("long.md", "The same\nwords", 8),
        ("ja.md", "首都です。 人口は約1400万人 です", 1),
        ("long.md", "words that are not there", 0),
    ],
)
def test_a_quote_is_found_wherever_it_stands(rag: RagDB, uri: str, words: str, chunks: int) -> None:
    sets.put_questions(rag, "edge", [EvalQuestion("q", "gamma3?", (Judgement(uri, quote=words),))])
    (row,) = rag.context.database.call("eval_evidence", eval_set="edge", collection="edge")
    assert (row["kind"], len(row["chunk_ids"]), row["chunk_ids"]) == ("quote", chunks, row["whole_ids"])


def test_the_places_of_words_are_counted_from_zero(query: object, rag: RagDB) -> None:
    rows = query("select first, last from ragdb.places_of('aXbbXaX', 'X')")  # type: ignore[operator]
    assert rows == [(1, 2), (4, 5), (6, 7)]
    assert query("select count(*) from ragdb.places_of(repeat('ab', 500), 'ab')") == [(100,)]  # type: ignore[operator]
    assert query("select first, last from ragdb.places_of(E'a\\n\\nb a  b', 'a b')") == [(0, 4), (5, 9)]  # type: ignore[operator]


def test_a_label_or_quote_that_is_gone_is_lost_at_its_chunk_not_with_its_document(rag: RagDB) -> None:
    found = asked(
        rag,
        EvalQuestion("label", "Where is gamma3?", (Judgement("long.md", label="long.md#gone#00"),)),
        EvalQuestion("words", "Where is gamma3?", (Judgement("long.md", quote="not in there"),)),
        EvalQuestion("blank", "Where is gamma3?", (Judgement("long.md", label="", quote=" \n"),)),
        EvalQuestion("document", "Where is gamma3?", (Judgement("gone.md"),)),
    )
    lost = {result.key: result.lost_at for result in found.results}
    assert (lost["label"], lost["words"], lost["document"]) == ("chunk", "chunk", "indexed")
    # words that are none judge the document
    assert found.by_key()["blank"].funnel["fuse"].alive
    assert sets.read(rag, "edge").by_key()["blank"].judgements == (Judgement("long.md"),)


ALPHA = EvalQuestion("a", "How is the alpha device reset with the red button?", (Judgement("copy0.md"),), tags=("t",))
GAMMA = EvalQuestion("g", "What does gamma3 cost?", (Judgement("long.md", quote="gamma3"),))


def test_a_baseline_of_other_judgements_is_told_and_no_baseline(rag: RagDB) -> None:
    before = asked(rag, ALPHA, GAMMA)
    assert before.by_key()["a"].scores["ndcg@10"] == 1.0
    # what was right is a trap now, and the other question is gone
    sets.put_questions(
        rag, "edge", [dataclasses.replace(ALPHA, judgements=(Judgement("ja.md"), Judgement("copy0.md", 0, trap=True)))]
    )
    sets.set_state(rag, "edge", ["g"], "rejected")
    after = run(rag, "edge", [HYBRID])[0]
    judged = sets.read(rag, "edge")
    assert after.eval_run_id != before.eval_run_id
    with pytest.raises(ConfigError, match=r"other questions or judgements; ask it again: ragdb eval run edge"):
        gate(judged, before, after)
    # lists of documents are measured again by the judgements of now
    again = measured(rag.context, before.eval_run_id, judged, ("mrr@10",))
    assert again.by_key()["a"].scores["ndcg@10"] == after.by_key()["a"].scores["ndcg@10"] < 1.0
    assert again.by_key()["a"].scores["contamination@5"] > 0
    found = compare(judged, again, after)
    assert {difference.n for difference in found.differences} == {1}
    assert "judgements changed" in found.cautions[0]
    assert compare(judged, after, after).cautions == ()


def test_a_comparison_tells_what_else_differs(rag: RagDB) -> None:
    before, after = asked(rag, ALPHA, GAMMA), asked(rag, ALPHA, GAMMA, k=2)
    rag.add(Document("more.md", "# More\n\nMore of gamma3."))
    later = asked(rag, ALPHA, GAMMA, k=2)
    judged = sets.read(rag, "edge")
    assert compare(judged, before, after).cautions == ("k was 6, then 2",)
    assert compare(judged, after, later).cautions == ("the collection edge changed in between",)


def test_a_leg_that_could_not_be_asked_is_an_error_not_a_result(rag: RagDB) -> None:
    class Away(FakeEmbedder):
        def embed_query(self, text: str) -> Sequence[float]:
            raise EmbedderError("the embedder is away")

    sets.put_questions(rag, "edge", [ALPHA, GAMMA])
    with RagDB(rag.context.database.target, collection="edge", embedder=Away(name=FakeEmbedder().name)) as other:
        found = run(other, "edge", [HYBRID])[0]
    assert found.finished_at is None
    assert {result.error for result in found.results} == {"EmbedderError: the embedder is away"}
    after = run(rag, "edge", [HYBRID])[0]
    assert after.eval_run_id == found.eval_run_id
    assert after.finished_at is not None
    assert after.by_key()["a"].funnel["semantic"].alive


def test_a_vector_set_that_is_behind_is_an_error_too_and_the_run_names_the_set_it_searched(rag: RagDB) -> None:
    sets.put_questions(rag, "edge", [ALPHA, GAMMA])
    other = FakeEmbedder(16)
    vector_sets.add(rag, other.name)
    with RagDB(rag.context.database.target, collection="edge", embedder=other) as new:
        found = run(new, "edge", [HYBRID])[0]
        assert found.finished_at is None
        assert {str(result.error) for result in found.results} == {
            f"EmbedderError: behind, the vector set of {other.name} is behind by more than 0 documents: not searched"
        }
        assert run(new, "edge", [pipeline_of("hybrid:rerank=false,legs=lexical")])[0].finished_at is not None
        searched = new.search("How is alpha reset?", pipeline=HYBRID)
        assert any(trace.note.startswith("behind") for trace in searched.stages)
        assert new.ask("How is alpha reset?", pipeline=HYBRID).usage["fell_back"] == ["retrieve"]
        vector_sets.fill(rag, other.name)
        after = run(new, "edge", [HYBRID])[0]
    assert after.eval_run_id == found.eval_run_id and after.finished_at is not None
    assert after.settings["embedder"] == other.name
    assert run(rag, "edge", [HYBRID])[0].settings["embedder"] == FakeEmbedder().name


def test_other_prompts_or_another_window_are_another_run(rag: RagDB, tmp_path: Path) -> None:
    sets.put_questions(rag, "edge", [ALPHA])
    (tmp_path / "en").mkdir()
    text = Prompts().template("answer", "en").template
    (tmp_path / "en" / "answer.txt").write_text(f"{text}\nBe brief.", encoding="utf-8")
    how = How(answers=True)
    url = rag.context.database.target

    def asked_with(pipeline: Pipeline = HYBRID, how: How = how, window: int = 8192, **more: Any) -> EvalRun:
        llm = FakeLLM("With the red button [1].", context_window=window)
        with RagDB(url, collection="edge", embedder=FakeEmbedder(), llm=llm, **more) as other:
            return run(other, "edge", [pipeline], how=how)[0]

    first = asked_with()
    assert asked_with().eval_run_id == first.eval_run_id
    brief, small = asked_with(prompts=tmp_path), asked_with(window=1024)
    assert len({first.eval_run_id, brief.eval_run_id, small.eval_run_id}) == 3
    judged = sets.read(rag, "edge")
    assert compare(judged, first, small).cautions == ("llm_tokens was [8192, 512], then [1024, 512]",)
    (caution,) = compare(judged, first, brief).cautions
    assert caution.startswith("prompts was ")
    # what no model was asked for hangs on no prompt
    assert asked_with(how=How()).eval_run_id == asked_with(how=How(), prompts=tmp_path).eval_run_id
    compressed = dataclasses.replace(HYBRID, name="compressed", compress="llm")
    assert asked_with(compressed, How()).settings["llm"] == FakeLLM().name


def test_a_set_or_settings_of_fuse_that_changed_in_between_are_told(rag: RagDB) -> None:
    sets.put_questions(rag, "edge", [ALPHA, GAMMA])
    before = run(rag, "edge", [HYBRID])[0]
    rag.context.database.call("set_fusion", collection="edge", fusion={"weights": {"lexical": 0.6, "semantic": 0.4}})
    after = run(rag, "edge", [HYBRID])[0]
    judged = sets.read(rag, "edge")
    (caution,) = compare(judged, before, after).cautions
    assert caution.startswith("the collection's own settings of fuse were none, then {") and "0.6" in caution
    sets.put_questions(rag, "edge", [dataclasses.replace(GAMMA, key="a")])
    (caution,) = compare(sets.read(rag, "edge"), after, after).cautions
    assert caution.startswith(f"the set changed after run {after.eval_run_id} was asked")


def test_a_metric_of_one_run_alone_is_not_what_runs_are_compared_by(rag: RagDB) -> None:
    sets.put_questions(rag, "edge", [ALPHA, GAMMA])
    other = run(rag, "edge", [pipeline_of("naive:rerank=false")])[0]
    more = run(rag, "edge", [HYBRID], how=How(metrics=("ndcg", "ndcg@10")))[0]
    text = report.markdown(sets.read(rag, "edge"), [more, other])
    assert "nothing to compare it with" not in text


def test_a_stage_that_fell_back_is_told_wherever_the_run_is_shown(rag: RagDB, query: Query) -> None:
    class Sometimes:
        """A reranker that is away for one question."""

        name = "sometimes"

        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            if "alpha" in query:
                raise RuntimeError("the reranker is away")
            return [1.0 / n for n in range(1, len(passages) + 1)]

    sets.put_questions(rag, "edge", [ALPHA, GAMMA])
    plain = run(rag, "edge", [HYBRID])[0]
    with RagDB(rag.context.database.target, collection="edge", embedder=FakeEmbedder(), reranker=Sometimes()) as other:
        pipeline = dataclasses.replace(HYBRID, name="reranked", rerank=True)
        found = run(other, "edge", [pipeline])[0]
    assert found.finished_at is not None  # the fused order is this pipeline's answer too
    assert {key: result.scores["fallback:rerank"] for key, result in found.by_key().items()} == {"a": 1.0, "g": 0.0}
    assert not any(name.startswith("fallback") for name in means(found))  # no column of zeros in every table
    assert means(found, ["fallback:rerank"])["fallback:rerank"].value == 0.5
    judged = sets.read(rag, "edge")
    trace = found.by_key()["a"].run_id
    said = (
        "rerank fell back for 1 of 2 questions, for its model was not there, failed or was late; "
        f"why: ragdb explain {trace}; when that is mended, --again asks anew"
    )
    assert f"reranked ({found.eval_run_id}): {said}" in compare(judged, plain, found).cautions
    assert len(compare(judged, found, found).cautions) == 1
    assert f"reranked: {said}." in report.markdown(judged, [found], baseline=plain)
    assert "the reranker is away" in query("select note from ragdb.run_stage where run_id = %s and stage = 'rerank'", trace)[0][0]
    assert gate(judged, found, found, max_drop={"fallback:rerank": 0.0}).passed
    kept = dataclasses.replace(
        found, results=tuple(dataclasses.replace(r, scores={**r.scores, "fallback:rerank": 0.0}) for r in found.results)
    )
    refused = gate(judged, kept, found, max_drop={"fallback:rerank": 0.0})
    assert ([one.metric for one, _ in refused.failures], refused.missing) == (["fallback:rerank"], ())
    assert gate(judged, kept, found, max_drop={"fallback:rerank": 0.5}).passed
    assert gate(judged, found, kept, max_drop={"fallback:rerank": 0.0}).passed, "less of it is better"
    assert gate(judged, plain, found, max_drop={"fallback:rerank": 1.0}).missing == ("fallback:rerank",)
    for metric in ("fallback:reranker", "fallback:", "fallback:rerank@5"):
        with pytest.raises(ConfigError, match="cannot fall back; those that can are route, rewrite, rerank, pack"):
            gate(judged, kept, found, max_drop={metric: 0.0})
    with pytest.raises(ConfigError, match="no column"):
        How(metrics=("fallback:rerank",))


def test_stability_is_of_all_paraphrases_also_of_a_run_that_went_on(rag: RagDB) -> None:
    class Breaking(FakeEmbedder):
        def embed_query(self, text: str) -> Sequence[float]:
            if "third" in text:
                raise EmbedderError("the embedder is away")
            return super().embed_query(text)

    given = [
        EvalQuestion("p1", "What does gamma3 cost?", (Judgement("long.md"),)),
        EvalQuestion("p2", "What does gamma3 cost in all?", (Judgement("long.md"),), paraphrase_of="p1"),
        EvalQuestion("p3", "首都 third", (Judgement("long.md"),), paraphrase_of="p1"),
    ]
    sets.put_questions(rag, "edge", given)
    how = How(metrics=("ndcg@10", "stability@5"))
    with RagDB(rag.context.database.target, collection="edge", embedder=Breaking(name=FakeEmbedder().name)) as other:
        assert run(other, "edge", [HYBRID], how=how)[0].finished_at is None
    found = run(rag, "edge", [HYBRID], how=how)[0]
    whole = run(rag, "edge", [HYBRID], how=dataclasses.replace(how, again=True))[0]
    assert {r.key: r.scores["stability@5"] for r in found.results} == {r.key: r.scores["stability@5"] for r in whole.results}


def test_only_collections_of_sweeps_are_dropped(rag: RagDB) -> None:
    sets.put_questions(rag, "edge", [ALPHA])
    with RagDB(rag.context.database.target, collection="edge~notes", embedder=FakeEmbedder()) as other:
        other.add(Document("mine.md", "# Mine\n\nNobody else's."))
    sweep(rag, "edge", {"chunk_size": ["32"]}, base=HYBRID)
    assert drop(rag, "edge") == ["edge~markdown:32"]
    names = {row["collection"] for row in rag.context.database.call("list_collections")}
    assert names == {"edge", "edge~notes"}
    with pytest.raises(ConfigError, match="chunk_size is '0'"):
        sweep(rag, "edge", {"chunk_size": ["0"]}, base=HYBRID)


def test_a_name_that_is_too_long_for_a_collection_beside_is_told(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="x" * 190, embedder=FakeEmbedder()) as rag:
        rag.add(Document("a.md", COPY))
        sets.make(rag, "edge")
        sets.put_questions(rag, "edge", [ALPHA])
        with pytest.raises(ConfigError, match="a collection with a shorter name"):
            sweep(rag, "edge", {"chunk_size": ["32"]}, base=HYBRID)


@pytest.mark.parametrize("name", ["7", "", " ", "a ", "a\nb", "x" * 201])
def test_a_name_that_no_set_can_have(rag: RagDB, name: str) -> None:
    with pytest.raises(ConfigError, match="the set's name is"):
        sets.make(rag, name)


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("hybrid:rewrite=hyde", "language model"),
        ("hybrid:rewrite=nonsense", "nonsense"),
        ("hybrid:compress=llm", "language model"),
        ("hybrid:rerank=true", "reranker"),
    ],
)
def test_a_pipeline_is_not_measured_without_its_parts(ragdb_url: str, rag: RagDB, pipeline: str, said: str) -> None:
    sets.put_questions(rag, "edge", [ALPHA])
    with (
        RagDB(ragdb_url, collection="edge", embedder=FakeEmbedder(), reranker="none") as bare,
        pytest.raises(RagDBError, match=said),
    ):
        run(bare, "edge", [pipeline_of(pipeline)])
    assert not runs.listed(rag.context.database)


def test_texts_of_questions_are_cleaned_as_those_of_documents_are(rag: RagDB) -> None:
    given = EvalQuestion(
        "n\0", "What\0is \ud800 it?", (Judgement("long.md", quote="The same words\r\nstand"),), where={"a": "b\0"}
    )
    sets.put_questions(rag, "edge", [given])
    (found,) = sets.read(rag, "edge").questions
    assert (found.key, found.question, found.judgements[0].quote) == ("n ", "What is \ufffd it?", "The same words\nstand")
    assert sets.quotes_not_found(rag, "edge") == []


def test_judgements_that_contradict_themselves_are_refused(rag: RagDB) -> None:
    for judgements, said in (
        ((Judgement("long.md", 2, trap=True),), "trap 'long.md' with the grade 2"),
        ((Judgement("long.md", 2), Judgement("long.md", 1)), "judged twice"),
        ((Judgement("long.md", 2), Judgement("long.md", 1, quote=" ")), "judged twice"),
        ((Judgement(""),), "without the uri"),
    ):
        with pytest.raises(ConfigError, match=said):
            sets.put_questions(rag, "edge", [dataclasses.replace(ALPHA, judgements=judgements)])
