"""The lexical leg, alone: the semantic leg would hide its faults."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.testing import FakeEmbedder

LEXICAL = Pipeline(legs=("lexical",), window=0)


def add(rag: RagDB, *texts: str) -> None:
    for n, text in enumerate(texts, start=1):
        rag.add(Document(f"d{n}", text))


def found(rag: RagDB, question: str) -> list[str]:
    return [hit.uri for hit in rag.search(question, pipeline=LEXICAL)]


# --- FTS-01 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "What's your password policies?",
        "password & (policy",
        "policy::expire:*",
        "'password",
        '"unclosed password',
        "password\\",
        "-password",
    ],
)
def test_punctuation_in_a_question_is_no_operator(rag: RagDB, question: str) -> None:
    add(rag, "What's the password policy? Passwords expire after 90 days.", "Cafeteria menu: soup and rice.")
    assert found(rag, question) == ["d1"]


@pytest.mark.parametrize("question", ["!!! & | ( )", "the who", "what is it about?", "a", "'", "\\", ":*", "🙂"])
def test_a_question_without_words_to_search_for_finds_nothing_and_raises_nothing(rag: RagDB, question: str) -> None:
    add(rag, "Cafeteria menu: soup and rice.")
    assert found(rag, question) == []


def test_the_same_words_score_the_same_whatever_stands_between_them(rag: RagDB) -> None:
    add(rag, "What's the password policy? Passwords expire after 90 days.", "Cafeteria policy: soup and rice.")
    results = [
        [(hit.uri, hit.ranks, hit.score) for hit in rag.search(q, pipeline=LEXICAL)]
        for q in ("password policy", "password,policy", "password, policy", "password;policy", "(password) | policy!")
    ]
    assert all(r == results[0] for r in results)
    assert len(results[0]) == 2


# --- FTS-02, FTS-03 -------------------------------------------------------------------------------


def test_one_word_that_no_chunk_has_does_not_empty_the_leg(rag: RagDB) -> None:
    add(rag, "Reset the router by holding the button for ten seconds.", "The router has four lights.", "Lunch starts at noon.")
    assert found(rag, "how do I reset my router after the payroll outage") == ["d1", "d2"]


def test_the_semantic_leg_answers_a_question_of_stop_words(rag: RagDB) -> None:
    rag.add(Document("who", "The Who formed in London in 1964."))
    add(rag, *(f"Unrelated page number {n} about gardening." for n in range(20)))
    hits = rag.search("the who").hits
    assert "who" in [h.uri for h in hits]
    assert all("lexical" not in h.ranks for h in hits)
    assert len(hits) <= 10


# --- FTS-05 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", ["pg_catalog.simple", "pg_catalog.french"])
def test_the_databases_default_configuration_changes_nothing(rag: RagDB, ragdb_url: str, config: str) -> None:
    add(rag, "The runners were running quickly.")
    before = [(h.uri, h.score) for h in rag.search("run", pipeline=LEXICAL)]
    name = psycopg.conninfo.conninfo_to_dict(ragdb_url)["dbname"]
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute(f"alter database \"{name}\" set default_text_search_config = '{config}'")  # type: ignore[arg-type]
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as fresh:
        fresh.add(Document("d2", "They run daily."))
        assert {h.uri for h in fresh.search("running", pipeline=LEXICAL)} == {"d1", "d2"}
    assert before and before[0][0] == "d1"


# --- FTS-06 ---------------------------------------------------------------------------------------


@pytest.fixture
def japanese(rag: RagDB) -> RagDB:
    add(
        rag,
        "日本語の全文検索は難しい。東京都の図書館で試験した。",
        "昼食はカレーです。",
        "京都の寺院を訪ねた。",
        "PostgreSQLの索引",
    )
    return rag


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("全文検索", "d1"),
        ("図書館", "d1"),
        ("図書館はどこですか？", "d1"),
        ("京都", "d3"),
        ("寺", "d3"),
        ("院", "d3"),
        ("PostgreSQL", "d4"),
        ("索引", "d4"),
        ("ｐｏｓｔｇｒｅｓｑｌ", "d4"),
        ("ｶﾚｰ", "d2"),
    ],
)
def test_japanese_words_are_found(japanese: RagDB, question: str, first: str) -> None:
    assert found(japanese, question)[0] == first


def test_a_word_beats_an_accidental_overlap(japanese: RagDB) -> None:
    hits = {h.uri: h.ranks["lexical"] for h in japanese.search("京都", pipeline=LEXICAL)}
    assert hits["d3"] < hits["d1"]


def test_a_word_behind_a_very_long_run_of_kanji_is_found(rag: RagDB) -> None:
    add(rag, "漢" * 700 + "終端語", "ほかの文書です。")
    assert found(rag, "終端語") == ["d1"]


@pytest.mark.parametrize(
    ("text", "question"),
    [("ภาษาไทยเขียนติดกัน", "ไทย"), ("한국어 문서입니다", "한국어"), ("中文全文检索", "检索"), ("Обновление прошивки", "прошивки")],
)
def test_other_scripts_are_found(rag: RagDB, text: str, question: str) -> None:
    add(rag, text, "Something else entirely.")
    assert found(rag, question) == ["d1"]


# --- FTS-08 ---------------------------------------------------------------------------------------


def test_both_ends_of_a_megabyte_of_distinct_words_are_found(ragdb_url: str) -> None:
    text = " ".join(f"w{i}" for i in range(200_000))
    # Given chunks: cutting is another test's matter, and fast.
    from ragdb import Span

    cuts = [*list(range(0, len(text), 20000)), len(text)]
    cuts = [c if c in (0, len(text)) else text.index(" ", c) + 1 for c in cuts]
    spans = [Span(a, b - (b != len(text))) for a, b in itertools.pairwise(cuts)]
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        assert rag.add(Document("big", text, chunks=spans)).ingest_state == "ready"
        assert found(rag, "w0") == ["big"]
        assert found(rag, "w199999") == ["big"]


def test_an_overlong_word_is_left_out_and_the_rest_is_found(rag: RagDB) -> None:
    add(rag, "alpha " + "x" * 3000 + " omega")
    assert found(rag, "omega") == ["d1"]
    assert found(rag, "x" * 3000) == []


def test_a_chunk_of_the_whole_document_is_refused_with_its_limit(rag: RagDB) -> None:
    from ragdb import Span
    from ragdb.errors import BadDocument

    text = " ".join(f"w{i}" for i in range(200_000))
    with pytest.raises(BadDocument, match="60000"):
        rag.add(Document("big", text, chunks=[Span(0, len(text))]))
    assert rag.get("big") is None


# --- identifiers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "ERR_CONN_RESET",
        "err_conn_reset",
        "CONN",
        "TS01-H-18011-005",
        "18011",
        "-005",
        "v3.2",
        "https://example.com/a/b",
        "example.com",
    ],
)
def test_identifiers_are_found_whole_and_by_part(rag: RagDB, question: str) -> None:
    add(rag, "See ERR_CONN_RESET in TS01-H-18011-005 at https://example.com/a/b?x=1 since v3.2.", "Lunch starts at noon.")
    assert found(rag, question) == ["d1"]


# --- the shape of the functions ---------------------------------------------------------------------


def test_what_the_search_sees_can_be_looked_at(rag: RagDB, query: Callable[..., Any]) -> None:
    add(rag, "図書館のルーター", "router lights")
    rows = query("select word, ndoc, content from ragdb.lexical_query('図書館はどこ routers', 'help')")
    assert ("図書", 1, True) in rows
    assert ("router", 1, True) in rows
    assert ("館は", 0, False) in rows


def test_the_gin_path_finds_what_the_exact_path_finds(rag: RagDB, query: Callable[..., Any]) -> None:
    add(rag, *(f"page {n} about topic{n % 7} and word{n % 13}" for n in range(60)))
    exact = query("select chunk_ids, path from ragdb.lexical_leg('topic3 word5 page', 'help')")
    pruned = query(
        """select chunk_ids, path from ragdb.lexical_leg('topic3 word5 page', 'help', options => '{"exact_limit": 0}')"""
    )
    assert (exact[0][1], pruned[0][1]) == ("exact", "gin")
    assert pruned[0][0][:10] == exact[0][0][:10]


def test_planner_settings_are_put_back(query: Callable[..., Any], rag: RagDB) -> None:
    add(rag, "one page")
    query("begin")
    query("""select path from ragdb.lexical_leg('page', 'help', options => '{"exact_limit": 0}')""")
    assert query("show enable_seqscan") == [("on",)]
    query("rollback")


def test_fifty_thousand_words_raise_nothing(rag: RagDB) -> None:
    add(rag, "one page", "another page")
    found(rag, " ".join(f"zz{i}" for i in range(50_000)) + " page")
    assert found(rag, "page " + " ".join(f"zz{i}" for i in range(50_000)))


def test_a_chunk_with_several_middling_words_is_a_candidate_beside_those_with_the_rare_one(ragdb_url: str) -> None:
    """FTS: the rarest words alone miss it. `rare` stands in 30 chunks, m1, m2, m3 in 200 each, all three in ten."""
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("""
            select ragdb.create_collection('pairs', ragdb.register_model('none', 8), '{"exact_limit": 0, "candidate_budget": 120}');
            insert into ragdb.document (document_id, collection_id, uri, ready_revision, n_chunks, ingest_state)
              values (1, 1, 'd', 1, 2000, 'ready');
            insert into ragdb.chunk (chunk_id, document_id, born_revision, text_hash, content)
              select c, 1, 1, int8send(c), concat_ws(' ', 'page', case when c <= 30 then 'rare' end,
                     case when c between 1000 and 1199 then 'mone' end, case when c between 1190 and 1389 then 'mtwo' end,
                     case when c between 1190 and 1199 or c between 1400 and 1589 then 'mthree' end)
                from generate_series(1, 2000) c;
            select ragdb.refresh_lexical_stats('pairs')""")
        ask = "select chunk_ids, path, note from ragdb.lexical_leg('rare mone mtwo mthree', 'pairs', 10, options => %s::jsonb)"
        found, path, note = conn.execute(ask, ["{}"]).fetchone() or ()
        assert (path, note) == ("gin", "4 words, candidates by the 1 rarest and 1 pair")
        assert sorted(found) == list(range(1190, 1200))
        assert found == (conn.execute(ask, ['{"exact_limit": 10000}']).fetchone() or ())[0]


def test_weights_name_their_lexemes_by_29_bits_of_sha256(ragdb_url: str) -> None:
    """The dimensions are stored: they must stay what they are, for any server and any script."""
    with psycopg.connect(ragdb_url) as conn:
        for word in ("router", "東京", "a-b_c", "\\", "é"):
            expected = 1 + (int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) & (2**29 - 1))
            assert conn.execute("select ragdb.lexeme_index(%s)", [word]).fetchone() == (expected,)
