"""synthesize: the answer to the user's own question, with citations that point into the documents.

Without a language model the answer is quoted (`extractive`). With one it is written from the passages (`llm`); every
`[n]` is checked against them. Without evidence there is no call: that is decided before this stage.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragdb.errors import ContextTooSmall, LLMError
from ragdb.llms.calls import complete
from ragdb.llms.think import strip_think
from ragdb.prompts import language_of, message, rendered, template
from ragdb.protocols import LLM
from ragdb.sentences import sentences
from ragdb.types import Answer, AnswerMode, AnswerOutcome, Citation, Hit, Message, Outcome, Passage

NOT_IN_DOCUMENTS = "NOT_IN_DOCUMENTS"
_MARKER = re.compile(r"\[(\d{1,4})\]")
_QUOTES = 3
_QUOTE_LENGTH = 400


def no_answer(question: str, outcome: AnswerOutcome, mode: AnswerMode) -> Outcome[Answer]:
    """The sentence that goes with an outcome."""
    return fixed(question, outcome, outcome, mode)


def fixed(question: str, words: str, outcome: AnswerOutcome, mode: AnswerMode) -> Outcome[Answer]:
    """A fixed sentence in the question's language; costs no call."""
    return Outcome(Answer(None, message(words, language_of(question)), outcome, mode, question=question), note=outcome)


def nothing(question: str, mode: AnswerMode, *, waiting: int) -> Outcome[Answer]:
    """No document matches; where some wait to be embedded, that is said."""
    outcome = no_answer(question, "nothing_retrieved", mode)
    if not waiting:
        return outcome
    more = message("waiting", language_of(question), count=str(waiting))
    return dataclasses.replace(outcome, value=dataclasses.replace(outcome.value, text=f"{outcome.value.text} {more}"))


# --- extractive -----------------------------------------------------------------------------------


def quote(question: str, passages: Sequence[Passage]) -> Outcome[Answer]:
    """Up to three quotations from the evident hits, each with a citation; what holds most of the question comes first."""
    evident = [(passage, hit) for passage in passages for hit in passage.hits if hit.chunk_id in passage.evident]
    evident.sort(key=lambda found: (-found[1].evidence, -found[1].score, found[1].chunk_id))
    citations = []
    # Numbered by quotation, not by passage: two quotations of one passage point to two places.
    for number, (_, hit) in enumerate(evident[:_QUOTES], start=1):
        start, end = _best_span(hit)
        citations.append(_citation(number, hit, hit.start + start, hit.start + end, hit.content[start:end]))
    text = "\n\n".join(f"{c.quote}{_gap(c.quote)}[{c.number}]" for c in citations)
    return Outcome(
        Answer(None, text, "answered", "extractive", tuple(citations), question=question), note=f"quotations: {len(citations)}"
    )


def _gap(quotation: str) -> str:
    """A mark behind a table row or a closing fence would become part of it."""
    last = quotation.rsplit("\n", 1)[-1].lstrip()
    return "\n\n" if last.startswith(("|", "```", "~~~")) else " "


def _best_span(hit: Hit) -> tuple[int, int]:
    """The part of a hit to quote: all of a short one, else the sentences around the one that matches best."""
    text = hit.content
    if len(text.strip()) <= _QUOTE_LENGTH:
        return len(text) - len(text.lstrip()), len(text.rstrip())
    spans = sentences(text)
    weights = [_weight(text[s:e], hit.matched) for s, e in spans]
    first = last = max(range(len(spans)), key=lambda i: (weights[i], -i))
    while last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= _QUOTE_LENGTH:
        last += 1
    return _whole_rows(text, spans[first][0], spans[last][1])


def _whole_rows(text: str, start: int, end: int) -> tuple[int, int]:
    """A span that begins or ends inside a table row, widened to the row: a cell says nothing without the others."""
    row = text.rfind("\n", 0, start) + 1
    if text.startswith("|", row):
        start = row
    row = text.rfind("\n", 0, end) + 1
    if text.startswith("|", row):
        after = text.find("\n", end)
        end = len(text.rstrip()) if after < 0 else after
    return start, end


def _weight(sentence: str, matched: Mapping[str, float]) -> float:
    # A stem is a prefix of its words, but for its last letter (policy, polici).
    folded = sentence.casefold()
    return sum(idf for word, idf in matched.items() if (word if len(word) < 4 or not word.isascii() else word[:-1]) in folded)


# --- with a language model ------------------------------------------------------------------------


