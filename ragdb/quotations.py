"""An answer without a language model: sentences of the hits themselves, each with its citation.

What holds most of the question, by idf, comes first. A table row is quoted whole, below the header of its table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile

from ragdb.citations import citation
from ragdb.sentences import sentences
from ragdb.types import Answer, Hit, Outcome, Passage

_QUOTES = 3
_QUOTE_LENGTH = 400
_RULE = re.compile(r"\|[ \t:|-]*-[ \t:|-]*(?:\n|$)")


def quote(question: str, passages: Sequence[Passage], order: Sequence[int] = ()) -> Outcome[Answer]:
    """Up to three quotations from the evident hits, each with a citation; what holds most of the question comes first.

    `order` are chunk ids, best first, where a reranker has read them: its word counts more.
    """
    evident = [(passage, hit) for passage in passages for hit in passage.hits if hit.chunk_id in passage.evident]
    places = {chunk_id: place for place, chunk_id in enumerate(order)}
    evident.sort(key=lambda f: (places.get(f[1].chunk_id, 0), -f[1].evidence, -f[1].score, f[1].chunk_id))
    citations, headers = [], []
    # Numbered by quotation, not by passage: two quotations of one passage point to two places.
    for number, (_, hit) in enumerate(evident[:_QUOTES], start=1):
        start, end = _best_span(hit)
        citations.append(citation(number, hit, hit.start + start, hit.start + end, hit.content[start:end]))
        headers.append(_header(hit, start))
    text = "\n\n".join(f"{above}{c.quote}{_gap(c.quote)}[{c.number}]" for above, c in zip(headers, citations, strict=True))
    return Outcome(
        Answer(None, text, "answered", "extractive", tuple(citations), question=question), note=f"quotations: {len(citations)}"
    )


def _gap(quotation: str) -> str:
    """A mark behind a table row or a closing fence would become part of it."""
    last = quotation.rsplit("\n", 1)[-1].lstrip()
    return "\n\n" if last.startswith(("|", "```", "~~~")) else " "


def _header(hit: Hit, start: int) -> str:
    """The header of the table whose later rows are quoted, with its line end: cells without the names of columns say little."""
    if not hit.content.startswith("|", start) or _RULE.match(hit.content, hit.content.find("\n", start) + 1 or len(hit.content)):
        return ""
    above = hit.content[:start].splitlines()
    rows = list(takewhile(lambda line: line.startswith("|"), reversed(above)))
    if len(rows) == len(above):  # the table began in an earlier chunk, and its header stands in the context
        rows += takewhile(lambda line: line.startswith("|"), reversed(hit.context.splitlines()))
    for rule, names in pairwise(rows):
        if _RULE.match(rule):
            return f"{names}\n{rule}\n"
    return ""


def _best_span(hit: Hit) -> tuple[int, int]:
    """The part of a hit to quote: all of a short one, else the sentences around the one that matches best."""
    text = hit.content
    if len(text.strip()) <= _QUOTE_LENGTH:
        return len(text) - len(text.lstrip()), len(text.rstrip())
    spans = sentences(text)
    held = [_held(text[s:e], hit.matched) for s, e in spans]
    often = Counter(word for words in held for word in words)
    # as much of the question as can be; of as much the words that stand in the fewest sentences, and not the heading's
    weights = [(sum(hit.matched[word] for word in words), sum(1 / often[word] for word in words)) for words in held]
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


def _held(sentence: str, matched: Mapping[str, float]) -> list[str]:
    """The words of the question that a sentence has."""
    folded = sentence.casefold()
    return [word for word in matched if _beginning(word) in folded]


def _beginning(word: str) -> str:
    """A stem is a prefix of its words, but for its last letter (policy, polici); a name with a number is no stem."""
    return word[:-1] if len(word) >= 4 and word.isascii() and not any(map(str.isdigit, word)) else word
