"""Questions for a set, proposed by a language model from the collection's own chunks, for a person to accept or reject.

A draft is easier than what users ask: whoever writes it has the answer in sight. It begins a set and does not end one.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragdb.adapters import sendable
from ragdb.context import Context
from ragdb.db.caller import Row
from ragdb.errors import ConfigError, LLMError
from ragdb.evaluate import sets
from ragdb.evaluate.proposals import Proposed, Refused, checked
from ragdb.evaluate.types import EvalQuestion, Judgement
from ragdb.ingest import documents
from ragdb.llms.calls import complete
from ragdb.prompts import language_of
from ragdb.protocols import LLM
from ragdb.types import Message, StoredDocument, _Value

if TYPE_CHECKING:
    from ragdb.rag import RagDB

_FEWEST_TOKENS = 30  # of a chunk: a heading or a lone table row has nothing to ask about
_SPARE = 4  # documents looked at for one that is needed: some are too short, or give no question
_TRIES = 2  # chunks of a document more than are needed of it
_FAILURES = 3  # calls in a row that fail: the model is not there
_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("quote", "question", "answer")},
    "required": ["quote", "question", "answer"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Proposal(_Value):
    """What came of one chunk: a question, or why there is none; `raw` is what the model wrote."""

    uri: str
    label: str
    question: EvalQuestion | None = None
    refused: str | None = None
    raw: str | None = None


def draft(
    rag: RagDB,
    eval_set: str,
    *,
    how_many: int = 20,
    per_document: int = 1,
    progress: Callable[[Proposal], None] | None = None,
) -> list[EvalQuestion]:
    """At most `how_many` questions for a set, at most `per_document` of a document; stored by `sets.put_questions`, not here.

    Chunks are of active documents of the set's collection, spread over them by a hash of set and uri: the same ones each
    time, documents without drafts first. No question comes that the set has, accepted, draft or rejected. `progress` gets
    every proposal, refused ones with the reason; they are fewer than `how_many` where too many were refused.

    Raises ConfigError without a language model or a set, LLMError where it fails three times in a row.
    """
    if how_many < 1 or per_document < 1:
        raise ConfigError(f"how_many is {how_many} and per_document {per_document}; both are at least 1")
    if rag.context.llm is None:
        raise ConfigError("questions are drafted by a language model, and there is none; set RAGDB_LLM, or llm= of RagDB")
    judged = sets.read(rag, eval_set, states=("accepted", "draft", "rejected"))
    context = rag.context
    if judged.collection != context.collection:
        context = context.sibling(judged.collection, embedder=None, analyzer=True)
    drafting = _Drafting(context, rag.context.llm, eval_set, list(judged.questions))
    found: list[EvalQuestion] = []
    for proposal in drafting.proposals(how_many, per_document):
        if progress:
            progress(proposal)
        if proposal.question is not None:
            found.append(proposal.question)
            if len(found) == how_many:
                break
    return found


class _Drafting:
    """One round of drafting; `known` grows by what is found."""

    def __init__(self, context: Context, llm: LLM, seed: str, known: list[EvalQuestion]) -> None:
        self._context = context
        self._llm = llm
        self._seed = seed
        self._known = known
        self._failed = 0

    def proposals(self, how_many: int, per_document: int) -> Iterator[Proposal]:
        for document in self._documents(how_many * _SPARE):
            found = 0
            for chunk in self._chunks(document)[: per_document + _TRIES]:
                proposal = self._proposal(document, chunk)
                yield proposal
                if proposal.question is not None:
                    self._known.append(proposal.question)
                    found += 1
                if found == per_document:
                    break

    def _documents(self, most: int) -> list[StoredDocument]:
        drafts = {question.drafted_from for question in self._known}
        ready = (d for d in documents.listed(self._context, {"status": "active"}) if d.ready_at is not None and d.chunks)
        return heapq.nsmallest(most, ready, key=lambda d: (d.document_id in drafts, self._place(d.uri), d.uri))

    def _chunks(self, document: StoredDocument) -> list[Row]:
        """Those long enough to ask about, the ones first that no question of the set is about."""
        quotes = [j.quote for q in self._known for j in q.judgements if j.uri == document.uri and j.quote]
        long = [
            chunk
            for chunk in documents.chunks(self._context, document.uri)
            if self._llm.count_tokens(chunk["content"]) >= _FEWEST_TOKENS
        ]
        return sorted(
            long, key=lambda c: (sum(quote in c["content"] for quote in quotes), self._place(f"{document.uri}#{c['ordinal']}"))
        )

    def _place(self, name: str) -> bytes:
        return hashlib.sha256(f"{self._seed}\x00{name}".encode("utf-8", "replace")).digest()

    def _proposal(self, document: StoredDocument, chunk: Row) -> Proposal:
        text = chunk["content"]
        names = [document.title or document.uri, *chunk["heading_path"]]
        prompt = self._context.prompts.template("draft", language_of(text)).substitute(
            place=sendable(" > ".join(dict.fromkeys(names))), passage=sendable(text.strip())
        )
        proposal = Proposal(document.uri, chunk["label"])
        try:
            reply = complete(self._llm, [Message("user", prompt)], schema=_SCHEMA, temperature=0.0)
        except LLMError as error:
            self._failed += 1
            if self._failed == _FAILURES:
                raise
            return Proposal(proposal.uri, proposal.label, refused=f"the call failed: {error}")
        self._failed = 0
        raw = sendable(reply.text or "")
        try:
            if reply.finish_reason == "length":
                raise Refused(f"cut off after {reply.completion_tokens or 'the most'} tokens; raise RAGDB_LLM_MAX_TOKENS")
            found = checked(raw, text, [question.question for question in self._known])
        except Refused as error:
            return Proposal(proposal.uri, proposal.label, refused=str(error), raw=raw)
        return Proposal(proposal.uri, proposal.label, self._question(document, found), raw=raw)

    def _question(self, document: StoredDocument, found: Proposed) -> EvalQuestion:
        named = hashlib.sha256(f"{document.uri}\x00{found.question}".encode("utf-8", "replace")).hexdigest()
        return EvalQuestion(
            key=f"draft-{named[:12]}",
            question=found.question,
            judgements=(Judgement(document.uri, 1, quote=found.quote),),
            reference=found.reference,
            language=document.language or language_of(found.question),
            state="draft",
            drafted_from=document.document_id,
            drafted_by=self._llm.name,
        )


def summary(proposals: Sequence[Proposal]) -> str:
    """`12 questions; refused: it repeats the text (3), there is no quote (1)`: for who wants to know where the others went."""
    reasons: dict[str, int] = {}
    for proposal in proposals:
        if proposal.refused is not None:
            reason = proposal.refused.split(":", 1)[0]
            reasons[reason] = reasons.get(reason, 0) + 1
    made = sum(proposal.question is not None for proposal in proposals)
    listed = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    return f"{made} questions" + (f"; refused: {listed}" if listed else "")