def prompt(question: str, passages: Sequence[Passage]) -> list[Message]:
    """What is sent: the rules with the passages in reading order, then the user's own words."""
    body = "\n\n".join(rendered(p) for p in passages)
    return [
        Message("system", template("answer", language_of(question)).substitute(passages=body)),
        Message("user", question),
    ]


# Roles and separators that a chat template adds to each message.
_PER_MESSAGE = 8


def room(question: str, llm: LLM) -> int:
    """Tokens left for passages: context window - output - prompt without passages. Raises ContextTooSmall if none."""
    fixed = sum(llm.count_tokens(m.content) + _PER_MESSAGE for m in prompt(question, ()))
    left = llm.context_window - llm.max_output_tokens - fixed
    if left <= 0:
        raise ContextTooSmall(
            f"{llm.name}: the context window has {llm.context_window} tokens, {llm.max_output_tokens} are for the answer and "
            f"the prompt with the question has {fixed}; raise RAGDB_LLM_CONTEXT_WINDOW, lower RAGDB_LLM_MAX_TOKENS, "
            "or ask a shorter question"
        )
    return left


def write(question: str, passages: Sequence[Passage], llm: LLM, *, temperature: float, timeout: float) -> Outcome[Answer]:
    """The model's answer with checked citations; one more try where it wrote nothing, then outcome `llm_failed`."""
    messages = prompt(question, passages)
    reason = ""
    usage: dict[str, Any] = {"llm": llm.name, "temperature": temperature, "calls": 0, "prompt_tokens": 0, "completion_tokens": 0}
    sent = sum(llm.count_tokens(m.content) + _PER_MESSAGE for m in messages)
    # The second try may write longer: an empty answer often is one whose reasoning used up the output.
    for max_tokens in (
        llm.max_output_tokens,
        max(llm.max_output_tokens, min(2 * llm.max_output_tokens, llm.context_window - sent)),
    ):
        usage["calls"] += 1
        try:
            completion = complete(llm, messages, temperature=temperature, max_tokens=max_tokens, deadline=timeout)
        except LLMError as error:
            reason = str(error)
            break
        for name in ("prompt_tokens", "completion_tokens"):
            usage[name] += getattr(completion, name) or 0
        text = strip_think((completion.text or "").replace("\x00", " ")).strip()
        if text:
            return _checked(question, text, passages, usage)
        reason = f"empty answer, finish reason {completion.finish_reason or 'not given'}"
    return _failed(question, reason, passages, usage)


def _checked(question: str, text: str, passages: Sequence[Passage], usage: Mapping[str, Any]) -> Outcome[Answer]:
    if text.startswith(NOT_IN_DOCUMENTS):
        said = message("not_in_documents", language_of(question))
        return Outcome(
            Answer(None, said, "not_in_documents", "llm", usage=usage, question=question),
            note="the model found no answer in the passages",
        )
    by_number = {p.number: p for p in passages}
    cited = list(dict.fromkeys(int(n) for n in _MARKER.findall(text)))
    # A number that leads nowhere is worse than none.
    text = _MARKER.sub(lambda m: m[0] if int(m[1]) in by_number else "", text)
    citations = tuple(
        _citation(n, p.hits[0], p.hits[0].start, p.hits[0].end, p.hits[0].content)
        for n in cited
        if (p := by_number.get(n)) is not None
    )
    false = [n for n in cited if n not in by_number]
    uncited = tuple(s for start, end in sentences(text) if (s := text[start:end].strip()) and not _MARKER.search(s))
    note = f"citations: {len(citations)}" + (f"; no such passage: {false}" if false else "")
    return Outcome(Answer(None, text, "answered", "llm", citations, uncited, usage, question=question), note=note)


def _failed(question: str, reason: str, passages: Sequence[Passage], usage: Mapping[str, Any]) -> Outcome[Answer]:
    head = message("llm_failed", language_of(question), reason=reason)
    places = "\n".join(f"- {p.label}" for p in sorted(passages, key=lambda p: p.number))
    return Outcome(Answer(None, f"{head}\n{places}", "llm_failed", "llm", usage=usage, question=question), note=reason)


def _citation(number: int, hit: Hit, start: int, end: int, words: str) -> Citation:
    return Citation(
        number=number,
        chunk_id=hit.chunk_id,
        label=hit.label,
        uri=hit.uri,
        heading_path=hit.heading_path,
        start=start,
        end=end,
        page=hit.page,
        quote=words,
        document_id=hit.document_id,
        title=hit.title,
    )
