"""The recorder: times each stage, keeps its trace, logs it, and stores the run. Stages never see it."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from ragdb.adapters import sendable
from ragdb.db.caller import Caller, PsycopgSessionCaller, SessionCaller, value
from ragdb.errors import RagDBError
from ragdb.llms.calls import Call, counted, summed
from ragdb.prices import Prices
from ragdb.runs import otel
from ragdb.types import Answer, Citation, Claim, Hit, Outcome, Passage, Ranking, StageTrace

logger = logging.getLogger("ragdb.run")

T = TypeVar("T")
_LOGGED = 10
#: Stages that decide and write, and have no chunks to show.
WITHOUT_CHUNKS = ("route", "rewrite")
_SNIPPET = 90
_NOT_STORED = (psycopg.Error, SQLAlchemyError, RagDBError, ValueError, TypeError)


class Recorder:
    """One run's trace. Not shared between threads: what ran in a thread is added with `took`."""

    def __init__(
        self,
        *,
        collection: str,
        verb: str,
        question: str,
        where: Mapping[str, Any],
        pipeline: Mapping[str, Any],
        k: int,
        prices: Prices | None = None,
        conversation: str | None = None,
        share: float = 1.0,
        redact: Callable[[str], str] | None = None,
        eval_run_id: int | None = None,
        trial: tuple[str, str] | None = None,
    ) -> None:
        """`share` of the runs is stored, besides all that failed, all of a conversation and all of a trial (name and arm).

        `redact` is given each text first.
        """
        # of a trial all: those that failed are, and beside a sample of the others an arm that fails more would look different
        whole = conversation is not None or eval_run_id is not None or trial is not None
        self._share = 1.0 if whole else share
        self._redact = redact
        self._prices = prices or Prices()
        self._head = {
            "collection": collection,
            "verb": verb,
            "question": question,
            "where": dict(where),
            "pipeline": dict(pipeline),
            "k": k,
            "conversation": conversation,
            "eval_run_id": eval_run_id,
            "trial": trial[0] if trial else None,
            "arm": trial[1] if trial else None,
        }
        self._began_at = time.time_ns()
        self._began = time.perf_counter()
        self._texts: dict[int, Hit] = {}
        self._logged = 0
        self.stages: list[StageTrace] = []
        self.usage: dict[str, Any] = {}

    @property
    def elapsed(self) -> float:
        """Milliseconds since the question came."""
        return (time.perf_counter() - self._began) * 1000

    def stage(self, stage: str, work: Callable[[], Outcome[T]], *, name: str = "") -> T:
        """Runs one stage and records it."""
        began = time.perf_counter()
        with counted() as calls:
            outcome = work()
        self.took(stage, name, outcome, (time.perf_counter() - began) * 1000, calls=calls)
        return outcome.value

    def took(
        self, stage: str, name: str, outcome: Outcome[Any], ms: float, *, query: str | None = None, calls: Sequence[Call] = ()
    ) -> None:
        """Records a stage that has run; `ms` is its time in milliseconds, `calls` what it asked of models."""
        for row in summed(stage, name, calls):
            cost = self._prices.of(row)
            self.usage.setdefault("models", []).append({**row, "cost": cost})
            if cost is not None:
                self.usage["cost"] = round(self.usage.get("cost", 0.0) + cost, 9)
        if outcome.fell_back:
            self.fell_back(stage)
        ids, scores = self._ids(outcome.value)
        dropped = {why: tuple(which) for why, which in outcome.dropped.items()}
        self.stages.append(
            StageTrace(len(self.stages) + 1, stage, name, round(ms, 2), ids, scores, dropped, sendable(outcome.note), query=query)
        )
        # A leg knows ids only: its lines wait until fuse brings the texts.
        if stage != "retrieve":
            self._log()

    def fell_back(self, stage: str) -> None:
        """Says that a stage did without what it asks, in `usage["fell_back"]`."""
        if stage not in self.usage.setdefault("fell_back", []):
            self.usage["fell_back"].append(stage)

    def _ids(self, made: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
        if isinstance(made, Ranking):
            self._texts |= {hit.chunk_id: hit for hit in made.hits}
            return made.chunk_ids, made.scores
        if isinstance(made, Answer):
            return tuple(c.chunk_id for c in made.citations), tuple(float(c.number) for c in made.citations)
        if isinstance(made, tuple) and made and isinstance(made[0], Passage):
            return tuple(p.chunk_id for p in made), tuple(p.score for p in made)
        if isinstance(made, tuple):
            ids = tuple(i for i in made if isinstance(i, int))
            return ids, tuple(self._texts[i].evidence if i in self._texts else 0.0 for i in ids)
        return (), ()

    def _log(self) -> None:
        fresh, self._logged = self.stages[self._logged :], len(self.stages)
        if not logger.isEnabledFor(logging.INFO):
            return
        numbers = numbered(self.stages)
        for trace in fresh:
            logger.info("%s", header(trace, numbers[trace.step]))
            for chunk_id, score in list(zip(trace.chunk_ids, trace.scores, strict=True))[:_LOGGED]:
                hit = self._texts.get(chunk_id)
                logger.info(
                    "   %.4f | %s | %s", score, hit.label if hit else f"chunk {chunk_id}", _snippet(hit.content) if hit else ""
                )

    def store(
        self,
        db: Caller,
        *,
        answer: Answer | None = None,
        passages: Sequence[Passage] = (),
        vectors: Mapping[str, Sequence[float]] | None = None,
        rewrites: Mapping[str, Sequence[Any]] | None = None,
        model: str = "",
        own_transaction: bool = False,
        said_from: Iterable[int] = (),
    ) -> int | None:
        """Stores the run and returns its id; None, with a warning, where that failed: no answer is lost for its trace.

        `vectors` (by their text) and `rewrites` (by their key) are kept beside it, for who asks the same again.
        """
        self._log()
        run = {
            **self._head,
            "ms": round(self.elapsed, 2),
            "usage": dict(answer.usage if answer else self.usage),
            "outcome": answer.outcome if answer else None,
            "error": answer.error if answer else None,
            "mode": answer.mode if answer else None,
            "answer": answer.text if answer else None,
            "lazy": own_transaction,
            "document_ids": sorted({*(p.document_id for p in passages), *said_from}),
            "stages": [_stage_row(trace) for trace in self.stages],
            "citations": [_citation_row(c) for c in answer.citations] if answer else [],
            "claims": [_claim_row(c) for c in answer.claims] if answer else [],
        }
        for text, vector in (vectors or {}).items() if self._redact is None else ():
            _kept(db, "keep_query_vector", question=text, model=model, numbers=list(vector))
        # Where texts are redacted, neither what was made of a question nor its vector is kept: they would be of no use changed.
        for key, queries in (rewrites or {}).items() if self._redact is None else ():
            _kept(db, "keep_rewrite", key=key, queries=_storable({"queries": list(queries)}))
        try:
            otel.trace(run, self._began_at)
        except Exception as error:  # noqa: BLE001  a processor of the program's: its spans are not worth an answer
            logger.warning("no span was made: %s: %s", type(error).__name__, sendable(str(error)))
        failed = answer is not None and answer.outcome == "llm_failed"
        if not failed and random.random() >= self._share:  # noqa: S311  a sample, no secret
            return None
        try:
            run = run if self._redact is None else _redacted(run, self._redact)
        except Exception as error:  # noqa: BLE001  a function of the user's: the answer is there, its text may not be stored
            logger.warning("the run is not stored, for redact failed: %s: %s", type(error).__name__, sendable(str(error)))
            return None
        try:
            # In the caller's own transaction a trace that fails must not take the caller's rows along.
            with db.savepoint() if isinstance(db, (SessionCaller, PsycopgSessionCaller)) else nullcontext():
                run_id = value(db.call("record_run", run=_storable(run)))
        except _NOT_STORED as error:
            logger.warning("the run could not be recorded: %s", error)
            return None
        return int(run_id) if run_id is not None else None


def _kept(db: Caller, function: str, **arguments: Any) -> None:
    """Keeps something for the next question, or says why not: this one has its answer."""
    try:
        db.call(function, **arguments)
    except _NOT_STORED as error:
        logger.warning("%s: %s", function, error)


def _redacted(run: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """The run with every text of a person or a model given to `redact`."""

    def clean(text: str | None) -> str | None:
        if not text:
            return text
        made = redact(text)
        if not isinstance(made, str):
            raise TypeError(f"redact returned {type(made).__name__} for a text of {len(text)} characters; it returns a text")
        return made

    answer = clean(run["answer"])
    stages = [{**stage, "query": clean(stage["query"]), "note": clean(stage["note"])} for stage in run["stages"]]
    citations = [{**citation, "quote": clean(citation["quote"])} for citation in run["citations"]]
    # offsets into another text would point anywhere
    claims = run["claims"] if answer == run["answer"] else []

    def deep(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {clean(str(key)): deep(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [deep(inner) for inner in value]
        return clean(value) if isinstance(value, str) else value

    # names of models and counts, by which costs are summed
    kept = {"models": run["usage"]["models"]} if "models" in run["usage"] else {}
    return {
        **run,
        "usage": {**deep({k: v for k, v in run["usage"].items() if k != "models"}), **kept, "redacted": True},
        "question": clean(run["question"]),
        "answer": answer,
        "error": clean(run["error"]),
        "where": deep(run["where"]),
        "stages": stages,
        "citations": citations,
        "claims": claims,
    }


def _storable(value: Any) -> Any:
    """What a jsonb can hold: no NUL, no half character, whatever a model or a server wrote."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, Mapping):
        return {sendable(str(key)): _storable(inner) for key, inner in value.items()}
    return [_storable(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def numbered(stages: Sequence[StageTrace]) -> dict[int, str]:
    """`1`, `2a`, `2b`, `3`: one number a stage, a letter for each of several lists."""
    numbers: dict[int, str] = {}
    n = 0
    for i, trace in enumerate(stages):
        same = [t.step for t in stages if t.stage == trace.stage]
        n += i == 0 or stages[i - 1].stage != trace.stage
        numbers[trace.step] = f"{n}{chr(ord('a') + same.index(trace.step))}" if len(same) > 1 and len(same) <= 26 else str(n)
    return numbers


def header(trace: StageTrace, number: str) -> str:
    """`2b retrieve semantic -> 5 chunks  (12 ms)`, with the stage's note."""
    name = f" {trace.name}" if trace.name else ""
    note = f"  {trace.note}" if trace.note else ""
    made = "" if trace.stage in WITHOUT_CHUNKS else f" -> {len(trace.chunk_ids)} chunks"
    return f"{number} {trace.stage}{name}{made}  ({trace.ms:.0f} ms){note}"


def _snippet(text: str) -> str:
    return " ".join(text[: 4 * _SNIPPET].split())[:_SNIPPET]


def _stage_row(trace: StageTrace) -> dict[str, Any]:
    return {
        "step": trace.step,
        "parent": trace.parent,
        "stage": trace.stage,
        "name": trace.name,
        "query": trace.query,
        "chunk_ids": list(trace.chunk_ids),
        "scores": list(trace.scores),
        "dropped": {why: list(ids) for why, ids in trace.dropped.items()},
        "note": trace.note,
        "ms": trace.ms,
    }


def _claim_row(claim: Claim) -> dict[str, Any]:
    return {"start": claim.start, "end": claim.end, "numbers": list(claim.numbers), "misquoted": len(claim.misquoted)}


def _citation_row(citation: Citation) -> dict[str, Any]:
    return {**citation.to_dict(), "heading_path": list(citation.heading_path)}
