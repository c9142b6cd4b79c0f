"""Front matter: keys that a rule names become fields, every other key is metadata.

Where it is not YAML (`title: Travel: new`), it stays text, and only the keys that rules name are read, line by line: a
slip of one colon must not publish a draft.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import regex

from ragdb.metadata import values
from ragdb.metadata.rules import Rule, Rules, plain_key
from ragdb.readers.markup import FrontMatter
from ragdb.types import Document

log = logging.getLogger("ragdb.ingest")

# A title and an owner are also worth filtering by as the front matter wrote them; the others live in one place only.
_ALSO_METADATA = frozenset({"title", "owner"})
_LINE = regex.compile(r"^([^\s:#][^:\n]{0,40}):[ \t]+(\"[^\"\n]*\"|'[^'\n]*'|[^\s#].*?)(?:[ \t]+#.*)?[ \t]*$", regex.MULTILINE)
_TRUE = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read(front: FrontMatter, document: Document, rules: Rules, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Fills `found`; returns what is metadata: every other key, and values of the wrong form."""
    if front.problem:
        log.warning("%s: the front matter is not YAML and stays in the text (%s)", document.uri, front.problem)
        lines = {key.strip(): text.strip("\"'") for key, text in _LINE.findall(document.content[: front.end])}
        _fields(lines, rules, found, document.uri)
        return {}
    metadata = {str(key): value for key, value in front.values.items()}
    written = {str(key): value for key, value in front.written.items()}
    for key in _fields(written, rules, found, document.uri):
        if key not in _ALSO_METADATA:
            metadata.pop(key, None)
    for key, value in metadata.items():
        found.setdefault(f"metadata.{key}", {"value": value, "rule": "front matter"})
    return metadata


def _fields(written: Mapping[str, Any], rules: Rules, found: dict[str, dict[str, Any]], uri: str) -> list[str]:
    """Fills `found` by the rules' keys; returns the keys that were used."""
    used = []
    by_key = {plain_key(str(key)): str(key) for key in reversed(list(written))}
    for rule in rules.rules:
        for name in rule.keys:
            key = by_key.get(name)
            if key is None or written[key] in (None, "", "null", "~") or rule.field in found:
                continue
            value = _value(rule, written[key])
            if value is None:
                log.warning("%s: front matter %s: %r is no %s; it stays in the metadata", uri, key, written[key], rule.field)
                continue
            used.append(key)
            if value is not False:
                text = f"{key}: {written[key]}"[:200]
                found[rule.field] = {"value": values.stored(value), "rule": "front matter", "text": text}
    return used


def _value(rule: Rule, value: Any) -> Any:
    """None: not of this form; False: it says no (`draft: false`)."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list) and rule.field == "owner" and all(isinstance(one, str) for one in value):
        value = ", ".join(value)
    if not isinstance(value, str) or not value.strip():
        return None
    if rule.value is not None:
        said = _TRUE.get(value.strip().lower())
        return rule.value if said else said
    if rule.field in ("updated_at", "review_after"):
        return values.front_moment(value)
    if rule.field == "status":
        return values.status(rule.words, value)
    return values.name(value) if rule.field == "owner" else value.strip()
