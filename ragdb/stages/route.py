"""route: what a question needs, by rules that are seen in the trace; a model is asked on request, where no rule fits.

A greeting needs no retrieval. What quotes a string or names an identifier is searched as it stands: a made-up passage
or a more general question leads away from it. A question with several sides is taken apart.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import regex

from ragdb.adapters import sendable
from ragdb.llms.calls import complete
from ragdb.llms.replies import json_value
from ragdb.prompts import OURS, Prompts, language_of
from ragdb.protocols import LLM
from ragdb.types import Message, Outcome

logger = logging.getLogger("ragdb.run")


def _words(listed: str) -> frozenset[str]:
    return frozenset(" ".join(words.split()) for words in listed.split(","))


Kind = Literal["no_retrieval", "said_before", "exact", "many", "simple"]

_GREETINGS = _words(
    """
    hi, hello, hey, hey there, hi there, hello there, good morning, good afternoon, good evening, how are you, nice to meet you,
    who are you, what can you do, こんにちは, こんばんは, おはよう, おはようございます, やあ, どうも, はじめまして, よろしく,
    よろしくお願いします, お疲れ様です, お疲れさまです, お世話になっております, あなたは誰, あなたは誰ですか, 何ができますか
    """
)
_THANKS = _words(
    """
    thanks, thanks a lot, thank you, thank you very much, thank you so much, many thanks, thx, ok, okay, got it, ok thanks,
    great thanks, ありがとう, ありがとうございます, ありがとうございました, どうもありがとう, どうもありがとうございます,
    了解, 了解です, 了解しました, わかりました, 分かりました, 承知しました, なるほど, 助かりました
    """
)
_FAREWELLS = _words(
    "bye, bye bye, goodbye, good bye, good night, see you, see you later, さようなら, おやすみなさい, では, それでは, またね"
)
# The whole question is about what was said, in this conversation and not in a document: by its own words, or where
# something was said before that "it" can mean.
_DO = (
    r"(?:please\s+)?(?:(?:can|could|would)\s+you\s+)?(?:please\s+)?(?:summari[sz]e|repeat|rephrase|translate|shorten|explain)\s+"
)
_HOW = r"(?:\s+(?:again|in(?:to)?\s+\w+|please|briefly|more\s+simply))*"
_VERB = r"(?:要約|まとめ|繰り返|言い換え|翻訳|訳|説明|短く)(?:し|え|っ)?て?(?:ください|くれますか|もらえますか|下さい)?"
_SAID = regex.compile(
    rf"{_DO}(?:what\s+you(?:'ve|\s+have)?\s+(?:just\s+)?(?:said|wrote)|your\s+(?:last\s+|previous\s+)?(?:answer|reply)){_HOW}"
    rf"|(?:(?:今|いま|さっき|先ほど|あなた)の)(?:回答|答え|返事|話|説明|内容)を?(?:もう一度|短く|簡単に|英語で|日本語で)?{_VERB}",
    regex.IGNORECASE,
)
_SAID_BEFORE = regex.compile(
    rf"{_DO}(?:that|this|(?-i:it)){_HOW}"
    r"|(?:say\s+(?:that|(?-i:it))\s+again|once\s+more|again|shorter|more\s+briefly|in\s+short)(?:\s*,?\s*please)?"
    r"|もう(?:一度|いちど|一回)(?:お願い(?:します|できますか)?|言って(?:ください)?)?"
    rf"|(?:もっと|もう少し)?(?:短く|簡単に|わかりやすく|分かりやすく)(?:{_VERB}|お願いします)?"
    r"|要約(?:して|してください|をお願いします|お願いします)?"
    rf"|(?:(?:それ|これ|回答|答え|返事|話|説明|内容)を?)(?:もう一度|短く|簡単に|英語で|日本語で)?{_VERB}",
    regex.IGNORECASE,
)
_READ = 2000  # characters of a question that the rules look at
_QUOTED = regex.compile(
    r"(?<![A-Za-z0-9])\"(?=\S)[^\"]{2,200}(?<=\S)\"|“[^”]{2,200}”|(?<![A-Za-z0-9])`[^`]{2,200}`|『[^』]{2,200}』"
)
_RUN = regex.compile(r"(?<![A-Za-z0-9_.:/#-])[A-Za-z0-9_/.][A-Za-z0-9_.:/#-]*+")
# Each on its own is an identifier; ordinary words with marks are not: and/or, 3.5mm, 9 a.m., mid-2024, 10:30am.
_IDENTIFIER = regex.compile(
    r"""\w*[A-Za-z0-9]_[A-Za-z0-9].*                                        # ERR_CONN_RESET
      | .*[A-Za-z0-9](?:::|\#|://)[A-Za-z0-9].*                              # std::map, a#b, http://a
      | /[A-Za-z0-9].*/.*                                                   # /etc/hosts
      | [vV]\d+(?:\.\d+)+.* | (?=.*[A-Za-z])\d+\.\d+\.\d.*                    # v3.2.1
      | (?:.*[/:])?[A-Za-z][A-Za-z0-9-]+(?:\.[A-Za-z][A-Za-z0-9]+)+(?:[/:].*)? # foo.bar, a/main.py
      | [A-Za-z]{2,}:[A-Za-z]{2,}.*                                          # openai:gpt
      | (?=.*\d)(?:[A-Z]+|[A-Za-z]*\d+[A-Z]+\w*|[A-Z]+\d+\w*)(?:-[A-Za-z0-9]+)+ # KZ-4410-B, CVE-2024-3094
      | [A-Z]{2,}\d+[A-Za-z0-9]* | [A-Za-z]+\d{2,}[A-Za-z0-9]*                 # HTTP404, abc123""",
    regex.VERBOSE,
)
_SIDES = regex.compile(
    r"\b(?:compare|comparison|differences? between|versus|vs\.?|pros and cons|as well as|respectively)\b"
    r"|(?<![間勘手食行場筋])違い(?![まな])|比較|(?<![見食調])比べ|それぞれ|両方|メリットとデメリット",
    regex.IGNORECASE,
)

_SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["one", "many", "talk", "said"]}},
    "required": ["kind"],
    "additionalProperties": False,
}

#: Rewriters that lead away from a string that has to be found as it stands.
LEADING_AWAY = ("hyde", "stepback", "multi", "reword")


@dataclass(frozen=True, slots=True)
class Route:
    """`kind` and its `reason`; `leave_out` and `add` name rewriters, `words` the message where nothing is searched."""

    kind: Kind
    reason: str
    leave_out: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    words: str = "no_retrieval"


def route(question: str, *, history: bool = False) -> Outcome[Route]:
    """What kind of question it is. `history`: something was said before."""
    found = _route(question, history)
    return Outcome(found, note=f"{found.kind}: {found.reason}")


def route_by_model(question: str, llm: LLM, *, history: bool, timeout: float, prompts: Prompts = OURS) -> Outcome[Route]:
    """By rules first; what they call simple, a language model may call otherwise, in one call. It fails: simple."""
    found = _route(question, history)
    if found.kind != "simple":
        return Outcome(found, note=f"{found.kind}: {found.reason}")
    prompt = prompts.template("route", language_of(question)).substitute(question=sendable(question))
    try:
        reply = complete(llm, [Message("user", prompt)], schema=_SCHEMA, temperature=0.0, max_tokens=64, deadline=timeout)
    except Exception as error:  # noqa: BLE001  whatever a model does: the rules have decided already
        logger.warning("%s could not route: %s: %s", llm.name, type(error).__name__, sendable(str(error)))
        why = f"the model did not say: {str(error) or type(error).__name__}"
        return Outcome(found, note=f"simple: {found.reason}; {why}", fell_back=True)
    said = json_value(reply.text, "kind")
    kind = said.get("kind") if isinstance(said, dict) else None
    chosen = {
        "one": found,
        "many": Route("many", "several things, says the model", add=("decompose",)),
        "talk": Route("no_retrieval", "talk, says the model"),
        "said": Route("said_before", "about what was said, says the model"),
    }.get(str(kind))
    if chosen is None or (chosen.kind == "said_before" and not history):
        why = f"the model said {' '.join(reply.text.split())[:80]!r}"
        return Outcome(found, note=f"simple: {found.reason}; {why}", fell_back=True)
    return Outcome(chosen, note=f"{chosen.kind}: {chosen.reason}")


def _route(question: str, history: bool) -> Route:
    question = question[:_READ]
    plain = unicodedata.normalize("NFKC", question).strip()[:_READ]
    bare = regex.sub(r"[\p{P}\p{S}]+", " ", plain).strip().casefold()
    bare = " ".join(bare.split())
    for words, reason, of_kind in (
        ("no_retrieval", "a greeting", _GREETINGS),
        ("thanks", "thanks", _THANKS),
        ("farewell", "a farewell", _FAREWELLS),
    ):
        if bare in of_kind:
            return Route("no_retrieval", reason, words=words)
    asked = plain.rstrip(" \t\n.!?。！？、,")
    if _SAID.fullmatch(asked):
        return Route("said_before", "about what was said" if history else "about what was said, and nothing was")
    # Without anything said before, "explain it" may be about a page called so: a search costs little.
    if history and _SAID_BEFORE.fullmatch(asked):
        return Route("said_before", "about what was said")
    if quoted := _QUOTED.search(question):
        return Route("exact", f"it quotes {quoted[0]}", leave_out=LEADING_AWAY)
    if identifier := _identifier(plain):
        return Route("exact", f"it names {identifier}", leave_out=LEADING_AWAY)
    if sides := _many(plain):
        return Route("many", sides, add=("decompose",))
    return Route("simple", "one question")


def _identifier(question: str) -> str:
    runs = (match[0].rstrip(".:/#-") for match in _RUN.finditer(question))
    return next((run for run in runs if _IDENTIFIER.fullmatch(run[:200])), "")


def _many(question: str) -> str:
    # a polite word or a remark behind the mark is no second question
    if sum(1 for part in regex.split(r"[?？]+", question)[:-1] if regex.search(r"\w", part)) > 1:
        return "several questions"
    if found := _SIDES.search(question):
        return f"several sides ({found[0]})"
    return ""


def without(names: Sequence[str], route: Route) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(rewriters to use, those left out), by the first part of their names."""
    out = tuple(name for name in names if name.partition(":")[0] in route.leave_out)
    return tuple(name for name in names if name not in out), out
