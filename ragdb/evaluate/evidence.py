"""Where the evidence of a question lies in a collection, and where a pipeline lost it: the funnel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragdb.db.caller import Caller, Row
from ragdb.evaluate.types import Step
from ragdb.pipeline import Examined, Pipeline
from ragdb.types import Hit, Passage, StageTrace


@dataclass(frozen=True, slots=True)
class Piece:
    """What one judgement says: a document, or a quote or chunk in it, by the chunks that hold it (with their spans).

    `document_id` and `status` are None where the document is not there; chunks are none, too, where a quote or label is gone.
    """

    uri: str
    kind: str
    document_id: int | None
    chunks: Mapping[int, tuple[int, int]]
    whole: frozenset[int]
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What answers a question. `ids`: its chunks. A document of which a quote or chunk is judged counts by that alone."""

    pieces: tuple[Piece, ...] = ()
    ids: frozenset[int] = frozenset()
    by_words: bool = field(default=False)

    @property
    def whole(self) -> bool:
        """Whether any quote stands in one chunk as a whole."""
        return any(piece.whole for piece in self.pieces if piece.kind == "quote")

    @property
    def there(self) -> bool:
        """Whether any judged document is, ready to be found."""
        return any(piece.document_id is not None for piece in self.pieces)

    def in_passages(self, passages: Sequence[Passage]) -> list[bool]:
        """Of each passage whether it holds a chunk of the evidence."""
        return [any(_holds(passage, piece) for piece in self.pieces) for passage in passages]

    def share_of_pieces(self, passages: Sequence[Passage]) -> float:
        """Share of the judged pieces (documents, quotes) that stand in any of the passages."""
        there = [any(_holds(passage, piece) for passage in passages) for piece in self.pieces]
        return sum(there) / len(there) if there else 0.0


def _holds(passage: Passage, piece: Piece) -> bool:
    if passage.document_id != piece.document_id:
        # the same text in another document counts too: fuse keeps one of the copies
        return any(i in piece.chunks for hit in passage.hits for i in (hit.chunk_id, *hit.aliases))
    return any(passage.start <= start and passage.end >= end for start, end in piece.chunks.values())


def of_set(db: Caller, eval_set: str, collection: str) -> dict[str, Evidence]:
    """The evidence of each question of a set in a collection as it is now, by key."""
    rows: dict[str, list[Row]] = {}
    for row in db.call("eval_evidence", eval_set=eval_set, collection=collection):
        if row["grade"] > 0:
            rows.setdefault(row["key"], []).append(row)
    return {key: _evidence(of_question) for key, of_question in rows.items()}


def _evidence(rows: Sequence[Row]) -> Evidence:
    exact = {row["uri"] for row in rows if row["kind"] != "document"}
    pieces = tuple(
        Piece(
            row["uri"],
            row["kind"],
            row["document_id"],
            {i: (a, b) for i, a, b in zip(row["chunk_ids"], row["starts"], row["ends"], strict=True)},
            frozenset(row["whole_ids"]),
            row["status"],
        )
        for row in rows
        if row["kind"] != "document" or row["uri"] not in exact
    )
    return Evidence(pieces, frozenset(i for piece in pieces for i in piece.chunks), any(p.kind == "quote" for p in pieces))


def funnel(evidence: Evidence, examined: Examined, pipeline: Pipeline, k: int, *, searched: bool = True) -> dict[str, Step]:
    """The best evidence at each stage: its rank, and whether it is among what goes on. `searched` False: it was given."""
    steps = {"indexed": Step(None, evidence.there)}
    # a label that the documents' chunks no longer have is lost at the chunks as well
    if evidence.by_words or (evidence.there and not evidence.ids):
        steps["chunk"] = Step(None, evidence.whole)
    stages = examined.answer.stages
    if searched:
        # of copies of one text fuse keeps one: where that is not the judged one, it stands for it from there on
        kept = {hit.chunk_id for hit in examined.ranking.hits if not evidence.ids.isdisjoint(hit.aliases)}
        steps |= _ranked(evidence.ids, evidence.ids | kept, stages, pipeline, k)
    checked = [trace for trace in stages if trace.stage == "validate"]
    if checked:
        steps["validate"] = Step(None, any(trace.chunk_ids for trace in checked) or not pipeline.require_evidence)
    if checked or examined.shown:
        steps["pack"] = _in_passages(evidence, examined.shown)
        steps["cited"] = _in_passages(evidence, cited(examined))
    return steps


