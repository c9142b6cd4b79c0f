"""One question on its way through one pipeline: route, rewrite, retrieve, fuse, rerank, validate, expand, pack.

`Question` calls the stages and records them; the three verbs of ragdb.pipeline say how far it goes. What is done with its
queries between rewrite and rerank stands in ragdb.retrieval.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragdb.adapters import sendable
from ragdb.compress import Compressor, by_embedder, by_llm, by_reranker
from ragdb.context import Context
from ragdb.db.caller import from_json
from ragdb.errors import BadDocument, BadFilter, ConfigError, EmptyQuery
from ragdb.ingest.clean import clean_json, clean_text
from ragdb.llms.calls import counted
from ragdb.prompts import recent
from ragdb.protocols import CountTokens
from ragdb.quotations import quote
from ragdb.retrieval import Retrieval
from ragdb.rewriting import Rewriting
from ragdb.runs.record import Recorder
from ragdb.stages import synthesize
from ragdb.stages.expand import expand
from ragdb.stages.freshen import freshen
from ragdb.stages.pack import pack
from ragdb.stages.rerank import rerank
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
        tuned = self.pipeline is not pipeline  # by the collection's own settings of fuse
        pipeline = self.pipeline
        self.question = clean_text(question)[0].strip()
        self.where = _filter(where)
        self.k = k
        self.reranker, self.rerank_note = (
            (None, "") if pipeline.rerank is False else context.reranker(asked_for=bool(pipeline.rerank))
        )
        self.writer = context.llm if writes else None
        self.said_from: set[int] = set()  # documents that the turns of the conversation were answered from
        self.history = _history(history) or self._turns(conversation)
        self.in_conversation = conversation is not None
        self.rewritten: dict[str, list[dict[str, Any]]] = {}  # queries made now, by the key of their cache
        self.query = Query(self.question)  # searched with; another one than the question's where a follow-up was condensed
        self.shown: Sequence[Passage] = ()  # what the reader, or the model, was shown
        self.route = Route("simple", "")
        self.dropped_all = False  # the reranker let nothing through
        if self.info is None:
            logger.warning("collection %r has no documents yet", context.collection)
        context.check_analyzer(self.info)
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
        self.retrieval = Retrieval(
            context,
            self.db,
            pipeline,
            self.recorder,
            self.question,
            self.where,
            self.info,
            wanted=offset + k,
            keep=max(
                offset + k,
                pipeline.rerank_candidates if self.reranker else 0,
                pipeline.candidates if pipeline.freshness else 0,
                deep,
            ),
            # The caller's session is one connection: its legs run one after the other.
            parallel=session is None,
            tuned=tuned,
        )

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
        fused = self.retrieval.searched([self.query, *further])
        self.query = self.retrieval.queries[0]
        if not fused.hits:
            return fused
        if self.reranker is None:
            if self.rerank_note:
                self.recorder.took("rerank", "", Outcome(fused, note=self.rerank_note, fell_back=True), 0.0)
            return self._freshened(fused)
        ranking = self.recorder.stage("rerank", lambda: self._reranked(fused))
        self.dropped_all = not ranking.hits
        return self._freshened(ranking)

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
                if self.pipeline.route == "llm":
                    note = f"{outcome.note}; by the rules, for there is no model"
                    outcome = dataclasses.replace(outcome, note=note, fell_back=True)
            else:
                outcome = route_by_model(self.question, llm, history=bool(self.history), timeout=self.pipeline.rewrite_timeout)
        self.route = outcome.value
        # Where nothing hangs on it, it is no step of the question's way.
        if self.route.kind != "simple" or self.pipeline.rewrite or calls or outcome.fell_back:
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
        found = self.retrieval.given(self.query, chunk_ids)
        self.query = self.retrieval.queries[0]
        return found

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
        searched = self.retrieval.set
        floor: float | None = searched["evidence_floor"] if searched else None
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
        packed = recorder.stage("pack", lambda: self._fitted(passages, budget, count))
        self.shown = tuple(dataclasses.replace(p, evident=tuple(h.chunk_id for h in p.hits if h.chunk_id in ids)) for p in packed)
        if llm is None:
            order = top.chunk_ids if any(hit.rerank_score is not None for hit in top.hits) else ()
            return self._said(lambda: quote(self.question, self.shown, order))
        return self._writing()

    def _fitted(self, passages: Sequence[Passage], budget: int, count_tokens: CountTokens) -> Outcome[tuple[Passage, ...]]:
        compress = self._compressor(count_tokens)
        outcome = pack(passages, budget=budget, count_tokens=count_tokens, compress=compress)
        if compress is not None and compress.failed is not None:
            return dataclasses.replace(outcome, note=f"{outcome.note}, compression failed: {compress.failed}", fell_back=True)
        if self.pipeline.compress == "llm" and self.context.llm is None:
            return dataclasses.replace(outcome, note=f"{outcome.note}, compress: there is no model", fell_back=True)
        return outcome

    def _compressor(self, count_tokens: CountTokens) -> Compressor | None:
        """What shortens a passage that does not fit; None where the pipeline compresses nothing, or has nothing to do it by."""
        if self.pipeline.compress is None:
            return None
        llm, context = self.context.llm, self.context
        if self.pipeline.compress == "llm" and llm is not None:
            score = by_llm(llm, self.pipeline.timeout, context.prompts)
        elif self.reranker is not None:
            score = by_reranker(self.reranker, self.pipeline.rerank_timeout)
        else:
            score = by_embedder(lambda: context.embedder(self.db))
        return Compressor(self._own_words(), score, count_tokens)

    def _in_own_words(self, top: Ranking) -> Ranking:
        """The same chunks, measured by the user's own words and not by what a model made of a follow-up."""
        queries = self.retrieval.queries
        own = queries[1] if len(queries) > 1 and queries[1].text == self.question else Query(self.question)
        return self.retrieval.measured(top, own)

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
        parallel, searched = self.retrieval.parallel, self.retrieval.set
        vectors, rewrites = (self.retrieval.fresh, self.rewritten) if parallel else ({}, {})
        model = (searched and searched["model"]) or ""
        return self.recorder.store(
            self.db,
            answer=answer,
            passages=self.shown,
            said_from=self.said_from,
            vectors=vectors,
            rewrites=rewrites,
            model=model,
            own_transaction=parallel,
        )


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
