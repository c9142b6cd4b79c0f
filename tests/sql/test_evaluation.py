"""The tables and functions of evaluation: what they refuse, who waits for whom, what they read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from ragdb import Document, RagDB

Query = Callable[..., list[tuple[Any, ...]]]
RUN = {"eval_set": "golden", "name": "hybrid", "collection": "help", "pipeline": {"name": "hybrid"}, "fingerprint": "f1"}


@pytest.fixture
def golden(rag: RagDB, query: Query) -> RagDB:
    """A set of one question, about a document that is there."""
    rag.add(Document("router.md", "# Router\n\nHold the button for ten seconds."))
    query("select ragdb.put_eval_set('golden', 'help')")
    put(query, {"key": "q1", "question": "Which button?", "judgements": [{"uri": "router.md", "quote": "the  button\nfor"}]})
    return rag


def put(query: Query, *questions: Any) -> tuple[Any, ...]:
    return query("select * from ragdb.put_eval_questions('golden', %s::jsonb)", json.dumps({"questions": questions}))[0]


def started(query: Query, **but: Any) -> tuple[int, int]:
    """Ids of a begun run and its question."""
    run = query("select eval_run_id from ragdb.start_eval_run(%s::jsonb)", json.dumps(RUN | but))[0][0]
    return run, query("select eval_question_id from ragdb.eval_question")[0][0]


def result(question: int, document: int | None = None, **more: Any) -> str:
    ids = [] if document is None else [document]
    verdict = {"metric": "faithfulness", "judge": "j", "prompt_hash": "h", "temperature": 0, "raw": "{}", "broken": "not '{}'"}
    return json.dumps({"eval_question_id": question, "document_ids": ids, "ms": 1, "answer": "a", "verdicts": [verdict]} | more)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("select ragdb.put_eval_set(null)", "name of an evaluation set is null"),
        ("select ragdb.put_eval_set(' golden')", "name of an evaluation set is ' golden'"),
        ("select ragdb.put_eval_questions('golden', null)", "questions is no list"),
        ("select ragdb.put_eval_questions('golden', '[]')", "questions is no list"),
        ("select ragdb.set_eval_state('golden', '{\"keys\": [\"q1\"]}', 'acepted')", "state is 'acepted'"),
        ("select ragdb.set_eval_state('golden', '{\"keys\": \"q1\"}', 'draft')", "keys is no list"),
        ("select ragdb.delete_eval_set(null)", "there is no evaluation set null"),
        ('select ragdb.start_eval_run(\'{"eval_set": "golden", "name": "x"}\')', "lacks its name"),
        ('select ragdb.record_eval_result(99, \'{"eval_question_id": 1, "ms": 1}\')', "evaluation run 99 has no question 1"),
        ('select ragdb.put_eval_scores(99, \'{"scores": {"1": {"p@5": 1}}}\')', "evaluation run 99 has no result of question 1"),
        ("select ragdb.finish_eval_run(99)", "there is no evaluation run 99"),
        ("select ragdb.copy_collection('help', null, 'plain:64')", "into and after_uri are texts"),
        ("select ragdb.drop_collection('help', null)", "how_many is null"),
        ("select ragdb.drop_collection('help', -1)", "how_many is -1"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_what_is_wrong(golden: RagDB, query: Query, statement: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as refused:
        query(statement)
    assert refused.value.sqlstate == "RD004"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key": ""}, "question 2: it lacks its key|question : it lacks its key"),
        ({"question": None}, "question q2: it lacks its key or question"),
        ({"state": "acepted"}, "question q2: state is"),
        ({"where": [1]}, "question q2: where is an object"),
        ({"tags": "a"}, "question q2: tags is a list"),
        ({"judgements": {}}, "question q2: judgements is a list"),
        ({"judgements": [{"grade": 1}]}, "question q2: a judgement lacks its uri"),
        ({"judgements": [{"uri": "a", "grade": 0.5}]}, "question q2: a grade is a whole number"),
        ({"judgements": [{"uri": "a", "grade": 2, "trap": True}]}, "question q2: a trap has no grade above 0"),
        ({"judgements": [{"uri": "a"}, {"uri": "a", "grade": 3}]}, "question q2: two judgements are about the same"),
    ],
)
def test_a_wrong_question_is_named_and_nothing_of_its_call_is_stored(
    golden: RagDB, query: Query, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(psycopg.Error, match=message) as refused:
        put(query, {"key": "q3", "question": "?"}, {"key": "q2", "question": "?"} | wrong)
    assert refused.value.sqlstate == "RD004"
    assert query("select key from ragdb.eval_question") == [("q1",)]


def test_a_result_belongs_to_a_question_of_its_own_set(golden: RagDB, query: Query) -> None:
    run, question = started(query)
    query("select ragdb.put_eval_set('other', 'help')")
    other = query("select eval_run_id from ragdb.start_eval_run(%s::jsonb)", json.dumps(RUN | {"eval_set": "other"}))[0][0]
    with pytest.raises(psycopg.Error, match=f"evaluation run {other} has no question {question}"):
        query("select ragdb.record_eval_result(%s, %s::jsonb)", other, result(question))
    with pytest.raises(psycopg.Error, match="not equally long"):
        query("select ragdb.record_eval_result(%s, %s::jsonb)", run, result(question, uris=["a"]))
    query("select ragdb.delete_eval_run(%s)", run)
    trace = {"verb": "ask", "question": "?", "collection": "help", "pipeline": {}, "k": 1, "ms": 1, "eval_run_id": run}
    with pytest.raises(psycopg.Error, match=f"there is no evaluation run {run}") as refused:
        query("select ragdb.record_run(%s::jsonb)", json.dumps(trace))
    assert refused.value.sqlstate == "RD004"


def waits(query: Query, how_many: int) -> None:
    """Returns when so many sessions wait for a lock."""
    for _ in range(200):
        if query("select count(*) from pg_locks where not granted")[0][0] >= how_many:
            return
        time.sleep(0.05)
    raise AssertionError("nobody waits")


def test_of_two_that_begin_the_same_at_once_the_second_goes_on_with_the_first(
    golden: RagDB, ragdb_url: str, query: Query
) -> None:
    with ThreadPoolExecutor() as threads, psycopg.connect(ragdb_url) as first:
        begun = first.execute("select eval_run_id from ragdb.start_eval_run(%s::jsonb)", [json.dumps(RUN)]).fetchone()
        second = threads.submit(started, query)
        with psycopg.connect(ragdb_url, autocommit=True) as watching:
            waits(lambda statement: watching.execute(statement.encode()).fetchall(), 1)
        first.commit()
        assert begun == (second.result(10)[0],)


def test_a_result_stored_anew_and_a_deletion_of_its_document_wait_for_each_other(
    golden: RagDB, ragdb_url: str, query: Query
) -> None:
    run, question = started(query)
    stored = golden.get("router.md")
    assert stored is not None
    # only what failed is written over
    query("select ragdb.record_eval_result(%s, %s::jsonb)", run, result(question, stored.document_id, error="no model"))

    def apart(statement: str, *values: Any) -> None:
        with psycopg.connect(ragdb_url, autocommit=True) as conn:
            conn.execute(statement.encode(), values)

    with ThreadPoolExecutor() as threads, psycopg.connect(ragdb_url) as holder:
        holder.execute("select from ragdb.eval_verdict for update")
        one = threads.submit(apart, "select ragdb.delete_document('help', 'router.md')")
        waits(query, 1)
        two = threads.submit(apart, "select ragdb.record_eval_result(%s, %s::jsonb)", run, result(question))
        waits(query, 2)
        holder.commit()
        one.result(20)
        two.result(20)  # either way round, and no deadlock
    assert query("select answer from ragdb.eval_result") == [("a",)]


def test_a_quote_is_looked_for_once_however_many_chunks_its_document_has(rag: RagDB, query: Query) -> None:
    rag.add(Document("long.md", "\n\n".join(f"## Part {n}\n\nThe lamp {n} is lit at sunset, every day." for n in range(60))))
    query("select ragdb.put_eval_set('golden', 'help')")
    quotes = ["lamp 7  is\nlit", "lamp 8 is lit", "no such words"]
    put(query, *({"key": quote, "question": "?", "judgements": [{"uri": "long.md", "quote": quote}]} for quote in quotes))
    query("set track_functions = 'all'")
    query("begin")
    found = query("select key, cardinality(chunk_ids), cardinality(whole_ids) from ragdb.eval_evidence('golden', 'help')")
    calls = query("select pg_stat_get_xact_function_calls('ragdb.places_of(text, text)'::regprocedure)")
    query("rollback")
    assert found == [("lamp 7  is\nlit", 1, 1), ("lamp 8 is lit", 1, 1), ("no such words", 0, 0)]
    assert calls == [(3,)]


def test_the_newest_questions_are_found_past_many_of_evaluations(golden: RagDB, query: Query) -> None:
    asked = golden.ask("Which button?").run_id
    run, _ = started(query)
    query(
        "insert into ragdb.run (collection, verb, question, pipeline, k, ms, eval_run_id)"
        " select 'help', 'ask', 'q', '{}', 1, 1, %s from generate_series(1, 20000)",
        run,
    )
    query("vacuum analyze ragdb.run")
    for of in ("'help'", "null"):
        assert query(f"select run_id from ragdb.list_runs({of})") == [(asked,)]
        plan = query(f"explain (analyze, buffers, timing off, format json) select * from ragdb.list_runs({of})")[0][0]
        assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 100


def test_a_copy_takes_nothing_from_a_collection_that_people_fill(golden: RagDB, query: Query) -> None:
    query("select ragdb.create_collection('wiki')")
    query('select ragdb.put_document(\'wiki\', \'{"uri": "page", "content": "Words."}\')')
    with pytest.raises(psycopg.Error, match="'wiki' has documents of its own, which a copy of 'help' would delete"):
        query("select ragdb.copy_collection('help', 'wiki', 'plain:64')")
    assert query("select uri from ragdb.document where collection_id <> 1") == [("page",)]
