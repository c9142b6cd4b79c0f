"""Settings of fuse that a collection keeps: what may be kept, whose word counts, and the sweep that finds them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import create_engine

from ragdb import Document, Pipeline, RagDB, presets
from ragdb.db import schema
from ragdb.errors import EmbedderError
from ragdb.testing import FakeEmbedder

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]
KEPT = {"weights": {"lexical": 0.8, "semantic": 0.2}, "rrf_k": 10, "candidates": 20}


@pytest.fixture
def kept(rag: RagDB, query: Query) -> RagDB:
    for n in range(40):
        rag.add(Document(f"d{n}", f"Page {n} about the {('router', 'battery', 'antenna')[n % 3]} and part {n % 7}."))
    query("select ragdb.set_fusion('help', %s)", Jsonb(KEPT))
    return rag


def note(result: Any) -> str:
    return next(trace.note for trace in result.stages if trace.stage == "fuse")


@pytest.mark.parametrize(
    ("pipeline", "options"),
    [
        (presets.hybrid, {}),
        (Pipeline(rrf_k=5), {"rrf_k": 5}),
        (Pipeline(candidates=30, weights={"lexical": 0.5}), {"candidates": 30, "weights": {"lexical": 0.5}}),
        (Pipeline(tuned=False), {"tuned": False}),
        (Pipeline(tuned=False, rrf_k=5), {"tuned": False, "rrf_k": 5}),
        (Pipeline(legs=("lexical",)), {"legs": ["lexical"]}),
    ],
)
def test_python_and_sql_rank_the_same_under_kept_settings(
    kept: RagDB, query: Query, pipeline: Pipeline, options: dict[str, Any]
) -> None:
    hits = kept.search("battery part 3", k=15, pipeline=pipeline).hits
    rows = query(
        "select chunk_id, score, ranks from ragdb.search('battery part 3', collection => 'help', k => 15, options => %s)",
        Jsonb(options),
    )
    assert rows == [(h.chunk_id, h.score, dict(h.ranks)) for h in hits]


def test_kept_settings_order_as_the_same_settings_given(kept: RagDB) -> None:
    given = Pipeline(weights=KEPT["weights"], rrf_k=10, candidates=20, tuned=False)
    as_kept, as_given, without = (
        [(h.chunk_id, h.score) for h in kept.search("battery part 3", k=15, pipeline=p).hits]
        for p in (presets.hybrid, given, Pipeline(tuned=False))
    )
    assert as_kept == as_given != without


def test_the_trace_has_what_was_used_and_says_whose_it_is(kept: RagDB, query: Query) -> None:
    result = kept.search("battery part 3")
    assert note(result) == "RRF of 2 lists, k=10, weights {'lexical': 0.8, 'semantic': 0.2}, settings of the collection"
    [(pipeline,)] = query("select pipeline from ragdb.run where run_id = %s", result.run_id)
    assert {name: pipeline[name] for name in KEPT} == KEPT
    assert {len(t.chunk_ids) for t in result.stages if t.stage == "retrieve"} == {20}
    own = kept.search("battery part 3", pipeline=Pipeline(tuned=False))
    assert note(own) == "RRF of 2 lists, k=60"
    assert {len(t.chunk_ids) for t in own.stages if t.stage == "retrieve"} == {40}


def test_the_plan_is_that_of_the_kept_settings(kept: RagDB, query: Query) -> None:
    def listed(options: dict[str, Any]) -> list[str]:
        options = {"analyze": True, "legs": ["lexical"], **options}
        lines = query("select line from ragdb.search_plan('battery part 3', 'help', options => %s)", Jsonb(options))
        return re.findall(r"Limit .*actual.* rows=(\d+)", "\n".join(line for (line,) in lines))

    assert listed({})[0] == "20"
    assert listed({"candidates": 30})[0] == "30"
    assert listed({"tuned": False})[0] == "40"


def test_null_removes_them(kept: RagDB, query: Query) -> None:
    assert query("select fusion - 'source' from ragdb.collection") == [(KEPT,)]
    query("select ragdb.set_fusion('help', null)")
    assert query("select fusion from ragdb.collection") == [(None,)]
    assert note(kept.search("battery part 3")) == "RRF of 2 lists, k=60"


def test_who_kept_them_and_when_is_told(kept: RagDB, query: Query) -> None:
    query("""select ragdb.set_fusion('help', '{"rrf_k": 20, "source": {"set": "golden"}}')""")
    [(source, me)] = query("select fusion -> 'source', session_user::text from ragdb.collection")
    assert (source["set"], source["by"]) == ("golden", me)
    assert source["at"]
    assert query("select fusion from ragdb.collection_info('help')") == [({"rrf_k": 20},)]


@pytest.mark.parametrize(
    ("fusion", "said"),
    [
        ([1], "an object"),
        ({}, "no setting"),
        ({"source": {}}, "no setting"),
        ({"rrf-k": 3}, "rrf-k"),
        ({"rrf_k": -1}, "0 to 10000"),
        ({"rrf_k": 1.5}, "0 to 10000"),
        ({"rrf_k": None}, "0 to 10000"),
        ({"candidates": 0}, "1 to 1000"),
        ({"candidates": 10**12}, "1 to 1000"),
        ({"candidates": "50"}, "1 to 1000"),
        ({"weights": {"graph": 1}}, "weights"),
        ({"weights": {"lexical": -1}}, "weights"),
        ({"weights": {"lexical": "1"}}, "weights"),
        ({"weights": {"lexical": 0, "semantic": 0.0}}, "weights"),
        ({"weights": [1]}, "weights"),
        ({"rrf_k": 3, "source": "me"}, "source"),
    ],
)
def test_what_no_search_could_use_is_refused_by_name(rag: RagDB, query: Query, fusion: Any, said: str) -> None:
    rag.add(Document("a", "Reset the router."))
    with pytest.raises(psycopg.DatabaseError) as caught:
        query("select ragdb.set_fusion('help', %s)", Jsonb(fusion))
    assert caught.value.sqlstate == "RD004"
    assert said in str(caught.value)
    assert query("select fusion from ragdb.collection") == [(None,)]


def test_a_collection_that_is_not_there_keeps_nothing(query: Query) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        query("""select ragdb.set_fusion('none', '{"rrf_k": 3}')""")
    assert caught.value.sqlstate == "RD002"


def test_a_writer_may_keep_settings_and_a_reader_may_not(kept: RagDB, query: Query) -> None:
    query(schema.roles_script())
    call = """select ragdb.set_fusion('help', '{"rrf_k": 3}')"""
    query("set role ragdb_writer")
    query(call)
    query("reset role")
    assert query("select fusion -> 'source' ->> 'by' from ragdb.collection") == [("ragdb_writer",)]
    query("select ragdb.grant_collection('help', 'ragdb_reader')")
    query("set role ragdb_reader")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        query(call)
    # its searches use them all the same
    assert query("select count(*) from ragdb.search('battery', 'help', 3)") == [(3,)]


def test_settings_are_taken_in_a_transaction_of_the_callers_too(kept: RagDB, ragdb_url: str) -> None:
    url = ragdb_url.replace("postgresql://", "postgresql+psycopg2://")
    with create_engine(url).connect() as connection:
        assert "k=10" in note(kept.search("battery part 3", session=connection))


def test_the_only_list_keeps_its_order_though_its_leg_was_to_weigh_nothing(ragdb_url: str, query: Query) -> None:
    """The lexical leg answers alone where the embedder fails; a weight of 0 would leave it in the order of ids."""
    embedder = FakeEmbedder()
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        rag.add(Document("a", "The router and many other things that a page may be about, at some length."))
        rag.add(Document("b", "Router."))
        query("""select ragdb.set_fusion('help', '{"weights": {"lexical": 0}}')""")
        embedder.fail = EmbedderError("the server is gone")
        result = rag.search("router")
    assert [hit.uri for hit in result] == ["b", "a"]
    found = query("select uri from ragdb.search('router', 'help')")
    assert found == [("b",), ("a",)]


@pytest.mark.parametrize("seed", range(8))
def test_the_sweep_gives_the_order_of_the_formula_under_every_setting(query: Query, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    lists = {leg: dice.sample(range(1, 60), dice.randint(0, 40)) for leg in ("lexical", "semantic", "more")}
    lists["lexical"] += lists["lexical"][:2]  # an id twice
    settings = [
        {
            "weights": {leg: dice.choice([0, 0.3, 1, 2.5]) for leg in ("lexical", "semantic") if dice.random() < 0.8},
            "rrf_k": dice.choice([0, 1, 10, 60, 1000]),
            "candidates": dice.choice([1, 5, 20, 100]),
        }
        for _ in range(30)
    ]
    swept = dict(query("select * from ragdb.rrf_sweep(%s, %s)", Jsonb(lists), Jsonb(settings)))
    for n, setting in enumerate(settings, 1):
        cut = {leg: ids[: setting["candidates"]] for leg, ids in lists.items()}
        rows = query("select chunk_id from ragdb.rrf_fuse(%s, %s, %s)", Jsonb(cut), Jsonb(setting["weights"]), setting["rrf_k"])
        assert swept.get(n, []) == [i for (i,) in rows], setting


@pytest.mark.parametrize(
    ("lists", "settings"),
    [
        ([1], []),
        ({"a": ["x"]}, [{}]),
        ({"a": [1]}, {}),
        ({"a": [1]}, [3]),
        ({"a": [1]}, [{"k": 3}]),
        ({"a": [1]}, [{"rrf_k": -3}]),
        ({"a": [1]}, [{"weights": {"a": -1}}]),
        ({"a": [1]}, [{"weights": [1]}]),
    ],
)
def test_a_sweep_of_a_wrong_shape_is_refused(query: Query, lists: Any, settings: Any) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        query("select * from ragdb.rrf_sweep(%s, %s)", Jsonb(lists), Jsonb(settings))
    assert caught.value.sqlstate == "RD004"


def test_an_option_of_the_wrong_kind_is_refused(kept: RagDB, query: Query) -> None:
    with pytest.raises(psycopg.DatabaseError, match="tuned is 1"):
        query("select * from ragdb.search('battery', 'help', options => %s)", json.dumps({"tuned": 1}))
