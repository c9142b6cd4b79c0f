"""expand: each hit with what stands around it. Spans of a document that meet become one passage, overlap appears once.

`window`: so many chunks before and after. `parent`: the section around it. `auto`: chunk by chunk to both sides, all hits
in turn, until their sections end or the budget does. Never crosses a document, and never drops a hit for a neighbour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragdb.db.caller import Caller, Row
from ragdb.protocols import CountTokens
from ragdb.types import Hit, Outcome, Passage, Ranking

_FARTHEST = 50  # chunks to either side, at most, that `auto` looks at
_USED = 0.9  # of the budget: headings and numbers take the rest


@dataclass(slots=True)
class _Span:
    """A growing span of one document and the hits in it, best first."""

    start: int
    end: int
    hits: list[Hit] = field(default_factory=list)


def expand(
    db: Caller,
    ranking: Ranking,
    *,
    window: int = 1,
    how: str = "window",
    budget: int = 0,
    count_tokens: CountTokens = len,
) -> Outcome[tuple[Passage, ...]]:
    """Passages in the order of their best hits. `window` is for `window` (0: the hits themselves), `budget`, in tokens of
    `count_tokens`, for `auto`.
    """
    hits = ranking.hits
    wide = {hit.chunk_id: (hit.start, hit.end) for hit in hits}
    added: set[int] = set()
    if how == "parent" and hits:
        for row in db.call("section_around", chunk_ids=[hit.chunk_id for hit in hits]):
            start, end = wide[row["hit_chunk_id"]]
            wide[row["hit_chunk_id"]] = (min(start, row["start_at"]), max(end, row["end_at"]))
    elif how == "auto" and hits:
        rows = db.call("neighbors", chunk_ids=[hit.chunk_id for hit in hits], window=_FARTHEST)
        added = _grow(hits, wide, rows, budget, count_tokens)
    elif window > 0 and hits:
        for row in db.call("neighbors", chunk_ids=[hit.chunk_id for hit in hits], window=window):
            _widen(wide, row, added)
    spans = _merged(hits, wide)
    texts = _texts(db, spans)
    passages = tuple(_passage(n, span, text) for n, (span, text) in enumerate(zip(spans, texts, strict=True), start=1))
    note = f"{len(hits)} hits and {len(added)} neighbours in {len(passages)} passages"
    if how == "parent":
        note = f"{len(hits)} hits in {len(passages)} passages, sections whole"
    return Outcome(passages, note=note if how != "window" or window else "no neighbours")


def _widen(wide: dict[int, tuple[int, int]], row: Row, added: set[int]) -> None:
    start, end = wide[row["hit_chunk_id"]]
    wide[row["hit_chunk_id"]] = (min(start, row["start_at"]), max(end, row["end_at"]))
    if row["chunk_id"] not in wide:
        added.add(row["chunk_id"])


def _grow(
    hits: Sequence[Hit], wide: dict[int, tuple[int, int]], rows: Sequence[Row], budget: int, count_tokens: CountTokens
) -> set[int]:
    """Widens the spans, one chunk at a time, while characters are left; pack counts the tokens themselves."""
    added: set[int] = set()
    characters = sum(len(hit.content) for hit in hits)
    tokens = sum(count_tokens(hit.content) for hit in hits)
    left = budget * _USED * characters / max(1, tokens) - characters
    around = {hit.chunk_id: _outwards(hit, [row for row in rows if row["hit_chunk_id"] == hit.chunk_id]) for hit in hits}
    while around:
        for hit in hits:
            row = next(around[hit.chunk_id], None) if hit.chunk_id in around else None
            if row is None:
                around.pop(hit.chunk_id, None)
                continue
            start, end = wide[hit.chunk_id]
            more = max(0, start - row["start_at"]) + max(0, row["end_at"] - end)
            if more > left:
                around.pop(hit.chunk_id, None)
                continue
            if row["chunk_id"] not in added and row["chunk_id"] not in wide:
                left -= more
            _widen(wide, row, added)
    return added


def _outwards(hit: Hit, rows: Sequence[Row]) -> Iterator[Row]:
    """The chunks of the hit's section, the next one, the one before, and so on; a side ends where the section does."""
    by_distance = {row["distance"]: row for row in rows}
    sides = {1, -1}
    for far in range(1, _FARTHEST + 1):
        for side in (1, -1):
            row = by_distance.get(side * far) if side in sides else None
            if row is None or tuple(row["heading_path"][: len(hit.heading_path)]) != hit.heading_path:
                sides.discard(side)
            else:
                yield row


def _merged(hits: Sequence[Hit], wide: dict[int, tuple[int, int]]) -> list[_Span]:
    """Spans that meet, merged, in the order of each span's best hit."""
    rank = {hit.chunk_id: n for n, hit in enumerate(hits)}
    by_document: dict[int, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_document[hit.document_id].append(hit)
    spans: list[_Span] = []
    for members in by_document.values():
        open_span: _Span | None = None
        for hit in sorted(members, key=lambda h: wide[h.chunk_id]):
            start, end = wide[hit.chunk_id]
            if open_span is not None and start <= open_span.end:
                open_span.end = max(open_span.end, end)
                open_span.hits.append(hit)
            else:
                open_span = _Span(start, end, [hit])
                spans.append(open_span)
    for span in spans:
        span.hits.sort(key=lambda h: rank[h.chunk_id])
    return sorted(spans, key=lambda span: rank[span.hits[0].chunk_id])


def _texts(db: Caller, spans: Sequence[_Span]) -> list[str]:
    if all(len(span.hits) == 1 and (span.start, span.end) == (span.hits[0].start, span.hits[0].end) for span in spans):
        return [span.hits[0].content for span in spans]
    rows = db.call(
        "document_spans",
        document_ids=[span.hits[0].document_id for span in spans],
        starts=[span.start for span in spans],
        ends=[span.end for span in spans],
    )
    by_ordinal = {row["ordinal"]: row["content"] for row in rows}
    # A document that was deleted meanwhile has no text any more; its hits' own text still stands.
    return [by_ordinal.get(n, span.hits[0].content) for n, span in enumerate(spans, start=1)]


def _passage(number: int, span: _Span, text: str) -> Passage:
    best = span.hits[0]
    return Passage(
        number=number,
        chunk_id=best.chunk_id,
        label=best.label,
        document_id=best.document_id,
        uri=best.uri,
        title=best.title,
        heading_path=best.heading_path,
        content=text,
        context=best.context,
        start=span.start,
        end=span.start + len(text),
        page=best.page,
        score=best.score,
        hits=tuple(span.hits),
    )
