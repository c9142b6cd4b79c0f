"""Speed of search over a synthetic corpus, each figure beside what it is compared with, in one run.

    python benchmarks/search.py --chunks 200000 [--json] [--home FOLDER]

Corpus: documents of ten chunks of 120 words each, drawn from a Zipf distribution over 50,000 words. The last line and
the bars are for the corpus without stop words (harsh for the lexical leg: its commonest words stand in most chunks);
a second, smaller corpus with English stop words in it is printed too. Vectors: 384 dimensions, 1,000 centres, noise
0.6 of a centre's length. Questions: nine words of one chunk; a centre with fresh noise. Times are medians after a warm-up, in
milliseconds, on one warm connection unless it says otherwise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

from ragdb import Document, RagDB, Span
from ragdb.db import embedded, hnsw, schema
from ragdb.ingest import bulk
from ragdb.stages.retrieve import retrieve
from ragdb.testing import FakeEmbedder, odd
from ragdb.types import Query

DIMS, WORDS, PER_DOCUMENT, CENTRES, NOISE, K = 384, 120, 10, 1000, 0.6, 50
STOP_WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
]


class Corpus:
    """Texts and vectors, the same for the same seed."""

    def __init__(self, chunks: int, *, stop_words: bool, seed: int = 7) -> None:
        self.rng = np.random.default_rng(seed)
        self.chunks = chunks
        weights = 1 / np.arange(1, 50_001) ** 1.0
        names = [f"w{n}" for n in range(50_000)]
        if stop_words:
            names = STOP_WORDS + names[len(STOP_WORDS) :]
        self.names = np.array(names, dtype=object)
        self.cumulative = np.cumsum(weights / weights.sum())
        self.centres = self._unit(self.rng.normal(size=(CENTRES, DIMS)))

    @staticmethod
    def _unit(matrix: np.ndarray) -> np.ndarray:
        return matrix / np.linalg.norm(matrix, axis=-1, keepdims=True)

    def texts(self, count: int) -> list[str]:
        drawn = np.searchsorted(self.cumulative, self.rng.random((count, WORDS)))
        return [" ".join(self.names[np.minimum(row, 49_999)]) for row in drawn]

    def vectors(self, count: int) -> np.ndarray:
        noise = self._unit(self.rng.normal(size=(count, DIMS)))
        return self._unit(self.centres[self.rng.integers(CENTRES, size=count)] + NOISE * noise)

    def documents(self, *, vectors: bool) -> Iterator[Document]:
        for n in range(self.chunks // PER_DOCUMENT):
            parts = self.texts(PER_DOCUMENT)
            ends = np.cumsum([len(part) + 1 for part in parts]).tolist()
            spans = [Span(end - len(part) - 1, end - 1) for end, part in zip(ends, parts, strict=True)]
            metadata = {"percent": n % 100, "basis_point": n % 10_000}
            given = self.vectors(PER_DOCUMENT) if vectors else None
            yield Document(f"d{n}", " ".join(parts), chunks=spans, vectors=given, metadata=metadata)

    def questions(self, sample: list[str], count: int) -> list[str]:
        chosen = self.rng.choice(len(sample), size=count)
        return [" ".join(self.rng.choice(sorted(set(sample[i].split())), size=9, replace=False)) for i in chosen]


def timed(work: Callable[[Any], Any], items: list[Any], *, warm: int = 3) -> tuple[list[float], list[Any]]:
    for item in items[:warm]:
        work(item)
    times, results = [], []
    for item in items:
        began = time.perf_counter()
        results.append(work(item))
        times.append((time.perf_counter() - began) * 1000)
    return times, results


def beside(ways: dict[str, Callable[[Any], Any]], items: list[Any]) -> tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Several ways to do the same, in turns item by item, after a whole round that warms the cache for all of them.

    Another way begins each time: the first to read an item's pages may pay for those that follow.
    """
    for item in items:
        for work in ways.values():
            work(item)
    times: dict[str, list[float]] = {way: [] for way in ways}
    results: dict[str, list[Any]] = {way: [] for way in ways}
    for n, item in enumerate(items):
        for way, work in [*list(ways.items())[n % len(ways) :], *list(ways.items())[: n % len(ways)]]:
            took, result = timed(work, [item], warm=0)
            times[way] += took
            results[way] += result
    return times, results


def text_of(vector: list[float], brackets: str = "{}") -> str:
    """As it travels: psycopg would take a millisecond to write a list of floats."""
    return brackets[0] + ",".join(map(repr, vector)) + brackets[1]


def p50(times: list[float]) -> float:
    return round(statistics.median(times), 2)


def p95(times: list[float]) -> float:
    return round(float(np.percentile(times, 95)), 2)


