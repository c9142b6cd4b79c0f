"""Questions that a model proposes: which are refused, and the words of a text that a quotation gives."""

from __future__ import annotations

import json
import re

import pytest

from ragdb.evaluate.proposals import Refused, alike, checked, standing

TEXT = "Snow duty begins at 6:30 in the\nmorning. Who has it takes the shovels from shed B and signs the list.\nA fine of 1,500 yen is due."
JA = "雪かき当番は 6:30 に始まる。当番は倉庫Ｂからスコップを出し、名簿に署名する。"


def reply(question: str, answer: str = "At 6:30.", quote: str = "begins at 6:30") -> str:
    return json.dumps({"quote": quote, "question": question, "answer": answer}, ensure_ascii=False)


def test_a_proposal_whose_words_stand_in_the_text_passes() -> None:
    found = checked(reply("What time do I start clearing snow?", quote="at 6:30 in the morning"), TEXT, [])
    assert (found.question, found.reference) == ("What time do I start clearing snow?", "At 6:30.")
    assert found.quote == "at 6:30 in the\nmorning"  # as it stands there
    assert checked(reply("雪の朝は何時に集まりますか？", "6:30 です。", "6:30に始まる"), JA, []).quote == "6:30 に始まる"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("no JSON", "no JSON with a question"),
        ("", "no JSON with a question"),
        (reply("", "", ""), "found nothing to ask about"),
        (reply("When?"), "too short or too long"),
        (reply("When do I start? " * 30), "too short or too long"),
        (reply("What time do I start?", answer=""), "there is no reference answer"),
        (reply("What time do I start?", quote=""), "there is no quote"),
        (reply("What time do I start?", quote="begins at seven"), "the quote does not stand in the text: 'begins at seven'"),
        (reply("What fine is due?", "500 yen.", quote="500 yen"), "the quote does not stand in the text"),
        (reply("What is said in this document on snow?"), "not understood alone: 'this document'"),
        (reply("What time is given in the passage?"), "not understood alone: 'the passage'"),
        (reply("What does the above section say on snow?"), "not understood alone"),
        (reply("上記の当番は何時に始まりますか？"), "not understood alone: '上記'"),
        (reply("この文書で当番は何時に始まりますか？"), "not understood alone: 'この文書'"),
        (reply("この報告はどのように作られましたか？"), "not understood alone: 'この報告'"),
        (reply("Who is in charge of this project?"), "not understood alone: 'this project'"),
        (reply("それは何時に始まりますか？"), "not understood alone: 'それ'"),
        (reply("本規程における当番の開始時刻は？"), "not understood alone: '本規程'"),
        (reply("Who has it takes the shovels from shed B?", quote="shed B"), "it repeats the text"),
        (reply("Is it right that snow duty begins at 6:30?", quote="begins at 6:30"), "gives its answer away"),
        (reply("What time do I start?", "At 7:15."), "a number that is not in the text: 7:15"),
        (reply("When must I be there, for the snow"), "it is asked already: 'When must I be there for the snow?'"),
    ],
)
def test_a_proposal_that_cannot_be_used_is_refused_with_the_reason(written: str, reason: str) -> None:
    with pytest.raises(Refused, match=re.escape(reason)):
        checked(written, TEXT, ["When must I be there for the snow?"])


@pytest.mark.parametrize(
    "question",
    [
        "How do I file the document for a refund?",
        "本社の所在地はどこですか？",
        "文書化の担当者は誰ですか？",
        "Which sections of the fence are repaired first?",
        "What are the goals for this year?",
        "The theses of which thinker were nailed to a door?",
        "代車を借りたとき、その返却はいつですか？",
        "日本書紀は何巻ありますか？",
    ],
)
def test_a_question_about_documents_is_no_question_about_this_one(question: str) -> None:
    from ragdb.evaluate.proposals import _POINTS

    found = _POINTS.search(question)
    assert found is None, found


@pytest.mark.parametrize(
    ("quote", "words"),
    [
        ("SHOVELS FROM SHED B", "shovels from shed B"),
        ("6:30", "6:30"),
        ("30", None),
        ("6", None),
        ("500 yen", None),
        ("hovels", None),
        (" ", None),
        ("x" * 1000, None),
        ("(list", None),
    ],
)
def test_a_quotation_is_the_words_as_they_stand(quote: str, words: str | None) -> None:
    assert standing(quote, TEXT) == words


def test_nearly_the_same_question_is_the_same_one() -> None:
    assert (
        alike("How long may I keep the car", ["Where is it?", "how long may I keep the car?"]) == "how long may I keep the car?"
    )
    assert alike("How long may I keep the loan car?", ["Who may drive the loan car?"]) is None
    assert alike("What time does the Osaka office open?", ["What time does the Kyoto office open?"]) is None
    assert alike("P1 障害の初動は何分以内ですか？", ["P2 障害の初動は何分以内ですか？"]) is None
    assert alike("代車は何日借りられますか？", ["代車は何日間借りられますか"]) == "代車は何日間借りられますか"
