"""Answers judged by a language model: faithfulness, answer relevance, context precision, context recall.

Faithfulness and answer relevance are those of RAGAS (Es et al. 2023, arXiv:2309.15217, section 3). The paper's third,
context relevance, is not here: the two that took its place, context precision and context recall, come from the
documentation of the ragas library and need a reference answer; so does the rule that a noncommittal answer is worth 0.

Every call is a Verdict with what the model wrote. A call that failed, was cut off, or wrote something that cannot be used
ends its metric as broken: no value, and it is not asked again. So of the verdicts of a metric the last one has either
the value or the reason. (The adapters send a request again that the server turned away: then nothing was written.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ragdb.citations import resolved
from ragdb.deadline import within
from ragdb.embedders import embed_query_checked
from ragdb.errors import ConfigError
from ragdb.evaluate import verdicts
from ragdb.evaluate.asking import Asking, failure
from ragdb.evaluate.types import Verdict
from ragdb.prices import Prices
from ragdb.prompts import OURS, Prompts, language_of
from ragdb.protocols import LLM, Embedder
from ragdb.sentences import sentences

#: What a judge can be asked for.
METRICS = ("faithfulness", "answer_relevance", "context_precision", "context_recall")
_QUESTIONS = 3  # n of answer relevance: `strictness` of ragas; the paper leaves it open
_NO_ANSWERS = ("not_in_documents", "nothing_retrieved", "no_retrieval", "said_before", "llm_silent")


@dataclass(frozen=True, slots=True)
class _Case:
    """What one answer is judged by."""

    question: str
    answer: str
    contexts: tuple[str, ...]
    reference: str

    @property
    def language(self) -> str:
        return language_of(self.question)


class Judge:
    """`llm` judges; `embedder` is needed for answer relevance. No state: one judge may be used from several threads.

    `timeout` is seconds a call; `prices` fill in the cost of each.
    """

    def __init__(
        self,
        llm: LLM,
        embedder: Embedder | None = None,
        prompts: Prompts = OURS,
        *,
        temperature: float = 0.0,
        timeout: float = 120.0,
        prices: Prices | None = None,
    ) -> None:
        self.name = llm.name
        self._embedder = embedder
        self._prompts = prompts
        self._temperature = temperature
        self._timeout = timeout
        self._asking = Asking(llm, prompts, temperature=temperature, timeout=timeout, prices=prices or Prices())

    def judged(
        self, question: str, answer: str, contexts: Sequence[str], reference: str | None, metrics: Sequence[str] = METRICS
    ) -> list[Verdict]:
        """The verdicts, metric by metric, each metric's in the order of its calls; `contexts` are in rank order.

        The last verdict of a metric has its value (0 to 1) or says why it is broken. A metric that cannot be had here
        (see `why_not`) has no verdict. Raises ConfigError for a metric that does not exist.
        """
        kept = tuple(text for text in contexts if text.strip())
        case = _Case(question, resolved(answer, ())[0].strip(), kept, (reference or "").strip())
        made = {
            "faithfulness": self._faithfulness,
            "answer_relevance": self._answer_relevance,
            "context_precision": self._context_precision,
            "context_recall": self._context_recall,
        }
        asked = [metric for metric in metrics if self.why_not(metric, answer, contexts, reference) is None]
        return [found for metric in asked for found in made[metric](case)]

    def why_not(self, metric: str, answer: str, contexts: Sequence[str], reference: str | None) -> str | None:
        """Why a metric cannot be had of an answer; None: it can. A refusal says nothing that could be supported.

        Raises ConfigError for a metric that does not exist.
        """
        if metric not in METRICS:
            raise ConfigError(f"a judge has no metric {metric!r}; it has {', '.join(METRICS)}")
        if metric in ("faithfulness", "answer_relevance") and self.is_refusal(answer):
            return "there is no answer, or it is a refusal"
        if metric == "answer_relevance":
            return None if self._embedder is not None else "there is no embedder to compare questions by"
        if not any(text.strip() for text in contexts):
            return "there are no contexts"
        if metric != "faithfulness" and not (reference or "").strip():
            return "there is no reference answer"
        return None

    def is_refusal(self, answer: str) -> bool:
        """Is it blank (marks like [1] aside), or one of the fixed sentences that say that there is no answer?"""
        said = resolved(answer, ())[0].strip()
        fixed = {self._prompts.message(name, language).strip() for name in _NO_ANSWERS for language in ("en", "ja")}
        return not said or said in fixed

    def settings(self) -> dict[str, Any]:
        """What its verdicts hang on, as JSON: judge, temperature, embedder, and the sha256 of each prompt's text."""
        names = ("judge-statements", "judge-supported", "judge-questions", "judge-useful")
        hashes = {f"{language}/{name}": self._asking.prompt_hash(name, language) for language in ("en", "ja") for name in names}
        embedder = self._embedder.name if self._embedder is not None else None
        return {"judge": self.name, "temperature": self._temperature, "embedder": embedder, "prompts": hashes}

    def _faithfulness(self, case: _Case) -> list[Verdict]:
        """Section 3, "Faithfulness": F = |V| / |S|, of the statements S of the answer those V that the contexts support."""
        first, found = self._asking.asked(
            "faithfulness",
            "statements",
            "judge-statements",
            case.language,
            verdicts.STATEMENTS,
            verdicts.statements,
            {"question": case.question, "answer": case.answer},
        )
        return [first] if found is None else [first, self._supported("faithfulness", case, found)]

    def _context_recall(self, case: _Case) -> list[Verdict]:
        """The share of the reference's sentences that can be attributed to the contexts (ragas, "Context Recall").

        Sentences are cut by rule and not by the model: they are the same ones for every pipeline.
        """
        parts = [case.reference[start:end] for start, end in sentences(case.reference)]
        return [self._supported("context_recall", case, parts or [case.reference])]

    def _supported(self, metric: str, case: _Case, found: Sequence[str]) -> Verdict:
        """The share of statements that the contexts support, by one call for all of them."""
        last, said = self._asking.asked(
            metric,
            "verdicts",
            "judge-supported",
            case.language,
            verdicts.verdicts_schema(len(found)),
            partial(verdicts.verdicts, count=len(found)),
            {"passages": _numbered(case.contexts), "statements": _numbered(found)},
        )
        return last if said is None else replace(last, value=sum(said) / len(said))

    def _context_precision(self, case: _Case) -> list[Verdict]:
        """Context Precision@K (ragas, "Context Precision" with reference): one call a context, in rank order."""
        found: list[Verdict] = []
        useful: list[bool] = []
        for rank, text in enumerate(case.contexts, start=1):
            made, said = self._asking.asked(
                "context_precision",
                f"context {rank}",
                "judge-useful",
                case.language,
                verdicts.ONE_VERDICT,
                verdicts.verdict,
                {"question": case.question, "reference": case.reference, "passage": text},
            )
            found.append(made)
            if said is None:
                return found  # without one of the ranks there is no value; what it said so far is kept
            useful.append(said)
        found[-1] = replace(found[-1], value=verdicts.average_precision(useful))
        return found

    def _answer_relevance(self, case: _Case) -> list[Verdict]:
        """Section 3, "Answer relevance": AR = 1/n sum sim(q, q_i) over n questions q_i made from the answer.

        At temperature 0 the same call gives the same question, so that one call makes all n.
        """
        made, said = self._asking.asked(
            "answer_relevance",
            "questions",
            "judge-questions",
            case.language,
            verdicts.questions_schema(_QUESTIONS),
            partial(verdicts.questions, count=_QUESTIONS),
            {"answer": case.answer, "count": str(_QUESTIONS)},
        )
        if said is None:
            return [made]
        questions, evasive = said
        if evasive:
            return [replace(made, value=0.0)]
        assert self._embedder is not None  # why_not has looked
        try:
            cosines = within(self._timeout, partial(_cosines, self._embedder, case.question, questions))
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  whatever an embedder does: this metric is broken, the others are not
            return [replace(made, broken=failure(f"the embedder {self._embedder.name} failed", error))]
        usage = {**made.usage, "embedder": self._embedder.name, "cosines": [round(c, 4) for c in cosines]}
        return [replace(made, value=min(1.0, max(0.0, sum(cosines) / len(cosines))), usage=usage)]


def outcome(found: Sequence[Verdict]) -> dict[str, float | str]:
    """Of each metric its value, or the reason why it is broken."""
    last = {verdict.metric: verdict for verdict in found}
    return {
        metric: verdict.value if verdict.broken is None and verdict.value is not None else verdict.broken or "it broke off"
        for metric, verdict in last.items()
    }


def _numbered(texts: Sequence[str]) -> str:
    return "\n\n".join(f"[{n}] {text.strip()}" for n, text in enumerate(texts, start=1))


def _cosines(embedder: Embedder, question: str, others: Sequence[str]) -> list[float]:
    # questions all of them: models with prefixes see them as such
    asked, *made = [embed_query_checked(embedder, text) for text in (question, *others)]
    return [_cosine(asked, vector) for vector in made]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
