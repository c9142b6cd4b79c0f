"""Rules applied to one document: front matter first, then the rules in order over the lines of its head."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import regex

from ragdb.metadata import front, head, values
from ragdb.metadata.head import Line
from ragdb.metadata.rules import FIELDS, Rule, Rules, timed
from ragdb.readers.markup import head_of, parse
from ragdb.readers.media import media_type
from ragdb.types import Document

log = logging.getLogger("ragdb.ingest")

_SENTENCE = regex.compile(r"(?<=[。!?！？])|(?<=\.)\s+")
_WORD = r"[^\s:=/|\d][^\s:=/|]{0,20}"
# A line that begins with a label may have more of them: "Owner: SRE | Status: draft", "所管: 総務部 改訂日: 2025-04-01"
_LABELLED = regex.compile(rf"{_WORD}(?:\s{_WORD}){{0,2}}\s?[:=]")
_NEXT = regex.compile(rf"(?:\s*[/|·•;、,]\s*|\s{{2,}})(?={_LABELLED.pattern})|\s+(?![-+]\d)(?={_WORD}\s?[:=])")
_LABEL = regex.compile(r"[^:。.]{1,24}:\s*(?=\S)")
_ASIDE = regex.compile(r"\s*\((?P<aside>[^()]*(?:\([^()]*\)[^()]*)*)\)")


def described(document: Document, rules: Rules | None = None) -> Document:
    """Returns the document with what its own text says about it, in `found` with rule and place.

    What the reader has set already (the file's own properties) is the last that counts. `found` maps a field, or
    `metadata.NAME`, to {"value", "rule", "line", "text"}; where nothing was read, without rules, it is None.
    """
    rules = rules or Rules.builtin()
    if not rules.rules:
        return document
    found: dict[str, dict[str, Any]] = {}
    metadata: dict[str, Any] = {}
    markup = None
    if media_type(document) == "text/markdown":
        try:
            markup = parse(head_of(document.content))
        except RecursionError:
            log.warning("%s: the Markdown is nested too deep to be parsed; nothing is read from its head", document.uri)
            return document
        if markup.front_matter is not None:
            metadata = front.read(markup.front_matter, document, rules, found)
    lines = list(head.lines(document, markup))
    of_the_page = _without_states(lines, rules)
    for rule in rules.rules:
        # a bare `date` may be that of the first writing: a line that says "updated" knows better
        if rule.field not in found or (rule.labels_win and str(found[rule.field].get("text", "")).startswith("date:")):
            _ask(rule, of_the_page if rule.field == "status" else lines, found)
    for name in [name for name in found if name.startswith("metadata.")]:
        metadata.setdefault(name.removeprefix("metadata."), found[name]["value"])
    for name, known in _properties(document).items():
        found.setdefault(name, known)
    fields = {name: _typed(name, found[name]["value"]) for name in FIELDS if name in found}
    metadata = {**metadata, **(document.metadata or {})}
    return dataclasses.replace(document, metadata=metadata or document.metadata, found=found, **fields)


def _without_states(lines: Sequence[Line], rules: Rules) -> Sequence[Line]:
    """The lines without those that are one state each where there are several: "Draft", "Published" are explained there."""
    words = {word: status for rule in rules.rules if rule.field == "status" for word, status in rule.words.items()}
    # items of a list say nothing about the page in any case
    bare = ((line, words.get(line.text.strip(" .。:").casefold())) for line in lines if line.kind in ("quote", "alone"))
    states = {line: status for line, status in bare if status}
    return [line for line in lines if line not in states] if len({*states.values()}) > 1 else lines


def _properties(document: Document) -> dict[str, dict[str, Any]]:
    """What the reader took from the file itself: a PDF's date, a page's language."""
    known = ((name, getattr(document, name)) for name in FIELDS)
    return {name: {"value": values.stored(value), "rule": "file properties"} for name, value in known if value is not None}


def _typed(field: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if field in ("updated_at", "review_after") else value


def _ask(rule: Rule, lines: Sequence[Line], found: dict[str, dict[str, Any]]) -> None:
    """The first line that says it; of several dates of change the last one."""
    best: tuple[Any, str | None, Line] | None = None
    for line in lines:
        for value, aside in _said(rule, line):
            if best is None or (rule.field == "updated_at" and value > best[0]):
                best = value, aside, line
            break
        if best is not None and rule.field != "updated_at":
            break
    if best is None:
        return
    value, aside, line = best
    at = {"rule": rule.name, "line": line.number, "text": line.written[:200]}
    found[rule.field] = {"value": value, **at}
    if rule.aside and aside and rule.aside not in found:
        found[rule.aside] = {"value": aside, **at}


def _said(rule: Rule, line: Line) -> Iterator[tuple[Any, str | None]]:
    """What a line says by a rule: the value, and what stands in brackets behind it."""
    if line.kind == "title":
        yield from _matched(rule, rule.title, [line.text])
        return
    if rule.label is not None:
        for text in _values(rule.label, line.text):
            if (read := _read(rule, text)) is not None:
                yield read
    if line.kind == "item":
        return  # a list of states, steps or links speaks of its items
    sentences = [part.strip() for part in _SENTENCE.split(line.text) if part.strip()]
    # "Archive 注記: この文書は...": what stands behind a short label is a sentence too
    sentences += [sentence[label.end() :] for sentence in sentences if (label := _LABEL.match(sentence))]
    yield from _matched(rule, rule.patterns, sentences)
    if line.kind in ("quote", "alone"):
        yield from _matched(rule, rule.notice, [line.text])
    if line.kind == "quote":
        yield from _matched(rule, (*rule.notice, *rule.quoted), sentences)


def _matched(rule: Rule, patterns: Sequence[regex.Pattern[str]], texts: Sequence[str]) -> Iterator[tuple[Any, None]]:
    for pattern in patterns:
        for text in texts:
            if match := timed(pattern, text):
                if rule.value is not None:
                    yield rule.value, None
                elif match[1] and (read := _read(rule, match[1])) is not None:
                    yield read[0], None


def _values(label: regex.Pattern[str], text: str) -> Iterator[str]:
    """What stands behind the label, up to the next one on the line."""
    while text:
        own = _LABELLED.match(text)
        following = _NEXT.search(text, own.end()) if own else None
        part, text = (text[: following.start()], text[following.end() :]) if following else (text, "")
        if match := label.match(part):
            yield part[match.end() :].strip()


def _read(rule: Rule, text: str) -> tuple[Any, str | None] | None:
    """A value of the rule's field, with the words in brackets behind it; None where it is not one for sure."""
    if rule.field in ("updated_at", "review_after"):
        return _with_aside(text, values.moment(text))
    if rule.field == "version":
        read = values.version(text)
        return _with_aside(text, read) if read and regex.match(r"\s*(?:$|[(/|·、,;]|\.$)", text[read[1] :]) else None
    if rule.field == "status":
        status = values.status(rule.words, text)
        return (status, None) if status else None
    bare = regex.split(r"\s*[(（]", text, maxsplit=1)[0].strip(" .。、,;")
    if rule.field == "language":
        return (bare, None) if regex.fullmatch(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", bare) else None
    if rule.field.startswith("metadata.") and (moment := values.moment(text)):
        return _with_aside(text, (values.day_or_time(moment[0]), moment[1]))
    known = values.name(bare)
    return None if known is None else _with_aside(text, (known, len(bare)))


def _with_aside(text: str, read: tuple[Any, int] | None) -> tuple[Any, str | None] | None:
    if read is None:
        return None
    value, end = read
    aside = _ASIDE.match(text, end)
    return values.stored(value), aside["aside"].strip() or None if aside else None
