"""What a model is shown: what stands around a hit, no repeats, what fits, and sentences of what does not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.compress import Compressor, by_reranker
from ragdb.errors import ConfigError
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.types import Message, Passage

PAGE = "# Manual\n\n" + "\n\n".join(
    f"## Part {part}\n\n" + "\n\n".join(f"Paragraph {part}.{n} tells about item{part}x{n} in some words." for n in range(6))
    for part in range(3)
)


class Small:
    """Chunks of one paragraph."""

    max_tokens = 512

    def chunk(self, document: Document, count_tokens: Any) -> list[Any]:
        from ragdb.chunkers.markdown import MarkdownChunker

        return list(MarkdownChunker(max_tokens=14).chunk(document, count_tokens))


@pytest.fixture
def rag(ragdb_url: str) -> Any:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), chunker=Small()) as made:
        made.add(Document("manual", PAGE))
        yield made


def shown(rag: RagDB, question: str, **how: Any) -> list[str]:
    """The texts of the prompt's passages, by number."""
    llm = FakeLLM("Yes [1].")
    rag.context.llm = llm
    rag.ask(question, pipeline=Pipeline(require_evidence=False, candidates=5, **how), k=how.pop("k", 1))
    body = llm.calls[-1].messages[0].content.partition("Passages:")[2]
    return sorted(part.strip() for part in body.split("\n\n[") if part.strip())


def test_a_window_a_section_and_all_there_is_room_for(rag: RagDB) -> None:
    question = "What about item1x2?"
    alone = "".join(shown(rag, question, window=0))
    assert "item1x2" in alone
    assert "item1x1" not in alone
    wide = "".join(shown(rag, question, window=1))
    assert all(f"item1x{n}" in wide for n in (1, 2, 3))
    section = "".join(shown(rag, question, expand="parent"))
    assert all(f"item1x{n}" in section for n in range(6))
    assert "item0x" not in section
    assert "item2x" not in section
    everything = "".join(shown(rag, question, expand="auto"))
    assert all(f"item1x{n}" in everything for n in range(6)), "until the section ends"
    assert "item0x" not in everything
    assert all(text.count("item1x2 ") == 1 for text in (wide, section, everything)), "overlap appears once"


def test_auto_stops_where_the_budget_does_and_keeps_every_hit(rag: RagDB) -> None:
    rag.context.llm = None
    for budget in (60, 90, 200):
        answer = rag.ask(
            "What about item1x2 and item2x4?",
            k=2,
            pipeline=Pipeline(expand="auto", context_tokens=budget, require_evidence=False),
        )
        packed = next(trace for trace in answer.stages if trace.stage == "pack")
        assert "token budget" not in packed.dropped
        assert len(packed.chunk_ids) == 2
    notes = [trace.note for trace in answer.stages if trace.stage == "expand"]
    assert "2 hits and " in notes[0]


def test_the_filter_holds_for_what_stands_around(rag: RagDB) -> None:
    rag.add(Document("secret", PAGE.replace("item", "secret"), status="draft"))
    text = "".join(shown(rag, "What about item1x2?", expand="parent"))
    assert "secret" not in text


LIMIT = "The monthly limit for travel is 60,000 yen. The head of the department approves each request in writing."


@pytest.mark.parametrize(
    ("other", "title", "goes"),
    [
        ("The monthly limit for travel is 60,000 yen!  The head of the department approves  each request in writing", None, True),
        (LIMIT.replace("60,000", "50,000"), None, False),
        (LIMIT.replace("approves", "does not approve"), None, False),
        (LIMIT + " Thanks.", None, False),
        (LIMIT + " ", "Rules of 2019", False),
    ],
)
def test_what_says_the_same_goes_and_a_number_or_a_not_is_not_the_same(
    ragdb_url: str, other: str, title: str, goes: bool
) -> None:
    with RagDB(ragdb_url, collection="twice", embedder=FakeEmbedder()) as rag:
        rag.add(Document("a", LIMIT))
        rag.add(Document("b", other, title=title))
        answer = rag.ask("What is the monthly limit for travel?", k=6)
    packed = next(trace for trace in answer.stages if trace.stage == "pack")
    assert len({c for trace in answer.stages if trace.stage == "expand" for c in trace.chunk_ids}) == 2
    # the longer one may stand first, and then says all that the other one does
    assert ("says what a better one says" in packed.dropped) == goes or "Thanks" in other


def test_no_hit_gives_way_to_what_stands_around_another(rag: RagDB) -> None:
    rag.context.llm = None
    how = Pipeline(window=3, context_tokens=150, require_evidence=False, candidates=20)
    answer = rag.ask("What about item0x0, item1x2 and item2x4?", k=3, pipeline=how)
    packed = next(trace for trace in answer.stages if trace.stage == "pack")
    assert "token budget" not in packed.dropped


PASSAGE = Passage(1, 1, "a", 1, "a", None, (), "One is here. Two is there. Three is gone.", "", 0, 41, None, 1.0)
LONG = (
    " ".join(f"Sentence {n} is about nothing much." for n in range(60))
    + " The pump needs oil. "
    + " ".join(f"Later {n} follows something else." for n in range(60))
)


