"""Changing the embedding model while searches go on. VEC-03, and "Changing the embedding model" of the design."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.db import hnsw, probe
from ragdb.errors import ConfigError, EmbedderError, EmbedderMismatch, StaleModel
from ragdb.ingest import activate, documents, vector_sets, worker
from ragdb.testing import FakeEmbedder, drain

Query = Callable[..., list[tuple[Any, ...]]]
OLD = FakeEmbedder().name
NEW = FakeEmbedder(16).name
SEMANTIC = Pipeline(legs=("semantic",), window=0)


@pytest.fixture
def pages(ragdb_url: str) -> Iterator[RagDB]:
    """Twelve pages of three chunks in the old set; the program follows the active one."""
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as first:
        for n in range(12):
            first.add(page(n))
    with RagDB(ragdb_url, collection="help") as rag:
        yield rag


def page(n: int, words: str = "") -> Document:
    parts = "\n\n".join(f"## Part {p}\n\nWord{n}x{p} stands here {words} with thing{(n + p) % 5}." for p in range(3))
    return Document(f"page{n}.md", f"# Page {n}\n\n{parts}\n")


def filled(rag: RagDB, name: str = NEW) -> None:
    vector_sets.add(rag, name)
    vector_sets.fill(rag, name)


def count(query: Query, dims: int) -> int:
    return int(query("select count(*) from ragdb.embedding where dims = %s", dims)[0][0])


def nearest(query: Query, embedder: FakeEmbedder, question: str, k: int = 5) -> list[int]:
    """What a set says is nearest, by plain SQL."""
    rows = query(
        "select e.chunk_id from ragdb.embedding e where e.dims = %s order by e.v <=> %s::float8[]::vector, 1 limit %s",
        embedder.dimension,
        embedder.embed_query(question),
        k,
    )
    return [row[0] for row in rows]


def ids(rag: RagDB, question: str, k: int = 5) -> list[int]:
    return [hit.chunk_id for hit in rag.search(question, k=k, pipeline=SEMANTIC)]


# --- adding and filling ----------------------------------------------------------------------------


def test_adding_a_set_changes_nothing_for_searches(pages: RagDB, query: Query) -> None:
    before = ids(pages, "word3x1")
    row = vector_sets.add(pages, NEW)
    assert (row["model"], row["dims"], row["active"], row["missing"]) == (NEW, 16, False, 36)
    assert ids(pages, "word3x1") == before
    assert vector_sets.add(pages, NEW)["missing"] == 36, "adding it again is no error"
    assert count(query, 16) == 0


def test_a_set_is_filled_to_its_end_and_each_text_is_embedded_once(pages: RagDB, query: Query) -> None:
    vector_sets.add(pages, NEW)
    made = [vector_sets.fill_some(pages.context, chunks=7)]
    while made[-1]:
        made.append(vector_sets.fill_some(pages.context, chunks=7))
    assert sum(made) == 36
    assert max(made) < 14
    assert count(query, 16) == 36
    assert query("select count(*) from ragdb.vector_gap") == [(0,)]
    assert query("select scan_after from ragdb.vector_set") == [(None,), (None,)]
    embedder = pages.context.embedder_named(NEW, dims=16)
    assert isinstance(embedder, FakeEmbedder)
    assert sorted(embedder.texts) == sorted(set(embedder.texts))


def test_several_workers_share_a_set_and_embed_nothing_twice(pages: RagDB, ragdb_url: str, query: Query) -> None:
    vector_sets.add(pages, NEW)
    embedders = [FakeEmbedder(16) for _ in range(4)]

    def work(embedder: FakeEmbedder) -> None:
        with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
            vector_sets.fill(rag, NEW, chunks=5)

    threads = [threading.Thread(target=work, args=[e]) for e in embedders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    texts = [text for e in embedders for text in e.texts]
    assert len(texts) == len(set(texts)) == 36
    assert count(query, 16) == 36


def test_a_large_document_is_filled_in_parts(pages: RagDB, query: Query) -> None:
    text = "\n\n".join(f"## H{n}\n\nParagraph number {n}." for n in range(100))
    pages.add(Document("large.md", text))
    vector_sets.add(pages, NEW)
    vector_sets.fill(pages, NEW, chunks=30)
    assert count(query, 16) == count(query, 8) > 100
    embedder = pages.context.embedder_named(NEW, dims=16)
    assert isinstance(embedder, FakeEmbedder)
    assert len(embedder.texts) == count(query, 16)


def test_new_and_changed_documents_are_followed_after_that(pages: RagDB, query: Query) -> None:
    filled(pages)
    pages.add(page(3, "changed"))
    pages.add(page(40))
    assert query("select count(*) from ragdb.vector_gap") == [(2,)]
    [row] = [row for row in vector_sets.listed(pages) if row["model"] == NEW]
    assert row["missing"] == 6
    assert vector_sets.fill_some(pages.context) == 6
    assert count(query, 16) == count(query, 8) == 39
    pages.delete("page3.md")
    assert count(query, 16) == count(query, 8) == 36


def test_a_text_that_a_chunk_has_a_vector_for_is_copied_and_not_embedded(pages: RagDB, query: Query) -> None:
    vector_sets.add(pages, NEW)
    with pages.context.database.connection() as caller:
        caller.call("claim_gaps", collection="help", model_id=2, chunks=3)  # a worker that dies
    vector_sets.fill_some(pages.context, chunks=1000)
    query("update ragdb.vector_gap set run_after = now()")
    pages.add(Document("copy/page5.md", page(5).content))
    embedder = pages.context.embedder_named(NEW, dims=16)
    assert isinstance(embedder, FakeEmbedder)
    calls = embedder.calls
    assert query("select count(*) from ragdb.vector_gap where document_id > 12") == [(0,)], "copied as it was written"
    query(
        "delete from ragdb.embedding e using ragdb.chunk k where k.chunk_id = e.chunk_id and k.document_id = 13 and e.dims = 16"
    )
    query("insert into ragdb.vector_gap (document_id, model_id, collection_id) values (13, 2, 1)")
    query("delete from ragdb.vector_gap where document_id < 13")
    assert vector_sets.fill_some(pages.context) == 3
    assert embedder.calls == calls


def test_what_a_killed_worker_claimed_is_taken_up_after_its_lease(pages: RagDB, query: Query) -> None:
    vector_sets.add(pages, NEW)
    pages.context.database.call("claim_gaps", collection="help", model_id=2, chunks=1000)
    assert vector_sets.fill_some(pages.context) == 0
    query("update ragdb.vector_gap set run_after = now()")  # five minutes later
    vector_sets.fill(pages, NEW)
    assert count(query, 16) == 36


def test_vectors_of_a_text_that_was_replaced_or_deleted_meanwhile_are_passed_over(
    pages: RagDB, query: Query, ragdb_url: str
) -> None:
    vector_sets.add(pages, NEW)

    def meanwhile(texts: list[str]) -> None:
        if meant.pop("once", None):
            with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as other:
                other.add(page(1, "newer"))
                other.delete("page2.md")

    meant: dict[str, Any] = {"once": True}
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(16, fail=meanwhile)) as rag:
        vector_sets.fill(rag, NEW)
    assert count(query, 16) == count(query, 8) == 33
    assert query("select count(*) from ragdb.vector_gap") == [(0,)]
    assert query("select count(*) from ragdb.embedding e left join ragdb.chunk k using (chunk_id) where k.chunk_id is null") == [
        (0,)
    ]


def test_a_document_that_a_writer_holds_is_stored_when_it_lets_go(pages: RagDB, query: Query, ragdb_url: str) -> None:
    vector_sets.add(pages, NEW)
    with psycopg.connect(ragdb_url) as writer:
        writer.execute("select from ragdb.document where uri = 'page4.md' for update")
        thread = threading.Thread(target=lambda: vector_sets.fill_some(pages.context, chunks=1000))
        thread.start()
        time.sleep(0.2)
        writer.rollback()
        thread.join(30)
    query("update ragdb.vector_gap set run_after = now()")
    vector_sets.fill(pages, NEW)
    assert count(query, 16) == 36


def test_one_document_that_the_model_refuses_keeps_the_others_from_nothing(pages: RagDB, query: Query, ragdb_url: str) -> None:
    def refuse(texts: list[str]) -> None:
        if any("word7x1" in text.lower() for text in texts):
            raise EmbedderError("too strange a text")

    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(16, fail=refuse)) as rag:
        vector_sets.add(pages, NEW)
        with pytest.raises(EmbedderError, match=r"3 chunks have no vector.*too strange a text"):
            vector_sets.fill(rag, NEW)
        assert count(query, 16) == 33
        [row] = [row for row in vector_sets.listed(rag) if row["model"] == NEW]
        assert (row["missing"], row["failing"]) == (3, 1)
        with pytest.raises(ConfigError, match="3 chunks have no vector"):
            activate(rag, NEW)


def test_a_model_that_fails_at_everything_is_no_error_for_a_worker_and_is_not_asked_for_each_document(
    pages: RagDB, ragdb_url: str, query: Query
) -> None:
    vector_sets.add(pages, NEW)
    broken = FakeEmbedder(16, fail=EmbedderError("wrong key"))
    with RagDB(ragdb_url, collection="help", embedder=broken) as rag:
        assert vector_sets.fill_some(rag.context) == 0
        assert broken.calls == 4
        assert query("select distinct last_error from ragdb.vector_gap where last_error is not null") == [
            ("EmbedderError: wrong key",)
        ]
        broken.fail = None
        query("update ragdb.vector_gap set run_after = now()")
        vector_sets.fill(rag, NEW)
    assert count(query, 16) == 36
    assert query("select count(*) from ragdb.vector_gap") == [(0,)]


# --- activating --------------------------------------------------------------------------------------


def test_a_set_that_is_behind_is_not_activated_unless_forced(pages: RagDB, query: Query) -> None:
    vector_sets.add(pages, NEW)
    with pytest.raises(ConfigError, match=r"behind.*36 chunks.*embedder fill"):
        activate(pages, NEW)
    assert vector_sets.fill_some(pages.context, chunks=3) == 3
    with pytest.raises(ConfigError, match="33 chunks"):
        activate(pages, NEW)
    assert activate(pages, NEW, force=True)["missing"] == 33
    found = pages.search("word3x1")
    assert any("Word3x1" in hit.content for hit in found.hits[:2])
    note = next(trace.note for trace in found.stages if trace.name == "semantic")
    assert "behind by" in note
    vector_sets.fill(pages, NEW)
    assert ids(pages, "word3x1") == nearest(query, FakeEmbedder(16), "word3x1")
    with pytest.raises(ConfigError, match='no vector set of "other"'):
        activate(pages, "other")


def test_a_program_without_a_named_embedder_follows_the_active_set_and_back(pages: RagDB, query: Query, ragdb_url: str) -> None:
    old, new = FakeEmbedder(8), FakeEmbedder(16)
    filled(pages)
    with RagDB(ragdb_url, collection="help") as other:
        for active, embedder in ((OLD, old), (NEW, new), (OLD, old), (NEW, new)):
            activate(other, active)
            for question in ("word3x1", "thing2"):
                assert ids(pages, question) == nearest(query, embedder, question)
                assert ids(other, question) == nearest(query, embedder, question)
    added = pages.add(page(50))
    assert added.ingest_state == "ready"
    assert query("select count(*) from ragdb.vector_gap g join ragdb.embedding_model m using (model_id) where m.dims = 8") == [
        (1,)
    ]
    assert count(query, 16) == 39


def test_a_named_embedder_searches_its_own_set_until_it_is_dropped(pages: RagDB, ragdb_url: str, query: Query) -> None:
    old = FakeEmbedder(8)
    filled(pages)
    with RagDB(ragdb_url, collection="help", embedder=old) as rag:
        activate(pages, NEW)
        assert ids(rag, "word3x1") == nearest(query, old, "word3x1")
        hit = rag.search("word3x1")[0]
        assert hit.similarity == pytest.approx(
            query("select 1 - (v <=> %s::float8[]::vector) from ragdb.embedding where chunk_id = %s and dims = 8",
                  old.embed_query("word3x1"), hit.chunk_id)[0][0]
        )  # fmt: skip
        assert rag.add(page(60)).ingest_state == "ready", "what it writes is embedded with the active model"
        assert query(
            "select count(*) from ragdb.embedding e join ragdb.chunk k using (chunk_id) where dims = 16 and document_id = 13"
        ) == [(3,)]
        # now its set is behind: not searched half, and that is said
        found = rag.search("word3x1")
        assert found.hits
        note = next(trace.note for trace in found.stages if trace.name == "semantic")
        assert "behind by 1 document: not searched" in note
        assert found.hits[0].ranks.keys() == {"lexical"}
        with pytest.raises(EmbedderMismatch, match="behind by 1 document"):
            rag.search("word3x1", pipeline=SEMANTIC)
        while vector_sets.fill_some(pages.context):
            pass
        assert ids(rag, "word3x1") == nearest(query, old, "word3x1")
        vector_sets.drop(pages, OLD)
        with pytest.raises(EmbedderMismatch, match="embedder add"):
            rag.search("word3x1")


def test_sql_searches_another_set_by_its_name(pages: RagDB, query: Query) -> None:
    new = FakeEmbedder(16)
    vector_sets.add(pages, NEW)
    search = (
        "select chunk_id from ragdb.search('word3x1', 'help', 5, query_vector => %s::float8[], "
        "options => jsonb_build_object('model', %s::text, 'legs', %s::jsonb))"
    )
    assert query(search, new.embed_query("word3x1"), NEW, '["semantic"]') == [], "behind"
    assert query(search, new.embed_query("word3x1"), NEW, '["semantic", "lexical"]')
    vector_sets.fill(pages, NEW)
    assert [i for (i,) in query(search, new.embed_query("word3x1"), NEW, '["semantic"]')] == nearest(query, new, "word3x1")
    with pytest.raises(psycopg.DatabaseError, match="no vector set of the model nothing"):
        query(search, new.embed_query("word3x1"), "nothing", '["semantic"]')


def test_vectors_made_for_the_model_that_was_active_are_refused_and_made_again(pages: RagDB, query: Query) -> None:
    filled(pages)
    pages.context.database.call("put_document", collection="help", document={"uri": "late", "content": "A late page."})
    job = worker.claim(pages.context.database, collection="help")
    assert job is not None
    stale = pages.context.embedder()
    activate(pages, NEW)
    with pytest.raises(StaleModel, match=r"active by now"):
        worker.work(pages.context.database, job, stale, pages.context.chunking())
    assert query("select state, attempts from ragdb.job") == [("queued", 0)]
    assert drain(pages) == ["late"]
    assert query("select e.dims from ragdb.embedding e join ragdb.chunk k using (chunk_id) where k.document_id = 13") == [(16,)]


def test_a_set_activated_between_embedding_and_the_flip_is_noticed(pages: RagDB, query: Query) -> None:
    filled(pages)
    db = pages.context.database
    db.call("put_document", collection="help", document={"uri": "late", "content": "A late page."})
    job = worker.claim(db, collection="help")
    assert job is not None
    embedder = pages.context.embedder()
    worker.cut_if_needed(db, job, pages.context.chunking())
    worker._embed_missing(db, job, {"job_id": job["job_id"], "lease_token": job["lease_token"]}, embedder, None)
    activate(pages, NEW)
    with pytest.raises(StaleModel, match="no vector of the active model"):
        db.call("finish_job", job_id=job["job_id"], lease_token=job["lease_token"])
    assert query("select ingest_state from ragdb.document where uri = 'late'") == [("processing",)]


def test_activation_waits_for_a_document_that_becomes_ready_and_counts_it(pages: RagDB, ragdb_url: str, query: Query) -> None:
    filled(pages)
    failed: list[BaseException] = []

    def switch() -> None:
        try:
            activate(pages, NEW)
        except ConfigError as error:
            failed.append(error)

    with psycopg.connect(ragdb_url) as writer:
        # ready in a transaction that is still open: a copy of known text needs no embedder
        query("select ragdb.add_vector_set('help', ragdb.register_model('third', 4))")
        writer.execute(
            "select * from ragdb.put_document('help', %s::jsonb)",
            ['{"uri": "empty", "content": "x", "chunking": "mine", "chunks": []}'],
        )
        thread = threading.Thread(target=switch)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive(), "it waits"
        assert pages.search("word3x1").hits, "readers do not"
        with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as another:
            assert another.add(page(70)).ingest_state == "ready", "and other writers do not"
        writer.commit()
        thread.join(30)
    assert "behind" in str(failed[0]), "the page that the others added meanwhile has no vector of the new model"


# --- dropping ----------------------------------------------------------------------------------------


def test_the_active_set_is_not_dropped_and_another_leaves_nothing(pages: RagDB, query: Query, ragdb_url: str) -> None:
    filled(pages)
    pages.search("word3x1")
    with pytest.raises(ConfigError, match="is the active one"):
        vector_sets.drop(pages, OLD)
    for model in hnsw.models(ragdb_url):
        hnsw.build(ragdb_url, model)
    activate(pages, NEW)
    gone = vector_sets.drop(pages, OLD, batch=7)
    assert (gone.vectors, gone.index, gone.forgotten) == (36, True, True)
    assert query("select dims from ragdb.embedding_model") == [(16,)]
    assert count(query, 8) == 0
    assert query("select count(*) from ragdb.query_vector q join ragdb.embedding_model m using (model_id)") == query(
        "select count(*) from ragdb.query_vector"
    )
    assert query("select to_regclass('ragdb.embedding_hnsw_1')") == [(None,)]
    assert ids(pages, "word3x1") == nearest(query, FakeEmbedder(16), "word3x1")
    with pytest.raises(ConfigError, match="no embedding model"):
        vector_sets.drop(pages, OLD)


def test_a_model_that_another_collection_uses_stays_there(pages: RagDB, query: Query, ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="other", embedder=FakeEmbedder()) as other:
        other.add(page(3))
        filled(pages)
        activate(pages, NEW)
        gone = vector_sets.drop(pages, OLD)
        assert (gone.vectors, gone.index, gone.forgotten) == (36, False, False)
        assert count(query, 8) == 3
        assert ids(other, "word3x1")


# --- the same name, another model --------------------------------------------------------------------


class Turned(FakeEmbedder):
    """The fake under its own name, with other vectors."""

    def _vector(self, text: str) -> list[float]:
        return super()._vector(f"{text} turned")[::-1]


class Rounded(FakeEmbedder):
    """The same model at another precision: 8 bits."""

    def _vector(self, text: str) -> list[float]:
        return [round(x * 127) / 127 for x in super()._vector(text)]


def test_another_model_under_the_same_name_is_noticed_before_anything_is_stored(
    pages: RagDB, ragdb_url: str, query: Query
) -> None:
    before = count(query, 8)
    with RagDB(ragdb_url, collection="help", embedder=Turned(name=OLD)) as rag:
        with pytest.raises(EmbedderMismatch, match=r"another one.*cosine.*embedder add"):
            rag.add(page(80))
        assert count(query, 8) == before
        found = rag.search("word3x1")  # by its words
        assert found.hits[0].ranks.keys() == {"lexical"}
        assert "another one" in next(trace.note for trace in found.stages if trace.name == "semantic")
        with pytest.raises(EmbedderMismatch, match="another one"):
            rag.search("thing1 word3x1", pipeline=SEMANTIC)
    assert query("select ingest_state from ragdb.document where uri = 'page80.md'") == [("failed",)]


def test_the_same_model_at_another_precision_is_the_same(pages: RagDB, ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="help", embedder=Rounded(name=OLD)) as rag:
        assert rag.add(page(81)).ingest_state == "ready"
        assert ids(rag, "word81x1")


def test_the_fixed_text_is_embedded_once_a_process(ragdb_url: str) -> None:
    class Counted(FakeEmbedder):
        probes = 0

        def _vector(self, text: str) -> list[float]:
            self.probes += text == probe.TEXT
            return super()._vector(text)

    counted = Counted(name=OLD)
    with RagDB(ragdb_url, collection="help", embedder=counted) as rag:
        for n in range(3):
            rag.add(page(n))
            rag.search(f"word{n}x1")
    assert counted.probes == 1


# --- comparing ---------------------------------------------------------------------------------------


def test_two_sets_are_compared_by_recent_questions_by_given_ones_and_by_judgements(pages: RagDB) -> None:
    vector_sets.add(pages, NEW)
    with pytest.raises(ConfigError, match="embedder fill"):
        vector_sets.compare(pages, OLD, NEW)
    vector_sets.fill(pages, NEW)
    with pytest.raises(ConfigError, match="no question"):
        vector_sets.compare(pages, OLD, NEW)
    for question in ("word3x1", "word4x2 thing1", "word3x1"):
        pages.search(question)
    found = vector_sets.compare(pages, OLD, NEW, k=5)
    assert {q.question for q in found.questions} == {"word3x1", "word4x2 thing1"}
    assert 0 < found.overlap <= 1
    assert [q.overlap for q in found.questions] == sorted(q.overlap for q in found.questions)
    same = vector_sets.compare(pages, NEW, NEW, questions=["word3x1"])
    assert (same.overlap, same.rank_change) == (1, 0)
    pytest.importorskip("ir_measures")
    judged = vector_sets.compare(pages, OLD, NEW, judgements={("word3x1 stands", "page3.md"): 1, ("word9x0", "page9.md"): 2})
    assert judged.ndcg is not None
    assert all(0 < value <= 1 for value in judged.ndcg)
    assert judged.to_dict()["ndcg"]["new"] == round(judged.ndcg[1], 4)


# --- all of it under a reader ------------------------------------------------------------------------


def test_a_reader_in_a_loop_notices_no_change_of_the_model(pages: RagDB, ragdb_url: str, query: Query) -> None:
    """Added, filled, indexed, activated, undone, activated again, dropped; documents come all the while."""
    lists: dict[str, dict[str, set[tuple[int, ...]]]] = {}
    questions = [f"word{n}x{p} stands" for n in range(4) for p in range(3)]
    seen: list[tuple[str, str, tuple[int, ...]]] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def read() -> None:
        with RagDB(ragdb_url, collection="help", record=0) as rag:
            while not ended.is_set():
                for question in questions:
                    try:
                        found = rag.search(question, k=5, where={"uri": {"prefix": "page"}}, pipeline=SEMANTIC)
                        both = rag.search(question, k=5)
                    except Exception as error:  # noqa: BLE001  the test asks for none
                        errors.append(error)
                        return
                    assert both.hits
                    seen.append((question, "", tuple(hit.chunk_id for hit in found)))

    def write() -> None:
        n = 0
        with RagDB(ragdb_url, collection="help") as rag:
            while not ended.is_set():
                try:
                    rag.add(Document(f"more/{n % 20}", f"Something else, number {n}, of another kind."))
                except Exception as error:  # noqa: BLE001
                    errors.append(error)
                    return
                n += 1

    def follow() -> None:
        with RagDB(ragdb_url, collection="help") as rag:
            while not ended.is_set():
                if not vector_sets.fill_some(rag.context):
                    time.sleep(0.01)

    for embedder in (FakeEmbedder(8), FakeEmbedder(16)):
        lists[embedder.name] = {q: set() for q in questions}
    readers = [threading.Thread(target=target) for target in (read, read, write, follow)]
    for thread in readers:
        thread.start()
    try:
        vector_sets.add(pages, NEW)
        vector_sets.fill(pages, NEW)
        for model in hnsw.models(ragdb_url):
            hnsw.build(ragdb_url, model)
        for embedder in (FakeEmbedder(8), FakeEmbedder(16)):
            for question in questions:
                rows = query(
                    "select e.chunk_id from ragdb.embedding e join ragdb.chunk k using (chunk_id) join ragdb.document d using (document_id) "
                    "where e.dims = %s and d.uri like 'page%%' order by e.v <=> %s::float8[]::vector, 1 limit 5",
                    embedder.dimension,
                    embedder.embed_query(question),
                )
                lists[embedder.name][question].add(tuple(row[0] for row in rows))
        for name in (NEW, OLD, NEW):
            until = time.monotonic() + 60
            while True:
                try:
                    activate(pages, name)
                    break
                except ConfigError:  # a document has just come
                    assert time.monotonic() < until
                    time.sleep(0.01)
            after = len(seen)
            while len(seen) < after + 2 * len(questions) and not errors:
                time.sleep(0.01)
            for question, _, found in seen[after + 2 * len(readers) :]:
                assert found in lists[name][question], f"{question} is ranked as {name} does"
        vector_sets.drop(pages, OLD, batch=5)
        time.sleep(0.5)
    finally:
        ended.set()
        for thread in readers:
            thread.join(60)
    assert not errors
    assert all(found for _, _, found in seen), "no empty result"
    assert len(seen) > 60
    for question, _, found in seen:
        assert any(found in lists[name][question] for name in lists), "of one set, never of both"


def test_a_load_of_ready_documents_is_followed_too(pages: RagDB, query: Query) -> None:
    from ragdb.ingest import bulk
    from ragdb.types import Span

    filled(pages)
    text = "A page with its vector."
    given = [Document(f"bulk/{n}", text + str(n), chunks=[Span(0, len(text))], vectors=[[1.0 + n] * 8]) for n in range(5)]
    assert [added.ingest_state for added in bulk.load(pages.context, given)] == ["ready"] * 5
    assert query("select count(*) from ragdb.vector_gap") == [(5,)]
    while vector_sets.fill_some(pages.context):
        pass
    assert count(query, 16) == count(query, 8) == 41


def test_a_drain_goes_on_after_an_activation(pages: RagDB, query: Query) -> None:
    filled(pages)
    for n in range(3):
        pages.context.database.call("put_document", collection="help", document={"uri": f"q{n}", "content": f"Queued {n}."})
    seen: Sequence[Any] = []
    for n, done in enumerate(documents.drain(pages.context)):
        seen = [*seen, done[1]]
        if n == 0:
            with psycopg.connect(
                query("select current_setting('port')") and pages.context.database._url, autocommit=True
            ) as conn:
                conn.execute("select * from ragdb.activate_vector_set('help', %s, true)", [NEW])
    assert seen == ["ready"] * 3
    assert query("select count(*) from ragdb.document where ingest_state <> 'ready'") == [(0,)]
    assert count(query, 16) == 36 + 2
