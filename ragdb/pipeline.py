"""A pipeline is data: which stages, with which numbers. The three functions below run it on one question.

`search` ends after fuse (or rerank); `ask` and `stream` go on to an answer. Every stage can be left out, has a safe
fallback and leaves a trace. No connection is held while a model runs. The stages' calls stand in ragdb.question.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ragdb.answer_stream import AnswerStream
from ragdb.context import Context
from ragdb.errors import ConfigError
from ragdb.question import Question
from ragdb.types import LEGS, Answer, History, Passage, Ranking, SearchResult


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The settings of one way to answer, storable as JSON.

    `route`: greetings are answered without a search, and which rewriters suit the question is decided, by rules; with
    `llm` the language model is asked where no rule fits (one call more, also before a search without rewriters).
    `rewrite` names rewriters (reword, multi, hyde, stepback, terms, decompose, condense); they need a language model, run
    beside each other and have `rewrite_timeout` seconds together. `rewrite_weight` is what all further lists of a leg
    weigh in fuse, the question's own list being 1.

    `candidates` is the length of every list of every leg; `rrf_k` and `weights` (by leg) go to fuse. Those of the three that
    stand at their defaults are the collection's own where it keeps some (ragdb.set_fusion), unless `tuned` is False. `rerank`:
    True, by the RagDB's reranker, or by the one that has been fetched; False, never; None, where a reranker was given by name
    or as an object. `rerank_candidates` chunks are scored, what has less than `rerank_min_score` falls, `rerank_weight` below 1
    blends with the fused places, `rerank_timeout` is in seconds.

    `freshness` (0 to 1) is how much of its place a chunk loses when its document is infinitely old, by `updated_at`; half of
    that after `freshness_half_life` days. 0: age does not count.

    `expand` adds what stands around a hit: `window` neighbours on either side (0: none), its section (`parent`), or
    neighbours of its section while there is room (`auto`). `compress` shortens a passage that does not fit to its sentences
    that matter, picked by reranker or embedder (`extractive`) or by the language model (`llm`). `context_tokens` is the
    budget of an extractive answer (with a language model its window decides); `require_evidence` False answers from whatever
    was found; `temperature` and `timeout` (seconds) are for the answer.
    """

    name: str = "custom"
    route: bool | Literal["llm"] = False
    rewrite: tuple[str, ...] = ()
    rewrite_weight: float = 0.5
    rewrite_timeout: float = 15.0
    legs: tuple[str, ...] = ("lexical", "semantic")
    candidates: int = 50
    rrf_k: int = 60
    weights: Mapping[str, float] = field(default_factory=dict)
    tuned: bool = True
    rerank: bool | None = None
    rerank_candidates: int = 20
    rerank_min_score: float | None = None
    rerank_weight: float = 1.0
    rerank_timeout: float = 10.0
    freshness: float = 0.0
    freshness_half_life: float = 365.0
    expand: Literal["window", "parent", "auto"] = "window"
    window: int = 1
    context_tokens: int = 3000
    compress: Literal["extractive", "llm"] | None = None
    require_evidence: bool = True
    temperature: float = 0.2
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.legs, str) or not isinstance(self.legs, Sequence) or not self.legs or not {*self.legs} <= {*LEGS}:
            raise ConfigError(f"legs is {self.legs!r}; it is a list of one or more of {', '.join(LEGS)}")
        for name, least, most in (
            ("candidates", 1, 1000),
            ("rrf_k", 0, 10_000),
            ("rerank_candidates", 1, 1000),
            ("window", 0, 100),
            ("context_tokens", 1, 10**7),
        ):
            given = getattr(self, name)
            if not isinstance(given, int) or not least <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from {least} to {most}")
        if (
            isinstance(self.rewrite, str)
            or not isinstance(self.rewrite, Sequence)
            or not all(isinstance(name, str) and name for name in self.rewrite)
        ):
            raise ConfigError(f"rewrite is {self.rewrite!r}; it is a list of names, such as ('reword', 'multi')")
        if self.route not in (True, False, "llm"):
            raise ConfigError(f"route is {self.route!r}; it is True (by rules), 'llm' (by rules, then by the model) or False")
        for name, low, high in (
            ("rewrite_timeout", 0.0, 3600.0),
            ("rewrite_weight", 0.0, 100.0),
            ("rerank_weight", 0.0, 1.0),
            ("rerank_timeout", 0.0, 3600.0),
            ("freshness", 0.0, 1.0),
            ("freshness_half_life", 0.01, 1e6),
            ("rerank_min_score", -1e9, 1e9),
        ):
            number = getattr(self, name)
            if number is None and name == "rerank_min_score":
                continue
            if (
                not isinstance(number, (int, float))
                or isinstance(number, bool)
                or not low <= number <= high
                or math.isnan(number)
            ):
                raise ConfigError(f"{name} is {number!r}; it is a number from {low:g} to {high:g}")
        if self.expand not in ("window", "parent", "auto"):
            raise ConfigError(f"expand is {self.expand!r}; it is window, parent or auto")
        if self.compress not in (None, "extractive", "llm"):
            raise ConfigError(f"compress is {self.compress!r}; it is None, extractive or llm")
        if self.tuned not in (True, False):
            raise ConfigError(f"tuned is {self.tuned!r}; it is True (the collection's own settings of fuse hold) or False")
        if self.rerank not in (True, False, None):
            raise ConfigError(f"rerank is {self.rerank!r}; it is True, False or None")
        if (
            not isinstance(self.weights, Mapping)
            or not {*self.weights} <= {*LEGS}
            or any(not isinstance(w, (int, float)) or not 0 <= w < math.inf for w in self.weights.values())
        ):
            raise ConfigError(f"weights is {self.weights!r}; it maps {', '.join(LEGS)} to numbers of at least 0")

    def with_fusion(self, fusion: Mapping[str, Any] | None) -> Pipeline:
        """This pipeline with the settings of fuse that a collection keeps in the place of those at their defaults.

        `fusion` may have weights, rrf_k and candidates. The same pipeline where that changes nothing, or `tuned` is False.
        """
        if not fusion or not self.tuned:
            return self
        own = {name: fusion[name] for name, default in FUSION.items() if name in fusion and getattr(self, name) == default}
        found = dataclasses.replace(self, **own)
        return self if found == self else found

    def to_dict(self) -> dict[str, Any]:
        lists = {"legs": list(self.legs), "rewrite": list(self.rewrite)}
        return {**dataclasses.asdict(self), **lists, "weights": dict(self.weights)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Pipeline:
        """The pipeline that `to_dict` described; an unknown key is an error that names it."""
        if not isinstance(given, Mapping):
            raise ConfigError(f"a pipeline is an object with its settings, not {type(given).__name__}")
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise ConfigError(f"a pipeline has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        lists = {name: tuple(given[name]) for name in ("legs", "rewrite") if isinstance(given.get(name), list)}
        return cls(**{**given, **lists})


#: What a collection may keep its own settings of (ragdb.set_fusion), with ragdb's.
FUSION: Mapping[str, Any] = {"weights": {}, "rrf_k": 60, "candidates": 50}


@dataclass(frozen=True, slots=True)
class Examined:
    """One question under examination: `ranking` with all that was found, `shown` what the answer was made from; `ms` in all."""

    answer: Answer
    ranking: Ranking
    shown: tuple[Passage, ...]
    ms: float


def search(
    context: Context,
    pipeline: Pipeline,
    question: str,
    *,
    k: int,
    offset: int = 0,
    where: Mapping[str, Any] | None = None,
    history: History | None = (),
    session: Any = None,
) -> SearchResult:
    """The `k` best chunks after the first `offset`; see RagDB.search."""
    asked = Question(context, pipeline, "search", question, k=k, offset=offset, where=where, history=history, session=session)
    ranking = asked.found()
    return SearchResult(asked.stored(), ranking.hits[offset : offset + k], tuple(asked.recorder.stages))


def ask(
    context: Context,
    pipeline: Pipeline,
    question: str,
    *,
    k: int,
    where: Mapping[str, Any] | None = None,
    history: History | None = (),
    conversation: str | None = None,
    trial: tuple[str, str] | None = None,
    session: Any = None,
) -> Answer:
    """The answer to a question from its `k` best chunks; see RagDB.ask."""
    asked = Question(
        context,
        pipeline,
        "ask",
        question,
        k=k,
        where=where,
        history=history,
        conversation=conversation,
        session=session,
        trial=trial,
    )
    ready = asked.answer_or_writing()
    return asked.finished(
        ready if isinstance(ready, Answer) else asked.recorder.stage("synthesize", ready.whole, name=asked.mode)
    )


def examine(
    context: Context,
    pipeline: Pipeline,
    question: str,
    *,
    k: int,
    depth: int,
    where: Mapping[str, Any] | None = None,
    gold: Sequence[int] | None = None,
    writes: bool = False,
    eval_run_id: int | None = None,
) -> Examined:
    """What `ask` does, for an evaluation: the ranking down to `depth` beside the answer from its first `k` chunks.

    `gold`: ids of chunks that the answer is made from instead of what would be found; nothing is searched then. `writes`
    False: quotes instead of an answer by the language model, which may still rewrite the question.
    """
    asked = Question(context, pipeline, "ask", question, k=k, where=where, deep=depth, writes=writes, eval_run_id=eval_run_id)
    ready = asked.not_searched() if gold is None else None
    ranking = Ranking((), (), "kept")
    if ready is None:
        ranking = asked.found() if gold is None else asked.given(gold)
        made = asked.answered_from(ranking.hits[:k] if gold is None else ranking.hits)
        ready = made if isinstance(made, Answer) else asked.recorder.stage("synthesize", made.whole, name=asked.mode)
    ms = asked.recorder.elapsed
    return Examined(asked.finished(ready), ranking, tuple(asked.shown), ms)


def stream(
    context: Context,
    pipeline: Pipeline,
    question: str,
    *,
    k: int,
    where: Mapping[str, Any] | None = None,
    history: History | None = (),
    conversation: str | None = None,
    trial: tuple[str, str] | None = None,
) -> AnswerStream:
    """The same answer as it is written; everything before the writing is done when this returns. See RagDB.stream."""
    return AnswerStream(
        Question(context, pipeline, "ask", question, k=k, where=where, history=history, conversation=conversation, trial=trial)
    )
