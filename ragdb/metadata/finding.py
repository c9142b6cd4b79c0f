"""Rules applied to one document: front matter first, then the rules in order over the lines of its head."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import regex

from ragdb.metadata import head, values
from ragdb.metadata.head import Line
from ragdb.metadata.rules import FIELDS, Rule, Rules, timed
from ragdb.readers.markup import FrontMatter, head_of, parse
from ragdb.readers.media import media_type
from ragdb.types import Document

log = logging.getLogger("ragdb.ingest")

# A title and an owner are also worth filtering by as the front matter wrote them; the others live in one place only.
_ALSO_METADATA = frozenset({"title", "owner"})
_SENTENCE = regex.compile(r"(?<=[。!?！？])|(?<=\.)\s+")
_NEXT = regex.compile(r"\s+[/|·•]\s+|\s{2,}|\t|;\s")  # where another label may follow on the same line
_LABEL = regex.compile(r"[^:。.]{1,24}:\s*(?=\S)")
_ASIDE = regex.compile(r"\s*\((?P<aside>[^()]*(?:\([^()]*\)[^()]*)*)\)")
_TRUE = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def described(document: Document, rules: Rules | None = None) -> Document:
    """Returns the document with what its own text says about it, in `found` with rule and place.

    What the document has already stays. `found` maps a field, or `metadata.NAME`, to {"value", "rule", "line", "text"}.
    """
    rules = rules or Rules.builtin()
    base = _properties(document)
    if not rules.rules:
        return dataclasses.replace(document, found=base)
    found: dict[str, dict[str, Any]] = {}
    metadata: dict[str, Any] = {}
    markup = None
    if media_type(document) == "text/markdown":
        try:
            markup = parse(head_of(document.content))
        except RecursionError:
            log.warning("%s: the Markdown is nested too deep to be parsed; nothing is read from its head", document.uri)
            return dataclasses.replace(document, found=base)
        if markup.front_matter is not None:
            metadata = _front(markup.front_matter, rules, found, document.uri)
    lines = list(head.lines(document, markup))
    for rule in rules.rules:
        if rule.field not in found:
            _ask(rule, lines, found)
    for name in [name for name in found if name.startswith("metadata.")]:
        metadata.setdefault(name.removeprefix("metadata."), found[name]["value"])
    for name, known in base.items():
        found.setdefault(name, known)
    fields = {name: _typed(name, found[name]["value"]) for name in FIELDS if name in found}
    metadata = {**metadata, **(document.metadata or {})}
    return dataclasses.replace(document, metadata=metadata or document.metadata, found=found, **fields)


def _properties(document: Document) -> dict[str, dict[str, Any]]:
    """What the reader took from the file itself (a PDF's date, a page's language) is the last that counts."""
    known = {name: getattr(document, name) for name in FIELDS}
    return {name: {"value": _stored(value), "rule": "file properties"} for name, value in known.items() if value is not None}


def _stored(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _typed(field: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if field in ("updated_at", "review_after") else value


# --- front matter -----------------------------------------------------------------------------------------


def _front(front: FrontMatter, rules: Rules, found: dict[str, dict[str, Any]], uri: str) -> dict[str, Any]:
    """Fills `found`; returns what is metadata: every other key, and values of the wrong form."""
    if front.problem:
        log.warning("%s: the front matter is not YAML and stays in the text (%s)", uri, front.problem)
        return {}
    metadata = {str(key): value for key, value in front.values.items()}
    written = {str(key): value for key, value in front.written.items()}
    for rule in rules.rules:
        for key in rule.keys:
            if metadata.get(key) is None or rule.field in found:
                continue
            value = _front_value(rule, written.get(key))
            if value is None:
                log.warning("%s: front matter %s: %r is no %s; it stays in the metadata", uri, key, written.get(key), rule.field)
            elif value is not False:
                found[rule.field] = {"value": _stored(value), "rule": "front matter", "text": f"{key}: {written.get(key)}"[:200]}
                if key not in _ALSO_METADATA:
                    del metadata[key]
    return metadata


def _front_value(rule: Rule, value: Any) -> Any:
    """None: not of this form; False: it says no (`draft: false`)."""
    if rule.value is not None:
        said = _TRUE.get(value.strip().lower()) if isinstance(value, str) else None
        return rule.value if said else said
    if rule.field in ("updated_at", "review_after"):
        return values.front_moment(value)
    if not isinstance(value, str) or not value.strip():
        return None
    return rule.words.get(value.strip().casefold()) if rule.field == "status" else value.strip()


# --- the head ---------------------------------------------------------------------------------------------


def _ask(rule: Rule, lines: Sequence[Line], found: dict[str, dict[str, Any]]) -> None:
    for line in lines:
        for value, aside in _said(rule, line):
            at = {"rule": rule.name, "line": line.number, "text": line.written[:200]}
            found[rule.field] = {"value": value, **at}
            if rule.aside and aside and rule.aside not in found:
                found[rule.aside] = {"value": aside, **at}
            return


def _said(rule: Rule, line: Line) -> Iterator[tuple[Any, str | None]]:
    """What a line says by a rule: the value, and what stands in brackets behind it."""
    if line.kind == "title":
        yield from _matched(rule, rule.title, [line.text])
        return
    if rule.label is not None:
        for text in _values(rule.label, line):
            if (read := _read(rule, text)) is not None:
                yield read
    if line.kind != "row":
        sentences = [part.strip() for part in _SENTENCE.split(line.text) if part.strip()]
        # "Archive 注記: この文書は...": what stands behind a short label is a sentence too
        sentences += [sentence[label.end() :] for sentence in sentences if (label := _LABEL.match(sentence))]
        yield from _matched(rule, rule.patterns, sentences)
        if line.kind == "quote":
            yield from _matched(rule, rule.quoted, sentences)


def _matched(rule: Rule, patterns: Sequence[regex.Pattern[str]], texts: Sequence[str]) -> Iterator[tuple[Any, None]]:
    for pattern in patterns:
        for text in texts:
            if match := timed(pattern, text):
                if rule.value is not None:
                    yield rule.value, None
                elif match[1] and (read := _read(rule, match[1])) is not None:
                    yield read[0], None


def _values(label: regex.Pattern[str], line: Line) -> Iterator[str]:
    """What stands behind the label, up to the next one on the line; in a table, the cell beside it."""
    if line.kind == "row":
        cells = [cell.strip() for cell in line.text.strip().strip("|").split("|")]
        if (
            len(cells) == 2
            and label.fullmatch(f"{cells[0]}: ", partial=True) is not None
            and label.match(f"{cells[0]}: {cells[1]}")
        ):
            yield cells[1]
        return
    for match in label.finditer(line.text):
        rest = line.text[match.end() :]
        for gap in _NEXT.finditer(rest):
            if regex.match(r"[^:=/|]{1,30}[:=]", rest[gap.end() :]):
                rest = rest[: gap.start()]
                break
        yield rest.strip()


def _read(rule: Rule, text: str) -> tuple[Any, str | None] | None:
    """A value of the rule's field, with the words in brackets behind it; None where it is not one for sure."""
    if rule.field in ("updated_at", "review_after"):
        return _with_aside(text, values.moment(text))
    if rule.field == "version":
        return _with_aside(text, values.version(text))
    bare = regex.split(r"\s*[(（]", text, maxsplit=1)[0].strip(" .。、,;")
    if rule.field == "status":
        word = regex.split(r"\s*(?:[-–—:,、。/]|\s(?=v?\d))", bare, maxsplit=1)[0].casefold()
        status = rule.words.get(bare.casefold()) or rule.words.get(word) if rule.words else rule.value
        return (status, None) if status else None
    if rule.field == "language":
        return (bare, None) if regex.fullmatch(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", bare) else None
    if rule.field.startswith("metadata.") and (read := values.moment(text)):
        return _with_aside(text, (values.day_or_time(read[0]), read[1]))
    if (known := values.name(bare)) is None:
        return None
    return _with_aside(text, (known, len(bare)))


def _with_aside(text: str, read: tuple[Any, int] | None) -> tuple[Any, str | None] | None:
    if read is None:
        return None
    value, end = read
    aside = _ASIDE.match(text, end)
    return _stored(value), aside["aside"].strip() or None if aside else None
