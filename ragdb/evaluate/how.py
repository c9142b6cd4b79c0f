"""How a set is asked, and everything that the results then hang on: by that a run is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import ragdb
from ragdb.context import Context
from ragdb.db.caller import from_json, value
from ragdb.errors import ConfigError
from ragdb.evaluate import measures
from ragdb.evaluate.types import EvalRun, EvalSet, Verdict
from ragdb.pipeline import Pipeline

if TYPE_CHECKING:
    from ragdb.rag import RagDB

#: Chunks of a result that are kept, where nothing else is asked for.
DEPTH = 100
_ANSWER_METRICS = ("faithfulness", "answer_relevance", "context_precision", "context_recall")
#: Scores of an answer.
ANSWER_SCORES = (*_ANSWER_METRICS, "refusal", "false_refusal", "citation_precision", "citation_recall")


def comes_with_asking(metric: str) -> bool:
    """Whether a score is one of the asking, which no list of documents tells afterwards."""
    return metric in ANSWER_SCORES or measures.fallback_of(metric) is not None


class Judging(Protocol):
    """A ragdb.evaluate.judge.Judge."""

    @property
    def name(self) -> str: ...

    def settings(self) -> dict[str, Any]: ...

    def judged(
        self, question: str, answer: str, contexts: Sequence[str], reference: str | None, metrics: Sequence[str]
    ) -> list[Verdict]: ...


@dataclass(frozen=True, slots=True)
class How:
    """How the questions are asked. `k`: how many chunks an answer is made from; `depth`: how many are kept for the metrics.

    `answers`: the language model writes them; else they are quotations, which cost nothing. `judge` scores them by
    `judged`. `context` gold: from the chunks that were judged relevant, without a search, so that what is lost then is lost by
    the writing. `where` is put over each question's own. `jobs`: questions at a time; where it is more than one, times are those
    of a busy machine.
    """

    k: int = 6
    depth: int = DEPTH
    answers: bool = False
    judge: Judging | None = None
    judged: tuple[str, ...] = _ANSWER_METRICS
    context: Literal["retrieved", "gold"] = "retrieved"
    where: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    metrics: tuple[str, ...] = measures.DEFAULT
    again: bool = False
    gate: bool = False

    def label(self, pipeline: str) -> str:
        """What a run is called: the pipeline's name, and what is unusual about how it is asked."""
        where = [f"where {json.dumps(dict(self.where), ensure_ascii=False, sort_keys=True)}"] if self.where else []
        gold = ["gold context"] if self.context == "gold" else []
        # so that the pipeline's name still means the run that somebody made to compare with
        return ", ".join([pipeline, *(["answers"] if self.answers else []), *gold, *where, *(["gate"] if self.gate else [])])

    def __post_init__(self) -> None:
        for name, given, most in (("k", self.k, 1000), ("depth", self.depth, 1000), ("jobs", self.jobs, 64)):
            if not 1 <= given <= most:
                raise ConfigError(f"{name} is {given!r}; it is a whole number from 1 to {most}")
        if self.context not in ("retrieved", "gold"):
            raise ConfigError(f"context is {self.context!r}; it is retrieved or gold")
        measures.check(self.metrics)


def how_of(run: EvalRun) -> dict[str, Any]:
    """The settings of How that a run was asked with, but for its judge."""
    settings = run.settings
    return {
        "k": settings["k"],
        "depth": settings["depth"],
        "context": settings["context"],
        "where": settings["where"],
        "answers": settings["answers"] == "llm",
    }


def check_parts(context: Context, pipeline: Pipeline) -> None:
    """Raises ConfigError for a pipeline with parts that are not here: measured without them it would be another one."""
    for name in pipeline.rewrite:
        try:
            context.rewriter(name)
        except ConfigError as error:
            raise ConfigError(
                f"the pipeline {pipeline.name!r} has the rewriter {name}: {error}; without any: {pipeline.name}:rewrite="
            ) from error
    if context.llm is None and "llm" in (pipeline.route, pipeline.compress):
        raise ConfigError(
            f"the pipeline {pipeline.name!r} asks a language model, and there is none; set RAGDB_LLM, or llm= of RagDB"
        )
    if pipeline.rerank:
        reranker, note = context.reranker(asked_for=True)
        if reranker is None:
            raise ConfigError(f"the pipeline {pipeline.name!r} has a reranker: {note or 'RAGDB_RERANKER is none'}")


def about(rag: RagDB, collection: str) -> Context:
    """The RagDB's own context, or the same for another collection; raises UnknownCollection."""
    from ragdb.ingest import collections

    context = rag.context
    if collection != context.collection:
        context = context.sibling(collection, embedder=None, analyzer=True)
    collections.require(context)
    return context


def settings_of(context: Context, judged: EvalSet, pipeline: Pipeline, how: How) -> dict[str, Any]:
    """Everything but the pipeline that results hang on, as JSON."""
    info = context.info() or {}
    reranker, note = (None, "") if pipeline.rerank is False else context.reranker(asked_for=bool(pipeline.rerank))
    name = getattr(reranker, "name", None) or (type(reranker).__name__ if reranker else None)
    asks = how.answers or bool(pipeline.rewrite) or "llm" in (pipeline.route, pipeline.compress)
    llm = context.llm if asks or str(name).startswith("llm:") else None
    return {
        "k": how.k,
        "depth": how.depth,
        "context": how.context,
        "where": dict(how.where),
        "answers": "llm" if how.answers else "extractive",
        "embedder": context.reading(info)["model"] if info and "semantic" in pipeline.legs else info.get("model"),
        "reranker": name,
        "llm": llm.name if llm is not None else None,
        **(
            {}
            if llm is None
            else {"llm_tokens": [llm.context_window, llm.max_output_tokens], "prompts": context.prompts.digest()}
        ),
        "fusion": from_json(info.get("fusion")) if pipeline.tuned else None,
        "judge": how.judge.settings() if how.judge else None,
        "judged": list(how.judged) if how.judge else [],
        "collection_is": value(context.database.call("collection_fingerprint", collection=context.collection)),
        "set_is": set_digest(judged),
        "questions": len(judged.questions),
        "ragdb": ragdb.__version__,
        **({"note": note} if note else {}),
    }


def set_digest(judged: EvalSet) -> str:
    """What `set_is` is in the settings of a run: a hash of the questions and their judgements."""
    return digest([question.to_dict() for question in judged.questions])


def digest(given: Any) -> str:
    return hashlib.sha256(json.dumps(given, sort_keys=True, ensure_ascii=False, default=str).encode()).hexdigest()[:32]