@pytest.mark.parametrize("by", ["embedder", "reranker", "llm"])
def test_a_passage_that_does_not_fit_becomes_its_sentences_that_matter(ragdb_url: str, by: str) -> None:
    class Pump:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            return [float("pump" in passage) for passage in passages]

    def says(messages: Sequence[Message]) -> str:
        prompt = messages[0].content
        if "Which of these sentences" not in prompt:
            return "Oil [1]."
        number = next(line for line in prompt.splitlines() if "pump needs oil" in line).partition("]")[0].strip("[")
        return f'{{"keep": [{number}]}}'

    llm = FakeLLM(says, context_window=700, max_output_tokens=300)
    how: dict[str, Any] = {"reranker": Pump()} if by == "reranker" else {}
    embedder = FakeEmbedder(16)
    with RagDB(ragdb_url, collection="long", embedder=embedder, llm=llm, chunker=Whole(), **how) as rag:
        rag.add(Document("long", LONG))
        pipeline = Pipeline(compress="llm" if by == "llm" else "extractive", require_evidence=False, window=0)
        answer = rag.ask("What does the pump need?", pipeline=pipeline)
    assert answer.outcome == "answered"
    packed = next(trace for trace in answer.stages if trace.stage == "pack")
    assert "1 compressed" in packed.note
    body = llm.calls[-1].messages[0].content
    assert "The pump needs oil." in body
    assert "..." in body
    assert "Sentence 30" not in body or by != "llm"
    [citation] = answer.citations
    assert (citation.start, citation.end, citation.quote) == (0, len(LONG), LONG), "into the document itself"


def test_a_compression_that_fails_is_told_and_the_passage_is_packed_as_it_would_be_without(ragdb_url: str) -> None:
    class Away:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            raise RuntimeError("the reranker is away")

    llm = FakeLLM(["Oil [1]."], context_window=1500, max_output_tokens=300)
    pipeline = Pipeline(compress="extractive", require_evidence=False, window=1)
    with RagDB(ragdb_url, collection="long", embedder=FakeEmbedder(16), llm=llm, reranker=Away(), chunker="recursive:64") as rag:
        for n in range(6):
            rag.add(Document(f"long{n}", f"Part {n}. {LONG}"))
        answer = rag.ask("What does the pump need?", pipeline=pipeline, k=30)
    assert answer.outcome == "answered"
    packed = next(trace for trace in answer.stages if trace.stage == "pack")
    assert packed.note.endswith("compression failed: the reranker is away")
    assert answer.usage["fell_back"] == ["rerank", "pack"]


@pytest.mark.parametrize("scores", [[float("nan")] * 3, [1.0, float("inf"), 0.0], [None] * 3, ["high"] * 3, [1.0]])
def test_scores_that_cannot_be_used_compress_nothing_and_are_told(scores: list[Any]) -> None:
    compress = Compressor("q", lambda question, texts: scores, lambda text: len(text.split()))
    assert compress(PASSAGE, 7) is None
    assert compress.failed


def test_scores_as_text_are_read_as_a_reranker_s_are() -> None:
    scores: list[Any] = ["0.1", "0.9", "0.5"]
    compress = Compressor("q", lambda question, texts: scores, lambda text: len(text.split()))
    assert compress(PASSAGE, 5) == "... Two is there. ..."
    assert compress.failed is None


def test_a_compression_by_a_model_that_is_not_there_is_told(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="long", embedder=FakeEmbedder(16), chunker="recursive:64") as rag:
        rag.add(Document("long", LONG))
        answer = rag.ask("What does the pump need?", pipeline=Pipeline(compress="llm", rerank=False))
    packed = next(trace for trace in answer.stages if trace.stage == "pack")
    assert packed.note.endswith("compress: there is no model")
    assert answer.usage["fell_back"] == ["pack"]


def test_an_embedder_that_cannot_be_loaded_fails_no_compression_that_is_not_needed(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="long", embedder=FakeEmbedder(16)) as rag:
        rag.add(Document("short", "The pump needs oil."))
    missing = RagDB(ragdb_url, collection="long", embedder="nowhere:to-be-found", llm=FakeLLM(["Oil [1]."]))
    with missing as rag:
        pipeline = Pipeline(legs=("lexical",), compress="extractive", require_evidence=False)
        answer = rag.ask("What does the pump need?", pipeline=pipeline)
    assert answer.outcome == "answered"
    assert "fell_back" not in answer.usage or answer.usage["fell_back"] == ["rerank"]


class Whole:
    """One chunk a document."""

    def chunk(self, document: Document, count_tokens: Any) -> list[Any]:
        from ragdb.types import Span

        return [Span(0, len(document.content))]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="expand is 'all'"):
        Pipeline(expand="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="compress is 'zip'"):
        Pipeline(compress="zip")  # type: ignore[arg-type]


def test_a_passage_is_scored_once_and_a_reranker_that_hangs_is_left_behind() -> None:
    passage = PASSAGE
    asked: list[int] = []

    def score(question: str, texts: Sequence[str]) -> list[float]:
        asked.append(len(texts))
        return [1.0, 3.0, 2.0]

    compress = Compressor("q", score, lambda text: len(text.split()))
    assert compress(passage, 7) == "... Two is there. Three is gone."
    assert compress(passage, 5) == "... Two is there. ..."
    assert asked == [3]

    class Hangs:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            time.sleep(20)
            return []

    began = time.monotonic()
    hanging = Compressor("q", by_reranker(Hangs(), 0.1), len)
    assert hanging(passage, 9) is None and hanging.failed == "not done in 0.1 s"
    assert time.monotonic() - began < 2
