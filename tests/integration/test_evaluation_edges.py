"""Evaluation at its edges: copies, greetings, quotes that repeat, sets that changed since, what fails in the middle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ragdb import Document, RagDB
from ragdb.evaluate import EvalQuestion, How, Judgement, means, run, sets
from ragdb.evaluate.settings import pipeline_of
from ragdb.evaluate.types import EvalRun, Step
from ragdb.testing import FakeEmbedder

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
