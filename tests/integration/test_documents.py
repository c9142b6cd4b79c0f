"""A document's way: added, changed, failed, deleted; nothing twice, nothing left over."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB, Span
from ragdb.errors import BadDocument, EmbedderError, EmbedderMismatch, NoEmbedder
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = Pipeline(legs=("lexical",), window=0)
TABLES = ("document", "document_revision", "section", "chunk", "chunk_place", "embedding", "job")

V1 = "# Guide\n\nIntro.\n\n## One\n\nalpha text.\n\n## Two\n\nbeta text.\n\n## Three\n\ngamma text.\n\n## Four\n\nzebraquartz text.\n"
V2 = "# Guide\n\nIntro.\n\n## One\n\nalpha text.\n"


def counts(query: Query) -> dict[str, int]:
    return {table: query(f"select count(*) from ragdb.{table}")[0][0] for table in TABLES}


def assert_whole(query: Query) -> None:
    """No orphan of any kind, and every chunk of a ready revision has a place, neighbours and a vector."""
    assert query(
        "select count(*) from ragdb.chunk k where not exists (select from ragdb.chunk_place p where p.chunk_id = k.chunk_id)"
    ) == [(0,)]
    assert query(
        "select count(*) from ragdb.chunk k join ragdb.document d using (document_id) where d.ingest_state = 'ready' and not exists (select from ragdb.embedding e where e.chunk_id = k.chunk_id)"
    ) == [(0,)]
    assert query("""select count(*) from ragdb.chunk_place p, lateral (values (p.previous_chunk_id), (p.next_chunk_id)) n(id)
                     where n.id is not null and not exists (select from ragdb.chunk k where k.chunk_id = n.id)""") == [(0,)]
    assert query(
        "select count(*) from ragdb.document where ingest_state = 'ready' and n_chunks <> (select count(*) from ragdb.chunk_place p where p.document_id = document.document_id)"
    ) == [(0,)]
    assert query("""select count(*) from ragdb.chunk_place p join ragdb.chunk k using (chunk_id) join ragdb.document_revision r on r.document_id = p.document_id and r.revision = p.revision
                     where substr(r.content, p.start_at + 1, p.end_at - p.start_at) <> k.content""") == [(0,)]


# --- ING-07 ---------------------------------------------------------------------------------------


def test_the_same_text_again_costs_nothing(rag: RagDB, query: Query) -> None:
    embedder = rag.context.embedder()
    first = rag.add(Document("guide.md", V1))
    before, calls = query("select chunk_id from ragdb.chunk order by 1"), embedder.calls  # type: ignore[attr-defined]
    wal = query("select pg_current_wal_insert_lsn()")[0][0]
    again = rag.add(Document("guide.md", V1))
    assert query("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s) < 2000", wal) == [(True,)]
    assert (first.ingest_state, again.ingest_state, again.changed) == ("ready", "ready", False)
    assert query("select chunk_id from ragdb.chunk order by 1") == before
    assert embedder.calls == calls  # type: ignore[attr-defined]
    assert counts(query)["document"] == 1


def test_a_shorter_version_leaves_nothing_of_the_longer_one(rag: RagDB, query: Query) -> None:
    first = rag.add(Document("guide.md", V1))
    assert [h.uri for h in rag.search("zebraquartz", pipeline=LEXICAL)] == ["guide.md"]
    second = rag.add(Document("guide.md", V2))
    assert (first.chunks, second.chunks, second.reused) == (5, 2, 2)
    assert not rag.search("zebraquartz", pipeline=LEXICAL).hits
    assert_whole(query)
    assert counts(query) == {
        "document": 1,
        "document_revision": 1,
        "section": 2,
        "chunk": 2,
        "chunk_place": 2,
        "embedding": 2,
        "job": 0,
    }


def test_one_changed_sentence_embeds_one_chunk(rag: RagDB) -> None:
    rag.add(Document("guide.md", V1))
    embedder = rag.context.embedder()
    embedder.texts.clear()  # type: ignore[attr-defined]
    added = rag.add(Document("guide.md", V1.replace("beta text", "beta words")))
    assert len(embedder.texts) == 1  # type: ignore[attr-defined]
    assert (added.chunks, added.reused) == (5, 4)


def test_the_old_version_answers_while_the_new_one_cannot_be_embedded(ragdb_url: str, query: Query) -> None:
    embedder = FakeEmbedder()
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        rag.add(Document("guide.md", V1))
        embedder.fail = EmbedderError("the model is not well")
        with pytest.raises(EmbedderError, match="not well"):
            rag.add(Document("guide.md", V2 + "\nnovelty\n"))
        embedder.fail = None
        assert [h.uri for h in rag.search("zebraquartz", pipeline=LEXICAL)] == ["guide.md"]
        assert not rag.search("novelty", pipeline=LEXICAL).hits
        assert query("select ingest_state, last_error like '%%not well%%', n_chunks from ragdb.document") == [("failed", True, 5)]
        assert rag.add(Document("guide.md", V2 + "\nnovelty\n")).ingest_state == "ready"
        assert [h.uri for h in rag.search("novelty", pipeline=LEXICAL)] == ["guide.md"]
        assert_whole(query)


def test_going_back_to_the_ready_text_forgets_the_pending_one(ragdb_url: str, query: Query) -> None:
    embedder = FakeEmbedder()
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        rag.add(Document("guide.md", V1))
        embedder.fail = EmbedderError("no")
        with pytest.raises(EmbedderError):
            rag.add(Document("guide.md", V2 + "novelty"))
        embedder.fail = None
        assert rag.add(Document("guide.md", V1)).ingest_state == "ready"
        assert_whole(query)
        assert counts(query)["job"] == 0
        assert counts(query)["document_revision"] == 1


def test_a_reader_sees_all_of_the_old_or_all_of_the_new(ragdb_url: str, query: Query) -> None:
    old = "\n\n".join(f"## S{n}\n\nmarker oldword {n}" for n in range(20))
    new = "\n\n".join(f"## S{n}\n\nmarker newword {n}" for n in range(30))
    seen: set[tuple[int, int]] = set()
    stop = Event()
    with (
        RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag,
        RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as reader,
    ):
        rag.add(Document("d", old))

        def read() -> None:
            while not stop.is_set():
                texts = [h.content for h in reader.search("marker", k=100, pipeline=LEXICAL)]
                seen.add((sum("oldword" in t for t in texts), sum("newword" in t for t in texts)))

        thread = Thread(target=read)
        thread.start()
        for _ in range(5):
            rag.add(Document("d", new))
            rag.add(Document("d", old))
        stop.set()
        thread.join()
    # The legs and the text are read in two snapshots: a flip between them leaves nothing, never a mixture.
    assert seen <= {(20, 0), (0, 30), (0, 0)}
    assert (20, 0) in seen
    assert_whole(query)


def test_deleting_leaves_no_row_and_no_quote(rag: RagDB, query: Query) -> None:
    rag.add(Document("guide.md", V1))
    rag.add(Document("other.md", "Another page about antennas."))
    answer = rag.ask("Where is zebraquartz?")
    assert "zebraquartz" in answer.text
    receipt = rag.delete("guide.md")
    rows = {"document": 1, "revisions": 1, "sections": 5, "chunks": 5, "embeddings": 5, "jobs": 0}
    assert rows.items() <= receipt.items()
    assert (receipt["quotes_blanked"], receipt["answers_blanked"]) == (1, 1)
    assert counts(query) == {
        "document": 1,
        "document_revision": 1,
        "section": 0,
        "chunk": 1,
        "chunk_place": 1,
        "embedding": 1,
        "job": 0,
    }
    for table in ("run", "run_stage", "citation"):
        assert query(f"select count(*) from ragdb.{table} t where t::text ~ 'zebraquartz text'") == [(0,)]
    assert rag.delete("guide.md") == {"document": 0}
    assert "no longer there" in str(rag.explain(answer.run_id or 0))


# --- ING-01, ING-02 -------------------------------------------------------------------------------


def test_nul_and_surrogates_are_cleaned_at_every_door(rag: RagDB, query: Query) -> None:
    rag.add(
        Document(
            "a\x00b", "Alpha\x00Beta ok \ud83d end 👩‍👩‍👧 done", title="T\x00x", metadata={"k\x00": "v\x00", "n": float("nan")}
        )
    )
    assert query("select count(*) from ragdb.document d where d::text like '%%' || chr(1) || '%%'") == [(0,)]
    stored = rag.get("a\x00b")
    assert stored is not None and stored.content is not None
    assert "\x00" not in stored.content and "�" in stored.content and "👩‍👩‍👧" in stored.content
    assert stored.metadata == {"k ": "v ", "n": None}
    assert stored.warnings
    assert rag.search("Beta", pipeline=LEXICAL).hits
    assert rag.search("Al\x00pha").hits is not None
    assert rag.ask("x\x00y").outcome


# --- ING-11 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \n\n\t", "\u3000\u3000", "# A\n\n\n# B\n"])
def test_a_document_without_text_is_ready_with_no_chunks_and_a_warning(rag: RagDB, query: Query, text: str) -> None:
    added = rag.add(Document("empty.md", text))
    assert (added.ingest_state, added.chunks) == ("ready", 0)
    assert "no chunks" in added.warnings[0]
    assert query("select count(*) from ragdb.job") == [(0,)]


def test_blank_lines_make_no_chunk(rag: RagDB) -> None:
    assert rag.add(Document("a.md", "text\n\n\n\n\n\n\ntext2")).ingest_state == "ready"


# --- ING-04 ---------------------------------------------------------------------------------------


def test_line_ends_and_a_byte_order_mark_alone_are_no_change(rag: RagDB) -> None:
    rag.add(Document("a.md", "# One\n\nText.\n"))
    assert rag.add(Document("a.md", "\ufeff# One\r\n\r\nText.\r\n")).changed is False


# --- VEC-03 ---------------------------------------------------------------------------------------


def test_another_dimension_is_refused_with_both_numbers_and_writes_nothing(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(8)) as rag:
        rag.add(Document("d1", "The old page about lighthouses."))
    before = counts(query)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(16)) as other:
        with pytest.raises(EmbedderMismatch, match=r"8.*16"):
            other.add(Document("d2", "A new page."))
        with pytest.raises(EmbedderMismatch, match=r"8.*16"):
            other.search("lighthouses")
    assert counts(query) == before
    with RagDB(ragdb_url, collection="help") as recorded:
        assert [h.uri for h in recorded.search("lighthouses")] == ["d1"]


def test_a_collection_without_a_recorded_model_says_so(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="new") as rag, pytest.raises(NoEmbedder, match="new"):
        rag.add(Document("a", "text"))


# --- ING-10 ---------------------------------------------------------------------------------------


def test_a_missing_vector_never_makes_a_document_ready(ragdb_url: str, query: Query) -> None:
    short = FakeEmbedder()
    short.fail = lambda texts: [[1.0] * 8] * (len(texts) - 1)
    with RagDB(ragdb_url, collection="help", embedder=short) as rag:
        with pytest.raises(EmbedderError, match=r"4.*5"):
            rag.add(Document("guide.md", V1))
        assert query("select ingest_state, ready_revision from ragdb.document") == [("queued", 0)]
        assert query("select count(*) from ragdb.embedding") == [(0,)]
        assert not rag.search("alpha", pipeline=LEXICAL).hits


# --- given chunks and vectors -----------------------------------------------------------------------


def test_given_chunks_and_vectors_are_stored_as_they_are(rag: RagDB, query: Query) -> None:
    text = "first part. second part."
    spans = [Span(0, 11), Span(12, 24)]
    vectors = [[3.0] + [0.0] * 7, [0.0, 2.0] + [0.0] * 6]
    added = rag.add(Document("v", text, chunks=spans, vectors=vectors))
    assert (added.ingest_state, added.chunks) == ("ready", 2)
    assert rag.context.embedder().calls == 0  # type: ignore[attr-defined]
    assert query("select content, v::text from ragdb.chunk join ragdb.embedding using (chunk_id) order by chunk_id") == [
        ("first part.", "[1,0,0,0,0,0,0,0]"),
        ("second part.", "[0,1,0,0,0,0,0,0]"),
    ]
    with pytest.raises(BadDocument, match="no chunks"):
        Document("v", text, vectors=vectors)
    with pytest.raises(EmbedderMismatch, match="3"):
        rag.add(Document("w", text, chunks=spans, vectors=[[1.0] * 3] * 2))


# --- attributes -----------------------------------------------------------------------------------


def test_status_and_metadata_change_without_touching_chunks(rag: RagDB, query: Query) -> None:
    rag.add(Document("a.md", V1, metadata={"x": 1}))
    before = query("select chunk_id, xmin::text from ragdb.chunk order by 1")
    added = rag.add(Document("a.md", V1, status="archived", metadata={"x": 2}))
    assert added.changed is False
    assert query("select status, metadata ->> 'x' from ragdb.document") == [("archived", "2")]
    assert query("select chunk_id, xmin::text from ragdb.chunk order by 1") == before
    rag.add(Document("a.md", V1))
    assert query("select status, metadata ->> 'x' from ragdb.document") == [("archived", "2")]


def test_a_new_title_is_indexed(rag: RagDB) -> None:
    rag.add(Document("a.md", "Some text.", title="Oldname"))
    rag.add(Document("a.md", "Some text.", title="Newname"))
    assert rag.search("Newname", pipeline=LEXICAL).hits
    assert not rag.search("Oldname", pipeline=LEXICAL).hits


def test_text_cannot_be_changed_by_hand(rag: RagDB, query: Query) -> None:
    import psycopg

    rag.add(Document("a.md", V1))
    for statement in (
        "update ragdb.chunk set content = 'x'",
        "update ragdb.document_revision set content = 'x'",
        "update ragdb.document set uri = 'x'",
    ):
        with pytest.raises(psycopg.DatabaseError) as caught:
            query(statement)
        assert caught.value.sqlstate == "RD006"
    query("update ragdb.document set status = 'draft', metadata = '{}', owner = 'me', review_after = now()")


def test_labels_of_other_sections_stay(rag: RagDB, query: Query) -> None:
    rag.add(Document("dir/guide.md", V1))
    before = {label for (label,) in query("select label from ragdb.chunk_place")}
    rag.add(Document("dir/guide.md", V1.replace("beta text.", "beta text.\n\n" + "More words here. " * 200)))
    after = {label for (label,) in query("select label from ragdb.chunk_place")}
    assert {"dir/guide#one#00", "dir/guide#three#00"} <= before & after
    assert "dir/guide#two#01" in after
