"""expand: each hit with the chunks before and after it. Spans of a document that meet become one passage.

Never crosses a document, and never drops a hit for a neighbour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ragdb.db.caller import Caller
from ragdb.types import Hit, Outcome, Passage, Ranking


@dataclass(slots=True)
class _Span:
    """A growing span of one document and the hits in it, best first."""

    start: int
    end: int
    hits: list[Hit] = field(default_factory=list)


def expand(db: Caller, ranking: Ranking, *, window: int) -> Outcome[tuple[Passage, ...]]:
    """Passages in the order of their best hits, `window` chunks wider on either side (0: the hits themselves)."""
    hits = ranking.hits
    wide = {hit.chunk_id: (hit.start, hit.end) for hit in hits}
    added: list[int] = []
    if window > 0 and hits:
        for row in db.call("neighbors", chunk_ids=[hit.chunk_id for hit in hits], window=window):
            start, end = wide[row["hit_chunk_id"]]
            wide[row["hit_chunk_id"]] = (min(start, row["start_at"]), max(end, row["end_at"]))
            if row["chunk_id"] not in wide:
                added.append(row["chunk_id"])
    spans = _merged(hits, wide)
    texts = _texts(db, spans)
    passages = tuple(_passage(n, span, text) for n, (span, text) in enumerate(zip(spans, texts, strict=True), start=1))
    note = f"{len(hits)} hits and {len(set(added))} neighbours in {len(passages)} passages" if window else "no neighbours"
    return Outcome(passages, note=note)


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
