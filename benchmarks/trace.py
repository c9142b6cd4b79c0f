"""What the trace costs, and what Python adds: search and ask with recording on and off, in turns, in one run.

    python benchmarks/trace.py --chunks 200000 [--home FOLDER]

The corpus of benchmarks/search.py. The question's vector is given (no model runs), no reranker. `outside` is the time of a
search in which no SQL was running: rewriting, threads, packing, the trace. Medians in milliseconds, over 200 questions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from search import DIMS, Corpus, beside

from ragdb import Pipeline, RagDB
from ragdb.db import embedded, hnsw, schema
from ragdb.db.caller import PsycopgCaller
from ragdb.ingest import bulk

PLAIN = Pipeline(name="plain", rerank=False)


class Given:
    """An embedder that has the vectors already, by the number of the question."""

    name = "given"
    dimension = DIMS
    max_tokens = 512

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self.vectors = vectors

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed_query(self, text: str) -> list[float]:
        return self.vectors[text]

    def embed_passages(self, texts: list[str]) -> list[list[float]]:
        return [self.vectors[text] for text in texts]


@contextmanager
def watched() -> Iterator[list[tuple[float, float]]]:
    """When SQL was running: the times of all calls, of all threads."""
    spans: list[tuple[float, float]] = []
    lock = threading.Lock()
    call = PsycopgCaller.call

    def timed(self: PsycopgCaller, function: str, /, **arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(self, function, **arguments)
        finally:
            with lock:
                spans.append((began, time.perf_counter()))

    PsycopgCaller.call = timed  # type: ignore[method-assign]
    try:
        yield spans
    finally:
        PsycopgCaller.call = call  # type: ignore[method-assign]


def outside(began: float, ended: float, spans: list[tuple[float, float]]) -> float:
    """Milliseconds between two moments in which no span was."""
    covered, at = 0.0, began
    for start, end in sorted(spans):
        covered += max(0.0, end - max(at, start))
        at = max(at, end)
    return (ended - began - covered) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--home", type=Path, help="folder of the embedded server, kept for the next run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragdb-trace-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("alter system set shared_buffers = '4GB'")
            conn.execute(f"alter system set maintenance_work_mem = '{max(256, given.chunks // 400)}MB'".encode())
        embedded.stop(home)
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            print(json.dumps(measured(url, given.chunks, given.questions), indent=2))
        finally:
            embedded.stop(home)


def measured(url: str, chunks: int, count: int) -> dict[str, Any]:
    corpus = Corpus(chunks, stop_words=False)
    sample = corpus.texts(200)
    questions = corpus.questions(sample, count)
    embedder = Given(
        {question: list(map(float, vector)) for question, vector in zip(questions, corpus.vectors(count), strict=True)}
    )
    on = RagDB(url, collection="bench", embedder=embedder)
    off = RagDB(url, collection="bench", embedder=embedder, record=0)
    if not (on.context.info() and on.context.counts()["n_chunks"]):
        for _ in bulk.load(on.context, corpus.documents(vectors=True)):
            pass
        for model in hnsw.models(url):
            hnsw.build(url, model)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("vacuum analyze")
    ways = {
        "search, recorded": lambda q: on.search(q, k=10, pipeline=PLAIN),
        "search, not recorded": lambda q: off.search(q, k=10, pipeline=PLAIN),
        "ask, recorded": lambda q: on.ask(q, pipeline=PLAIN),
        "ask, not recorded": lambda q: off.ask(q, pipeline=PLAIN),
    }
    times, _ = beside(ways, questions)
    p50 = {way: statistics.median(took) for way, took in times.items()}
    apart: dict[str, list[float]] = {"search": [], "ask": []}
    with watched() as spans:
        for question in questions:
            for verb, work in (("search", ways["search, recorded"]), ("ask", ways["ask, recorded"])):
                spans.clear()
                began = time.perf_counter()
                work(question)
                apart[verb].append(outside(began, time.perf_counter(), spans))
    on.close()
    off.close()
    return {
        "chunks": chunks,
        "p50_ms": {way: round(took, 2) for way, took in p50.items()},
        "recorded / not recorded": {
            verb: round(p50[f"{verb}, recorded"] / p50[f"{verb}, not recorded"], 3) for verb in ("search", "ask")
        },
        "outside SQL and models, p50_ms": {verb: round(statistics.median(took), 2) for verb, took in apart.items()},
    }


if __name__ == "__main__":
    main()
