"""synthesize: the answer to the user's own question, with citations that point into the documents.

Without a language model the answer is quoted (`extractive`). With one it is written from the passages (`llm`), whole or
as a stream, which read alike; every `[n]` is checked against them. Without evidence there is no call: that is decided
before this stage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ragdb.adapters import sendable
from ragdb.citations import Piece, Resolver, citation, claims, standing
from ragdb.errors import ContextTooSmall, LLMError
from ragdb.llms.calls import Call, complete
from ragdb.llms.think import strip_think
from ragdb.openai_api import fewest_tokens
from ragdb.prompts import OURS, Prompts, language_of, recent, rendered
from ragdb.protocols import LLM
from ragdb.types import Answer, AnswerMode, AnswerOutcome, AnswerPart, Citation, Claim, Completion, Message, Outcome, Passage

NOT_IN_DOCUMENTS = "NOT_IN_DOCUMENTS"
_THINK, _THOUGHT = "<think>", "</think>"
_TELLS = 16  # characters behind a closing tag that tell what it was


def _begins(text: str, word: str) -> bool:
    """May this be the beginning of the word, or does it begin with it?"""
    return word.startswith(text[: len(word)])


def _says(part: AnswerPart) -> bool:
    return bool(part.text or part.citations)


def no_answer(question: str, outcome: AnswerOutcome, mode: AnswerMode, prompts: Prompts = OURS) -> Outcome[Answer]:
    """The sentence that goes with an outcome."""
    return fixed(question, outcome, outcome, mode, prompts)


def fixed(question: str, words: str, outcome: AnswerOutcome, mode: AnswerMode, prompts: Prompts = OURS) -> Outcome[Answer]:
    """A fixed sentence in the question's language; costs no call."""
    said = prompts.message(words, language_of(question))
    return Outcome(Answer(None, said, outcome, mode, question=question), note=outcome)


def nothing(question: str, mode: AnswerMode, prompts: Prompts = OURS, *, waiting: int) -> Outcome[Answer]:
    """No document matches; where some wait to be embedded, that is said."""
    outcome = no_answer(question, "nothing_retrieved", mode, prompts)
    if not waiting:
        return outcome
    more = prompts.message("waiting", language_of(question), count=str(waiting))
    return dataclasses.replace(outcome, value=dataclasses.replace(outcome.value, text=f"{outcome.value.text} {more}"))


def prompt(question: str, passages: Sequence[Passage], prompts: Prompts = OURS, history: Sequence[Message] = ()) -> list[Message]:
    """What is sent: the rules with the passages in reading order, what was said before, then the user's own words."""
    body = "\n\n".join(rendered(p) for p in passages)
    rules = prompts.template("answer", language_of(question)).substitute(passages=body)
    return [Message("system", rules), *recent(history), Message("user", question)]


# Roles and separators that a chat template adds to each message.
_PER_MESSAGE = 8


def room(question: str, llm: LLM, prompts: Prompts = OURS, history: Sequence[Message] = ()) -> int:
    """Tokens left for passages: context window - output - prompt without passages. Raises ContextTooSmall if none."""
    fixed = sum(llm.count_tokens(m.content) + _PER_MESSAGE for m in prompt(question, (), prompts, history))
    left = llm.context_window - llm.max_output_tokens - fixed
    if left <= 0:
        raise ContextTooSmall(
            f"{llm.name}: the context window has {llm.context_window} tokens, {llm.max_output_tokens} are for the answer and "
            f"the prompt with the question has {fixed}; raise RAGDB_LLM_CONTEXT_WINDOW, lower RAGDB_LLM_MAX_TOKENS, "
            "or ask a shorter question"
        )
    return left


