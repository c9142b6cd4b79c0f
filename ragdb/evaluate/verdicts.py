"""Verdicts, read out of what a judging model wrote. What cannot be used is Unusable, with the reason; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragdb.llms.replies import json_value

_YES = frozenset({"yes", "true", "1", "はい"})
_NO = frozenset({"no", "false", "0", "いいえ"})
_TEXT = {"type": "string"}
_VERDICT = {
    "type": "object",
    "properties": {"why": _TEXT, "verdict": {"type": "boolean"}},
    "required": ["why", "verdict"],
    "additionalProperties": False,
}

STATEMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"statements": {"type": "array", "items": _TEXT}},
    "required": ["statements"],
    "additionalProperties": False,
}
ONE_VERDICT: Mapping[str, Any] = _VERDICT


class Unusable(Exception):
    """Nothing can be made of a reply; the text says why."""


def verdicts_schema(count: int) -> dict[str, Any]:
    """`count` verdicts by number: a list would leave their number to the model, properties that are required do not."""
    return _numbered(_VERDICT, count)


def questions_schema(count: int) -> dict[str, Any]:
    """Whether the answer commits to anything, then `count` questions by number."""
    made = _numbered(_TEXT, count)
    made["properties"] = {"noncommittal": {"type": "boolean"}, **made["properties"]}
    made["required"] = ["noncommittal", *made["required"]]
    return made


def _numbered(item: Mapping[str, Any], count: int) -> dict[str, Any]:
    names = [str(n) for n in range(1, count + 1)]
    return {"type": "object", "properties": dict.fromkeys(names, item), "required": names, "additionalProperties": False}


def statements(text: str) -> list[str]:
    """The statements of a reply, each once. Raises Unusable where there is none."""
    value = json_value(text, "statements")
    listed = value.get("statements") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        raise Unusable("no JSON with statements")
    if wrong := [item for item in listed if not isinstance(item, str)]:
        raise Unusable(f"a statement is {str(wrong[0])[:60]!r}, no text")
    found = list(dict.fromkeys(words for item in listed if (words := " ".join(item.split()))))
    if not found:
        raise Unusable("no statements: the list is empty")
    return found


def verdicts(text: str, count: int) -> list[bool]:
    """Verdicts 1 to `count`, in order. Raises Unusable where one is missing, is neither yes nor no, or there are more."""
    value = json_value(text, "1")
    if isinstance(value, dict) and "1" in value:
        listed = [value[str(n)] for n in range(1, count + 1) if str(n) in value]
        more = len(value) - len(listed)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):  # [1] in a sentence is no verdict
        listed, more = value[:count], max(0, len(value) - count)
    else:
        raise Unusable("no JSON with verdicts")
    if len(listed) != count or more:
        raise Unusable(f"{len(listed) + more} verdicts for {count} statements")
    return [_truth(item, n) for n, item in enumerate(listed, start=1)]


def verdict(text: str) -> bool:
    """The one verdict of a reply. Raises Unusable where there is none."""
    value = json_value(text, "verdict")
    if not isinstance(value, dict) or "verdict" not in value:
        raise Unusable("no JSON with a verdict")
    return _truth(value, 1)


def questions(text: str, count: int) -> tuple[list[str], bool]:
    """The questions 1 to `count`, and whether the answer is noncommittal (its questions may then be missing).

    Raises Unusable where either is not said.
    """
    value = json_value(text, "noncommittal")
    if not isinstance(value, dict) or "noncommittal" not in value:
        raise Unusable("no JSON that says whether the answer is noncommittal")
    evasive = _truth(value["noncommittal"], 1)
    found = [value.get(str(n)) for n in range(1, count + 1)]
    asked = [" ".join(item.split()) for item in found if isinstance(item, str) and item.strip()]
    if len(asked) != count and not evasive:
        raise Unusable(f"{len(asked)} questions, {count} were asked for")
    return asked, evasive


def _truth(value: Any, number: int) -> bool:
    said = value.get("verdict") if isinstance(value, dict) else value
    why = value.get("why") if isinstance(value, dict) else None
    if isinstance(why, str) and why.strip() and not why.strip(".… "):
        raise Unusable(f"verdict {number} is the form of the prompt: its reason is {why.strip()!r}")
    word = str(said).strip().casefold() if isinstance(said, (bool, int, str)) else ""
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise Unusable(f"verdict {number} is {str(said)[:60]!r}, neither yes nor no")


def average_precision(useful: Sequence[bool]) -> float:
    """The mean of precision@k over the ranks k that are useful, 0 where none is.

    Context Precision@K of the ragas library's documentation; other than average precision it divides by what was found.
    """
    places = [k for k, is_useful in enumerate(useful, start=1) if is_useful]
    return sum(n / k for n, k in enumerate(places, start=1)) / len(places) if places else 0.0
