"""Erasure: after a document is deleted no table holds a word that stood only in it, but where a person typed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ragdb import Document, RagDB, presets
from ragdb.errors import EmbedderError
from ragdb.testing import FakeEmbedder, FakeLLM

Query = Callable[..., list[tuple[Any, ...]]]
MARK = "zebraquartz"
TEXT = f"""---
keeper: {MARK}-metadata
---
# The {MARK}title page

The {MARK}body of the reset button is blue.

## Its {MARK}heading

Hold the {MARK} button for ten seconds.
"""


def tables_with(query: Query, word: str) -> dict[str, int]:
    """How many rows of each table of the schema hold the word, in whatever column."""
    found = {}
    for (name,) in query(
        "select c.relname from pg_class c where c.relnamespace = 'ragdb'::regnamespace and c.relkind = 'r' order by 1"
    ):
        rows = query(f"select count(*) from ragdb.{name} x where x::text ilike %s", f"%{word}%")[0][0]
        if rows:
            found[name] = rows
    return found


def marked() -> Document:
    from ragdb.metadata import described

    return described(
        Document(
            "page.md",
            TEXT,
            title=f"{MARK} title",
            owner=f"{MARK} owner",
            version=f"{MARK}1",
            metadata={MARK: [MARK]},
            source=f"/srv/{MARK}.md",
        )
    )


def test_no_table_holds_a_word_of_a_deleted_document(ragdb_url: str, query: Query) -> None:
    def said(messages: Any) -> str:
        asked = messages[-1].content
        if MARK not in "".join(message.content for message in messages):  # it knows what it is shown
            return '{"queries": ["another button"]}' if "queries" in asked else "The cable is there [1]."
        if "JSON" in asked or "queries" in asked:
            return json.dumps({"queries": [f"What is the {MARK} button?", f"How long is the {MARK} button held?"]})
        return f'The {MARK} button is held for ten seconds [1]. It is "blue {MARK}" [1].'

    llm = FakeLLM(said)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=llm) as rag:
        rag.add(marked())
        rag.add(Document("other.md", "# Other\n\nThe reset button of another device, and a cable.\n"))
        query("select ragdb.refresh_lexical_stats()")
        first = rag.ask("Which button is the reset button?", conversation="c1", pipeline=presets.advanced)
        assert MARK in first.text
        # a follow-up is rewritten from what was said before, and its rewriters work on that
        follow = rag.ask("And how long?", conversation="c1", pipeline=presets.rag_fusion)
        assert any(MARK in (stage.note + (stage.query or "")) for stage in follow.stages)
        rag.search("reset button")
        other = rag.ask("Which cable?", where={"uri": "other.md"})
        query("select ragdb.give_feedback(%s, 1, 'it helped', 'me')", first.run_id)
        before = tables_with(query, MARK)
        assert {"document", "document_revision", "chunk", "section", "run", "citation", "run_stage", "lexeme"} <= before.keys()
        receipt = rag.delete("page.md")
        assert tables_with(query, MARK) == {}
        assert (receipt["document"], receipt["revisions"], receipt["sections"], receipt["chunks"], receipt["embeddings"]) == (
            1,
            1,
            2,
            2,
            2,
        )
        assert receipt["quotes_blanked"] == before["citation"]
        assert receipt["answers_blanked"] == 2
        assert receipt["notes_blanked"] >= 2
        assert receipt["words"] >= 1
        # of others nothing goes
        assert query("select answer is not null from ragdb.run where run_id = %s", other.run_id) == [(True,)]
        assert query("select count(*) from ragdb.lexeme where lexeme = 'cabl'") == [(1,)]
        assert query("select count(*) from ragdb.feedback") == [(1,)]
        assert rag.ask("And how long?", conversation="c1").run_id is not None
        assert tables_with(query, MARK) == {}


def test_a_waiting_text_and_its_failure_are_erased_too(ragdb_url: str, query: Query) -> None:
    embedder = FakeEmbedder(fail=RuntimeError(f"no vector for {MARK}"))
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        with pytest.raises(EmbedderError):
            rag.add(marked())
        assert "job" in tables_with(query, MARK)
        assert query("select ragdb.delete_document('help', 'page.md') ->> 'jobs'") == [("1",)]
        assert tables_with(query, MARK) == {}


def test_what_a_person_typed_stays(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(marked())
        answer = rag.ask(f"What is the {MARK} button?")
        rag.delete("page.md")
        assert tables_with(query, MARK) == {"run": 1}
        assert query("select question, answer from ragdb.run where run_id = %s", answer.run_id) == [
            (f"What is the {MARK} button?", None)
        ]


def test_a_word_that_another_document_has_stays_in_the_statistics(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(marked())
        rag.add(Document("b.md", f"Another {MARK} button. It's 'quoted' \\ here."))
        query("select ragdb.refresh_lexical_stats()")
        rag.delete("page.md")
        assert query("select count(*) from ragdb.lexeme where lexeme = %s", MARK) == [(1,)]
        assert rag.delete("b.md")["words"] >= 1
        assert query("select count(*) from ragdb.lexeme") == [(0,)]


def test_a_receipt_of_nothing_says_so(rag: RagDB) -> None:
    rag.add(Document("a", "alpha"))
    assert rag.delete("none") == {"document": 0}
