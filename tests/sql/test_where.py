"""One filter grammar, the same in both legs, in neighbours and in listings. DB-07, DB-08."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.errors import BadFilter

LEXICAL = Pipeline(legs=("lexical",), window=0)
SEMANTIC = Pipeline(legs=("semantic",), window=0)


@pytest.fixture
def library(rag: RagDB) -> RagDB:
    rag.add(
        Document(
            "book/a",
            "A page about lighthouses.",
            title="A",
            language="en",
            metadata={"author": "O'Brien", "rank": 1, "tags": ["sea", "old"], "note": "100%_x"},
        )
    )
    rag.add(
        Document(
            "book/b",
            "A page about lighthouses too.",
            title="B",
            language="ja",
            metadata={"author": "alice", "rank": 2, "tags": []},
            owner="ops",
        )
    )
    rag.add(Document("memo/c", "A memo about lighthouses.", title="C", metadata={"rank": "1"}, status="archived", version="v2"))
    return rag


def uris(rag: RagDB, where: dict[str, Any]) -> set[str]:
    lexical = {h.uri for h in rag.search("lighthouses", where=where, pipeline=LEXICAL)}
    semantic = {h.uri for h in rag.search("lighthouses", where=where, pipeline=SEMANTIC)}
    assert lexical == semantic, "both legs hold to the filter"
    return lexical


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, "ab"),
        ({"author": "O'Brien"}, "a"),
        ({"author": {"in": ["x') OR 1=1 --"]}}, ""),
        ({"author' = 'alice' OR '1'='1' --": "x"}, ""),
        ({"author": {"in": []}}, ""),
        ({"author": {"not_in": []}}, "ab"),
        ({"author": ["alice", "bob"]}, "b"),
        ({"author": {"not_in": ["alice"]}}, "a"),
        ({"rank": {"in": [1]}}, "a"),
        ({"rank": "1"}, ""),
        ({"rank": "1", "status": "any"}, "c"),
        ({"rank": 1, "status": "any"}, "a"),
        ({"rank": {"gt": 1}}, "b"),
        ({"rank": {"gte": 1, "lt": 2}}, "a"),
        ({"note": {"prefix": "100%_"}}, "a"),
        ({"note": {"prefix": "1000"}}, ""),
        ({"note": {"contains": "%_x"}}, "a"),
        ({"note": {"contains": "_%"}}, ""),
        ({"tags": {"contains": "sea"}}, "a"),
        ({"tags": {"exists": True}}, "ab"),
        ({"note": {"exists": False}}, "b"),
        ({"note": None}, "b"),
        ({"status": "any"}, "abc"),
        ({"status": "archived"}, "c"),
        ({"status": ["active", "archived"]}, "abc"),
        ({"uri": {"prefix": "book/"}}, "ab"),
        ({"uri": ["book/a", "memo/c"]}, "a"),
        ({"uri": {"contains": "/b"}}, "b"),
        ({"title": "A"}, "a"),
        ({"language": ["en", "ja"]}, "ab"),
        ({"language": None, "status": "any"}, "c"),
        ({"owner": {"exists": True}}, "b"),
        ({"updated_at": {"exists": False}}, "ab"),
        ({"review_after": {"exists": True}}, ""),
        ({"document_id": {"exists": True}}, "ab"),
        ({"version": {"gte": "v1"}, "status": "any"}, "c"),
        ({"any": [{"rank": 1}, {"author": "alice"}]}, "ab"),
        ({"any": [{"rank": 1}, {"author": "alice"}], "language": "ja"}, "b"),
        ({"any": []}, ""),
    ],
)
def test_a_filter_lets_through_what_it_says(library: RagDB, where: dict[str, Any], expected: str) -> None:
    assert {uri[-1] for uri in uris(library, where)} == set(expected)


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ({"author": {"in": "abc"}}, "author"),
        ({"author": {"like": "a%"}}, "like"),
        ({"author": {}}, "author"),
        ({"status": "nope"}, "nope"),
        ({"updated_at": {"gt": "yesterday-ish"}}, "yesterday-ish"),
        ({"updated_at": {"gt": 7}}, "updated_at"),
        ({"document_id": "7"}, "document_id"),
        ({"document_id": 7.5}, "document_id"),
        ({"document_id": 1e30}, "document_id"),
        ({"title": {"eq": "A"}}, "title"),
        ({"title": 7}, "title"),
        ({"any": {"rank": 1}}, "any"),
        ({"filter": {"my_orders": [1]}}, "my_orders"),
        ({"rank": {"exists": "yes"}}, "rank"),
    ],
)
def test_a_wrong_filter_is_an_error_that_names_it(library: RagDB, where: dict[str, Any], named: str) -> None:
    with pytest.raises(BadFilter, match=named):
        library.search("lighthouses", where=where)


def test_seventy_thousand_uris_are_a_filter_like_any_other(library: RagDB) -> None:
    assert uris(library, {"uri": [f"none/{n}" for n in range(70_000)] + ["book/b"]}) == {"book/b"}


def test_times_do_not_depend_on_the_sessions_zone(rag: RagDB, ragdb_url: str) -> None:
    tokyo = timezone(timedelta(hours=9))
    rag.add(Document("a", "A page about lighthouses.", updated_at=datetime(2025, 3, 9, 2, 30, tzinfo=tokyo)))
    rag.add(Document("b", "A page about lighthouses.", updated_at=datetime(2025, 3, 9, 2, 30, tzinfo=UTC)))
    rag.add(Document("c", "A page about lighthouses.", updated_at=datetime(2025, 3, 9, 2, 30)))
    where = {"updated_at": {"gt": "2025-03-08T18:00:00Z"}}
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
            conn.execute(f"set timezone = '{zone}'")  # type: ignore[arg-type]
            conn.execute("set datestyle = 'SQL, DMY'")
            rows = conn.execute(
                "select uri from ragdb.list_documents('help', %s::jsonb)", ['{"updated_at": {"gt": "2025-03-08T18:00:00Z"}}']
            ).fetchall()
            assert {r[0] for r in rows} == {"b", "c"}
    # The same text once: c is an alias of b.
    hits = rag.search("lighthouses", where=where).hits
    assert {h.uri for h in hits} == {"b"}
    assert len(hits[0].aliases) == 1
    stored = rag.get("a")
    assert stored is not None
    assert stored.to_dict()["updated_at"][-6] in "+-"


def test_listings_take_the_same_filter(library: RagDB) -> None:
    from ragdb.ingest.documents import listed

    assert [d.uri for d in listed(library.context)] == ["book/a", "book/b", "memo/c"]
    assert [d.uri for d in listed(library.context, {"rank": {"gt": 1}})] == ["book/b"]


def test_a_document_archived_by_hand_leaves_the_next_search(library: RagDB, query: Callable[..., Any]) -> None:
    query("update ragdb.document set status = 'archived' where uri = 'book/a'")
    assert uris(library, {}) == {"book/b"}


def test_plan_text_holds_no_word_of_the_caller(query: Callable[..., Any], rag: RagDB) -> None:
    condition, values = query(
        """select condition, vals from ragdb.where_clause('{"evil'' --": "x'' or true", "uri": {"prefix": "p"}}')"""
    )[0]
    assert "evil" not in condition
    assert "true" not in condition
    assert "p" in values
