"""rewrite: the question to further search queries. Searched with and nothing else; a rewriter that fails costs one call."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Sequence

from ragdb.adapters import sendable
from ragdb.protocols import Rewriter
from ragdb.types import LEGS, Message, Outcome, Query

logger = logging.getLogger("ragdb.run")

_MOST = 12  # queries of one rewriter, whoever wrote it


def rewrite(
    question: Query, rewriter: Rewriter, history: Sequence[Message], *, name: str, timeout: float
) -> Outcome[tuple[Query, ...]]:
    """What one rewriter makes of the question, without what repeats it; () where it fails, and the note says why."""
    timed = "deadline" in inspect.signature(rewriter.rewrite).parameters
    try:
        made = rewriter.rewrite(question, history, **({"deadline": timeout} if timed else {}))
        queries = [_query(one, name) for one in made]
    except Exception as error:  # noqa: BLE001  whatever a rewriter does: the question itself is searched with too
        logger.warning("rewriter %s failed: %s: %s", name, type(error).__name__, sendable(str(error)))
        if getattr(error, "reason", "") == "timeout":
            return failed("no answer in time; see rewrite_timeout")
        return failed(str(error) or type(error).__name__)
    return kept(question, queries, name)


def failed(why: str) -> Outcome[tuple[Query, ...]]:
    """What is left of a rewriter that made nothing: the reason."""
    return Outcome((), note=f"left out: {why}", fell_back=True)


def kept(question: Query, queries: Sequence[Query], name: str) -> Outcome[tuple[Query, ...]]:
    """Each query once, at most twelve; not what is searched already."""
    found: dict[tuple[str, tuple[str, ...] | None], Query] = {}
    for query in queries:
        same = _bare(query.text) == _bare(question.text)
        if not same and query.text.strip():
            found.setdefault((_bare(query.text), query.legs), dataclasses.replace(query, origin=query.origin or name))
    chosen = tuple(found.values())[:_MOST]
    if not chosen:
        return Outcome((), note="nothing to add")
    return Outcome(chosen, note="; ".join(repr(query.text) for query in chosen))


def _query(made: object, name: str) -> Query:
    """What a rewriter made, checked: a text alone is searched in all legs."""
    query = Query(made) if isinstance(made, str) else made
    if not isinstance(query, Query) or not isinstance(query.text, str):
        raise TypeError(f"{name} made {made!r}; a rewriter makes texts, or Query(text, legs=...)")
    if query.legs is not None and (isinstance(query.legs, str) or not query.legs or not {*query.legs} <= {*LEGS}):
        raise ValueError(f"{name} made a query for legs {query.legs!r}; there are {', '.join(LEGS)}")
    return query


def _bare(text: str) -> str:
    return "".join(text.casefold().split()).rstrip("?？。.!！")
