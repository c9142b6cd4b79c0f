"""What pages say about themselves, stored: what a person changed since stays, what a page takes back goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.ingest import documents, folder
from ragdb.metadata import Rules, described
from ragdb.testing import drain

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = Pipeline(legs=("lexical",), window=0)


def add(rag: RagDB, text: str, **given: Any) -> None:
    document = described(Document("p.md", text))
    rag.add(folder.changed(document, given))


def stored(rag: RagDB) -> Any:
    found = rag.get("p.md")
    assert found is not None
    return found


def test_what_the_page_says_is_stored_with_its_rule(rag: RagDB) -> None:
    add(rag, "# P\n\n> Draft v1\n> Owner: SRE\n\ntext")
    assert (stored(rag).status, stored(rag).owner) == ("draft", "SRE")
    assert stored(rag).found["status"] == {"value": "draft", "rule": "draft notice", "line": 3, "text": "Draft v1"}
    assert not rag.search("text").hits


def test_what_the_page_takes_back_goes(rag: RagDB) -> None:
    add(rag, "# P\n\n> Draft v1\n> Owner: SRE\n> Last updated: 2025-01-02\n\ntext")
    add(rag, "# P\n\ntext")
    assert (stored(rag).status, stored(rag).owner, stored(rag).updated_at, stored(rag).found) == ("active", None, None, {})
    assert rag.search("text").hits


def test_a_change_by_hand_outlives_the_next_reading(rag: RagDB, query: Query) -> None:
    add(rag, "# P\n\n> Draft v1\n> Last updated: 2025-01-02\n\ntext")
    query("update ragdb.document set status = 'active', updated_at = '2025-06-01T00:00:00Z'")
    add(rag, "# P\n\n> Draft v1\n> Last updated: 2025-01-02\n\ntext, and more")
    assert (stored(rag).status, stored(rag).updated_at) == ("active", datetime(2025, 6, 1, tzinfo=UTC))
    add(rag, "# P\n\ntext")  # the notice is gone, and what was set by hand is not what it said
    assert (stored(rag).status, stored(rag).updated_at) == ("active", datetime(2025, 6, 1, tzinfo=UTC))


def test_a_page_that_says_something_else_than_last_time_is_heard(rag: RagDB, query: Query) -> None:
    add(rag, "# P\n\n> Draft v1\n\ntext")
    query("update ragdb.document set status = 'active'")
    add(rag, "# P\n\n> Archived.\n\ntext")
    assert stored(rag).status == "archived"


def test_an_explicit_status_wins_and_stays_until_the_page_says_something_new(rag: RagDB) -> None:
    add(rag, "# P\n\n> Draft v1\n\ntext", status="active")
    assert stored(rag).status == "active"
    add(rag, "# P\n\n> Draft v1\n\ntext")
    assert stored(rag).status == "active"
    add(rag, "# P\n\n> Archived.\n\ntext")
    assert stored(rag).status == "archived"


def test_a_document_of_a_program_is_taken_as_it_is_given(rag: RagDB) -> None:
    rag.add(Document("p.md", "# P\n\n> Draft v1\n\ntext"))
    assert (stored(rag).status, stored(rag).found) == ("active", {})
    rag.add(Document("p.md", "# P\n\n> Draft v1\n\ntext", status="archived"))
    assert stored(rag).status == "archived"
    rag.add(Document("p.md", "# P\n\n> Draft v1\n\ntext"))
    assert stored(rag).status == "archived"


def test_an_unchanged_page_is_unchanged_and_a_changed_head_is_told(rag: RagDB, tmp_path: Path) -> None:
    page = tmp_path / "p.md"

    def became() -> str:
        files = folder.settle(rag.context, folder.find([tmp_path])).files
        [result] = list(folder.add_files(rag.context, files))
        assert isinstance(result, folder.Result)
        return result.became

    page.write_text("---\nowner: SRE\n---\n# P\n\ntext")
    assert [became(), became()] == ["added", "unchanged"]
    rag.add(Document("p.md", page.read_text(), title="P", owner="Sales"))
    assert became() == "unchanged"
    assert stored(rag).owner == "Sales"


def test_what_a_new_text_says_waits_until_that_text_answers(rag: RagDB, query: Query) -> None:
    add(rag, "# P\n\nStatus: draft\n\nsecret okapi")
    rag.add(described(Document("q.md", "# Q\n\npublic zebra")))
    worker_less = {"embed": False}
    documents.add(rag.context, described(Document("p.md", "# P\n\npublic okapi")), **worker_less)
    documents.add(rag.context, described(Document("q.md", "# Q\n\nStatus: draft\n\nsecret zebra")), **worker_less)
    assert query("select uri, status, ingest_state from ragdb.document order by 1") == [
        ("p.md", "draft", "queued"),
        ("q.md", "active", "queued"),
    ]
    assert [hit.content for hit in rag.search("okapi zebra", pipeline=LEXICAL)] == ["# Q\n\npublic zebra"]
    drain(rag)
    assert query("select uri, status, ingest_state from ragdb.document order by 1") == [
        ("p.md", "active", "ready"),
        ("q.md", "draft", "ready"),
    ]
    assert [hit.content for hit in rag.search("okapi zebra", pipeline=LEXICAL)] == ["# P\n\npublic okapi"]


def test_an_explicit_status_stays_when_a_page_that_said_the_same_stops_saying_it(rag: RagDB) -> None:
    add(rag, "# P\n\n> Status: draft\n\ntext", status="draft")
    add(rag, "# P\n\ntext")
    assert stored(rag).status == "draft"


def test_metadata_of_a_page_goes_with_it_and_that_of_others_stays(rag: RagDB, query: Query) -> None:
    add(rag, "---\naudience: internal\nteam: x\n---\n# P\n\ntext", metadata={"tenant": 7})
    assert stored(rag).metadata == {"audience": "internal", "team": "x", "tenant": 7}
    query("""update ragdb.document set metadata = metadata || '{"team": "y", "note": "by hand"}'""")
    add(rag, "---\nteam: x\n---\n# P\n\ntext")
    assert stored(rag).metadata == {"team": "y", "tenant": 7, "note": "by hand"}
    add(rag, "---\nteam: z\n---\n# P\n\ntext")
    assert stored(rag).metadata == {"team": "z", "tenant": 7, "note": "by hand"}
    add(rag, "# P\n\ntext")
    assert stored(rag).metadata == {"tenant": 7, "note": "by hand"}


def test_a_run_without_rules_takes_nothing_back(rag: RagDB) -> None:
    add(rag, "# P\n\n> Status: draft\n\ntext")
    rag.add(described(Document("p.md", "# P\n\n> Status: draft\n\ntext"), Rules.none()))
    assert stored(rag).status == "draft"


def test_found_that_is_no_object_is_refused(query: Query, rag: RagDB) -> None:
    rag.add(Document("p.md", "text"))
    with pytest.raises(Exception, match="found of"):
        query("select * from ragdb.put_document('help', %s)", json.dumps({"uri": "x", "content": "y", "found": [1]}))


# --- freshness --------------------------------------------------------------------------------------------------------


def test_fresh_documents_are_preferred_on_request_and_the_trace_says_so(rag: RagDB, query: Query) -> None:
    now = datetime.now(UTC)
    rag.add(Document("old.md", "okapi okapi grazing", updated_at=now - timedelta(days=2000)))
    rag.add(Document("new.md", "okapi grazing far away", updated_at=now))
    rag.add(Document("undated.md", "okapi somewhere in the woods"))
    plain = Pipeline(legs=("lexical",), window=0)
    assert rag.search("okapi", pipeline=plain).hits[0].uri == "old.md"
    found = rag.search("okapi", pipeline=replace(plain, freshness=0.3))
    assert found.hits[0].uri == "new.md"
    assert found.hits[0].updated_at is not None
    stage = next(stage for stage in found.stages if stage.stage == "freshen")
    assert stage.note.startswith("prefers fresh documents: weight 0.3, half-life 365 days; ")
    assert stage.note.endswith("1 without a date")
    assert query("select stage from ragdb.run_stage where run_id = %s order by step", found.run_id)[-1] == ("freshen",)
    chunk = found.hits[-1].label
    assert query("select finding from ragdb.why_not(%s, %s) where stage = 'freshen'", found.run_id, chunk) == [("rank 3",)]


def test_pages_of_a_freshened_search_repeat_nothing(rag: RagDB) -> None:
    now = datetime.now(UTC)
    for i in range(30):
        rag.add(
            Document(f"{i}.md", f"okapi number {i} " + "grazing " * (i % 7), updated_at=now - timedelta(days=50 * (i * 7 % 11)))
        )
    pipeline = Pipeline(legs=("lexical",), window=0, freshness=0.5, candidates=30)
    pages = [[hit.uri for hit in rag.search("okapi", k=10, offset=offset, pipeline=pipeline)] for offset in (0, 10, 20)]
    assert len({uri for page in pages for uri in page}) == 30


@pytest.mark.parametrize(("name", "value"), [("freshness", 1.5), ("freshness", -0.1), ("freshness_half_life", 0)])
def test_freshness_that_means_nothing_is_refused(name: str, value: float) -> None:
    with pytest.raises(Exception, match=name):
        Pipeline(**{name: value})  # type: ignore[arg-type]


def test_stale_pages_are_listed_with_their_owners(rag: RagDB, query: Query) -> None:
    add(rag, "# P\n\n> Owner: SRE\n> Next review: 2025-01-31\n\ntext")
    assert query("select uri, owner from ragdb.stale_documents") == [("p.md", "SRE")]
    assert rag.search("text", where={"review_after": {"lt": "2026-01-01"}, "owner": "SRE"}).hits


# --- large texts --------------------------------------------------------------------------------------------------------


def test_a_large_text_travels_in_parts_and_is_the_same(rag: RagDB, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragdb.ingest import documents, prepare, worker

    text = "# Guide\n\n" + "\n\n".join(f"## Part {i}\n\nokapi number {i} says {i * 7}." for i in range(60))
    rag.add(Document("small.md", text))
    monkeypatch.setattr(documents, "_LARGE", 100)
    monkeypatch.setattr(worker, "in_parts", lambda *args: prepare.in_parts(*args, size=7))
    added = rag.add(Document("large.md", text))
    assert (added.ingest_state, added.chunks) == ("ready", 60)
    places = """select p.ordinal, k.content, k.context, p.start_at, p.end_at, s.path, split_part(p.label, '#', 2),
                       b.ordinal, n.ordinal
                  from ragdb.chunk_place p join ragdb.document d using (document_id) join ragdb.chunk k using (chunk_id)
                  left join ragdb.section s using (section_id)
                  left join ragdb.chunk_place b on b.chunk_id = p.previous_chunk_id
                  left join ragdb.chunk_place n on n.chunk_id = p.next_chunk_id
                 where d.uri = %s order by 1"""
    assert query(places, "large.md") == query(places, "small.md")
    again = rag.add(Document("large.md", text))
    assert (again.changed, again.ingest_state) == (False, "ready")
    changed = rag.add(Document("large.md", text.replace("number 30 says", "number 30 said")))
    assert changed.ingest_state == "ready"
    assert query(
        "select count(*) from ragdb.chunk k join ragdb.document d using (document_id) where uri = 'large.md' and born_revision > 1"
    ) == [(1,)]


def test_a_large_text_that_was_stopped_in_the_middle_begins_its_cut_anew(
    rag: RagDB, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragdb.ingest import documents, prepare, worker

    text = "\n\n".join(f"## Part {i}\n\nokapi number {i}." for i in range(30))
    monkeypatch.setattr(documents, "_LARGE", 100)
    parts = prepare.in_parts

    def stopped(*args: Any) -> Any:
        for n, part in enumerate(parts(*args, size=7)):
            if n == 2:
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(worker, "in_parts", stopped)
    with pytest.raises(KeyboardInterrupt):
        rag.add(Document("large.md", text))
    assert query("select ingest_state from ragdb.document") == [("queued",)]
    monkeypatch.setattr(worker, "in_parts", lambda *args: parts(*args, size=7))
    assert rag.add(Document("large.md", text)).chunks == 30
    assert query("select count(*), count(distinct ordinal) from ragdb.chunk_place") == [(30, 30)]
    assert query("select count(*) from ragdb.chunk") == [(30,)]
