"""Two vector sets side by side, before one takes the place of the other: what they find for the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragdb.adapters import require
from ragdb.context import Context
from ragdb.db.caller import Row
from ragdb.embedders import embed_query_checked
from ragdb.errors import ConfigError
from ragdb.protocols import Embedder

#: (question, uri) to its grade, 0 or more.
Judgements = Mapping[tuple[str, str], int]


class HasContext(Protocol):
    """A RagDB."""

    @property
    def context(self) -> Context: ...


@dataclass(frozen=True, slots=True)
class Compared:
    """One question: the share of the first k that both sets have, and how far a chunk moved on average."""

    question: str
    overlap: float
    rank_change: float
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`overlap` and `rank_change` are means over the questions; those that changed most come first. `ndcg`: (old, new) at 10."""

    old: str
    new: str
    k: int
    questions: tuple[Compared, ...]
    ndcg: tuple[float, float] | None = None

    @property
    def overlap(self) -> float:
        return sum(q.overlap for q in self.questions) / len(self.questions)

    @property
    def rank_change(self) -> float:
        return sum(q.rank_change for q in self.questions) / len(self.questions)

    def to_dict(self) -> dict[str, Any]:
        return {
            "old": self.old,
            "new": self.new,
            "k": self.k,
            "overlap": round(self.overlap, 4),
            "rank_change": round(self.rank_change, 3),
            "ndcg": None if self.ndcg is None else {"old": round(self.ndcg[0], 4), "new": round(self.ndcg[1], 4)},
            "questions": [
                {
                    "question": q.question,
                    "overlap": round(q.overlap, 4),
                    "rank_change": round(q.rank_change, 3),
                    "old": list(q.old),
                    "new": list(q.new),
                }
                for q in self.questions
            ],
        }


def compare(
    rag: HasContext,
    old: str,
    new: str,
    *,
    questions: Sequence[str] | None = None,
    recent: int = 100,
    k: int = 10,
    judgements: Judgements | None = None,
) -> Comparison:
    """What the semantic leg finds with each of two sets, for `questions`, else for the last `recent` that were asked.

    Judged questions are asked too, and give nDCG@10 by document (needs ir-measures). Raises ConfigError for a set that is not
    there or is behind, and where there is no question.
    """
    context = rag.context
    if not 1 <= k <= 1000:
        raise ConfigError(f"k is {k}; it is from 1 to 1000")
    if judgements:
        require("ir_measures", "eval")
    models = {row["model"]: row for row in context.database.call("collection_models", collection=context.collection)}
    for name in (old, new):
        if name not in models:
            there = ", ".join(models) or "none"
            raise ConfigError(f"collection {context.collection!r} has no vector set of {name!r}; it has: {there}")
        if models[name]["behind"]:
            raise ConfigError(
                f"the vector set of {name!r} is behind, and half of one is not compared; first: ragdb embedder fill {name}"
            )
    judged = list(dict.fromkeys(question for question, _ in judgements or {}))
    asked = list(dict.fromkeys([*(questions if questions is not None else [] if judged else _recent(context, recent)), *judged]))
    if not asked:
        raise ConfigError("there is no question to compare by: none was asked yet; give some with --questions FILE, one a line")
    embedders = {name: context.embedder_named(name, dims=models[name]["dims"]) for name in (old, new)}
    depth = max(k, 10) if judgements else k
    found = {q: tuple(_found(context, name, embedders[name], q, depth) for name in (old, new)) for q in asked}
    compared = [_compared(q, before[:k], after[:k], k) for q, (before, after) in found.items()]
    compared.sort(key=lambda q: (q.overlap, -q.rank_change, q.question))
    ndcg = None
    if judgements:
        ndcg = (
            _ndcg(judgements, {q: pair[0] for q, pair in found.items()}),
            _ndcg(judgements, {q: pair[1] for q, pair in found.items()}),
        )
    return Comparison(old, new, k, tuple(compared), ndcg)


def _recent(context: Context, how_many: int) -> list[str]:
    """The last questions that were asked, each once."""
    found: dict[str, None] = {}
    before: int | None = None
    while len(found) < how_many:
        page = {} if before is None else {"before": before}
        rows = context.database.call("list_runs", collection=context.collection, how_many=200, **page)
        if not rows:
            break
        found |= dict.fromkeys(row["question"] for row in rows)
        before = rows[-1]["run_id"]
    return list(found)[:how_many]


def _found(context: Context, model: str, embedder: Embedder, question: str, k: int) -> list[Row]:
    db = context.database
    vector = embed_query_checked(embedder, question)
    return db.call(
        "search",
        question=question,
        collection=context.collection,
        k=k,
        query_vector=vector,
        options={"legs": ["semantic"], "model": model, "candidates": max(50, k)},
    )


def _compared(question: str, before: Sequence[Row], after: Sequence[Row], k: int) -> Compared:
    old = {row["chunk_id"]: row["rank"] for row in before}
    new = {row["chunk_id"]: row["rank"] for row in after}
    both = old.keys() | new.keys()
    # what one list lacks counts as just behind its end
    change = sum(abs(old.get(i, k + 1) - new.get(i, k + 1)) for i in both) / len(both) if both else 0.0
    longest = max(len(old), len(new))
    overlap = len(old.keys() & new.keys()) / longest if longest else 1.0
    return Compared(question, overlap, change, tuple(r["label"] for r in before), tuple(r["label"] for r in after))


def _ndcg(judgements: Judgements, found: Mapping[str, Sequence[Row]]) -> float:
    ir_measures = require("ir_measures", "eval")
    qrels: dict[str, dict[str, int]] = {}
    for (question, uri), grade in judgements.items():
        qrels.setdefault(question, {})[uri] = grade
    # a document stands where its best chunk does
    run = {
        question: {row["uri"]: 1.0 / row["rank"] for row in sorted(found[question], key=lambda r: -r["rank"])} or {"-": 0.0}
        for question in qrels
    }
    measure = ir_measures.nDCG @ 10
    return float(ir_measures.calc_aggregate([measure], qrels, run)[measure])
