"""The line that a language model writes above a chunk: in its context, kept where nothing changed, found by the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.chunkers.contextual import ContextualChunker
from ragdb.chunkers.header import index_header, index_text
from ragdb.chunkers.markdown import MarkdownChunker
from ragdb.errors import ConfigError, LLMError
from ragdb.testing import FakeEmbedder, FakeLLM, drain
from ragdb.types import Message

Query = Callable[..., list[tuple[Any, ...]]]
TEXT = "# Router\n\nIntro.\n\n## Reset\n\nHold the button.\n\n## Table\n\n" + "| a | b |\n| - | - |\n" + "| 1 | 2 |\n" * 40


def said(messages: Sequence[Message]) -> str:
    part = messages[0].content.split("<part>\n", 1)[-1].split("\n</part>", 1)[0]
    return f"Context: zebra{len(part)} of the handbook.\nMore that nobody asked for."


@pytest.fixture
def contextual(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(
        ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM(said), chunker="contextual:markdown:48"
    ) as made:
        yield made


def lines(query: Query) -> list[str]:
    return [
        context.rsplit("\n", 1)[-1]
        for (context,) in query(
            "select k.context from ragdb.chunk k join ragdb.chunk_place p using (chunk_id) order by p.ordinal"
        )
    ]


def test_each_chunk_has_its_line_in_the_context_and_is_found_by_it(contextual: RagDB, query: Query) -> None:
    added = contextual.add(Document("r.md", TEXT, title="Router"))
    assert added.ingest_state == "ready"
    assert all(line.startswith("zebra") and line.endswith("of the handbook.") for line in lines(query))
    assert not query("select 1 from ragdb.chunk where content like '%zebra%'")
    hits = contextual.search("zebra26", pipeline=Pipeline(legs=("lexical",))).hits
    assert [hit.heading_path[-1] for hit in hits] == ["Reset"]


def test_only_what_changed_is_asked_for_again(contextual: RagDB, query: Query) -> None:
    llm = contextual.context.llm
    assert isinstance(llm, FakeLLM)
    contextual.add(Document("r.md", TEXT, title="Router"))
    first, before = len(llm.calls), lines(query)
    assert first == len(before)
    contextual.add(Document("r.md", TEXT, title="Router"))
    assert len(llm.calls) == first
    contextual.add(Document("r.md", TEXT.replace("Hold the button", "Hold the red button"), title="Router"))
    assert len(llm.calls) == first + 1
    assert sum(a != b for a, b in zip(before, lines(query), strict=True)) == 1


def test_a_model_that_fails_leaves_the_text_in_the_queue(ragdb_url: str, query: Query) -> None:
    def failing(messages: Sequence[Message]) -> str:
        raise LLMError("no answer", transient=True)

    rag = RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM(failing), chunker="contextual")
    with rag, pytest.raises(LLMError):
        rag.add(Document("r.md", TEXT))
    assert query("select ingest_state, last_error from ragdb.document") == [("queued", "LLMError: no answer")]
    assert query("select count(*) from ragdb.chunk") == [(0,)]


def test_lines_that_were_written_before_a_failure_are_not_asked_for_again() -> None:
    asked: list[str] = []
    working: list[bool] = []

    def sometimes(messages: Sequence[Message]) -> str:
        asked.append(messages[0].content)
        if not working and "Hold the button" in messages[0].content.split("<part>")[-1]:
            raise LLMError("no answer", transient=True)
        return said(messages)

    text = "# A\n\nOne.\n\n# B\n\nTwo.\n\n# C\n\nHold the button.\n"
    document = Document("r.md", text, title="Router")
    chunker = ContextualChunker(MarkdownChunker(max_tokens=40), FakeLLM(sometimes))
    count = FakeEmbedder().count_tokens
    with pytest.raises(LLMError, match="no answer"):
        chunker.chunk(document, count)
    assert len(asked) == 3
    working.append(True)
    spans = chunker.chunk(document, count)
    assert len(asked) == 4
    assert all(span.context.startswith("zebra") for span in spans)
    # up to the part itself all prompts are the same: a server reads the document once
    assert len({prompt.partition("<part>")[0] for prompt in asked}) == 1
    chunker.chunk(document, count)
    assert len(asked) == 4, "what comes after the lines, the writing of them, may have failed"


def test_documents_that_fail_at_their_first_call_push_no_lines_out() -> None:
    calls: list[bool] = []

    def once(messages: Sequence[Message]) -> str:
        calls.append(True)
        if len(calls) > 1:
            raise LLMError("no answer", transient=True)
        return said(messages)

    chunker = ContextualChunker(MarkdownChunker(max_tokens=40), FakeLLM(once))
    count = FakeEmbedder().count_tokens
    texts = ["# A\n\nOne.\n\n# B\n\nTwo.\n", *(f"# C\n\nOther {n}.\n" for n in range(100))]
    for n, text in enumerate(texts):
        with pytest.raises(LLMError, match="no answer"):
            chunker.chunk(Document(f"{n}.md", text), count)
    del calls[:]
    spans = chunker.chunk(Document("0.md", texts[0]), count)
    assert len(calls) == 1
    assert all(span.context.startswith("zebra") for span in spans)


def test_of_a_long_document_the_model_sees_the_headings_of_its_part() -> None:
    asked: list[str] = []

    def keeping(messages: Sequence[Message]) -> str:
        asked.append(messages[0].content)
        return said(messages)

    text = "# Router\n\n" + "Beginning. " * 400 + "\n\n## Reset\n\n### Twice\n\n" + "Hold it. " * 400 + "\n\n# End\n\nThe end.\n"
    llm = FakeLLM(keeping, context_window=1024)
    chunker = ContextualChunker(MarkdownChunker(max_tokens=200), llm)
    spans = chunker.chunk(Document("r.md", text), FakeEmbedder().count_tokens)
    assert len(spans) > 3
    shown = [prompt.partition("<part>")[0] for prompt in asked if "Hold it." in prompt.partition("<part>")[2]]
    assert shown
    assert all("\n...\n# Router\n## Reset\n### Twice\n" in prompt for prompt in shown)


def test_no_model_is_asked_within_the_callers_transaction(contextual: RagDB, query: Query, ragdb_url: str) -> None:
    import sqlalchemy as sa

    llm = contextual.context.llm
    assert isinstance(llm, FakeLLM)
    engine = sa.create_engine(ragdb_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        added = contextual.add(Document("r.txt", "page one\n\npage two", pages=(0, 10)), session=connection)
        assert (added.ingest_state, llm.calls) == ("queued", [])
    assert drain(contextual) == ["r.txt"]
    assert query("select page, label from ragdb.chunk_place order by ordinal") == [(1, "r#page-1#00"), (2, "r#page-2#00")]
    engine.dispose()


def test_the_limit_holds_with_the_line() -> None:
    embedder = FakeEmbedder()
    chunker = ContextualChunker(MarkdownChunker(max_tokens=40), FakeLLM("word " * 400), line_tokens=16)
    document = Document("r.md", TEXT, title="Router")
    for span in chunker.chunk(document, embedder.count_tokens):
        whole = index_text(index_header("Router", span.heading_path), span.context, document.content[span.start : span.end])
        assert embedder.count_tokens(whole) <= chunker.max_tokens == 56


def test_without_a_model_the_name_is_refused(ragdb_url: str) -> None:
    with (
        RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), chunker="contextual") as rag,
        pytest.raises(ConfigError, match="RAGDB_LLM"),
    ):
        rag.add(Document("r.md", TEXT))


def test_the_chunker_a_collection_is_made_with_is_used_by_programs_that_name_none(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), chunker="sentence:64") as first:
        first.add(Document("a.md", "One is here. Two is there. Three is gone."))
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as second:
        assert not second.add(Document("a.md", "One is here. Two is there. Three is gone.")).changed
        assert second.add(Document("b.md", "Four is here. Five is there.")).chunks == 2
        query("select * from ragdb.submit_document('help', 'c.md', 'Six is here. Seven is there.')")
        assert drain(second) == ["c.md"]
    assert query("select n_chunks from ragdb.document order by uri") == [(3,), (2,), (2,)]
    query("update ragdb.collection set chunker = 'markdown:64'")
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as third:
        assert third.add(Document("a.md", "One is here. Two is there. Three is gone.")).chunks == 1
