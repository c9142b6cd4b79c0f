"""What fits into a budget of tokens: hits before what stands around them, and no text counted twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragdb.errors import ContextTooSmall
from ragdb.stages.pack import pack
from ragdb.types import Hit, Passage


def passage(place: int, before: int, words: int, after: int) -> Passage:
    """A hit of so many words, with so many on either side of it; no word stands in two passages."""
    said = [f"w{place}x{n}" for n in range(before + words + after)]
    text = " ".join(said)
    start, end = len(" ".join(said[:before])) + bool(before), len(" ".join(said[: before + words]))
    hit = Hit(
        place, f"l{place}", place, "c", f"u{place}", None, (), "active", "", text[start:end], start, end, None, {}, 1.0 / place
    )
    return Passage(place, place, hit.label, place, hit.uri, None, (), text, "", 0, len(text), None, hit.score, (hit,))


def words_of(text: str) -> int:
    return len(text.split())


def test_where_everything_fits_each_passage_is_counted_once() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return words_of(text)

    found = pack([passage(n, 10, 5, 10) for n in range(1, 7)], budget=1000, count_tokens=count)
    assert [shown.number for shown in found.value] == [1, 3, 5, 6, 4, 2]
    assert len(counted) == 6


sizes = st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20))


@given(st.lists(sizes, min_size=1, max_size=8), st.integers(1, 250))
def test_hits_come_before_what_stands_around_them(parts: list[tuple[int, int, int]], budget: int) -> None:
    passages = [passage(n, *part) for n, part in enumerate(parts, start=1)]
    try:
        found = pack(passages, budget=budget, count_tokens=words_of)
    except ContextTooSmall:
        return
    assert sum(shown.tokens for shown in found.value) <= budget
    dropped = found.dropped.get("token budget", ())
    assert {shown.chunk_id for shown in found.value} | {*dropped} == {one.chunk_id for one in passages}
    alone = sum(
        pack([one], budget=10_000, count_tokens=words_of).value[0].tokens - part[0] - part[2]
        for one, part in zip(passages, parts, strict=True)
    )
    if alone <= budget:
        assert not dropped  # all hits have room, so none gave way to what stands around another
    whole = sum(pack([one], budget=10_000, count_tokens=words_of).value[0].tokens for one in passages)
    if whole <= budget:
        assert {shown.content for shown in found.value} == {one.content for one in passages}
