"""Reciprocal Rank Fusion as a formula, and pages that neither repeat nor lose rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from ragdb import Document, RagDB
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]


def fuse(query: Query, lists: Any, weights: Any = None, **options: Any) -> list[tuple[Any, ...]]:
    named = "".join(f", {name} => {value}" for name, value in options.items())
    return query(f"select chunk_id, score, ranks from ragdb.rrf_fuse(%s, %s{named})", Jsonb(lists), Jsonb(weights or {}))


def test_scores_are_those_of_the_formula(query: Query) -> None:
    rows = fuse(query, {"a": [1, 2, 3, 4], "b": [9, 2, 1, 3]})
    by_id = {i: s for i, s, _ in rows}
    assert by_id[1] == pytest.approx(0.0322665, abs=5e-8)  # ranks 1 and 3
    assert by_id[2] == pytest.approx(0.0322581, abs=5e-8)  # ranks 2 and 2
    assert by_id[1] > by_id[2]


def test_equal_scores_stand_in_the_order_of_ids(query: Query) -> None:
    rows = fuse(query, {"a": [8, 5, 7], "b": [7, 5, 8]})
    assert [(i, s) for i, s, _ in rows][:2] == [(7, rows[0][1]), (8, rows[0][1])]


def test_three_lists_break_ties_by_id_too(query: Query) -> None:
    # 1/61 + 1/63 + 1/68 in any order of the lists is one and the same sum.
    filler = iter(range(10_000, 20_000))

    def ranked(places: dict[int, int]) -> list[int]:
        return [next((i for i, place in places.items() if place == rank), next(filler)) for rank in range(1, 9)]

    rows = fuse(query, {"a": ranked({3: 1, 2: 3, 1: 8}), "b": ranked({2: 1, 1: 3, 3: 8}), "c": ranked({1: 1, 3: 3, 2: 8})})
    assert [i for i, _, _ in rows[:3]] == [1, 2, 3]
    assert rows[0][1] == rows[1][1] == rows[2][1]


def test_twentieth_in_both_lists_beats_first_in_one(query: Query) -> None:
    rows = fuse(query, {"a": [1, *range(100, 118), 50], "b": [*range(200, 219), 50]})
    assert [i for i, _, _ in rows].index(50) < [i for i, _, _ in rows].index(1)


def test_weights_and_ranks_come_out(query: Query) -> None:
    rows = fuse(query, {"lexical": [7, 8, 9], "semantic": [9, 7]}, {"semantic": 2})
    assert rows[0][0] == 9
    assert rows[0][1] == pytest.approx(1 / 63 + 2 / 61)
    assert rows[0][2] == {"lexical": 3, "semantic": 1}


def test_an_id_twice_in_a_list_counts_once_at_its_better_rank(query: Query) -> None:
    assert fuse(query, {"a": [4, 5, 4]})[0] == (4, pytest.approx(1 / 61), {"a": 1})


def test_ids_are_numbers_however_they_are_written(query: Query) -> None:
    [row] = query("""select * from ragdb.rrf_fuse('{"a": [7, 7.0, 70e-1, 8]}') where chunk_id = 7""")
    assert row == (7, pytest.approx(1 / 61), {"a": 1})


def test_one_term_of_the_formula_is_inlined(query: Query) -> None:
    lines = query("explain (verbose) select sum(ragdb.rrf(rank, 2)) from generate_series(1, 5) rank")
    assert "rrf(" not in "".join(line for (line,) in lines)
    assert query("select ragdb.rrf(1), ragdb.rrf(3, 2), ragdb.rrf(4, 0.5, 0)") == [(1 / 61, 2 / 63, 0.125)]


@pytest.mark.parametrize(
    ("lists", "weights", "options"),
    [
        ([1, 2], {}, {}),
        ({"a": 3}, {}, {}),
        ({"a": ["x"]}, {}, {}),
        ({"a": [None]}, {}, {}),
        ({"a": [1]}, {"a": -1}, {}),
        ({"a": [1]}, {}, {"k": -1}),
    ],
)
def test_a_wrong_shape_is_refused_by_name(query: Query, lists: Any, weights: Any, options: Any) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        fuse(query, lists, weights, **options)
    assert caught.value.sqlstate == "RD004"


def test_empty_lists_give_nothing(query: Query) -> None:
    assert fuse(query, {}) == []
    assert fuse(query, {"a": [], "b": []}) == []


def test_pages_are_disjoint_and_stay_the_same(ragdb_url: str, query: Query) -> None:
    """RRF-01."""

    class Same(FakeEmbedder):
        def _vector(self, text: str) -> list[float]:
            return [1.0] + [0.0] * 7

    with RagDB(ragdb_url, collection="help", embedder=Same()) as rag:
        for n in range(30):
            rag.add(Document(f"d{n:02d}", f"The committee met for the meeting number {n}."))

        def pages() -> list[int]:
            return [h.chunk_id for offset in (0, 10, 20) for h in rag.search("committee meeting", k=10, offset=offset)]

        first = pages()
        assert len(set(first)) == 30
        assert all(pages() == first for _ in range(6))
        query("update ragdb.document set metadata = '{\"touched\": true}' where document_id % 2 = 0")
        query("vacuum ragdb.document, ragdb.chunk")
        assert pages() == first


def test_search_in_sql_and_in_python_rank_the_same(rag: RagDB, query: Query) -> None:
    for n in range(40):
        rag.add(Document(f"d{n}", f"Page {n} about the {('router', 'battery', 'antenna')[n % 3]} and part {n % 7}."))
    hits = rag.search("battery part 3", k=15).hits
    rows = query("select chunk_id, score, ranks, label from ragdb.search('battery part 3', collection => 'help', k => 15)")
    assert rows == [(h.chunk_id, h.score, dict(h.ranks), h.label) for h in hits]
