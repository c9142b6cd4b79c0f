"""What language models write, read with patience; and the rules that decide what a question needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragdb.adapters import load, modules
from ragdb.errors import ConfigError, LLMError
from ragdb.llms.replies import json_value, texts
from ragdb.stages.rewrite import rewrite
from ragdb.stages.route import LEADING_AWAY, route
from ragdb.testing import FakeLLM
from ragdb.types import Message, Query

NAMES = ("reword", "multi", "hyde", "stepback", "terms", "decompose", "condense")


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('```json\n{"queries":["reset router"]}\n```', ["reset router"]),
        ('Sure!\n```\n["a","b"]\n```\nHope it helps', ["a", "b"]),
        ('{"queries":["use ```x``` here"]}', ["use ```x``` here"]),
        ("```json\n```", []),
        ('{"queries":"one"}', ["one"]),
        ('["a",""," a ",null,7]', ["a"]),
        ('{"queries":["a"', []),
        ('{"queries": []}', []),
        ("", []),
        (None, []),
        ("\n ", []),
        ('<think>maybe {"queries":["WRONG"]}</think>{"queries":["right"]}', ["right"]),
        ("plan…</think>right", ["right"]),
        ("<think>never closed", []),
        ("1. first\n2) second\n- third\n・四つ目", ["first", "second", "third", "四つ目"]),
        ("<!DOCTYPE html><html><title>502</title></html>", []),
        ('{"error": {"message": "no"}}', []),
        ('{"queries": ["a\x00b", "two\\nlines"]}', ["a b", "two lines"]),
        ('{"wrong": ["kept"]}', ["kept"]),
        ("just a sentence", ["just a sentence"]),
        ('{"queries": [["nested"], {"text": "x"}]}', []),
    ],
)
def test_texts_are_found_in_whatever_a_model_wrote(reply: str | None, found: list[str]) -> None:
    assert texts(reply, most=20) == found


def test_no_more_texts_than_asked_for() -> None:
    reply = '{"queries": [' + ",".join(f'"q{n}"' for n in range(50)) + "]}"
    assert texts(reply, most=4) == ["q0", "q1", "q2", "q3"]


@given(st.text())
def test_no_reply_raises(reply: str) -> None:
    assert all(text.strip() for text in texts(reply, most=5))
    json_value(reply)


def test_deep_nesting_is_no_json() -> None:
    began = time.monotonic()
    assert json_value("[" * 100_000) is None
    assert time.monotonic() - began < 10


def test_our_rewriters_have_their_prompts_in_both_languages() -> None:
    assert set(modules("rewriters")) == set(NAMES)
    for name in NAMES:
        llm = FakeLLM('{"queries": ["other words"]}')
        rewriter = load("rewriters", name, llm=llm)
        history = (Message("user", "What is Mirage?"), Message("assistant", "A project."))
        for question, word in (("Who owns it?", "Write only JSON"), ("担当は誰ですか？", "JSON だけ")):
            [query] = rewriter.rewrite(Query(question), history)
            assert (query.text, query.origin) == ("other words", name)
            prompt = llm.calls[-1].prompt
            assert question in prompt
            assert word in prompt or "List up to" in prompt
            assert ("What is Mirage?" in prompt) == (name == "condense")
            assert llm.calls[-1].schema is not None
    assert {load("rewriters", n, llm=FakeLLM('["xyz"]')).rewrite(Query("q"), ())[0].legs for n in ("hyde", "terms", "multi")} == {
        ("semantic",),
        ("lexical",),
        None,
    }


def test_multi_is_asked_for_variety_and_the_others_for_the_same_again() -> None:
    for name, temperature in (("multi", 0.7), ("reword", 0.0), ("hyde", 0.0)):
        llm = FakeLLM('["xyz"]')
        load("rewriters", name, llm=llm).rewrite(Query("q"), (), deadline=3.0)
        assert (llm.calls[0].temperature, llm.calls[0].deadline) == (temperature, 3.0)


def test_a_rewriter_needs_a_language_model() -> None:
    with pytest.raises(ConfigError, match="multi needs a language model"):
        load("rewriters", "multi")
    assert load("rewriters", "multi:ragdb.testing.fakes:FakeLLM").name == "multi:ragdb.testing.fakes:FakeLLM"


@pytest.mark.parametrize("reply", ["", None, '{"queries": []}', '["' + "long " * 200 + '"]', LLMError("429"), ValueError("odd")])
def test_a_rewriter_that_fails_leaves_the_question_alone_and_costs_one_call(reply: Any) -> None:
    llm = FakeLLM([reply])
    outcome = rewrite(Query("reset router"), load("rewriters", "reword", llm=llm), (), name="reword", timeout=5)
    assert outcome.value == ()
    assert outcome.note.startswith("left out: ")
    assert len(llm.calls) == 1


def test_what_repeats_the_question_is_no_query() -> None:
    class Same:
        def rewrite(self, question: Query, history: Sequence[Message]) -> list[Query]:
            return [Query("Reset  Router?"), Query("router reset"), Query("ROUTER reset"), Query(" ")]

    outcome = rewrite(Query("reset router"), Same(), (), name="same", timeout=5)
    assert [query.text for query in outcome.value] == ["router reset"]


def test_another_prompt_model_or_history_is_another_key() -> None:
    def key(name: str, question: str, *history: Message, model: str = "m") -> str:
        llm = FakeLLM()
        llm.name = model
        found: str = load("rewriters", name, llm=llm).cache_key(Query(question), history)
        return found

    said = Message("user", "hello")
    keys = [
        key("reword", "a"),
        key("reword", "b"),
        key("multi", "a"),
        key("reword", "a", model="n"),
        key("condense", "a"),
        key("condense", "a", said),
    ]
    assert len(set(keys)) == len(keys)
    assert key("reword", "a") == key("reword", "a", said), "reword does not look at what was said"


# --- route ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    ["Hello!", "hi", "  Thank you very much. ", "こんにちは", "ありがとうございます！", "お疲れ様です。", "ＨＥＬＬＯ"],
)
def test_a_greeting_needs_no_retrieval(question: str) -> None:
    assert route(question).value.kind == "no_retrieval"


@pytest.mark.parametrize(("said", "words"), [("Hi!", "no_retrieval"), ("ありがとうございます！", "thanks"), ("bye", "farewell")])
def test_thanks_are_not_answered_as_a_greeting(said: str, words: str) -> None:
    assert route(said).value.words == words


@pytest.mark.parametrize(
    "question",
    [
        "Summarise what you just said",
        "please summarize that",
        "Translate your answer in French",
        "今の回答を要約して",
        "もっと短く",
        "それをもう一度説明して",
    ],
)
def test_what_was_said_is_not_in_a_document(question: str) -> None:
    assert route(question, history=True).value.kind == "said_before"


@pytest.mark.parametrize(
    "question", ["Summarise what you just said", "Please repeat your last answer.", "さっきの回答を要約して"]
)
def test_what_was_said_is_named_so_also_where_nothing_was(question: str) -> None:
    assert route(question).value.kind == "said_before"


@pytest.mark.parametrize(
    "question",
    ["Explain IT", "Can you explain IT?", "Please summarize it", "説明まとめ", "内容を要約して", "もう一度", "話をまとめて"],
)
def test_what_may_be_in_a_document_is_searched_where_nothing_was_said(question: str) -> None:
    assert route(question).value.kind == "simple"
    assert route("Explain IT", history=True).value.kind == "simple"


@pytest.mark.parametrize(
    "question", ["1/" * 50_000, "目次" + "." * 20_000 + "x", "“" * 50_000, "!" * 200_000 + "x", "a" * 100_000]
)
def test_the_rules_take_no_time_over_a_long_question(question: str) -> None:
    began = time.perf_counter()
    route(question)
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ('What does "connection reset by peer" mean?', '"connection reset by peer"'),
        ("「在宅」ではなく『在宅勤務手当』は？", "『在宅勤務手当』"),
        ("What is ERR_CONN_RESET?", "ERR_CONN_RESET"),
        ("KZ-4410-B の在庫は？", "KZ-4410-B"),
        ("changes in v3.2.1", "v3.2.1"),
        ("Is CVE-2024-3094 fixed?", "CVE-2024-3094"),
        ("How do I call foo.bar?", "foo.bar"),
        ("HTTP404 の原因は？", "HTTP404"),
        ("エラーERR_CONN_RESETの原因は?", "ERR_CONN_RESET"),
        ("装置KZ-4410-Bの交換手順", "KZ-4410-B"),
        ("部品はE-3312ですか", "E-3312"),
        ("Where is /etc/hosts?", "/etc/hosts"),
        ("see https://example.com/a", "https://example.com/a"),
        ("std::map の使い方", "std::map"),
    ],
)
def test_strings_and_identifiers_are_searched_as_they_stand(question: str, why: str) -> None:
    found = route(question)
    assert found.value.kind == "exact"
    assert set(found.value.leave_out) == set(LEADING_AWAY)
    assert why in found.note


@pytest.mark.parametrize(
    "question", ["Who approves it? And how long does it take?", "Compare plan A and plan B", "正社員とパートの手当の違いは？"]
)
def test_a_question_of_several_sides_is_taken_apart(question: str) -> None:
    found = route(question).value
    assert (found.kind, found.add) == ("many", ("decompose",))


@pytest.mark.parametrize(
    "question",
    [
        "How do I reset the router?",
        "在宅勤務手当はいくらですか？",
        "Hello world program in the handbook?",
        "What happened on 2024-03-18?",
        "the state-of-the-art method",
        "What is the summary of the contract?",
        "回答期限はいつですか",
        "How much is 16,000 yen?",
        "ありがとうカードとは何ですか",
        "receipts and/or invoices",
        "he/she may leave at 9 a.m., e.g. on Fridays",
        "a 3.5mm cable in the U.S.",
        "from mid-2024, the top-10 at 10:30am, 80 km/h",
        "18:00以降のVPN接続は可能ですか",
        "2024/04/01以降のPC申請はどうする",
        "4/1からのPC交換",
        'between 5" and 7" wide',
        "間違いを訂正するには",
        "違いますか",
        "VPNは繋がりますか？よろしくお願いします。",
        "経費の上限は？（2025年）",
        "How do I reset the router? Thanks.",
    ],
)
def test_other_questions_are_simple(question: str) -> None:
    assert route(question).value.kind == "simple", route(question).note
