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

Kind = Literal["no_retrieval", "said_before", "exact", "many", "simple"]

_GREETINGS = frozenset(
    """
    hi, hello, hey, hey there, hi there, hello there, good morning, good afternoon, good evening, good night, thanks,
    thank you, thank you very much, many thanks, thx, bye, goodbye, see you, ok, okay, how are you, nice to meet you,
    who are you, what can you do, こんにちは, こんばんは, おはよう, おはようございます, やあ, どうも, はじめまして, よろしく,
    よろしくお願いします, ありがとう, ありがとうございます, ありがとうございました, お疲れ様です, お疲れさまです,
    お世話になっております, さようなら, おやすみなさい, 了解, 了解です, わかりました, あなたは誰, あなたは誰ですか, 何ができますか
    """.replace("\n", " ").split(", ")
)
_GREETINGS = frozenset(" ".join(greeting.split()) for greeting in _GREETINGS)
# The whole question is about what was said, in this conversation and not in a document.
_SAID = regex.compile(
    r"""(?:please\s+)?(?:(?:can|could)\s+you\s+)?(?:summari[sz]e|repeat|rephrase|translate|shorten|explain)\s+
        (?:that|this|it|what\s+you(?:'ve|\s+have)?\s+(?:just\s+)?(?:said|wrote)|your\s+(?:last\s+|previous\s+)?(?:answer|reply))
        (?:\s+(?:again|in\s+\w+|please|briefly|more\s+simply))*
      | (?:今|さっき|先ほど|いま)?の?(?:回答|答え|返事|話|説明|内容|それ|これ)を?(?:もう一度|短く|簡単に|英語で|日本語で)?
        (?:要約|まとめ|繰り返|言い換え|翻訳|訳)(?:し|え|っ)?(?:て|てください|てくれますか|してください|して)?""",
    regex.IGNORECASE | regex.VERBOSE,
)
_QUOTED = regex.compile(r"\"[^\"]{2,}\"|“[^”]{2,}”|`[^`]{2,}`|『[^』]{2,}』")
# Letters with digits or inner marks: ERR_CONN_RESET, KZ-4410-B, v3.2, CVE-2024-3094, foo.bar(); not a date or a number.
_IDENTIFIER = regex.compile(
    r"(?<![\w.])(?=[\w.:/#-]*[A-Za-z])(?:[A-Za-z0-9]+(?:[_:#/]|::|\.(?=\w)|-(?=\w*\d))[\w.:/#-]*\w|[A-Z]{2,}\d+\w*|[A-Za-z]+\d{2,}\w*)(?![\w])"
)
_SIDES = regex.compile(
    r"\b(?:compare|comparison|differences? between|versus|vs\.?|pros and cons|as well as|respectively)\b"
    r"|違い|比較|比べ|それぞれ|両方|メリットとデメリット",
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
    """`kind` and its `reason`; `leave_out` and `add` name rewriters."""

    kind: Kind
    reason: str
    leave_out: tuple[str, ...] = ()
    add: tuple[str, ...] = ()


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
        logger.warning("%s could not route: %s: %s", llm.name, type(error).__name__, error)
        return Outcome(found, note=f"simple: {found.reason}; the model did not say: {str(error) or type(error).__name__}")
    said = json_value(reply.text)
    kind = said.get("kind") if isinstance(said, dict) else None
    chosen = {
        "one": found,
        "many": Route("many", "several things, says the model", add=("decompose",)),
        "talk": Route("no_retrieval", "talk, says the model"),
        "said": Route("said_before", "about what was said, says the model"),
    }.get(str(kind))
    if chosen is None or (chosen.kind == "said_before" and not history):
        return Outcome(found, note=f"simple: {found.reason}; the model said {' '.join(reply.text.split())[:80]!r}")
    return Outcome(chosen, note=f"{chosen.kind}: {chosen.reason}")


def _route(question: str, history: bool) -> Route:
    plain = unicodedata.normalize("NFKC", question).strip()
    bare = regex.sub(r"[\p{P}\p{S}]+", " ", plain).strip().casefold()
    bare = " ".join(bare.split())
    if bare in _GREETINGS:
        return Route("no_retrieval", "a greeting")
    if _SAID.fullmatch(regex.sub(r"[\s.!?。！？、,]+$", "", plain)):
        return Route("said_before", "about what was said" if history else "about what was said, and nothing was")
    if quoted := _QUOTED.search(question):
        return Route("exact", f"it quotes {quoted[0]}", leave_out=LEADING_AWAY)
    if identifier := _IDENTIFIER.search(plain):
        return Route("exact", f"it names {identifier[0]}", leave_out=LEADING_AWAY)
    if sides := _many(plain):
        return Route("many", sides, add=("decompose",))
    return Route("simple", "one question")


def _many(question: str) -> str:
    if len(regex.findall(r"[?？]", question.rstrip("?？"))) >= 1:
        return "several questions"
    if found := _SIDES.search(question):
        return f"several sides ({found[0]})"
    return ""


def without(names: Sequence[str], route: Route) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(rewriters to use, those left out), by the first part of their names."""
    out = tuple(name for name in names if name.partition(":")[0] in route.leave_out)
    return tuple(name for name in names if name not in out), out
