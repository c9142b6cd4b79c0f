"""The rewriters of one question at work: beside each other, under one deadline, with what an earlier run made of it.

The question itself is searched with whatever happens here: a rewriter that fails, or is late, leaves nothing but its
line in the trace. What was made is handed back for the next run (`fresh`); that there was nothing to add is kept too.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragdb.adapters import sendable
from ragdb.context import Context
from ragdb.db.caller import Caller, from_json, value
from ragdb.deadline import Started
from ragdb.ingest.clean import clean_text
from ragdb.llms.calls import Call, counted
from ragdb.protocols import Rewriter
from ragdb.runs.record import Recorder
from ragdb.stages.rewrite import failed, kept, rewrite
from ragdb.types import Message, Outcome, Query

_Queries = Outcome[tuple[Query, ...]]
_GRACE = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class _Made:
    """What a rewriter made, in `ms` milliseconds of its own, by which calls."""

    outcome: _Queries
    ms: float = 0.0
    calls: Sequence[Call] = ()


@dataclass(slots=True)
class Rewriting:
    """`timeout` seconds for all rewriters of the question together, from now."""

    context: Context
    db: Caller
    recorder: Recorder
    history: Sequence[Message]
    timeout: float
    fresh: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # queries made now, by the key of their cache
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.timeout

    def queries(self, question: Query, names: Sequence[str]) -> list[Query]:
        """The queries of several rewriters, in the order of their names."""
        running = [(name, *self._started(question, name)) for name in names]
        # a moment more for all together: a model that keeps its deadline says itself, and better, that it was late
        grace = time.monotonic() + self.left() + _GRACE
        found: list[Query] = []
        for name, pending, key in running:
            made = pending if isinstance(pending, _Made) else self._waited(pending, grace)
            outcome = dataclasses.replace(made.outcome, value=tuple(filter(None, map(_cleaned, made.outcome.value))))
            if key and not outcome.fell_back:
                self.fresh[key] = [
                    {"text": q.text, "legs": list(q.legs) if q.legs else None, "origin": q.origin} for q in outcome.value
                ]
            self.recorder.took("rewrite", name, outcome, made.ms, calls=made.calls)
            found += outcome.value
        return found

    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._until - time.monotonic())

    def _started(self, question: Query, name: str) -> tuple[Started[_Made] | _Made, str]:
        """A rewriter at work, with the key to keep its result by, or what is known already."""
        try:
            rewriter = self.context.rewriter(name)
            key = self._key(question, rewriter)
        except Exception as error:  # noqa: BLE001  whatever a rewriter is: the question itself is searched with too
            return _Made(failed(str(error) or type(error).__name__)), ""
        key = sendable(key)
        known = _known(from_json(value(self.db.call("known_rewrite", key=key))), name) if key else None
        if known is not None:
            outcome = kept(question, known, name)
            return _Made(dataclasses.replace(outcome, note=f"{outcome.note} (from an earlier run)")), ""
        return Started(lambda: self._run(question, rewriter, name), name="ragdb-rewrite"), key

    def _key(self, question: Query, rewriter: Rewriter) -> str:
        """What its result is kept under; nothing where it is made from what was said before, which documents were quoted in:
        nobody would find it there when one of them is deleted."""
        if not hasattr(rewriter, "cache_key") or question.origin == "condense":
            return ""
        key = str(rewriter.cache_key(question, self.history))
        return key if not self.history or key == str(rewriter.cache_key(question, ())) else ""

    def _run(self, question: Query, rewriter: Rewriter, name: str) -> _Made:
        began = time.perf_counter()
        with counted() as calls:
            outcome = rewrite(question, rewriter, self.history, name=name, timeout=self.left())
        return _Made(outcome, (time.perf_counter() - began) * 1000, calls)

    def _waited(self, pending: Started[_Made], until: float) -> _Made:
        began = time.perf_counter()
        try:
            return pending.result(until - time.monotonic())
        except TimeoutError:
            return _Made(failed(f"not done in {self.timeout:g} s"), (time.perf_counter() - began) * 1000)


def _known(rows: Any, name: str) -> list[Query] | None:
    """The queries of an earlier run; None where the row holds something else, and is made anew."""
    if not isinstance(rows, list):
        return None
    try:
        return [
            Query(
                str(row["text"]),
                origin=str(row.get("origin") or name.partition(":")[0]),
                legs=tuple(row["legs"]) if row.get("legs") else None,
            )
            for row in rows
        ]
    except (AttributeError, KeyError, TypeError):
        return None


def _cleaned(query: Query) -> Query | None:
    text = clean_text(query.text)[0].strip()
    return dataclasses.replace(query, text=text) if text else None
