"""What a model proposes as a question, checked by rule: its words have to stand in the text, and it has to stand alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

import regex

from ragdb.llms.replies import json_value

_LONGEST_QUOTE = 400  # characters: an answer stands in a sentence or two
_QUESTION_LENGTH = (6, 300)
_COPIED = 0.6  # of the question's characters in one run: the lexical leg would find it by that alone
_FEWEST_COPIED = 12  # characters of such a run: names are copied, and should be
_ALIKE = 0.95  # ratio of difflib from which two questions are one: those about Osaka and Kyoto are two
_GIVEN_AWAY = 4  # characters: a shorter answer may stand in a question by chance
# what points to something that who asks has not seen; "this year" is the same for everybody
_POINTS = regex.compile(
    r"\b(?:this|these)\b(?!\s+(?:year|month|week|quarter|season|time)s?\b)(?:\s+\w+)?"
    r"|\bthe\s+(?:above|following|given|provided|quoted)\s+\w+"
    r"|\bthe\s+(?:text|passage|excerpt|quote|quotation)\b|\b(?:in|by|of|from|does)\s+the\s+(?:document|author)\b"
    r"|\baccording\s+to\s+(?:it|that)\b|\b(?:mentioned|described|listed|stated|given|shown)\s+(?:above|below|here)\b"
    r"|^(?:その|それ|これ|こちら|ここ)\p{Han}*|(?:この|これらの|当該)(?!時期|季節|頃)[\p{Han}\p{Katakana}ー]*"
    r"|(?:その|次の|以下の|上の|下の)(?:文書|文章|文|資料|ページ|頁|節|章|項|表|一覧|リスト|テキスト|抜粋|本文|記事|部分)"
    r"|(?<!\p{Han})本(?:文書|文章|文|資料|ページ|頁|節|章|項|表|稿|書|記事|ガイド|規程|規定|手順|報告)(?!化|類)"
    r"|上記|前述|下記|後述|前項|前記|以下のうち|抜粋|引用(?:文|部分)",
    regex.IGNORECASE,
)
_NUMBER = regex.compile(r"\d+(?:[.,:]\d+)*")
_INSIDE = regex.compile(r"[\p{Latin}\p{N}]")
_NOT_WORDS = regex.compile(r"[^\p{L}\p{N}]+")
_SPACE = regex.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Proposed:
    """A question that passed: `quote` as it stands in the text."""

    question: str
    reference: str
    quote: str


class Refused(Exception):
    """A proposal that cannot be used; the text says why."""


def checked(reply: str, text: str, known: Iterable[str]) -> Proposed:
    """The proposal in a reply about `text`; `known` are the questions that there are. Raises Refused with the reason."""
    value = json_value(reply, "question")
    if not isinstance(value, dict):
        raise Refused("no JSON with a question")
    question, reference, quote = (_text(value.get(name)) for name in ("question", "answer", "quote"))
    if not question:
        raise Refused("the model found nothing to ask about")
    if not _QUESTION_LENGTH[0] <= len(question) <= _QUESTION_LENGTH[1]:
        raise Refused(f"it is too short or too long for a question: {len(question)} characters")
    if not reference:
        raise Refused("there is no reference answer")
    found = standing(quote, text)
    if found is None:
        raise Refused(f"the quote does not stand in the text: {quote[:80]!r}" if quote else "there is no quote")
    if len(found) > _LONGEST_QUOTE:
        raise Refused(f"the quote is too long: {len(found)} characters, at most {_LONGEST_QUOTE}")
    if points := _POINTS.search(question):
        raise Refused(f"it is not understood alone: {points[0]!r}")
    if copied := _copied(question, text):
        raise Refused(f"it repeats the text: {copied!r}")
    words = _bare(found)
    if len(words) >= _GIVEN_AWAY and words in _bare(question):
        raise Refused("the question gives its answer away")
    if wrong := [number for number in _NUMBER.findall(_plain(reference)) if number not in _NUMBER.findall(_plain(text))]:
        raise Refused(f"the answer has a number that is not in the text: {wrong[0]}")
    if same := alike(question, known):
        raise Refused(f"it is asked already: {same!r}")
    return Proposed(question, reference, found)


def standing(quote: str, text: str) -> str | None:
    """The words of a text that a quotation gives, as they stand there; spaces, width and case of letters aside."""
    letters = [regex.escape(c) for c in _SPACE.sub("", unicodedata.normalize("NFC", quote))]
    if not letters or len(letters) > 2 * _LONGEST_QUOTE:
        return None
    # not from the middle of a number or a word
    start = r"(?<![\p{Latin}\p{N}])(?<!\d[.,:])" if _INSIDE.match(letters[0]) else ""
    end = r"(?![\p{Latin}\p{N}]|[.,:]\d)" if _INSIDE.match(letters[-1]) else ""
    found = regex.search(start + r"\s*".join(letters) + end, text, regex.IGNORECASE)
    return found[0] if found else None


def alike(question: str, known: Iterable[str]) -> str | None:
    """A known question that is the same one, or nearly so and with the same numbers."""
    asked, numbers = _bare(question), _NUMBER.findall(_plain(question))
    matcher = SequenceMatcher(None, "", asked, autojunk=False)
    for other in known:
        if _NUMBER.findall(_plain(other)) != numbers:
            continue
        matcher.set_seq1(_bare(other))
        if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE:
            return other
    return None


def _copied(question: str, text: str) -> str | None:
    """The run of the question that stands in the text, where it is most of it."""
    asked, there = _bare(question), _bare(text)
    run = SequenceMatcher(None, asked, there, autojunk=False).find_longest_match()
    if run.size < max(_FEWEST_COPIED, _COPIED * len(asked)):
        return None
    return asked[run.a : run.a + run.size]


def _bare(text: str) -> str:
    return _NOT_WORDS.sub("", _plain(text))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _text(value: object) -> str:
    return " ".join(value.replace("\x00", " ").split()) if isinstance(value, str) else ""
