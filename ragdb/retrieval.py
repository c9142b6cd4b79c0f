"""The search of one question: a list for each of its queries and legs, beside each other on a connection each, fused in SQL.

A vector set may go out of use while a question is on its way, for another one was activated: it is then searched once
more, in the new one. An embedder that fails leaves the words, and the trace says so.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ragdb.context import Context
from ragdb.db import probe
from ragdb.db.caller import Caller, Row, value
from ragdb.deadline import Started
from ragdb.embedders import embed_checked, embed_query_checked
from ragdb.errors import EmbedderError, EmbedderMismatch
from ragdb.protocols import Embedder
from ragdb.runs.record import Recorder
from ragdb.stages.fuse import fuse
from ragdb.stages.retrieve import retrieve
from ragdb.types import Outcome, Query, Ranking

if TYPE_CHECKING:
    from ragdb.pipeline import Pipeline

logger = logging.getLogger("ragdb.run")

_LONGEST = 1000  # entries of a list


@dataclass(slots=True)
class Retrieval:
    """Of `question`, by itself and what it was rewritten to: the first `wanted` chunks have to be found, `keep` come with text.

    `parallel` False: everything on the caller's one connection, where an error ends all. `tuned`: weights and rrf_k are the
    collection's own.
    """

    context: Context
    db: Caller
    pipeline: Pipeline
    recorder: Recorder
    question: str
    where: Mapping[str, Any]
    info: Row | None
    wanted: int
    keep: int
    parallel: bool
    tuned: bool
    depth: int = field(init=False)  # of each list
    set: Row | None = field(init=False)  # the vector set that is searched; the active one where nothing is searched by vectors
    queries: list[Query] = field(init=False, default_factory=list)  # the first is the question's
    fresh: dict[str, tuple[float, ...]] = field(init=False, default_factory=dict)  # vectors made now, by what they are known as

    def __post_init__(self) -> None:
        self.depth = _depth(self.pipeline.candidates, self.wanted)
        self.set = self._reading()

    @property
    def model_id(self) -> int | None:
        """Of the vector set that is searched."""
        return self.set["model_id"] if self.set else None

    def searched(self, queries: Sequence[Query]) -> Ranking:
        """retrieve and fuse, once more where the vector set went out of use in between."""
        queries = _distinct(queries)
        try:
            return self._search(queries)
        except EmbedderMismatch:
            # In the caller's own transaction an error ends everything.
            if not self.parallel or not self._moved():
                raise
        return self._search(queries)

    def given(self, query: Query, chunk_ids: Sequence[int]) -> Ranking:
        """These chunks as if they had been found, in this order."""
        self.queries = self._searchable([query])
        return self._fused([Ranking(tuple(chunk_ids), tuple(-float(n) for n in range(len(chunk_ids))), "given")])

    def measured(self, top: Ranking, query: Query) -> Ranking:
        """The same chunks in the same order, with what `query` finds in them."""
        alone = [Ranking(top.chunk_ids, top.scores, "kept")]
        measured = fuse(
            self.db,
            alone,
            query,
            collection=self.context.collection,
            rrf_k=self.pipeline.rrf_k,
            weights={},
            keep=len(top.hits),
            model_id=self.model_id,
        )
        by_id = {hit.chunk_id: hit for hit in measured.value.hits}
        fields = ("similarity", "matched", "evidence", "rare")
        hits = [
            dataclasses.replace(hit, **{name: getattr(by_id[hit.chunk_id], name) for name in fields})
            for hit in top.hits
            if hit.chunk_id in by_id
        ]
        return dataclasses.replace(Ranking.of(hits, "kept"), scores=tuple(hit.score for hit in hits))

    def _reading(self) -> Row | None:
        if self.info is None or "semantic" not in self.pipeline.legs:
            return self.info
        return self.context.reading(self.info, self.db)

    def _moved(self) -> bool:
        """Whether another vector set is to be searched by now: one was activated, or dropped, since the question came."""
        before, self.info = self.set, self.context.info(self.db)
        self.set = self._reading()
        if before is None or self.set is None or before["model_id"] == self.set["model_id"]:
            return False
        self.fresh = {}
        return True

    def _search(self, queries: Sequence[Query]) -> Ranking:
        self.queries = self._searchable(queries)
        while True:
            rankings = self._retrieved()
            if any(ranking.path == "behind" for ranking in rankings):
                if self._moved():
                    return self._search(queries)
                if "lexical" not in self.pipeline.legs:
                    told = next(trace for trace in reversed(self.recorder.stages) if trace.stage == "retrieve")
                    raise EmbedderMismatch(
                        f"{told.note}, and nothing else is searched: wait until workers have filled it, or "
                        "leave embedder out, so that the active set is searched"
                    )
                self.recorder.fell_back("retrieve")
            fused = self._fused(rankings)
            # Copies of one text count once: where they fill a list and leave too little, longer ones (as ragdb.search does).
            full = any(len(ranking.chunk_ids) >= self.depth for ranking in rankings)
            if self.depth == _LONGEST or not full or len(fused.hits) >= min(self.wanted, _LONGEST):
                break
            self.depth = min(self.depth * 2, _LONGEST)
        return fused

    def _searchable(self, queries: Sequence[Query]) -> list[Query]:
        """Each query with its words and its vector, as far as its legs want them."""
        vectors = self._vectors([query for query in queries if "semantic" in self._legs_of(query)])
        return [dataclasses.replace(self._analyzed(query), vector=vectors.get(_known_as(query))) for query in queries]

    def _analyzed(self, query: Query) -> Query:
        analyzer = self.context.analyzer
        return query if analyzer is None else dataclasses.replace(query, lexemes=tuple(analyzer(query.text)))

    def _vectors(self, queries: Sequence[Query]) -> dict[str, tuple[float, ...]]:
        """The vectors kept from earlier runs, or new ones, made beside each other: a server needs its time for each."""
        assert self.set is not None
        if queries and self.set["model"]:
            self.recorder.usage["vector_set"] = self.set["model"]
        found: dict[str, tuple[float, ...]] = {}
        fresh: dict[str, Query] = {}
        for query in queries:
            known = value(self.db.call("known_query_vector", question=_known_as(query), model_id=self.set["model_id"]))
            if known is None:
                fresh.setdefault(_known_as(query), query)
            else:
                found[_known_as(query)] = tuple(known)
        if not fresh:
            return found
        embedder = self.context.embedder_of(self.set)
        began = time.perf_counter()
        try:
            probe.verify(self.db, embedder, store=False)
        except (EmbedderError, EmbedderMismatch) as error:
            self._left_out(error, alone="lexical" not in self.pipeline.legs)
            return found
        first, *others = fresh
        made: dict[str, Callable[[], tuple[float, ...]]] = {first: partial(_embedded, embedder, fresh[first])}
        made |= {name: Started(partial(_embedded, embedder, fresh[name])).result for name in others}
        for name, vector in made.items():
            try:
                self.fresh[name] = vector()
            except EmbedderError as error:
                # The other lists can answer alone; the trace says that they did. A further query is none that was asked.
                self._left_out(error, alone=name == _known_as(queries[0]) and "lexical" not in self.pipeline.legs)
        self.recorder.usage["embed_ms"] = round((time.perf_counter() - began) * 1000, 2)
        return found | self.fresh

    def _left_out(self, error: Exception, *, alone: bool) -> None:
        """The question goes on without the vector that could not be made, unless there is nothing else to go by."""
        if alone:
            raise error
        if isinstance(error, EmbedderMismatch):
            logger.warning("%s", error)
        self.recorder.usage["embedder_failed"] = str(error)

    def _legs_of(self, query: Query) -> tuple[str, ...]:
        return tuple(leg for leg in self.pipeline.legs if query.legs is None or leg in query.legs)

    def _retrieved(self) -> list[Ranking]:
        """One ranking for each query and leg, in parallel on a pooled connection each."""
        lists = [
            (number, query, leg)
            for number, query in enumerate(self.queries)
            for leg in self._legs_of(query)
            if leg != "semantic" or query.vector is not None
        ]
        if self.parallel and len(lists) > 1:
            futures: list[Future[tuple[Outcome[Ranking], float]]] = [self.context.legs.submit(self._leg, *one) for one in lists]
            results = [future.result() for future in futures]
        else:
            results = [self._leg(*one) for one in lists]
        for (number, query, leg), (outcome, ms) in zip(lists, results, strict=True):
            text = None if query.text == self.question else query.text
            note = outcome.note if text is None else f"{_shortened(text)!r}: {outcome.note}"
            told = dataclasses.replace(outcome, note=note)
            self.recorder.took("retrieve", f"{leg}/{number}" if number else leg, told, ms, query=text)
        if "embedder_failed" in self.recorder.usage:
            why = f"left out: {self.recorder.usage['embedder_failed']}"
            self.recorder.took("retrieve", "semantic", Outcome(None, note=why, fell_back=True), 0.0)
        return [outcome.value for outcome, _ in results]

    def _leg(self, number: int, query: Query, leg: str) -> tuple[Outcome[Ranking], float]:
        began = time.perf_counter()
        outcome = retrieve(
            self.db,
            query,
            leg,
            collection=self.context.collection,
            candidates=self.depth,
            where=self.where,
            number=number,
            model_id=self.model_id,
        )
        return outcome, (time.perf_counter() - began) * 1000

    def _fused(self, rankings: Sequence[Ranking]) -> Ranking:
        return self.recorder.stage(
            "fuse",
            lambda: fuse(
                self.db,
                rankings,
                self.queries[0],
                collection=self.context.collection,
                rrf_k=self.pipeline.rrf_k,
                weights=self.pipeline.weights,
                keep=self.keep,
                further=self.pipeline.rewrite_weight,
                model_id=self.model_id,
                stored=self.tuned,
            ),
        )


def _distinct(queries: Sequence[Query]) -> list[Query]:
    """Each query once: two rewriters may write the same."""
    found: dict[tuple[str, tuple[str, ...] | None, bool], Query] = {}
    for query in queries:
        found.setdefault((query.text.casefold(), query.legs, query.origin == "hyde"), query)
    return list(found.values())


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


def _known_as(query: Query) -> str:
    """What its vector is kept under; a made-up passage is embedded as passages are, and is no question of the same words."""
    return f"\x1fpassage\x1f{query.text}" if query.origin == "hyde" else query.text


def _embedded(embedder: Embedder, query: Query) -> tuple[float, ...]:
    if query.origin == "hyde":
        return tuple(embed_checked(embedder, [query.text])[0])
    return tuple(embed_query_checked(embedder, query.text))


def _depth(candidates: int, wanted: int) -> int:
    """How long each list is: `candidates`, doubled until the page asked for is inside, so that neighbouring pages agree."""
    while candidates < min(wanted, _LONGEST):
        candidates *= 2
    return min(candidates, _LONGEST)
