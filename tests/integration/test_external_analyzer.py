"""A collection whose words the caller makes: chunks and questions bring their lexemes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import create_engine

from ragdb import Document, Pipeline, RagDB
from ragdb.db.connect import sqlalchemy_url
from ragdb.errors import ConfigError
from ragdb.testing import FakeEmbedder, drain

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = Pipeline(legs=("lexical",), window=0)
EXAMPLE = Path(__file__).parents[2] / "examples" / "external_analyzer.py"


def splitter(text: str) -> list[str]:
    """Words are what stands between spaces, upper case."""
    return text.upper().split()


@pytest.fixture
def rag(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), analyzer=splitter) as made:
        yield made


def found(rag: RagDB, question: str) -> list[str]:
    return [hit.uri for hit in rag.search(question, pipeline=LEXICAL)]


def test_the_example_finds_by_its_dictionary(ragdb_url: str) -> None:
    spec = importlib.util.spec_from_file_location("external_analyzer", EXAMPLE)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.run(ragdb_url, FakeEmbedder()) == {"京都": ["kyoto"], "図書館はどこ？": ["tokyo"], "9": ["tokyo"]}
    assert example.words("東京都のＡＢＣ") == ["東京都", "abc"]


def test_chunks_and_questions_are_cut_by_the_analyzer_alone(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "the-router  the-router lights", title="Setup"))
    rag.add(Document("b", "router lights"))
    assert query("select analyzer from ragdb.collection") == [("external",)]
    assert query("select lexemes::text from ragdb.chunk order by chunk_id") == [
        ("'LIGHTS':4 'SETUP':1 'THE-ROUTER':2,3",),
        ("'LIGHTS':2 'ROUTER':1",),
    ]
    assert found(rag, "THE-router") == ["a"]
    assert found(rag, "router") == ["b"]
    assert found(rag, "routers") == []
    assert rag.search("the-router").hits[0].matched.keys() == {"THE-ROUTER"}
    assert rag.ask("the-router lights").outcome == "answered"


def test_search_in_sql_and_in_python_rank_the_same(rag: RagDB, query: Query) -> None:
    for n in range(12):
        rag.add(Document(f"d{n}", f"page {n} " + "router " * (n % 4)))
    hits = rag.search("router page 3", k=10).hits
    rows = query(
        "select chunk_id, score, ranks from ragdb.search('router page 3', 'help', options => %s)",
        Jsonb({"lexemes": splitter("router page 3")}),
    )
    assert rows == [(h.chunk_id, h.score, dict(h.ranks)) for h in hits]
    plan = query(
        "select path from ragdb.search_plan('x', 'help', options => %s) limit 1",
        Jsonb({"lexemes": ["ROUTER"], "legs": ["lexical"]}),
    )
    assert plan == [("exact",)]


def test_a_worker_cuts_with_the_analyzer_too(rag: RagDB, ragdb_url: str, query: Query) -> None:
    rag.add(Document("a", "first page"))
    query("select * from ragdb.submit_document('help', 'sql', 'written in plain-SQL')")
    engine = create_engine(sqlalchemy_url(ragdb_url))
    with engine.begin() as connection:
        rag.add(Document("session", "written in a-session"), session=connection)
    engine.dispose()
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as without, pytest.raises(ConfigError, match="analyzer"):
        drain(without)
    assert sorted(drain(rag)) == ["session", "sql"]
    assert found(rag, "plain-sql") == ["sql"]
    assert found(rag, "a-session") == ["session"]


def test_unchanged_chunks_keep_their_words(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "# One\n\nalpha text\n\n# Two\n\nbeta text\n"))
    before = dict(query("select content, chunk_id from ragdb.chunk"))
    added = rag.add(Document("a", "# One\n\nalpha text\n\n# Two\n\ngamma text\n"))
    assert added.reused == 1
    after = dict(query("select content, chunk_id from ragdb.chunk"))
    assert len(before.items() & after.items()) == 1
    assert (found(rag, "alpha"), found(rag, "beta"), found(rag, "gamma")) == (["a"], [], ["a"])


def test_a_collection_and_a_program_that_do_not_agree_are_told_so(rag: RagDB, ragdb_url: str) -> None:
    rag.add(Document("a", "first page"))
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as without:
        for verb in (
            lambda: without.search("page"),
            lambda: without.ask("page"),
            lambda: without.add(Document("b", "second page")),
        ):
            with pytest.raises(ConfigError, match=r"help.*external analyzer.*analyzer="):
                verb()
    with RagDB(ragdb_url, collection="plain", embedder=FakeEmbedder()) as plain:
        plain.add(Document("a", "first page"))
    with RagDB(ragdb_url, collection="plain", embedder=FakeEmbedder(), analyzer=splitter) as wrong:
        for verb in (lambda: wrong.search("page"), lambda: wrong.ask("page"), lambda: wrong.add(Document("b", "second page"))):
            with pytest.raises(ConfigError, match=r"plain.*made by the database"):
                verb()


@pytest.mark.parametrize("returned", ["one string", None, 7, [1, 2], ["a", None], (w for w in "ab")])
def test_an_analyzer_that_returns_no_list_of_words_is_refused(ragdb_url: str, returned: Any) -> None:
    with (
        RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), analyzer=lambda _: returned) as bad,
        pytest.raises(ConfigError, match="analyzer"),
    ):
        bad.add(Document("a", "text"))


ODD = [
    "it's",
    "a\\b",
    "''",
    "\\'",
    "a b",
    '"',
    ":*",
    "a:1",
    "'); drop table ragdb.chunk; --",
    "東京",
    "\U0001f642",
    "x" * 2000,
    "a & !b",
    "%s",
    "$1",
]


def test_words_of_any_characters_are_stored_and_found(ragdb_url: str, query: Query) -> None:
    words = [*ODD, "", " ", "\u3000", "y" * 2001, "nul\x00inside", "\ud800", "it's"]
    with RagDB(
        ragdb_url, collection="help", embedder=FakeEmbedder(), analyzer=lambda text: words if text.startswith("odd") else [text]
    ) as rag:
        rag.add(Document("a", "odd"))
        rag.add(Document("b", "plain"))
        rows = query("select u.lexeme, u.positions from ragdb.chunk c, unnest(c.lexemes) u where content = 'odd'")
        stored = dict(rows)
        assert stored.keys() == {*ODD, "nulinside"}
        assert len(stored["it's"]) == 2
        for word in [*ODD, "nulinside"]:
            assert found(rag, word) == ["a"], word
            pruned = query(
                "select path, cardinality(chunk_ids) from ragdb.lexical_leg('q', 'help', options => %s)",
                Jsonb({"lexemes": [word], "exact_limit": 0}),
            )
            assert pruned == [("gin", 1)], word
        assert found(rag, "y" * 2001) == []


def test_two_hundred_thousand_words_in_a_chunk_or_question_raise_nothing(ragdb_url: str, query: Query) -> None:
    many = [f"w{n}" for n in range(200_000)]
    with RagDB(
        ragdb_url, collection="help", embedder=FakeEmbedder(), analyzer=lambda text: many if text == "many" else [text]
    ) as rag:
        rag.add(Document("a", "many"))
        # As many as a tsvector holds are kept, and of these the 16,000 that a sparsevec holds are scored.
        assert query("select length(lexemes) between 50000 and 200000 from ragdb.chunk") == [(True,)]
        found(rag, "w0")
        assert found(rag, "many") == ["a"]


# --- SQL --------------------------------------------------------------------------------------------


def put(query: Query, collection: str, lexemes: Any, uri: str = "a") -> None:
    chunk = {"ordinal": 0, "content": "東京都の図書館", "context": "", "start": 0, "end": 7, "label": f"{uri}#top#00"}
    document = {
        "uri": uri,
        "content": "東京都の図書館",
        "chunking": "by hand",
        "chunks": [chunk if lexemes is ... else chunk | {"lexemes": lexemes}],
    }
    query("select * from ragdb.put_document(%s, %s::jsonb)", collection, json.dumps(document))


def test_plain_sql_brings_words_with_chunks_and_questions(query: Query) -> None:
    query("""select ragdb.create_collection('ext', settings => '{"analyzer": "external"}')""")
    put(query, "ext", ["東京", "都", "図書館", "東京"])
    assert query("select lexemes::text, ready_revision from ragdb.chunk join ragdb.document using (document_id)") == [
        ("'図書館':3 '東京':1,4 '都':2", 0)
    ]
    assert query(
        """select word, source from ragdb.lexical_query('図書館はどこ', 'ext', '{"lexemes": ["図書館", "どこ", "図書館"]}') order by word"""
    ) == [
        ("どこ", "question"),
        ("図書館", "question"),
    ]


def test_an_external_collection_wants_words_and_a_builtin_one_refuses_them(query: Query) -> None:
    query("""select ragdb.create_collection('ext', settings => '{"analyzer": "external"}'), ragdb.create_collection('own')""")
    put(query, "own", ...)
    put(query, "own", None, "b")
    put(query, "ext", [])
    for call in (
        lambda: put(query, "ext", ..., "x"),
        lambda: put(query, "ext", None, "x"),
        lambda: put(query, "ext", "東京", "x"),
        lambda: put(query, "ext", [1], "x"),
        lambda: put(query, "ext", [None], "x"),
        lambda: put(query, "ext", {"a": 1}, "x"),
        lambda: put(query, "own", ["東京"], "x"),
        lambda: query("select * from ragdb.lexical_query('図書館', 'ext')"),
        lambda: query("select * from ragdb.search('図書館', 'ext')"),
        lambda: query("""select * from ragdb.lexical_leg('図書館', 'ext', options => '{"lexemes": "図書館"}')"""),
        lambda: query("""select * from ragdb.lexical_leg('図書館', 'own', options => '{"lexemes": ["図書館"]}')"""),
        lambda: query("""select ragdb.create_collection('x', settings => '{"analyzer": "sudachi"}')"""),
    ):
        with pytest.raises(psycopg.DatabaseError) as caught:
            call()
        assert caught.value.sqlstate == "RD004", caught.value
    assert query("select uri from ragdb.document order by uri, document_id") == [("a",), ("a",), ("b",)]
    assert query("""select path from ragdb.lexical_leg('図書館', 'ext', options => '{"lexemes": []}')""") == [("empty",)]


def test_synonyms_are_written_in_the_analyzers_words(rag: RagDB, query: Query) -> None:
    query("insert into ragdb.synonym (terms) values ('{WFH,REMOTE WORK}'), ('{oom,memory}')")
    rag.add(Document("a", "remote work is fine"))
    rag.add(Document("b", "remote places"))
    rag.add(Document("c", "memory"))
    assert found(rag, "wfh") == ["a", "b"]
    assert rag.search("wfh", pipeline=LEXICAL)[0].evidence == pytest.approx(1.0)
    assert found(rag, "wfhx") == found(rag, "oom") == []
