"""Synonyms: rows that widen a question in the lexical leg, shown in the trace, and that count as evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ragdb import Document, Pipeline, RagDB

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = Pipeline(legs=("lexical",), window=0)


def add(rag: RagDB, **texts: str) -> None:
    for uri, text in texts.items():
        rag.add(Document(uri, text))


def found(rag: RagDB, question: str) -> list[str]:
    return [hit.uri for hit in rag.search(question, pipeline=LEXICAL)]


def note(query: Query, question: str, options: str = "{}") -> str:
    return query("select note from ragdb.lexical_leg(%s, 'help', options => %s::jsonb)", question, options)[0][0]


@pytest.fixture
def synonyms(query: Query) -> None:
    query("insert into ragdb.synonym (terms) values ('{WFH,リモートワーク,テレワーク,在宅勤務}'), ('{OOM,out of memory}')")


@pytest.fixture
def handbook(rag: RagDB, synonyms: None) -> RagDB:
    add(
        rag,
        tele="テレワークの申請は前日までに行う。",
        network="ネットワークの申請は情報部門が受ける。",
        wfh="WFH needs a stable line.",
        memory="The process ran out of memory and was killed.",
        room="Rooms are booked at the desk.",
        lunch="昼食はカレーです。",
    )
    return rag


def test_a_document_with_a_synonym_is_found_and_the_questions_own_word_wins(handbook: RagDB) -> None:
    assert found(handbook, "WFH") == ["wfh", "tele", "network"]
    assert found(handbook, "ｗｆｈ")[:2] == ["wfh", "tele"]
    assert found(handbook, "在宅勤務の手当")[0] == "tele"
    assert found(handbook, "OOM") == ["memory"]


def test_a_gin_scan_takes_synonyms_as_candidates(handbook: RagDB, query: Query) -> None:
    rows = query("""select path, cardinality(chunk_ids) from ragdb.lexical_leg('OOM', 'help', options => '{"exact_limit": 0}')""")
    assert rows == [("gin", 1)]


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("OOM", ["OOM"]),
        ("oom-killer", ["OOM"]),
        ("an Out-of-Memory error", ["out of memory"]),
        ("out of memories", ["out of memory"]),
        ("the room", []),
        ("a cafe in memory of a scout", []),
        ("of memory out", []),
        ("memory", []),
        ("在宅勤務手当はいくら", ["在宅勤務"]),
        ("テレワーク可", ["テレワーク"]),
        ("ﾃﾚﾜｰｸ", ["テレワーク"]),
        ("在宅", []),
        ("WFH制度", ["WFH"]),
        ("wfhs", []),
        ("awfhb", []),
        ("WFH and OOM", ["WFH", "OOM"]),
        ("", []),
        ("'; drop table ragdb.synonym; --", []),
        ("\\ ' \" :* & | !", []),
    ],
)
def test_a_term_stands_in_a_question_as_whole_words_or_in_a_run(
    handbook: RagDB, query: Query, question: str, terms: list[str]
) -> None:
    rows = query(
        "select term from ragdb.question_synonyms(%s, ragdb.readable_collection('help')) group by term order by min(n)", question
    )
    assert [term for (term,) in rows] == terms


def test_what_the_search_sees_tells_where_each_word_comes_from(handbook: RagDB, query: Query) -> None:
    rows = query("select word, source, weight, content from ragdb.lexical_query('OOM', 'help') order by word")
    assert rows == [("memori", "out of memory", 0.8, True), ("oom", "question", 1.0, True)]
    # A long synonym together counts no more than the word that it stands for.
    rows = query(
        "select sum(idf * weight), (select idf from ragdb.lexical_query('WFH', 'help') where word = 'wfh') from ragdb.lexical_query('WFH', 'help') where source = 'リモートワーク'"
    )
    assert rows[0][0] <= 0.8 * rows[0][1] + 1e-9


def test_the_trace_names_the_synonyms(handbook: RagDB, query: Query) -> None:
    assert note(query, "WFH") == "1 word, synonyms: WFH = リモートワーク, テレワーク, 在宅勤務"
    assert note(query, "OOM WFH").endswith("OOM = out of memory")
    assert "synonyms" not in note(query, "lunch room")
    run = handbook.search("WFH", pipeline=LEXICAL)
    assert run.run_id is not None
    assert (
        "WFH = リモートワーク"
        in query("select note from ragdb.run_stage where run_id = %s and stage = 'retrieve'", run.run_id)[0][0]
    )


def test_a_synonym_is_evidence_for_the_word_it_stands_for(handbook: RagDB, query: Query) -> None:
    answer = handbook.ask("WFHの申請")
    assert answer.outcome == "answered"
    assert "テレワーク" in answer.text
    assert "ネットワーク" not in answer.text
    hits = {h.uri: h for h in handbook.search("WFH の申請", pipeline=LEXICAL)}
    assert hits["tele"].evidence == pytest.approx(1.0)
    assert {"テレ", "レワ", "申請"} <= set(hits["tele"].matched)
    assert "テレ" in hits["tele"].rare
    # It shares ワー and ーク with テレワーク, which is not the whole synonym.
    assert hits["network"].evidence < 0.5
    assert hits["wfh"].evidence < 1.0
    query("delete from ragdb.synonym")
    assert {h.uri: h for h in handbook.search("WFH の申請", pipeline=LEXICAL)}["tele"].evidence < 0.5


def test_a_word_weighs_no_more_than_its_commonest_synonym(rag: RagDB, synonyms: None, query: Query) -> None:
    for n in range(30):
        rag.add(Document(f"d{n:02}", f"在宅勤務の{'費用' if n == 0 else '手引'}、{n}ページ。"))
    query("select * from ragdb.refresh_lexical_stats()")
    hits = {h.uri: h for h in rag.search("WFH 費用", k=30, pipeline=LEXICAL)}
    # WFH stands nowhere, but what it means is everywhere, and alone no evidence.
    assert hits["d00"].evidence == pytest.approx(1.0)
    assert hits["d01"].evidence < 0.2
    assert hits["d01"].rare == ()


def test_one_way_leads_from_the_first_term_only(rag: RagDB, query: Query) -> None:
    add(rag, car="The car is washed on Mondays.", vehicle="Every vehicle has a sticker.")
    query("insert into ragdb.synonym (terms, one_way) values ('{vehicle,car}', true)")
    assert found(rag, "vehicles") == ["vehicle", "car"]
    assert found(rag, "car") == ["car"]


def test_a_row_may_be_for_one_collection_and_is_gone_when_it_is_deleted(handbook: RagDB, query: Query) -> None:
    query("update ragdb.synonym set collection_id = ragdb.create_collection('other')")
    assert found(handbook, "OOM") == []
    query("update ragdb.synonym set collection_id = (select collection_id from ragdb.collection where name = 'help')")
    assert found(handbook, "OOM") == ["memory"]
    query("delete from ragdb.synonym")
    assert found(handbook, "OOM") == []


def test_single_characters_keep_their_prefix_search(rag: RagDB, query: Query) -> None:
    add(rag, ja="大雪の日は休みです。", en="Snow closes the road.")
    query("insert into ragdb.synonym (terms) values ('{雪,snow}')")
    assert sorted(found(rag, "雪")) == ["en", "ja"]
    assert note(query, "雪") == "one-character words, by prefix, synonyms: 雪 = snow"


def test_a_term_of_stop_words_still_leads_to_its_synonyms(rag: RagDB, query: Query) -> None:
    add(rag, it="Information technology is on the third floor.", other="Lunch starts at noon.")
    query("insert into ragdb.synonym (terms) values ('{IT,information technology}')")
    assert found(rag, "IT") == ["it"]


@pytest.mark.parametrize(
    "terms",
    [
        "{}",
        "{a}",
        "{a,NULL}",
        '{a,""}',
        '{a,"  "}',
        '{a,"　"}',
        '{a,"　 "}',
        '{" ",a,b}',
        "{{a,b},{c,d}}",
        "{a," + "b" * 10_000 + "}",
    ],
)
def test_a_row_without_two_terms_is_refused(query: Query, terms: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="synonym_"):
        query("insert into ragdb.synonym (terms) values (%s)", terms)


@pytest.mark.parametrize("weight", [0, -1, 1.5, "NaN"])
def test_a_weight_is_above_zero_and_at_most_one(query: Query, weight: Any) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="weight"):
        query("insert into ragdb.synonym (terms, weight) values ('{a,b}', %s)", weight)


def test_terms_of_any_characters_raise_nothing(rag: RagDB, query: Query) -> None:
    add(rag, a="one page")
    odd = [
        "!!!",
        "'; drop table ragdb.synonym; --",
        "\\",
        '"',
        ":*",
        "a' | 'b",
        "{x,y}",
        "\U0001f642",
        "￿",
        "x" * 3000,
        "the of",
        "雪",
        "page",
    ]
    query("insert into ragdb.synonym (terms) values (%s)", odd)
    for question in [*odd, " ".join(odd), "page"]:
        found(rag, question)
        if question.strip():
            rag.search(question)
    assert query("select count(*) from ragdb.synonym") == [(1,)]


def test_two_thousand_rows_and_fifty_thousand_words_raise_nothing(rag: RagDB, query: Query) -> None:
    add(rag, a="one page")
    query(
        "insert into ragdb.synonym (terms) select array['word' || g, 'other ' || g, '言葉' || g] from generate_series(1, 2000) g"
    )
    assert found(rag, "page " + " ".join(f"word{n}" for n in range(50_000))) == ["a"]