class Writing:
    """One answer by a language model. `whole()` or `streamed()`, then `outcome` is there; once more where nothing came.

    A model that fails is the outcome `llm_failed`, no error; what it had written until then stays in the text.
    """

    def __init__(
        self,
        question: str,
        passages: Sequence[Passage],
        llm: LLM,
        *,
        temperature: float,
        timeout: float,
        prompts: Prompts = OURS,
        history: Sequence[Message] = (),
        said: bool = False,
    ) -> None:
        """`said`: the question is about what was said, and answered from `history` alone, with outcome `no_retrieval`."""
        self._said = said
        self._question = question
        self._passages = passages
        self._by_number = {passage.number: passage for passage in passages}
        self._llm = llm
        self._prompts = prompts
        self._temperature = temperature
        self._timeout = timeout
        self._messages = prompt(question, passages, prompts, history)
        # A model with citations of its own gets the passages as documents, and not in the prompt.
        self._cites = bool(passages) and hasattr(llm, "complete_from") and hasattr(llm, "stream_from")
        if said or self._cites:
            rules = prompts.template("said" if said else "cited", language_of(question)).substitute()
            self._messages = [Message("system", rules), *self._messages[1:]]
        self._usage: dict[str, Any] = {
            "llm": llm.name,
            "temperature": temperature,
            "context_window": llm.context_window,
            "calls": 0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
        }
        self._reset()
        self._asked = False
        self.calls: list[Call] = []  # of a stream; those of `whole` are gathered around it
        self.outcome: Outcome[Answer] | None = None

    def whole(self) -> Outcome[Answer]:
        """The answer from one call, or two."""
        reason = ""
        for max_tokens in self._room():
            self._reset()
            try:
                completion = complete(
                    self._llm,
                    self._messages,
                    **({"passages": self._passages} if self._cites else {}),
                    temperature=self._temperature,
                    max_tokens=max_tokens,
                    deadline=self._timeout,
                )
            except LLMError as error:
                reason = str(error)
                break
            self._used(completion)
            for _ in self._read(completion.text or "", last=True):
                pass
            if self._text or self._refused:
                self._marked_where_it_stands()
                return self._done()
            reason = f"empty answer, finish reason {completion.finish_reason or 'not given'}"
        return self._failed(reason)

    def streamed(self) -> Iterator[AnswerPart]:
        """The answer as it is written; all parts together are the text of the answer."""
        reason = ""
        for max_tokens in self._room():
            self._reset()
            self._asked = True
            ended = Completion("")
            try:
                how: dict[str, Any] = {"temperature": self._temperature, "max_tokens": max_tokens, "deadline": self._timeout}
                pieces = (
                    self._llm.stream_from(self._passages, self._messages, **how)  # type: ignore[attr-defined]
                    if self._cites
                    else self._llm.stream(self._messages, **how)
                )
                for piece in pieces:
                    if isinstance(piece, Completion):
                        ended = piece
                    else:
                        yield from self._read(piece, last=False)
                yield from self._read("", last=True)
            except LLMError as error:
                self.calls.append(Call(self._llm.name, failed=True))
                reason = str(error)
                yield from filter(_says, map(self._part, self._resolver.end()))
                break
            except Exception as error:
                # not the reader who left: an adapter that fails in words of its own
                self.calls.append(Call(self._llm.name, failed=True))
                self._failed(f"{type(error).__name__}: {error}")
                raise
            self.calls.append(Call(self._llm.name, ended.prompt_tokens, ended.completion_tokens))
            self._used(ended)
            if self._refused:
                yield AnswerPart(self._done().value.text)
                return
            if self._text:
                if added := self._marked_where_it_stands():
                    yield added
                self._done()
                return
            reason = f"empty answer, finish reason {ended.finish_reason or 'not given'}"
        written = len(self._text)
        yield AnswerPart(self._failed(reason).value.text[written:])

    def cancelled(self) -> Outcome[Answer]:
        """The outcome where the reader left before the end."""
        if self._asked:  # what it took so far the server does not say
            self.calls.append(Call(self._llm.name))
        answer = dataclasses.replace(self._checked(), outcome="cancelled")
        self.outcome = Outcome(answer, note="the reader left before the end")
        return self.outcome

    def _room(self) -> tuple[int, int]:
        """Output tokens for two tries: an empty answer often is one whose reasoning used up the output."""
        llm = self._llm
        sent = sum(llm.count_tokens(m.content) + _PER_MESSAGE for m in self._messages)
        first = llm.max_output_tokens
        return first, max(first, min(2 * first, llm.context_window - sent))

    def _reset(self) -> None:
        self._resolver = Resolver(self._passages)
        self._raw = ""  # as the model wrote it
        self._thinking = True  # until it is certain that the answer itself has begun
        self._refused = False
        self._added = False  # marks that the model did not write
        self._text = ""
        self._space = ""
        self._waiting = ""  # from a closing tag on
        self._cited: dict[int, Citation] = {}

    def _read(self, piece: str, *, last: bool) -> Iterator[AnswerPart]:
        piece = sendable(piece)
        self._raw += piece
        if not self._thinking and (self._waiting or _THOUGHT in self._raw[-len(piece) - len(_THOUGHT) :]):
            # a template that opens the thoughts by itself: what follows the tag tells whether they were thoughts
            self._waiting += piece
            if not last and len(self._raw) - self._raw.rfind(_THOUGHT) < len(_THOUGHT) + _TELLS:
                return
            piece, self._waiting = self._waiting, ""
            if strip_think(self._raw) != self._raw:
                raw = self._raw
                self._reset()
                self._raw = raw
                yield AnswerPart("", replaces=True)
        if self._thinking:
            shown = (strip_think(self._raw) if last or _THOUGHT in self._raw else self._raw).lstrip()
            if last:
                self._refused = shown.strip().startswith(NOT_IN_DOCUMENTS)
            elif shown.startswith(_THINK) or not shown or _begins(shown, _THINK) or _begins(shown, NOT_IN_DOCUMENTS):
                return
            if self._refused:
                return
            self._thinking = False
            piece = shown
        yield from filter(_says, map(self._part, self._resolver.feed(piece)))
        if last:
            yield from filter(_says, map(self._part, self._resolver.end()))

    def _part(self, piece: Piece) -> AnswerPart:
        # space at the end is held back: nothing may come behind it
        text = self._space + piece.text
        self._space = text[len(text.rstrip()) :]
        text = text.rstrip()
        self._text += text
        new = [n for n in piece.numbers if n not in self._cited]
        for number in new:
            hit = self._by_number[number].hits[0]
            self._cited[number] = citation(number, hit, hit.start, hit.end, hit.content)
        return AnswerPart(text, tuple(self._cited[n] for n in piece.numbers))

    def _marked_where_it_stands(self) -> AnswerPart | None:
        """A model that copies and forgets the marks: they are put at the end, where every sentence stands in a passage."""
        if self._cited or self._refused or self._said:
            return None
        numbers = standing(self._text, self._passages)
        if not numbers:
            return None
        self._added = True
        self._space = ""
        return self._part(Piece(" " + "".join(f"[{number}]" for number in numbers), numbers))

    def _used(self, completion: Completion) -> None:
        usage = self._usage
        usage["calls"] += 1
        for name in ("prompt_tokens", "completion_tokens"):
            usage[name] += getattr(completion, name) or 0
        texts = [m.content for m in self._messages] + [p.content for p in self._passages if self._cites]
        read, sent = completion.prompt_tokens, sum(map(fewest_tokens, texts))
        if read and read < sent:
            # its own window is smaller than the one we were told: what it did not read it cannot answer from
            usage["truncated_by_server"] = True

    def _done(self) -> Outcome[Answer]:
        cut = "; the server read only a part of the prompt: see RAGDB_LLM_CONTEXT_WINDOW"
        note = cut if self._usage.get("truncated_by_server") else ""
        if self._refused:
            said = self._prompts.message("not_in_documents", language_of(self._question))
            answer = Answer(None, said, "not_in_documents", "llm", usage=self._usage, question=self._question)
            self.outcome = Outcome(answer, note="the model found no answer in the passages" + note)
        elif self._said:
            answer = dataclasses.replace(self._checked(), outcome="no_retrieval", uncited=(), claims=())
            self.outcome = Outcome(answer, note="from what was said before")
        else:
            answer = self._checked()
            false = f"; no such passage: {' '.join(self._resolver.false)}" if self._resolver.false else ""
            false += "; marks added where its words stand" if self._added else ""
            wrong = f"; misquoted: {len(answer.misquoted)}" if answer.misquoted else ""
            self.outcome = Outcome(answer, note=f"citations: {len(answer.citations)}{false}{wrong}{note}")
        return self.outcome

    def _checked(self) -> Answer:
        text = self._text.rstrip()
        said = claims(text, self._passages)
        return Answer(
            None,
            text,
            "answered",
            "llm",
            tuple(self._cited.values()),
            uncited=tuple(text[c.start : c.end] for c in said if self._is_uncited(c, text)),
            misquoted=tuple(words for c in said for words in c.misquoted),
            usage=self._usage,
            question=self._question,
            claims=said,
        )

    def _is_uncited(self, claim: Claim, text: str) -> bool:
        """Marks that were added stand for every sentence; headings, rows of tables and fences say nothing to cite."""
        says = not text.startswith(("#", "|", "```", "~~~"), claim.start)
        return not claim.numbers and says and not self._added

    def _failed(self, reason: str) -> Outcome[Answer]:
        head = self._prompts.message("llm_failed" if self._passages else "llm_silent", language_of(self._question))
        places = "\n".join(f"- {p.label}" for p in sorted(self._passages, key=lambda p: p.number))
        said = f"{self._text}\n\n" if self._text else ""
        answer = dataclasses.replace(
            self._checked(),
            text=f"{said}{head}\n{places}".rstrip(),
            outcome="llm_failed",
            error=reason,
            uncited=(),
            claims=(),
        )
        self.outcome = Outcome(answer, note=reason)
        return self.outcome
