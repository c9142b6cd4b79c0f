"""Erasure: after a document is deleted no table holds a word that stood only in it, but where a person typed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ragdb import Document, RagDB, presets
from ragdb.errors import EmbedderError
from ragdb.evaluate import run
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


def test_nothing_that_an_evaluation_keeps_holds_a_word_of_a_deleted_document(ragdb_url: str, query: Query) -> None:
    def put(*questions: Any) -> tuple[Any, ...]:
        return query("select * from ragdb.put_eval_questions('golden', %s::jsonb)", json.dumps({"questions": questions}))[0]

    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(marked())
        query("select ragdb.put_eval_set('golden', 'help')")
        ((page,),) = query("select document_id from ragdb.document where uri = 'page.md'")
        quoted = {"uri": "page.md", "quote": f"Hold the {MARK} button", "label": f"page.md#Its {MARK}heading#00"}
        draft = {"drafted_from": page, "drafted_by": "m", "reference": f"The {MARK} one.", "judgements": [quoted]}
        put(
            {
                "key": "typed",
                "question": "Which button is the reset button?",
                "judgements": [quoted, {"uri": "page.md", "quote": f"{MARK} button", "grade": 2}],
            },
            {"key": "draft", "question": f"Is the {MARK} held?", "state": "draft", **draft},
            {"key": "rejected", "question": f"Is the {MARK} blue?", "state": "rejected", **draft},
            {"key": "accepted", "question": "Is it held?", **draft},
        )
        found = run(rag, "golden", [presets.hybrid])[0]

        def stored(key: str, error: str | None = None) -> None:
            verdict = {"metric": "faithfulness", "judge": "j", "prompt_hash": "h", "temperature": 0}
            verdicts = [
                verdict | {"raw": f'{{"verdict": "{MARK}"'},
                verdict | {"raw": f"no {MARK}", "broken": f"a verdict is '{MARK}'"},
            ]
            ((question,),) = query("select eval_question_id from ragdb.eval_question where key = %s", key)
            result = {"eval_question_id": question, "document_ids": [page], "ms": 1, "answer": f"The {MARK} [1]."}
            query(
                "select ragdb.record_eval_result(%s, %s::jsonb)",
                found.eval_run_id,
                json.dumps(result | {"error": error, "verdicts": verdicts, "outcome": "answered"}),
            )

        query("delete from ragdb.eval_result")  # one without an error is not written over
        stored("typed", f"LLMError: the {MARK} was too long")
        before = tables_with(query, MARK)
        assert {"eval_question", "eval_judgement", "eval_result", "eval_verdict", "run", "citation"} <= before.keys()
        rag.delete("page.md")
        assert tables_with(query, MARK) == {}
        assert query("select key, reference, drafted_from from ragdb.eval_question order by key") == [
            ("accepted", None, None),
            ("typed", None, None),
        ]
        assert query(
            "select q.key, j.grade from ragdb.eval_judgement j join ragdb.eval_question q using (eval_question_id) order by 1"
        ) == [
            ("accepted", 1),
            ("typed", 2),
        ]
        # what was on its way while the document went: a result with its verdicts, a draft
        stored("typed", f"LLMError: the {MARK} was too long")
        assert put({"key": "late", "question": f"Is the {MARK} held?", "state": "draft", **draft}) == (0, 0, 0)
        assert tables_with(query, MARK) == {}


def test_a_trace_that_comes_after_the_deletion_notes_no_word_of_the_document(rag: RagDB, query: Query) -> None:
    rag.add(Document("other.md", "# Other\n\nA cable."))
    stages = [
        {
            "step": 1,
            "stage": "retrieve",
            "name": "lexical",
            "chunk_ids": [],
            "scores": [],
            "note": "exact",
            "ms": 1,
            "query": MARK,
        },
        {"step": 2, "stage": "rewrite", "name": "hyde", "chunk_ids": [], "scores": [], "note": f"made: {MARK}", "ms": 1},
    ]
    trace = {
        "verb": "ask",
        "question": "?",
        "collection": "help",
        "pipeline": {},
        "k": 1,
        "ms": 1,
        "document_ids": [999],
        "answer": MARK,
        "error": f"no {MARK}",
        "usage": {"embedder_failed": MARK, "calls": 1},
        "stages": stages,
    }
    query("select ragdb.record_run(%s::jsonb)", json.dumps(trace))
    assert tables_with(query, MARK) == {}
    assert query("select note from ragdb.run_stage order by step") == [("exact",), ("removed with a document",)]
    assert query("select usage from ragdb.run") == [({"calls": 1},)]


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
