"""Filling a second vector set beside the active one, and switching to it: chunks a second, whether a claim's cost grows, locks.

    python -m benchmarks.vector_sets --database-url postgresql://... [--documents 10000] [--chunks 10] [--dims 384]

The database is one of its own, migrated, without collections. The embedder is the fake one: what is measured is the rest.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Sequence

import psycopg

from ragdb import RagDB
from ragdb.ingest import vector_sets
from ragdb.protocols import Embedder
from ragdb.testing import FakeEmbedder

# Texts differ, or they would be copied.
DOCUMENTS = """
insert into ragdb.document (document_id, collection_id, uri, ready_revision, n_chunks, ingest_state)
  select d, 1, 'd' || d, 1, %(chunks)s, 'ready' from generate_series(1, %(documents)s) d;
insert into ragdb.chunk (chunk_id, document_id, born_revision, text_hash, content)
  select c, 1 + (c - 1) / %(chunks)s, 1, substr(sha256(int8send(c)), 1, 16), 'page ' || c || ' about topic' || c %% 977
    from generate_series(1, %(documents)s * %(chunks)s) c;
insert into ragdb.chunk_place (document_id, revision, ordinal, chunk_id, label, start_at, end_at)
  select document_id, 1, (chunk_id - 1) %% %(chunks)s, chunk_id, 'l' || chunk_id, 0, 1 from ragdb.chunk;
insert into ragdb.embedding (chunk_id, model_id, dims, v)
  select chunk_id, 1, 8, l2_normalize(array[1, chunk_id, 3, 4, 5, 6, 7, 8]::real[]::vector) from ragdb.chunk;
analyze;
select setval('ragdb.document_document_id_seq', %(documents)s);
select setval('ragdb.chunk_chunk_id_seq', %(documents)s::bigint * %(chunks)s)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, default=10)
    parser.add_argument("--dims", type=int, default=384)
    given = parser.parse_args()
    with psycopg.connect(given.database_url, autocommit=True) as conn, RagDB(given.database_url, collection="bench") as rag:
        for statement in (
            f"select ragdb.create_collection('bench', ragdb.register_model('{FakeEmbedder().name}', 8))",
            *DOCUMENTS.split(";"),
        ):
            conn.execute((statement % {"documents": given.documents, "chunks": given.chunks}).encode())
        name = FakeEmbedder(given.dims).name
        vector_sets.add(rag, name)
        clock = _Clock(rag.context.embedder_named(name, dims=given.dims))
        slots = _filled(rag, clock)
        total = sum(n for n, _ in slots)
        seconds = sum(s for _, s in slots)
        print(f"filled {total:,} chunks: {seconds:.1f} s without the embedder's time, {total / seconds:,.0f} a second")
        tenth = max(1, len(slots) // 10)
        print(
            "chunks a second by tenth: " + ", ".join(f"{_rate(slots[i : i + tenth]):,.0f}" for i in range(0, len(slots), tenth))
        )
        embed = FakeEmbedder(given.dims)
        began = time.perf_counter()
        embed.embed_passages([f"page {n} about topic{n}" for n in range(2000)])
        print(f"the fake embedder alone: {2000 / (time.perf_counter() - began):,.0f} a second")
        _switch(given.database_url, rag, name)
        began = time.perf_counter()
        gone = vector_sets.drop(rag, FakeEmbedder().name)
        print(f"dropped {gone.vectors:,} vectors in {time.perf_counter() - began:.1f} s")


class _Clock:
    """Adds up the time that an embedder takes, so that it can be left out."""

    def __init__(self, embedder: Embedder) -> None:
        self.seconds = 0.0
        work = embedder.embed_passages

        def timed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
            began = time.perf_counter()
            try:
                return work(texts)
            finally:
                self.seconds += time.perf_counter() - began

        embedder.embed_passages = timed  # type: ignore[method-assign]


def _filled(rag: RagDB, clock: _Clock) -> list[tuple[int, float]]:
    slots = []
    while True:
        began, clock.seconds = time.perf_counter(), 0.0
        if not (made := vector_sets.fill_some(rag.context)):
            return slots
        slots.append((made, time.perf_counter() - began - clock.seconds))


def _rate(slots: list[tuple[int, float]]) -> float:
    return sum(n for n, _ in slots) / sum(s for _, s in slots)


def _switch(url: str, rag: RagDB, name: str) -> None:
    """Activations to and fro, with a reader and a writer beside them."""
    ended = threading.Event()
    waited: list[float] = []

    def beside() -> None:
        with psycopg.connect(url, autocommit=True) as conn:
            while not ended.is_set():
                began = time.perf_counter()
                conn.execute("select from ragdb.collection_info('bench')")
                conn.execute("select collection_id from ragdb.collection where collection_id = 1 for share")
                waited.append(time.perf_counter() - began)

    thread = threading.Thread(target=beside)
    thread.start()
    took: list[float] = []
    for n in range(20):
        began = time.perf_counter()
        vector_sets.activate(rag, FakeEmbedder().name if n % 2 else name)
        took.append((time.perf_counter() - began) * 1000)
    ended.set()
    thread.join()
    print(f"activate: {statistics.median(took):.1f} ms, at most {max(took):.1f} ms; "
          f"who shares the row beside it waited at most {max(waited) * 1000:.1f} ms")  # fmt: skip
    vector_sets.activate(rag, name)


if __name__ == "__main__":
    main()
