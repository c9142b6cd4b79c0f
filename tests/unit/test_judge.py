"""Answers judged by a model: the formulas, and what becomes of verdicts that cannot be used."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("scipy")

from ragdb.adapters import load_llm
from ragdb.errors import ConfigError, EmbedderError
from ragdb.evaluate.checking import Labelled, check_judge, read_labelled
from ragdb.evaluate.judge import METRICS, Judge, outcome
from ragdb.evaluate.types import Verdict
from ragdb.evaluate.verdicts import average_precision
from ragdb.prices import Prices
from ragdb.prompts import OURS, Prompts
from ragdb.testing import FakeEmbedder, FakeLLM, FakeOpenAIServer, Reply
from ragdb.types import Completion, Message

Serve = Callable[..., FakeOpenAIServer]
QUESTION = "When does snow duty begin?"
CONTEXTS = ["Snow duty begins at six.", "The office closes at seven."]
STATEMENTS = json.dumps({"statements": ["Snow duty begins at six.", "Snow duty is voluntary."]})


def said(*truths: object) -> str:
    return json.dumps({str(n): {"why": "so", "verdict": truth} for n, truth in enumerate(truths, start=1)})


def one(truth: object) -> str:
    return json.dumps({"why": "so", "verdict": truth})


def chat(text: str | None, **more: Any) -> Reply:
    """A reply of a server that says that it read the whole prompt."""
    return Reply.chat(text, prompt_tokens=900, **more)


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[FakeOpenAIServer] = []

    def start(**script: Any) -> FakeOpenAIServer:
        running.append(FakeOpenAIServer(**script).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__(None, None, None)


def judge_of(server: FakeOpenAIServer, **how: Any) -> Judge:
    return Judge(load_llm("openai:judge", base_url=server.base_url, context_window=8192), **how)


# --- the metrics ----------------------------------------------------------------------------------


def test_faithfulness_is_the_share_of_statements_that_the_contexts_support(serve: Serve) -> None:
    server = serve(chat=[chat(STATEMENTS), chat(said(True, False))])
    found = judge_of(server).judged(QUESTION, "At six [1]. It is voluntary [2].", CONTEXTS, None, ["faithfulness"])
    assert [(v.metric, v.step, v.value, v.broken) for v in found] == [
        ("faithfulness", "statements", None, None),
        ("faithfulness", "verdicts", 0.5, None),
    ]
    assert [v.raw for v in found] == [STATEMENTS, said(True, False)]
    assert {(v.judge, v.temperature) for v in found} == {("openai:judge", 0.0)}
    first, second = server.bodies("completions")
    assert [body["temperature"] for body in (first, second)] == [0.0, 0.0]
    assert second["response_format"]["json_schema"]["schema"]["required"] == ["1", "2"]
    assert "[1] Snow duty begins at six.\n\n[2] The office closes at seven." in second["messages"][0]["content"]
    assert "At six. It is voluntary." in first["messages"][0]["content"].replace(" .", ".")
    assert found[0].usage["prompt_tokens"] == 900 and found[0].usage["ms"] > 0


def test_the_hash_of_a_prompt_is_that_of_its_file() -> None:
    found = Judge(FakeLLM([STATEMENTS, said(1, 1)])).judged(QUESTION, "At six.", CONTEXTS, None, ["faithfulness"])
    file = Path(__file__).parents[2] / "ragdb" / "prompts" / "en" / "judge-statements.txt"
    assert found[0].prompt_hash == hashlib.sha256(file.read_bytes()).hexdigest()
    assert found[0].prompt_hash != found[1].prompt_hash
    settings = Judge(FakeLLM(), FakeEmbedder()).settings()
    assert settings["prompts"]["en/judge-statements"] == found[0].prompt_hash
    assert (settings["temperature"], settings["embedder"]) == (0.0, FakeEmbedder().name)


@pytest.mark.parametrize(
    ("useful", "value"),
    [
        ([True, False], 1.0),
        ([False, True], 0.5),
        ([False, True, True], (1 / 2 + 2 / 3) / 2),
        ([False, False], 0.0),
        ([], 0.0),
    ],
)
def test_context_precision_is_the_mean_of_the_precision_at_each_useful_rank(useful: list[bool], value: float) -> None:
    assert average_precision(useful) == pytest.approx(value)


def test_each_context_is_judged_by_the_reference_answer_in_rank_order() -> None:
    llm = FakeLLM([one(False), one("yes"), one(1)])
    found = Judge(llm).judged(QUESTION, "", [*CONTEXTS, "Six it is."], "At six.", ["context_precision"])
    assert [v.step for v in found] == ["context 1", "context 2", "context 3"]
    assert [v.value for v in found] == [None, None, pytest.approx((1 / 2 + 2 / 3) / 2)]
    assert all("At six." in call.prompt for call in llm.calls)
    assert "Snow duty begins at six." in llm.calls[0].prompt and "Six it is." in llm.calls[2].prompt


def test_context_recall_takes_the_reference_sentence_by_sentence() -> None:
    llm = FakeLLM([said(True, True, False)])
    reference = "当番は6時に始まる。場所は入口である。道具は倉庫にある。"
    (found,) = Judge(llm).judged("雪かき当番はいつから？", "", CONTEXTS, reference, ["context_recall"])
    assert found.value == pytest.approx(2 / 3)
    assert "[3] 道具は倉庫にある。" in llm.calls[0].prompt
    assert "照らし合わせて" in llm.calls[0].prompt  # the Japanese prompt, for a Japanese question


def asking(*questions: str, noncommittal: object = False) -> str:
    return json.dumps({"noncommittal": noncommittal, **{str(n): q for n, q in enumerate(questions, start=1)}})


def test_answer_relevance_is_the_mean_cosine_of_question_and_questions_made_from_the_answer() -> None:
    embedder = FakeEmbedder(16)
    (same,) = Judge(FakeLLM([asking(QUESTION, QUESTION, QUESTION)]), embedder).judged(
        QUESTION, "At six.", [], None, ["answer_relevance"]
    )
    assert same.value == pytest.approx(1.0)
    assert same.usage["embedder"] == embedder.name and same.usage["cosines"] == [1.0, 1.0, 1.0]
    (other,) = Judge(FakeLLM([asking(QUESTION, "zebra?", "quagga!")]), embedder).judged(
        QUESTION, "At six.", [], None, ["answer_relevance"]
    )
    assert other.value == pytest.approx(max(0.0, sum(other.usage["cosines"]) / 3), abs=1e-4)
    assert other.value is not None and other.value < 1.0


def test_a_noncommittal_answer_is_worth_nothing_and_needs_no_questions() -> None:
    embedder = FakeEmbedder()
    (found,) = Judge(FakeLLM([asking(noncommittal=True)]), embedder).judged(QUESTION, "Hm.", [], None, ["answer_relevance"])
    assert (found.value, found.broken, embedder.calls) == (0.0, None, 0)


def test_questions_that_are_the_form_that_the_prompt_shows_are_none() -> None:
    (found,) = Judge(FakeLLM([asking("...", "...", "...")]), FakeEmbedder()).judged(
        QUESTION, "At six.", [], None, ["answer_relevance"]
    )
    assert (found.value, found.broken) == (None, "it wrote the example of the prompt")
    (evasive,) = Judge(FakeLLM([asking("...", "...", "...", noncommittal=True)]), FakeEmbedder()).judged(
        QUESTION, "Hm.", [], None, ["answer_relevance"]
    )
    assert (evasive.value, evasive.broken) == (0.0, None)  # the form says otherwise: this was the model's own word


@pytest.mark.parametrize("why", ["...", "…", " . . . "])
def test_a_verdict_with_the_dots_of_the_prompt_for_its_reason_is_none(why: str) -> None:
    reply = json.dumps({"why": why, "verdict": True})
    (found,) = Judge(FakeLLM([reply] * 2)).judged(QUESTION, "At six.", CONTEXTS, "At six.", ["context_precision"])
    assert found.value is None
    assert "the form of the prompt" in str(found.broken)


def test_an_embedder_that_fails_breaks_its_metric_and_no_other() -> None:
    judge = Judge(FakeLLM([asking("a?", "b?", "c?"), said(True)]), FakeEmbedder(fail=EmbedderError("no model on this machine")))
    found = judge.judged(QUESTION, "At six.", CONTEXTS, "At six.", ["answer_relevance", "context_recall"])
    assert outcome(found)["context_recall"] == 1.0
    assert found[0].value is None and found[0].raw == asking("a?", "b?", "c?")
    assert "no model on this machine" in str(found[0].broken)


# --- what cannot be used --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty, finish reason stop"),
        (None, "empty, finish reason stop"),
        ("I think that both are supported.", "no JSON with verdicts"),
        ("By [1, 1] both are supported.", "no JSON with verdicts"),
        (said(True), "1 verdicts for 2 statements"),
        (said(True, True, False), "3 verdicts for 2 statements"),
        (said(True, "partly"), "verdict 2 is 'partly'"),
        (said(True, None), "verdict 2 is 'None'"),
        (said(True, 0.5), "verdict 2 is '0.5'"),
        ('{"1": {"why": "so", "verdict": true}, "2": {"why": "so', "no JSON with verdicts"),
        (OURS.template("judge-supported", "en").template.split("\n")[3], "it wrote the example"),
    ],
)
def test_a_verdict_that_cannot_be_used_is_broken_and_kept_and_not_asked_for_again(
    serve: Serve, reply: str | None, reason: str
) -> None:
    server = serve(chat=[chat(STATEMENTS), chat(reply), chat(said(True, True))])
    found = judge_of(server).judged(QUESTION, "At six.", CONTEXTS, None, ["faithfulness"])
    assert [v.value for v in found] == [None, None]
    assert found[0].broken is None
    assert re.search(reason, str(found[-1].broken))
    assert found[-1].raw == (reply or "")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat(said(True, True), finish_reason="length"), "cut off after 3 tokens"),
        (Reply.error(400, "this prompt is refused"), "the call failed.*this prompt is refused"),
        (Reply.html(status=404), "the call failed"),
        (Reply.broken(), "the call failed"),
    ],
)
def test_a_server_that_fails_or_stops_half_way_gives_a_broken_verdict(serve: Serve, reply: Reply, reason: str) -> None:
    server = serve(chat=[chat(STATEMENTS), reply])
    found = judge_of(server).judged(QUESTION, "At six.", CONTEXTS, None, ["faithfulness"])
    assert found[-1].value is None
    assert re.search(reason, str(found[-1].broken))


def test_verdicts_in_a_list_are_read_and_counted_too() -> None:
    listed = json.dumps([{"why": "so", "verdict": True}, {"why": "no", "verdict": False}])
    found = Judge(FakeLLM([STATEMENTS, f"```json\n{listed}\n```"])).judged(QUESTION, "A.", CONTEXTS, None, ["faithfulness"])
    assert found[-1].value == 0.5
    (found_of_one,) = Judge(FakeLLM([listed])).judged(QUESTION, "A.", CONTEXTS, "One.", ["context_recall"])
    assert found_of_one.broken == "2 verdicts for 1 statements"


def test_a_call_that_takes_too_long_is_broken(serve: Serve) -> None:
    server = serve(chat=[chat(STATEMENTS), chat(said(True, True), delay=5)])
    found = judge_of(server, timeout=0.5).judged(QUESTION, "At six.", CONTEXTS, None, ["faithfulness"])
    assert found[-1].raw is None
    assert "the call failed" in str(found[-1].broken)


def test_a_first_step_that_breaks_ends_its_metric_and_the_others_go_on() -> None:
    llm = FakeLLM(["no list", said(True)])
    found = Judge(llm).judged(QUESTION, "At six.", CONTEXTS, "At six.", ["faithfulness", "context_recall"])
    assert [(v.metric, v.step) for v in found] == [("faithfulness", "statements"), ("context_recall", "verdicts")]
    assert outcome(found) == {"faithfulness": "no JSON with statements", "context_recall": 1.0}


def test_without_the_verdict_of_one_rank_there_is_no_context_precision() -> None:
    found = Judge(FakeLLM([one(True), one("perhaps")])).judged(
        QUESTION, "", [*CONTEXTS, "Third."], "At six.", ["context_precision"]
    )
    assert [v.step for v in found] == ["context 1", "context 2"]
    assert all(v.value is None for v in found)
    assert found[-1].broken == "verdict 1 is 'perhaps', neither yes nor no"


def test_a_prompt_that_does_not_fit_is_not_sent() -> None:
    llm = FakeLLM([], context_window=600, max_output_tokens=100)
    (found,) = Judge(llm).judged(QUESTION, "", ["snow " * 2000], "At six.", ["context_recall"])
    assert found.raw is None and "has room for 500" in str(found.broken)


def test_a_server_that_read_only_a_part_of_the_prompt_gives_no_verdict() -> None:
    llm = FakeLLM([Completion(said(True), prompt_tokens=12, completion_tokens=5, finish_reason="stop")])
    (found,) = Judge(llm).judged(QUESTION, "", CONTEXTS, "At six.", ["context_recall"])
    assert found.value is None and "read 12 tokens" in str(found.broken)


def test_a_wrong_setting_stops_it_at_once() -> None:
    with pytest.raises(ConfigError, match="no such model"):
        Judge(FakeLLM([ConfigError("no such model")])).judged(QUESTION, "At six.", CONTEXTS, None, ["faithfulness"])


def test_what_a_database_cannot_hold_is_not_in_a_verdict() -> None:
    (found,) = Judge(FakeLLM(["bad \x00 \ud800 text"])).judged(QUESTION, "A.", CONTEXTS, None, ["faithfulness"])
    assert found.raw == "bad   \ufffd text"


# --- what cannot be had ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "answer", "contexts", "reference", "reason"),
    [
        ("faithfulness", "At six.", [], "At six.", "there are no contexts"),
        ("faithfulness", "The answer is not in the documents.", CONTEXTS, None, "it is a refusal"),
        ("faithfulness", " [1] ", CONTEXTS, None, "there is no answer"),
        ("answer_relevance", "この質問の答えは文書の中にありません。", CONTEXTS, None, "it is a refusal"),
        ("answer_relevance", "At six.", CONTEXTS, None, "there is no embedder"),
        ("context_precision", "At six.", CONTEXTS, None, "there is no reference answer"),
        ("context_recall", "At six.", CONTEXTS, " ", "there is no reference answer"),
        ("context_recall", "At six.", [" "], "At six.", "there are no contexts"),
    ],
)
def test_a_metric_that_cannot_be_had_has_no_verdict_and_a_reason(
    metric: str, answer: str, contexts: Sequence[str], reference: str | None, reason: str
) -> None:
    judge = Judge(FakeLLM([]))
    assert judge.judged(QUESTION, answer, contexts, reference, [metric]) == []
    assert reason in str(judge.why_not(metric, answer, contexts, reference))


def test_what_a_search_found_is_judged_for_a_refusal_too() -> None:
    found = Judge(FakeLLM([said(True)])).judged(
        QUESTION, "The answer is not in the documents.", CONTEXTS, "At six.", ["faithfulness", "context_recall"]
    )
    assert outcome(found) == {"context_recall": 1.0}


def test_a_metric_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no metric 'beauty'; it has faithfulness, "):
        Judge(FakeLLM([])).judged(QUESTION, "At six.", CONTEXTS, None, ["beauty"])


def test_prompts_of_ones_own_are_used_and_leave_their_mark(tmp_path: Path) -> None:
    (tmp_path / "ja").mkdir()
    (tmp_path / "ja" / "judge-statements.txt").write_text("分けて: $question / $answer", encoding="utf-8")
    llm = FakeLLM(["nothing"])
    (found,) = Judge(llm, prompts=Prompts(tmp_path)).judged("いつ？", "6時です。", CONTEXTS, None, ["faithfulness"])
    assert llm.calls[0].prompt == "分けて: いつ？ / 6時です。"
    assert found.prompt_hash == hashlib.sha256("分けて: $question / $answer".encode()).hexdigest()


def test_a_verdict_has_its_cost_where_prices_are_known() -> None:
    llm = FakeLLM([said(True)])
    (found,) = Judge(llm, prices=Prices({llm.name: {"call": 0.25}})).judged(QUESTION, "", CONTEXTS, "x.", ["context_recall"])
    assert found.usage["cost"] == 0.25


# --- the judge, judged ----------------------------------------------------------------------------


def items() -> list[Labelled]:
    return [
        Labelled(key, "context_recall", QUESTION, expected, contexts=(context,), reference="At six.")
        for key, expected, context in [("a", 1, "at six"), ("b", 1, "six it is"), ("c", 0, "at eight"), ("d", 0, "nothing")]
    ]


def test_a_judge_that_agrees_with_every_label_is_not_doubted() -> None:
    def answer(messages: Sequence[Message]) -> str:
        return said("six" in messages[0].content.split("Passages:")[1].split("Statements:")[0])

    check = check_judge(Judge(FakeLLM(answer)), items())
    (figures,) = check.metrics
    assert (figures.n, figures.broken, figures.of_high, figures.of_low, figures.separation) == (4, 0, (2, 2), (2, 2), 1.0)
    assert figures.agreement is not None and figures.agreement.value == 1.0
    assert figures.agreement.low == pytest.approx(4 / (4 + 1.959964**2), abs=1e-4)  # Wilson 1927, for n of n
    assert check.doubts() == []
    assert [one.item.key for one in check.items] == ["a", "b", "c", "d"]


def test_a_judge_that_always_says_yes_is_doubted() -> None:
    check = check_judge(Judge(FakeLLM(said(True))), items())
    (figures,) = check.metrics
    assert (figures.of_high, figures.of_low, figures.separation) == ((2, 2), (0, 2), 0.5)
    assert check.doubts() == [
        f"context_recall by {FakeLLM().name}: agrees with 0.50 of the labels, 0.8 is asked for; "
        "puts the better answer first 0.50 of the time, 0.8 is asked for"
    ]


def test_a_broken_verdict_counts_as_broken_and_as_nothing_else() -> None:
    check = check_judge(Judge(FakeLLM([said(True), "no", said(False), ""])), items())
    (figures,) = check.metrics
    assert (figures.n, figures.broken, figures.of_high, figures.of_low) == (4, 2, (1, 1), (1, 1))
    assert figures.agreement is not None and (figures.agreement.value, figures.agreement.n) == (1.0, 2)
    assert [one.broken is not None for one in check.items] == [False, True, False, True]
    assert check.doubts() == [f"context_recall by {FakeLLM().name}: 2 of 4 verdicts are broken"]


def test_a_judge_whose_verdicts_are_all_broken_has_no_agreement() -> None:
    (figures,) = check_judge(Judge(FakeLLM("no")), items()).metrics
    assert (figures.broken_share, figures.agreement, figures.separation) == (1.0, None, None)


def test_an_item_that_cannot_be_asked_is_left_out_with_its_reason() -> None:
    check = check_judge(Judge(FakeLLM([])), [Labelled("r", "answer_relevance", QUESTION, 1.0, answer="At six.")])
    assert check.metrics == ()
    assert check.items[0].left_out == "there is no embedder to compare questions by"


def test_the_labelled_set_has_every_metric_in_both_languages_right_and_wrong() -> None:
    found = read_labelled()
    for language in ("en", "ja"):
        for metric in METRICS:
            labels = {one.expected for one in found if (one.language, one.metric) == (language, metric)}
            assert {0.0, 1.0} <= labels
    judge = Judge(FakeLLM([]), FakeEmbedder())
    assert [judge.why_not(one.metric, one.answer, one.contexts, one.reference) for one in found] == [None] * len(found)
    assert len({one.key for one in found}) == len(found)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2: no JSON"),
        ("[]", "line 2: no object; an item has key, metric"),
        ('{"metrik": "x"}', "line 2: unknown metrik"),
        ('{"metric": "x"}', "line 2: metric is 'x'; it is one of faithfulness"),
        ('{"metric": "faithfulness", "question": "q", "expected": true}', "line 2: expected is True; it is a number"),
        ('{"metric": "faithfulness", "question": "q", "expected": 2}', "line 2: expected is 2"),
        ('{"metric": "faithfulness", "question": "q", "expected": 1, "contexts": "c"}', "line 2: contexts is 'c'"),
        ('{"metric": "faithfulness", "question": "q", "expected": 1, "answer": 3}', "line 2: answer is 3; it is a text"),
        ('{"metric": "faithfulness", "expected": 1}', "line 2: there is no question"),
    ],
)
def test_a_labelled_set_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(f'{{"metric": "faithfulness", "question": "q", "expected": 1}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=why):
        read_labelled(file)


def test_an_empty_or_missing_labelled_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_labelled(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is empty"):
        read_labelled(tmp_path / "empty.jsonl")


def test_the_outcome_of_a_metric_is_its_last_verdict() -> None:
    step = Verdict("faithfulness", "statements", "j", "h", 0.0, raw="x")
    assert outcome([step]) == {"faithfulness": "it broke off"}
