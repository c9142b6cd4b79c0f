"""Loading by COPY gives the same rows as adding one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ragdb import Document, Pipeline, RagDB, Span
from ragdb.errors import BadDocument
from ragdb.ingest import bulk
from ragdb.readers import jsonl
from ragdb.testing import FakeEmbedder, drain

LEXICAL = Pipeline(legs=("lexical",), window=0)
Query = Callable[..., list[tuple[Any, ...]]]

PAGE = "# Guide\n\nIntro.\n\n## One\n\nalpha {n} text.\n\n### Deep\n\nbeta {n} text.\n"


def rows(query: Query, collection: str) -> list[tuple[Any, ...]]:
    return query(
        """select d.uri, d.title, d.status, d.metadata, d.ingest_state, d.ready_revision, d.n_chunks, d.content_hash, p.ordinal, p.label,
                  p.start_at, p.end_at, s.path, k.text_hash, k.context, k.content, k.lexemes::text, k.lexical_weights::text,
                  p.previous_chunk_id is null, p.next_chunk_id is null, parent.heading
             from ragdb.document d join ragdb.collection c using (collection_id) join ragdb.chunk_place p using (document_id) join ragdb.chunk k using (chunk_id)
             left join ragdb.section s using (section_id) left join ragdb.section parent on parent.section_id = s.parent_section_id
            where c.name = %s order by d.uri, p.ordinal""",
        collection,
    )


def test_a_bulk_load_is_the_same_as_adding(ragdb_url: str, query: Query) -> None:
    documents = [Document(f"d{n}.md", PAGE.format(n=n), title=f"T{n}", metadata={"n": n}) for n in range(7)]
    with RagDB(ragdb_url, collection="one", embedder=FakeEmbedder()) as rag:
        for document in documents:
            rag.add(document)
    with RagDB(ragdb_url, collection="many", embedder=FakeEmbedder()) as rag:
        loaded = list(bulk.load(rag.context, documents, batch=3))
        assert [(a.uri, a.ingest_state, a.chunks) for a in loaded] == [(d.uri, "queued", 3) for d in documents]
        assert len(drain(rag)) == 7
        assert rows(query, "one") == rows(query, "many")
        assert [h.uri for h in rag.search("alpha 3", k=1, pipeline=LEXICAL)] == ["d3.md"]
        assert all(not a.changed for a in map(rag.add, documents))


def test_vectors_make_documents_ready_at_once(rag: RagDB, query: Query) -> None:
    documents = [Document(f"d{n}", f"page {n}", chunks=[Span(0, 6)], vectors=np.eye(8)[[n]] * 3) for n in range(8)]
    assert {a.ingest_state for a in bulk.load(rag.context, documents)} == {"ready"}
    assert rag.context.embedder().calls == 0  # type: ignore[attr-defined]
    assert query("select count(*), min(vector_norm(v)), max(vector_norm(v)) from ragdb.embedding") == [(8, 1.0, 1.0)]


def test_known_documents_go_the_ordinary_way(rag: RagDB, query: Query) -> None:
    rag.add(Document("d0", "old text"))
    result = list(bulk.load(rag.context, [Document("d0", "new text"), Document("d1", "other text")]))
    assert [(a.uri, a.ingest_state) for a in result] == [("d0", "queued"), ("d1", "queued")]
    assert query("select count(*) from ragdb.document") == [(2,)]


@pytest.mark.parametrize("vectors", [[[1.0] * 3], [[0.0] * 8], [[float("nan")] * 8]])
def test_bad_vectors_write_nothing_of_their_batch(rag: RagDB, query: Query, vectors: list[list[float]]) -> None:
    documents = [Document("good", "text"), Document("bad", "text", chunks=[Span(0, 4)], vectors=vectors)]
    with pytest.raises(BadDocument, match="bad"):
        list(bulk.load(rag.context, documents))
    assert query("select count(*) from ragdb.document") == [(0,)]


def test_json_lines_bring_chunks_vectors_and_columns() -> None:
    lines = [
        json.dumps({"uri": "a", "content": "one two", "title": "T", "metadata": {"x": 1}, "updated_at": "2026-01-31"}),
        "",
        json.dumps({"_id": "b", "text": "one two", "vector": [1, 0]}),
        json.dumps(
            {"uri": "c", "content": "one two", "chunks": [{"start": 0, "end": 3}, {"start": 4, "end": 7, "context": "h"}]}
        ),
    ]
    a, b, c = jsonl.documents(lines)
    assert (a.title, a.metadata, a.updated_at and a.updated_at.year) == ("T", {"x": 1}, 2026)
    assert (b.uri, b.chunks, b.vectors) == ("b", [Span(0, 7)], [[1, 0]])
    assert [s.context for s in c.chunks or ()] == ["", "h"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("[1]", "line 2"),
        ("{broken", "line 2"),
        ('{"uri": "a"}', "line 2: has no content"),
        ('{"uri": "a", "content": "x", "colour": "red"}', "line 2: has unknown keys colour"),
        ('{"uri": "a", "content": "x", "vector": ["x", 1]}', r"line 2: vector.0"),
        ('{"uri": "a", "content": "x", "title": 5}', "line 2: title"),
        ('{"uri": "a", "content": "xy", "chunks": [{"start": 0.5, "end": 2}]}', "line 2: chunks.0.start"),
        ('{"uri": "a", "content": "xy", "chunks": [{"start": 0}]}', "line 2: has no chunks.0.end"),
        ('{"uri": "a", "content": "xy", "chunks": [{"start": 0, "end": 1, "page": "x"}]}', "line 2: chunks.0.page"),
        ('{"uri": "a", "content": "xy", "chunks": [{"start": 0, "end": 1, "context": null}]}', "line 2: chunks.0.context"),
    ],
)
def test_a_bad_line_is_named_by_its_number(line: str, named: str) -> None:
    with pytest.raises(BadDocument, match=named):
        list(jsonl.documents(['{"uri": "ok", "content": "x"}', line]))


@pytest.mark.parametrize("batch", [1, 500])
def test_of_a_uri_that_comes_twice_the_later_stays_whatever_the_batch(rag: RagDB, query: Query, batch: int) -> None:
    given = [Document("a", "first text"), Document("b", "other text"), Document("a", "second text")]
    result = list(bulk.load(rag.context, given, batch=batch))
    assert [(added.uri, added.ingest_state) for added in result] == [("a", "queued"), ("b", "queued"), ("a", "queued")]
    drain(rag)
    assert [hit.content for hit in rag.search("second", pipeline=LEXICAL)] == ["second text"]
    assert rag.search("first", pipeline=LEXICAL).hits == ()


def test_documents_without_text_come_with_no_vectors(rag: RagDB) -> None:
    lines = [
        '{"uri": "a", "content": "", "vector": [1, 0, 0, 0, 0, 0, 0, 0]}',
        '{"uri": "b", "content": "", "chunks": [], "vectors": []}',
    ]
    assert [added.ingest_state for added in bulk.load(rag.context, jsonl.documents(lines))] == ["ready", "ready"]


def test_reweighing_changes_the_weights_and_keeps_the_rest(rag: RagDB, query: Query) -> None:
    for n in range(5):
        rag.add(Document(f"d{n}", f"battery {'word ' * n}"))
    before = query("select chunk_id, lexical_weights::text from ragdb.chunk order by 1")
    query("select * from ragdb.refresh_lexical_stats('help')")
    assert query("select ragdb.reweigh('help')") == [(None,)]
    after = query("select chunk_id, lexical_weights::text from ragdb.chunk order by 1")
    assert [i for i, _ in before] == [i for i, _ in after]
    assert before != after
    average = query("select average_length from ragdb.lexical_stats")[0][0]
    assert query("select pivot_length from ragdb.collection where name = 'help'") == [(average,)]
    step, steps = 0, 0
    while step is not None:
        step = query("select ragdb.reweigh('help', 120, %s, 2)", step)[0][0]
        steps += 1
    assert steps == 4
    assert query("select chunk_id, lexical_weights::text from ragdb.chunk order by 1") == before
    assert len(rag.search("battery", pipeline=LEXICAL)) == 5
