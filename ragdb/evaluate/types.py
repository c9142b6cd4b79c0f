"""The values of an evaluation: questions with their judgements, and what a pipeline made of each.

Metrics are named as `ndcg@10`; `scores` of a result maps them to numbers from 0 to 1. Documents are judged by uri.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ragdb.types import LEGS, _Value

#: Where evidence can be lost, in order. `chunk`: it is whole in one chunk; `found`: in what a search returns (fuse,
#: rerank and freshen left it among the first k); then what an answer is made from, and what it cites.
FUNNEL = ("indexed", "chunk", "lexical", "semantic", "fuse", "rerank", "freshen", "found", "validate", "pack", "cited")

State = Literal["accepted", "draft", "rejected"]


@dataclass(frozen=True, slots=True)
class Judgement(_Value):
    """What a person said of a document for a question. `grade` 1 and more: relevant; 0 and less: not. `trap`: it looks right.

    `quote` are the words that answer, as they stand in the document; `label` names a chunk of it (`document#heading#00`).
    """

    uri: str
    grade: int = 1
    trap: bool = False
    label: str | None = None
    quote: str | None = None


@dataclass(frozen=True, slots=True)
class EvalQuestion(_Value):
    """A question of a set. Without a relevant document it is there to be refused."""

    key: str
    question: str
    judgements: tuple[Judgement, ...] = ()
    reference: str | None = None
    language: str | None = None
    tags: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    paraphrase_of: str | None = None
    state: State = "accepted"
    drafted_from: int | None = None
    drafted_by: str | None = None
    eval_question_id: int = 0

    @property
    def relevant(self) -> dict[str, int]:
        """Relevant documents with their highest grade."""
        found: dict[str, int] = {}
        for judgement in self.judgements:
            if judgement.grade > 0:
                found[judgement.uri] = max(judgement.grade, found.get(judgement.uri, 0))
        return found

    @property
    def traps(self) -> frozenset[str]:
        """Documents that look right and are wrong."""
        return frozenset(j.uri for j in self.judgements if j.trap)

    @property
    def answerable(self) -> bool:
        """Whether any document answers it."""
        return any(j.grade > 0 for j in self.judgements)


@dataclass(frozen=True, slots=True)
class EvalSet(_Value):
    """A set with its accepted questions (or those of the states asked for), by key."""

    name: str
    collection: str
    questions: tuple[EvalQuestion, ...] = ()
    description: str | None = None
    source: str | None = None
    created_at: datetime | None = None

    def by_key(self) -> dict[str, EvalQuestion]:
        return {question.key: question for question in self.questions}


@dataclass(frozen=True, slots=True)
class Step(_Value):
    """The best evidence at one stage: its rank, from 1, and whether it is still among what goes on; None: no such stage."""

    rank: int | None
    alive: bool


@dataclass(frozen=True, slots=True)
class Verdict(_Value):
    """One call of a judging model: what it wrote, and what could be made of it (`broken`: why nothing could)."""

    metric: str
    step: str
    judge: str
    prompt_hash: str
    temperature: float
    raw: str | None
    value: float | None = None
    broken: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result(_Value):
    """What a pipeline made of one question. `chunk_ids`, `uris` and `statuses` are parallel, best chunk first.

    `funnel` has the stages of FUNNEL that the pipeline has; {} where no document is relevant, or none is there.
    """

    key: str
    chunk_ids: tuple[int, ...] = ()
    uris: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    funnel: Mapping[str, Step] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    outcome: str | None = None
    answer: str | None = None
    error: str | None = None
    ms: float = 0.0
    stage_ms: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None
    run_id: int | None = None
    document_ids: tuple[int, ...] = ()

    @property
    def documents(self) -> tuple[str, ...]:
        """The documents, each where its best chunk stands."""
        return tuple(dict.fromkeys(self.uris))

    def alive_after(self, stage: str) -> bool:
        """Whether evidence is alive after a stage of FUNNEL; one that this question did not go through changed nothing."""
        if stage in self.funnel:
            return self.funnel[stage].alive
        for earlier in reversed(FUNNEL[: FUNNEL.index(stage)]):
            if earlier in self.funnel:
                return self.in_a_leg if earlier in LEGS else self.funnel[earlier].alive
        return True

    @property
    def in_a_leg(self) -> bool:
        """Whether either leg found evidence."""
        legs = [self.funnel[leg].alive for leg in LEGS if leg in self.funnel]
        return any(legs) if legs else self.alive_after(LEGS[0])

    @property
    def lost_at(self) -> str | None:
        """The first stage at which evidence that had been there was there no more; None: none was lost, or none is judged."""
        for stage in FUNNEL:
            step = self.funnel.get(stage)
            if step is None or step.alive or (stage in LEGS and self.in_a_leg):
                continue
            return "retrieve" if stage in LEGS else stage
        return None


@dataclass(frozen=True, slots=True)
class EvalRun(_Value):
    """One pipeline over one set. `settings`: what else the results hang on (collection, k, depth, models, answers)."""

    eval_run_id: int
    name: str
    eval_set: str
    collection: str
    pipeline: Mapping[str, Any]
    settings: Mapping[str, Any]
    fingerprint: str
    started_at: datetime | None = None
    finished_at: datetime | None = None
    results: tuple[Result, ...] = ()
    cached: bool = False

    def by_key(self) -> dict[str, Result]:
        return {result.key: result for result in self.results}


@dataclass(frozen=True, slots=True)
class Mean(_Value):
    """A mean over `n` questions with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference(_Value):
    """A metric of two runs over the same `n` questions: means, the mean difference with its 95 % interval, and the p-value.

    `better` and `worse` count questions; for metrics where less is better (contamination, false_refusal) a fall is better.
    """

    metric: str
    before: float
    after: float
    change: float
    low: float
    high: float
    p: float
    n: int
    better: int
    worse: int
