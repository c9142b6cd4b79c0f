"""One question on its way through one pipeline: route, rewrite, retrieve, fuse, rerank, validate, expand, pack.

`Question` calls the stages and records them; the three verbs of ragdb.pipeline say how far it goes.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from ragdb.adapters import sendable
from ragdb.compress import by_embedder, by_llm, by_reranker, compressor
from ragdb.context import Context
from ragdb.db import probe
from ragdb.db.caller import Row, from_json, value
from ragdb.deadline import Started
from ragdb.embedders import embed_checked, embed_query_checked
from ragdb.errors import BadDocument, BadFilter, ConfigError, EmbedderError, EmbedderMismatch, EmptyQuery
from ragdb.ingest.clean import clean_json, clean_text
from ragdb.llms.calls import counted
from ragdb.prompts import recent
from ragdb.protocols import CountTokens, Embedder
from ragdb.quotations import quote
from ragdb.rewriting import Rewriting
from ragdb.runs.record import Recorder
from ragdb.stages import synthesize
from ragdb.stages.expand import expand
from ragdb.stages.freshen import freshen
from ragdb.stages.fuse import fuse
from ragdb.stages.pack import pack
from ragdb.stages.rerank import rerank
from ragdb.stages.retrieve import retrieve
from ragdb.stages.route import Route, route, route_by_model, without
from ragdb.stages.validate import evident
from ragdb.types import Answer, AnswerMode, History, Hit, Message, Outcome, Passage, Query, Ranking

if TYPE_CHECKING:
    from ragdb.pipeline import Pipeline

logger = logging.getLogger("ragdb.run")

_LONGEST_NAME = 2000  # bytes of a conversation's name: it stands in an index


class Question:
    """Calls the stages in order and hands each to the recorder."""

    def __init__(
        self,
        context: Context,
        pipeline: Pipeline,
        verb: str,
        question: str,
        *,
        k: int,
        offset: int = 0,
        where: Mapping[str, Any] | None = None,
        history: History | None = (),
        conversation: str | None = None,
        session: Any = None,
        deep: int = 0,
        writes: bool = True,
        eval_run_id: int | None = None,
        trial: tuple[str, str] | None = None,
    ) -> None:
        """`deep`: so many of what was found come with their text, beyond `k`. `writes` False: no model writes the answer.

        `trial` is the name of the trial that the question is part of, and its arm there.
        """
        if not isinstance(question, str) or not question.strip():
            raise EmptyQuery(f"the question is {question!r}; give at least one word")
        for name, given, least, most in (("k", k, 1, 1000), ("offset", offset, 0, 100_000)):
            if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from {least} to {most}")
        self.context = context
        self.db = context.caller(session)
        self.info = context.info(self.db)
        self.pipeline = pipeline.with_fusion(from_json(self.info["fusion"]) if self.info else None)
        self.tuned = self.pipeline is not pipeline  # by the collection's own settings of fuse
        pipeline = self.pipeline
        self.question = clean_text(question)[0].strip()
        self.where = _filter(where)
        self.k = k
        self.wanted = offset + k
        self.depth = _depth(pipeline.candidates, self.wanted)
        self.reranker, self.rerank_note = (
            (None, "") if pipeline.rerank is False else context.reranker(asked_for=bool(pipeline.rerank))
        )
        self.keep = max(
            offset + k,
            pipeline.rerank_candidates if self.reranker else 0,
            pipeline.candidates if pipeline.freshness else 0,
            deep,
        )
        self.writer = context.llm if writes else None
        # The caller's session is one connection: its legs run one after the other.
        self.parallel = session is None
        self.said_from: set[int] = set()  # documents that the turns of the conversation were answered from
        self.history = _history(history) or self._turns(conversation)
        self.in_conversation = conversation is not None
        self.fresh: dict[str, tuple[float, ...]] = {}  # vectors made now, worth keeping, by what they are known as
        self.rewritten: dict[str, list[dict[str, Any]]] = {}  # queries made now, by the key of their cache
        self.query = Query(self.question)  # searched with; another one than the question's where a follow-up was condensed
        self.queries: list[Query] = []
        self.shown: Sequence[Passage] = ()  # what the reader, or the model, was shown
        self.route = Route("simple", "")
        self.dropped_all = False  # the reranker let nothing through
        if self.info is None:
            logger.warning("collection %r has no documents yet", context.collection)
        context.check_analyzer(self.info)
        self.set = self._reading()  # the vector set that is searched
        self.recorder = Recorder(
            collection=context.collection,
            verb=verb,
            question=self.question,
            where=self.where,
            pipeline=pipeline.to_dict(),
            k=k,
            prices=context.prices,
            conversation=conversation,
            share=context.record,
            redact=context.redact,
            eval_run_id=eval_run_id,
            trial=trial,
        )
        if offset:
            self.recorder.usage["offset"] = offset

    def _turns(self, conversation: str | None) -> tuple[Message, ...]:
        """What was said in a conversation, from its stored runs."""
        if conversation is None:
            return ()
        fits = isinstance(conversation, str) and conversation.strip() and len(sendable(conversation).encode()) <= _LONGEST_NAME
        if not fits or sendable(conversation) != conversation:
            raise ConfigError(f"conversation is {str(conversation)[:80]!r}; it is your name for it, a text of 1 to 2000 bytes")
        rows = self.db.call("turns", conversation=conversation, collection=self.context.collection)
        # the answer is written from these turns too: it goes with their documents
        self.said_from = {int(i) for row in rows for i in from_json(row["document_ids"])}
        return tuple(said for row in rows for said in (Message("user", row["question"]), Message("assistant", row["answer"])))

    def found(self) -> Ranking:
        """route, rewrite, retrieve, fuse and, where there is a reranker, rerank; freshen where the pipeline wants it."""
        if self.info is None:
            return Ranking((), (), "fused")
        self._routed()
        further = self._further()
        fused = self._searched(_distinct([self.query, *further]))
        if not fused.hits:
            return fused
        if self.reranker is None:
            if self.rerank_note:
                self.recorder.took("rerank", "", Outcome(fused, note=self.rerank_note), 0.0)
            return self._freshened(fused)
        ranking = self.recorder.stage("rerank", lambda: self._reranked(fused))
        self.dropped_all = not ranking.hits
        return self._freshened(ranking)

    def _reading(self) -> Row | None:
        """The vector set to search with; the active one where nothing is searched by vectors."""
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

    def _searched(self, queries: Sequence[Query]) -> Ranking:
        """retrieve and fuse, once more where the vector set went out of use in between."""
        try:
            return self._search(queries)
        except EmbedderMismatch:
            # In the caller's own transaction an error ends everything.
            if not self.parallel or not self._moved():
                raise
        return self._search(queries)

    def _search(self, queries: Sequence[Query]) -> Ranking:
        self.queries = self._searchable(queries)
        self.query = self.queries[0]
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
            fused = self._fused(rankings)
            # Copies of one text count once: where they fill a list and leave too little, longer ones (as ragdb.search does).
            full = any(len(ranking.chunk_ids) >= self.depth for ranking in rankings)
            if self.depth == 1000 or not full or len(fused.hits) >= min(self.wanted, 1000):
                break
            self.depth = min(self.depth * 2, 1000)
        return fused

    def _freshened(self, ranking: Ranking) -> Ranking:
        pipeline = self.pipeline
        if not pipeline.freshness or not ranking.hits:
            return ranking
        return self.recorder.stage(
            "freshen",
            lambda: freshen(
                ranking,
                weight=pipeline.freshness,
                half_life=pipeline.freshness_half_life,
                keep=pipeline.candidates,
                rrf_k=pipeline.rrf_k,
            ),
        )

    def _routed(self) -> None:
        """What kind of question it is, decided once."""
        if not self.pipeline.route or self.route.reason:
            return
        began = time.perf_counter()
        llm = self.context.llm if self.pipeline.route == "llm" else None
        with counted() as calls:
            if llm is None:
                outcome = route(self.question, history=bool(self.history))
            else:
                outcome = route_by_model(self.question, llm, history=bool(self.history), timeout=self.pipeline.rewrite_timeout)
        self.route = outcome.value
        # Where nothing hangs on it, it is no step of the question's way.
        if self.route.kind != "simple" or self.pipeline.rewrite or calls:
            name = llm.name if llm and calls else "rules"
            self.recorder.took("route", name, outcome, (time.perf_counter() - began) * 1000, calls=calls)

    def not_searched(self) -> Answer | None:
        """The answer to what needs no search; None where one is needed."""
        self._routed()
        if self.route.kind not in ("no_retrieval", "said_before"):
            return None
        words = self.route.words if self.route.kind == "no_retrieval" else "said_before"
        return self._said(lambda: synthesize.fixed(self.question, words, "no_retrieval", self._kind, self.context.prompts))

    def _from_what_was_said(self) -> synthesize.Writing | None:
        """The writing of an answer to "say that shorter": nothing is searched, and there is something to go by."""
        self._routed()
        if self.route.kind != "said_before" or not self.history or self.writer is None:
            return None
        return self._writing(said=True)

    def _writing(self, *, said: bool = False) -> synthesize.Writing:
        assert self.writer is not None
        return synthesize.Writing(
            self.question,
            self.shown,
            self.writer,
            temperature=self.pipeline.temperature,
            timeout=self.pipeline.timeout,
            prompts=self.context.prompts,
            history=self._said_that_fits(),
            said=said,
        )

    def _said_that_fits(self) -> tuple[Message, ...]:
        """Of what was said before the newest that take a third of the window at most: the passages need the rest."""
        llm = self.writer
        said = recent(self.history)
        if llm is None or not said:
            return said
        room = max(0, llm.context_window - llm.max_output_tokens) // 3
        while said and sum(llm.count_tokens(message.content) for message in said) > room:
            said = said[1:]
            self.recorder.usage["history_left_out"] = len(recent(self.history)) - len(said)
        return said

    def _further(self) -> list[Query]:
        """What the rewriters made of the question. A condensed follow-up takes the place of the question in the search."""
        if self.route.kind in ("no_retrieval", "said_before"):
            return []  # a search was wanted all the same: for these words, as they are
        wanted = self.pipeline.rewrite
        if self.in_conversation and self.context.llm is not None and "condense" not in wanted:
            wanted = ("condense", *wanted)  # a follow-up means nothing to a search
        names, left_out = without(wanted, self.route)
        for name in left_out:
            self.recorder.took("rewrite", name, Outcome((), note=f"left out: {self.route.reason}"), 0.0)
        if names:
            names = tuple(dict.fromkeys((*names, *self.route.add)))
        rewriting = Rewriting(self.context, self.db, self.recorder, self.history, self.pipeline.rewrite_timeout, self.rewritten)
        own: list[Query] = []
        if "condense" in names and self.history:
            for query in rewriting.queries(self.query, ["condense"]):
                # the user's own words stay a list too: what a model made of them may be wrong
                own, self.query = [self.query], Query(query.text, origin="condense")
        return own + rewriting.queries(self.query, [name for name in names if name != "condense"])

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
            self.recorder.took(
                "retrieve", "semantic", Outcome(None, note=f"left out: {self.recorder.usage['embedder_failed']}"), 0.0
            )
        return [outcome.value for outcome, _ in results]

    def _fused(self, rankings: Sequence[Ranking]) -> Ranking:
        return self.recorder.stage(
            "fuse",
            lambda: fuse(
                self.db,
                rankings,
                self.query,
                collection=self.context.collection,
                rrf_k=self.pipeline.rrf_k,
                weights=self.pipeline.weights,
                keep=self.keep,
                further=self.pipeline.rewrite_weight,
                model_id=self._model_id,
                stored=self.tuned,
            ),
        )

    @property
    def _model_id(self) -> int | None:
        return self.set["model_id"] if self.set else None

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
            model_id=self._model_id,
        )
        return outcome, (time.perf_counter() - began) * 1000

    def _reranked(self, fused: Ranking) -> Outcome[Ranking]:
        assert self.reranker is not None
        pipeline = self.pipeline
        outcome = rerank(
            Query(self._own_words()),
            fused,
            self.reranker,
            keep=pipeline.rerank_candidates,
            min_score=pipeline.rerank_min_score,
            weight=pipeline.rerank_weight,
            rrf_k=pipeline.rrf_k,
            timeout=pipeline.rerank_timeout,
        )
        return dataclasses.replace(outcome, note=", ".join(part for part in (outcome.note, self.rerank_note) if part))

    def _own_words(self) -> str:
        """The question in the user's own words, whatever was searched with; a follow-up means nothing without what it follows."""
        before = [message.content for message in self.history if message.role == "user" and message.content.strip()]
        return f"{before[-1].strip()}\n{self.question}" if before and self.query.origin == "condense" else self.question

    def answer_or_writing(self) -> Answer | synthesize.Writing:
        """Everything up to the writing: the answer where no model writes it, else the writing to come."""
        # A prompt that cannot fit is known before any call; a greeting by the rules needs no prompt.
        budget = self._budget() if self.pipeline.route == "llm" else None
        if ready := self._from_what_was_said() or self.not_searched():
            return ready
        budget = self._budget() if budget is None else budget
        return self.answered_from(self.found().hits[: self.k], budget)

    def given(self, chunk_ids: Sequence[int]) -> Ranking:
        """These chunks as if they had been found, in this order."""
        self.queries = self._searchable([self.query])
        self.query = self.queries[0]
        return self._fused([Ranking(tuple(chunk_ids), tuple(-float(n) for n in range(len(chunk_ids))), "given")])

    def answered_from(self, hits: Sequence[Hit], budget: int | None = None) -> Answer | synthesize.Writing:
        """The answer from these chunks, or the writing to come."""
        return self._packed(Ranking.of(hits, "kept"), self._budget() if budget is None else budget)

    def _budget(self) -> int:
        """Tokens for passages. Raises ContextTooSmall where the prompt leaves none."""
        llm = self.writer
        if llm is None:
            return self.pipeline.context_tokens
        return synthesize.room(self.question, llm, self.context.prompts, self._said_that_fits())

    def _packed(self, top: Ranking, budget: int) -> Answer | synthesize.Writing:
        """validate, expand, pack; synthesize too where it costs no call."""
        recorder, llm, prompts = self.recorder, self.writer, self.context.prompts
        if not top.hits and self.dropped_all:
            return self._said(lambda: synthesize.no_answer(self.question, "not_in_documents", self._kind, prompts))
        if not top.hits:
            waiting = self.context.counts(self.db)["n_waiting"]
            return self._said(lambda: synthesize.nothing(self.question, self._kind, prompts, waiting=waiting))
        floor: float | None = self.set["evidence_floor"] if self.set else None
        evidence = recorder.stage("validate", lambda: evident(top, floor), name="evidence")
        if not evidence and self.query.origin == "condense":
            top = self._in_own_words(top)
            evidence = recorder.stage("validate", lambda: evident(top, floor), name="evidence, own words")
        ids = set(evidence if self.pipeline.require_evidence else top.chunk_ids)
        if not ids:
            return self._said(lambda: synthesize.no_answer(self.question, "not_in_documents", self._kind, prompts))
        pipeline, count = self.pipeline, self.context.count_tokens()
        passages = recorder.stage(
            "expand",
            lambda: expand(self.db, top, window=pipeline.window, how=pipeline.expand, budget=budget, count_tokens=count),
        )
        packed = recorder.stage(
            "pack", lambda: pack(passages, budget=budget, count_tokens=count, compress=self._compressor(count))
        )
        self.shown = tuple(dataclasses.replace(p, evident=tuple(h.chunk_id for h in p.hits if h.chunk_id in ids)) for p in packed)
        if llm is None:
            order = top.chunk_ids if any(hit.rerank_score is not None for hit in top.hits) else ()
            return self._said(lambda: quote(self.question, self.shown, order))
        return self._writing()

    def _compressor(self, count_tokens: CountTokens) -> Callable[[Passage, int], str | None] | None:
        """What shortens a passage that does not fit; None where the pipeline compresses nothing, or has nothing to do it by."""
        if self.pipeline.compress is None:
            return None
        llm, context = self.context.llm, self.context
        if self.pipeline.compress == "llm" and llm is not None:
            score = by_llm(llm, self.pipeline.timeout, context.prompts)
        elif self.reranker is not None:
            score = by_reranker(self.reranker, self.pipeline.rerank_timeout)
        else:
            score = by_embedder(context.embedder(self.db))
        return compressor(self._own_words(), score, count_tokens)

    def _in_own_words(self, top: Ranking) -> Ranking:
        """The same chunks, measured by the user's own words and not by what a model made of a follow-up."""
        own = self.queries[1] if len(self.queries) > 1 and self.queries[1].text == self.question else Query(self.question)
        alone = [Ranking(top.chunk_ids, top.scores, "kept")]
        measured = fuse(
            self.db,
            alone,
            own,
            collection=self.context.collection,
            rrf_k=self.pipeline.rrf_k,
            weights={},
            keep=len(top.hits),
            model_id=self._model_id,
        )
        by_id = {hit.chunk_id: hit for hit in measured.value.hits}
        fields = ("similarity", "matched", "evidence", "rare")
        hits = [
            dataclasses.replace(hit, **{name: getattr(by_id[hit.chunk_id], name) for name in fields})
            for hit in top.hits
            if hit.chunk_id in by_id
        ]
        return dataclasses.replace(Ranking.of(hits, "kept"), scores=tuple(hit.score for hit in hits))

    @property
    def _kind(self) -> AnswerMode:
        return "llm" if self.writer else "extractive"

    @property
    def mode(self) -> str:
        """Who writes the answer: a language model's name, or `extractive`."""
        return self.writer.name if self.writer else "extractive"

    def _said(self, work: Callable[[], Outcome[Answer]]) -> Answer:
        return self.recorder.stage("synthesize", work, name=self._kind)

    def finished(self, answer: Answer) -> Answer:
        """The answer with its run, which is recorded now."""
        answer = dataclasses.replace(answer, usage={**self.recorder.usage, **answer.usage})
        return dataclasses.replace(answer, run_id=self.stored(answer), stages=tuple(self.recorder.stages))

    def stored(self, answer: Answer | None = None) -> int | None:
        """Records the run; None where there is no collection to record it with, or it could not be recorded."""
        if self.info is None:
            return None
        # Not in the caller's transaction: until its end, everybody who asks the same would wait for its row.
        vectors, rewrites = (self.fresh, self.rewritten) if self.parallel else ({}, {})
        model = (self.set and self.set["model"]) or ""
        return self.recorder.store(
            self.db,
            answer=answer,
            passages=self.shown,
            said_from=self.said_from,
            vectors=vectors,
            rewrites=rewrites,
            model=model,
            own_transaction=self.parallel,
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


def _history(history: History | None) -> tuple[Message, ...]:
    """What was said before, oldest first; mappings with role and content, as chat programs keep them, are messages too."""
    found = []
    if isinstance(history, (str, Mapping)):
        history = (history,)
    for message in () if history is None else history:
        content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", "")
        if content is None:
            continue  # a call of a tool: nothing was said
        said = message if not isinstance(message, Mapping) else Message(message.get("role"), message.get("content"))  # type: ignore[arg-type]
        if not isinstance(said, Message) or said.role not in ("system", "user", "assistant") or not isinstance(said.content, str):
            raise ConfigError(
                f"history holds {message!r}; it is what was said before, oldest first: "
                "[Message('user', '...'), Message('assistant', '...')], or the same as {'role': ..., 'content': ...}"
            )
        found.append(said)
    return tuple(found)


def _filter(where: Mapping[str, Any] | None) -> dict[str, Any]:
    """A `where` as JSON can hold it: datetimes as text, nothing that would turn into null and match what lacks the key."""
    if not isinstance(where or {}, Mapping):
        raise BadFilter(f"where is {type(where).__name__}, not a mapping; write it like {{'tenant': 7}}")
    try:
        cleaned, counts = clean_json(dict(where or {}))
    except BadDocument as error:
        raise BadFilter(f"where: {error}") from None
    if counts.get("number"):
        raise BadFilter(f"where has a number that is not finite: {where!r}")
    found: dict[str, Any] = cleaned
    return found


def _depth(candidates: int, wanted: int) -> int:
    """How long each list is: `candidates`, doubled until the page asked for is inside, so that neighbouring pages agree."""
    while candidates < min(wanted, 1000):
        candidates *= 2
    return min(candidates, 1000)