def recall(found: list[list[int]], true: list[list[int]]) -> float:
    shares = [len(set(f) & set(t)) / len(t) for f, t in zip(found, true, strict=True) if t]
    return round(statistics.mean(shares), 4) if shares else 1.0


class Bench:
    """One database with one corpus; every measure returns its figures by name."""

    def __init__(self, url: str, collection: str, corpus: Corpus) -> None:
        self.url = url
        self.collection = collection
        self.corpus = corpus
        self.rag = RagDB(url, collection=collection, embedder=FakeEmbedder(DIMS, name="bench:384"))
        self.conn = psycopg.connect(url, autocommit=True)
        register_vector(self.conn)

    def one(self, sql: str, *values: Any) -> Any:
        row = self.conn.execute(sql, values or None).fetchone()  # type: ignore[call-overload]
        return row[0] if row and len(row) == 1 else row

    def sample(self) -> list[str]:
        return [
            text for (text,) in self.conn.execute("select content from ragdb.chunk where chunk_id % 499 = 0 order by chunk_id")
        ]

    def load(self) -> dict[str, float]:
        share = min(self.corpus.chunks, 20_000)
        text_only = Corpus(share, stop_words=False, seed=11)
        with RagDB(self.url, collection=f"{self.collection}-text", embedder=FakeEmbedder(DIMS, name="bench:384")) as rag:
            documents = list(text_only.documents(vectors=False))
            began = time.perf_counter()
            list(bulk.load(rag.context, documents))
            figures = {"text_chunks_per_second": round(share / (time.perf_counter() - began))}
        self.conn.execute("delete from ragdb.document")
        began = time.perf_counter()
        for done in bulk.load(self.rag.context, self.corpus.documents(vectors=True)):
            if done.document_id % 1000 == 0:
                print(f"\r{done.document_id * PER_DOCUMENT} chunks", end="", file=sys.stderr)
        print(f"\nloaded in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        figures |= self.copy_vectors(share)
        self.conn.execute("vacuum analyze")
        began = time.perf_counter()
        for model in hnsw.models(self.url):
            hnsw.build(self.url, model)
        figures["hnsw_build_seconds"] = round(time.perf_counter() - began)
        self.conn.execute("vacuum analyze ragdb.embedding")
        return figures

    def copy_vectors(self, count: int) -> dict[str, float]:
        """COPY of vectors into ragdb.embedding (keys, CHECKs, no HNSW) beside COPY into a table without anything."""
        ids = [i for (i,) in self.conn.execute("select chunk_id from ragdb.chunk order by chunk_id limit %s", [count])]
        vectors = [Vector(row) for row in self.corpus.vectors(len(ids)).astype(np.float32)]
        model_id = self.one("select model_id from ragdb.embedding_model where name = 'bench:384'")
        kept = self.conn.execute("create temp table kept as select * from ragdb.embedding where chunk_id = any(%s)", [ids])
        kept.close()
        self.conn.execute("create table if not exists public.bare (chunk_id bigint, model_id bigint, dims integer, v vector)")
        figures = {}
        for name, table in (("vectors_per_second", "ragdb.embedding"), ("copy_vectors_per_second", "public.bare")):
            self.conn.execute(f"delete from {table} where chunk_id = any(%s)", [ids])
            began = time.perf_counter()
            with self.conn.cursor().copy(f"copy {table} (chunk_id, model_id, dims, v) from stdin") as copy:
                for chunk_id, vector in zip(ids, vectors, strict=True):
                    copy.write_row((chunk_id, model_id, DIMS, vector))
            figures[name] = round(len(ids) / (time.perf_counter() - began))
        self.conn.execute("drop table public.bare")
        self.conn.execute("delete from ragdb.embedding where chunk_id = any(%s)", [ids])
        self.conn.execute("insert into ragdb.embedding select * from kept")
        self.conn.execute("drop table kept")
        return figures

    def lexical(self, questions: list[str], slow: int) -> dict[str, float]:
        def leg(question: str, options: str = "{}") -> list[int]:
            return self.one(
                "select chunk_ids from ragdb.lexical_leg(%s, %s, %s, options => %s::jsonb)", question, self.collection, K, options
            )

        times, found = timed(leg, questions)
        _, true = timed(lambda q: leg(q, '{"exact_limit": 2147483646}'), questions[: 4 * slow], warm=0)
        figures = {"lexical_p50_ms": p50(times), "lexical_p95_ms": p95(times), "lexical_recall": recall(found[: 4 * slow], true)}
        ranked = "select array(select c.chunk_id from ragdb.chunk c, to_tsquery('english', %s) q where c.lexemes @@ q order by {} desc, c.chunk_id limit 50)"
        for name, score in (("ts_rank_cd", "ts_rank_cd(c.lexemes, q)"), ("ts_rank", "ts_rank(c.lexemes, q, 1)")):
            times, _ = timed(lambda q, s=score: self.one(ranked.format(s), " | ".join(q.split())), questions[:slow], warm=1)
            figures[f"lexical_or_{name}_p50_ms"] = p50(times)
        return figures

    def _semantic(self, vector: list[float], where: str = "{}", options: str = "{}") -> list[int]:
        return self.one(
            "select chunk_ids from ragdb.semantic_leg(%s::text::double precision[], %s, %s, %s::jsonb, %s::jsonb)",
            text_of(vector),
            self.collection,
            K,
            where,
            options,
        )

    def semantic(self, vectors: list[list[float]], slow: int) -> dict[str, float]:
        exact = '{"exact_limit": 2147483646}'
        _, true = timed(lambda v: self._semantic(v, options=exact), vectors[: 12 * slow], warm=0)
        model_id = self.one("select model_id from ragdb.embedding_model where name = 'bench:384'")
        bare = f"select array(select chunk_id from ragdb.embedding where model_id = {model_id} order by v::halfvec({DIMS}) <=> %s::halfvec({DIMS}) limit {K})"
        # as the leg has it: a bare query with less is faster, and finds less
        how_many = self.one("select reltuples from pg_class where relname = %s", f"embedding_hnsw_{model_id}")
        ef_search = self.one("select (ragdb.leg_settings('hnsw', %s, %s))[2]", K, how_many)
        self.conn.execute("select set_config('hnsw.ef_search', %s, false)", [ef_search])
        ways = {"semantic": self._semantic, "semantic_bare": lambda v: self.one(bare, text_of(v, "[]"))}
        times, found = beside(ways, vectors)
        figures = {f"{way}_p50_ms": p50(times[way]) for way in ways}
        figures["semantic_recall"] = recall(found["semantic"][: 12 * slow], true)
        iterative = f"""
            select array(select e.chunk_id from ragdb.embedding e join ragdb.chunk c using (chunk_id) join ragdb.document d using (document_id)
             where e.model_id = {model_id} and d.metadata @> %s::jsonb order by e.v::halfvec({DIMS}) <=> %s::halfvec({DIMS}) limit {K})"""
        for name, where in (("1pct", '{"percent": 7}'), ("001pct", '{"basis_point": 7}')):
            times, found = timed(lambda v, w=where: self._semantic(v, w), vectors)
            _, true = timed(lambda v, w=where: self._semantic(v, w, exact), vectors[: 4 * slow], warm=0)
            figures[f"filter_{name}_p50_ms"] = p50(times)
            figures[f"filter_{name}_recall"] = recall(found[: 4 * slow], true)
            figures[f"filter_{name}_rows"] = min(map(len, found))
            matching = self.one("select coalesce(sum(n_chunks), 0) from ragdb.document where metadata @> %s::jsonb", where)
            figures[f"filter_{name}_expected_rows"] = min(K, int(matching))
            self.conn.execute("set hnsw.iterative_scan = relaxed_order")
            self.conn.execute("set enable_sort = off")
            figures[f"filter_{name}_iterative_p50_ms"] = p50(
                timed(lambda v, w=where: self.one(iterative, w, Vector(v)), vectors[:slow], warm=1)[0]
            )
            self.conn.execute("reset enable_sort")
            self.conn.execute("reset hnsw.iterative_scan")
        self.conn.execute("reset hnsw.ef_search")
        return figures

    def hybrid(self, pairs: list[tuple[str, list[float]]]) -> dict[str, float]:
        def in_sql(pair: tuple[str, list[float]]) -> Any:
            return self.conn.execute(
                "select chunk_id from ragdb.search(%s, %s, 10, query_vector => %s::text::double precision[])",
                [pair[0], self.collection, text_of(pair[1])],
            ).fetchall()

        db = self.rag.context.database

        def leg(pair: tuple[str, list[float]], name: str) -> Any:
            return retrieve(db, Query(pair[0], tuple(pair[1])), name, collection=self.collection, candidates=K, where={})

        with ThreadPoolExecutor(2) as legs:
            ways = {
                "lexical": lambda p: leg(p, "lexical"),
                "semantic": lambda p: leg(p, "semantic"),
                "both": lambda p: [f.result() for f in [legs.submit(leg, p, n) for n in ("lexical", "semantic")]],
                "sql": in_sql,
            }
            times, _ = beside(ways, pairs)
        slower = max(p50(times["lexical"]), p50(times["semantic"]))
        return {
            "hybrid_p50_ms": p50(times["sql"]),
            "hybrid_p95_ms": p95(times["sql"]),
            "parallel_p50_ms": p50(times["both"]),
            "slower_leg_p50_ms": slower,
        }

    def fuzz(self, count: int) -> dict[str, float]:
        """Strings that no search may fail on, mixed with words as they stand in the corpus; one in a thousand has 50,000."""
        drawn = " ".join(self.corpus.texts(500)).split()
        longest = " ".join(self.corpus.names)
        (vector,) = self.corpus.vectors(1).tolist()
        times, raised = [], []
        for n, text in enumerate(odd.strings(count, seed=7, words=drawn)):
            question = longest if n % 1000 == 0 else f"x {text}"  # an empty question is an error, and meant to be one
            began = time.perf_counter()
            try:
                self.conn.execute(
                    "select chunk_id from ragdb.search(%s, %s, query_vector => %s::text::double precision[])",
                    [question, self.collection, text_of(vector)],
                ).fetchall()
            except psycopg.Error as error:
                raised.append(f"{question[:200]!r}: {error}")
            times.append((time.perf_counter() - began) * 1000)
        for line in raised[:10]:
            print(line, file=sys.stderr)
        return {
            "fuzz_strings": count,
            "fuzz_raised": len(raised),
            "fuzz_p50_ms": p50(times),
            "fuzz_p99_ms": round(float(np.percentile(times, 99)), 2),
            "fuzz_max_ms": round(max(times), 2),
        }


def run(url: str, chunks: int, *, stop_words: bool, queries: int, slow: int, fuzz: int, again: bool) -> dict[str, float]:
    corpus = Corpus(chunks, stop_words=stop_words)
    bench = Bench(url, "stop-words" if stop_words else "zipf", corpus)
    figures: dict[str, float] = {"chunks": chunks} | ({} if again else bench.load())
    questions, vectors = corpus.questions(bench.sample(), queries), corpus.vectors(queries).tolist()
    figures |= bench.lexical(questions, slow)
    figures |= bench.semantic(vectors, slow)
    figures |= bench.hybrid(list(zip(questions, vectors, strict=True)))
    if fuzz:
        figures |= bench.fuzz(fuzz)
    bench.rag.close()
    bench.conn.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--slow-queries", type=int, default=5, help="for what takes seconds a query")
    parser.add_argument("--shared-buffers", default="4GB", help="of the server; a quarter of the memory is usual")
    parser.add_argument("--fuzz", type=int, default=0, help="so many strings with quotes, operators and odd characters")
    parser.add_argument("--json", action="store_true", help="print the lines of JSON only")
    parser.add_argument("--home", type=Path, help="folder of the embedded server (default: a temporary one)")
    parser.add_argument("--without-second", action="store_true", help="leave out the corpus with stop words")
    parser.add_argument("--again", action="store_true", help="measure the corpus that a run left in --home, and load nothing")
    given = parser.parse_args()
    if given.again and not (given.home and given.without_second):
        parser.error("--again needs --home and --without-second")
    with tempfile.TemporaryDirectory(prefix="ragdb-bench-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        base = embedded.start(home)
        with psycopg.connect(base, autocommit=True) as conn:
            conn.execute(f"alter system set shared_buffers = '{given.shared_buffers}'".encode())
            # the graph of the HNSW index, about 2 kB a vector: beyond it building takes many times as long
            conn.execute(f"alter system set maintenance_work_mem = '{max(256, given.chunks // 400)}MB'".encode())
        embedded.stop(home)
        base = embedded.start(home)
        try:
            with psycopg.connect(base) as conn:
                version = conn.execute(
                    "select version(), (select extversion from pg_extension where extname = 'vector')"
                ).fetchone()
            print(*(version or ()), sep=", pgvector ", file=sys.stderr)
            schema.upgrade(base)
            runs = [(min(given.chunks, 50_000), True)] * (not given.without_second) + [(given.chunks, False)]
            for chunks, stop_words in runs:
                if not given.again:
                    with psycopg.connect(base, autocommit=True) as conn:
                        for table in ("document", "embedding_model", "collection"):
                            conn.execute(f"truncate ragdb.{table} cascade")
                figures = run(
                    base,
                    chunks,
                    stop_words=stop_words,
                    queries=given.queries,
                    slow=given.slow_queries,
                    fuzz=given.fuzz,
                    again=given.again,
                )
                if not given.json:
                    print(f"{'with' if stop_words else 'without'} stop words:")
                    for name, figure in figures.items():
                        print(f"  {name:32} {figure}")
                if stop_words:
                    print(json.dumps({"stop_words": figures}))
                else:
                    print(json.dumps(figures))
        finally:
            embedded.stop(home)


if __name__ == "__main__":
    main()