def _ranked(
    ids: frozenset[int], kept: frozenset[int], stages: Sequence[StageTrace], pipeline: Pipeline, k: int
) -> dict[str, Step]:
    """Stages that bring a list: `alive` where the next stage looks at it. `kept`: the same ids with the copies kept of them."""
    found: dict[str, Step] = {}
    for trace in stages:
        if trace.stage == "retrieve":
            leg = trace.name.split("/")[0]
            rank = _rank(ids, trace.chunk_ids)
            before = found.get(leg)
            if before is None or before.rank is None or (rank is not None and rank < before.rank):
                found[leg] = Step(rank, rank is not None)
    if not found:
        # answered without a search, as a greeting is
        found = {leg: Step(None, False) for leg in pipeline.legs}
    lists = {trace.stage: trace for trace in stages}  # of a stage that came twice the last
    copies = frozenset(lists["fuse"].dropped.get("same text", ())) if "fuse" in lists else frozenset()
    takes = {"rerank": pipeline.rerank_candidates, "freshen": pipeline.candidates}
    order = [stage for stage in ("fuse", "rerank", "freshen") if stage in lists]
    alive, rank = False, None
    for place, stage in enumerate(order):
        rank = _rank(kept, lists[stage].chunk_ids)
        most = max(takes[order[place + 1]], k) if place + 1 < len(order) else k
        # a copy that a reranker let fall: which of the list it was, the trace does not say
        dropped_copy = stage == "fuse" and rank is None and bool(ids & copies)
        alive = dropped_copy or (rank is not None and rank <= most)
        found[stage] = Step(rank, alive)
    found["found"] = Step(rank, alive)
    return found


def _rank(ids: frozenset[int], chunk_ids: Sequence[int]) -> int | None:
    return next((rank for rank, i in enumerate(chunk_ids, start=1) if i in ids), None)


def named(evidence: Evidence, hits: Sequence[Hit], traps: frozenset[str]) -> list[tuple[int, str, str]]:
    """Each hit as (chunk, uri, status). Of copies of one text the judged one is named where fuse kept another one.

    A copy that should not be there (archived, a draft, a trap) stays what it is.
    """
    judged = {i: piece for piece in evidence.pieces for i in piece.chunks}
    relevant = {piece.uri for piece in evidence.pieces}
    found = []
    for hit in hits:
        copy = next((i for i in hit.aliases if i in judged), None)
        if copy is None or hit.uri in relevant or hit.uri in traps or hit.status != "active":
            found.append((hit.chunk_id, hit.uri, hit.status))
        else:
            found.append((copy, judged[copy].uri, judged[copy].status or hit.status))
    return found


def cited(examined: Examined) -> list[Passage]:
    """What the answer cites: passages; of one without a model, the very chunks that it quotes."""
    answer = examined.answer
    if answer.mode == "llm":
        numbers = {citation.number for citation in answer.citations}
        return [passage for passage in examined.shown if passage.number in numbers]
    quoted = {citation.chunk_id for citation in answer.citations}
    return [
        dataclasses.replace(passage, hits=(hit,), start=hit.start, end=hit.end)
        for passage in examined.shown
        for hit in passage.hits
        if hit.chunk_id in quoted
    ]


def _in_passages(evidence: Evidence, passages: Sequence[Passage]) -> Step:
    there = evidence.in_passages(passages)
    return Step(there.index(True) + 1 if any(there) else None, any(there))


def citation_scores(evidence: Evidence, examined: Examined) -> dict[str, float]:
    """Without a model: `citation_precision`, share of cited passages that hold evidence; `citation_recall`, share of the judged
    documents or quotes that cited passages hold. {} where nothing was answered."""
    if examined.answer.outcome != "answered" or not evidence.pieces:
        return {}
    passages = cited(examined)
    there = evidence.in_passages(passages)
    return {
        "citation_precision": sum(there) / len(there) if there else 0.0,
        "citation_recall": evidence.share_of_pieces(passages),
    }


def as_json(steps: Mapping[str, Step]) -> dict[str, Any]:
    return {stage: step.to_dict() for stage, step in steps.items()}
