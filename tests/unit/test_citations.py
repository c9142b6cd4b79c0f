"""Marks in an answer: the true ones resolve, however they are written and however the answer is cut into pieces."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragdb.citations import Resolver, misquoted, resolved, standing
from ragdb.types import Passage


def passage(number: int, label: str, content: str = "") -> Passage:
    return Passage(number, number, label, number, f"doc{number}.md", None, (), content, "", 0, len(content), None, 1.0)


PASSAGES = [passage(1, "router#reset#00"), passage(2, "handbook#旅費[国内]#01"), passage(3, "c#00"), passage(4, "d#00")]


@pytest.mark.parametrize(
    ("written", "text", "numbers", "false"),
    [
        ("Hold it [1].", "Hold it [1].", (1,), []),
        ("Both [1][2], and [3].", "Both [1][2], and [3].", (1, 2, 3), []),
        ("Both [1, 2].", "Both [1][2].", (1, 2), []),
        ("両方です【2、1】。", "両方です[2][1]。", (2, 1), []),
        ("全角［３］です。", "全角[3]です。", (3,), []),
        ("It is [Source 1] and [sources 2, 3].", "It is [1] and [2][3].", (1, 2, 3), []),
        ("それは[出典 2]です。", "それは[2]です。", (2,), []),
        ("See [citation: router#reset#00].", "See [1].", (1,), []),
        ("See [Citation: handbook#旅費[国内]#01].", "See [2].", (2,), []),
        ("See [source: doc3.md].", "See [3].", (3,), []),
        ("See [citation: 2].", "See [2].", (2,), []),
        ("See [citation: nowhere#00].", "See .", (), ["[citation: nowhere#00]"]),
        ("False [7] and [1, 9].", "False  and [1].", (1,), ["[7]", "[1, 9]"]),
        ("Zero [0].", "Zero .", (), ["[0]"]),
        ("In [2024] and [see note].", "In [2024] and [see note].", (), []),
        ("[[1]] and [see [2]]", "[[1]] and [see [2]]", (1, 2), []),
        ("A link [1](http://x.y) stays", "A link [1](http://x.y) stays", (), []),
        ("A footnote [^1], an escape \\[1\\]", "A footnote [^1], an escape \\[1\\]", (), []),
        ("`a[1]` and ``b`[2]`` but [3]", "`a[1]` and ``b`[2]`` but [3]", (3,), []),
        ("a tick ` alone [1]", "a tick ` alone [1]", (1,), []),
        ("```py\nx = a[1]\n```\nDone [2].", "```py\nx = a[1]\n```\nDone [2].", (2,), []),
        ("~~~\na[1]\n```\na[2]\n~~~~\n[3]", "~~~\na[1]\n```\na[2]\n~~~~\n[3]", (3,), []),
        ("- item\n  ```\n  a[1]\n  ```\n  [4]", "- item\n  ```\n  a[1]\n  ```\n  [4]", (4,), []),
        ("```\na[1] for ever", "```\na[1] for ever", (), []),
        ("not [1\n] a mark, [", "not [1\n] a mark, [", (), []),
        ("[1-3] is a range", "[1-3] is a range", (), []),
        ("[source: some remark]", "[source: some remark]", (), []),
        ("", "", (), []),
    ],
)
def test_marks(written: str, text: str, numbers: tuple[int, ...], false: list[str]) -> None:
    assert resolved(written, PASSAGES) == (text, numbers, false)


# What an answer is made of, with the numbers that it truly cites.
_PIECES: list[tuple[str, tuple[int, ...]]] = [
    ("The router", ()), (" has a button", ()), ("。", ()), (". ", ()), ("\n", ()), ("\n\n", ()), ("- ", ()), ("社内規程では", ()),
    (" [1] ", (1,)), ("[2][3]", (2, 3)), ("[1, 4]", (1, 4)), ("[Source 2]", (2,)), ("【3】", (3,)), ("［４］", (4,)),
    ("[citation: router#reset#00]", (1,)), ("[citation: handbook#旅費[国内]#01]", (2,)), ("[see [2]]", (2,)), ("[[3]]", (3,)),
    ("[5]", ()), ("[99]", ()), ("[0]", ()), ("[2024]", ()), (" in [1999] ", ()), ("[citation: none]", ()), ("[^2]", ()),
    ("`a[1]`", ()), ("`` b[2] ` ``", ()), ("[3](http://a.b/[3])", (3,)), ("\\[1]", ()), ("[1.5]", ()), ("[a1]", ()), ("[1-2]", ()),
    ("\n\n```py\nx[1] = [2]\n```\n\n", ()), ("\n\n~~~\n[4]\n~~~\n\n", ()), ("1,234 (2)", ()), ("{1}", ()), ("<3>", ()),
]  # fmt: skip


def made_up(chance: random.Random) -> tuple[str, set[int]]:
    chosen = [chance.choice(_PIECES) for _ in range(chance.randint(1, 30))]
    return " ".join(text for text, _ in chosen), {n for _, numbers in chosen for n in numbers}


def test_of_a_thousand_made_up_answers_only_true_marks_resolve() -> None:
    chance = random.Random(7)  # noqa: S311
    for _ in range(1000):
        answer, true = made_up(chance)
        _, numbers, _ = resolved(answer, PASSAGES)
        assert set(numbers) == true, answer


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**9), st.lists(st.integers(1, 9), max_size=80))
def test_pieces_read_as_the_whole_does(seed: int, cuts: list[int]) -> None:
    answer, _ = made_up(random.Random(seed))  # noqa: S311
    resolver, at, pieces = Resolver(PASSAGES), 0, []
    for cut in cuts:
        pieces += resolver.feed(answer[at : at + cut])
        at += cut
    pieces += resolver.feed(answer[at:])
    pieces += resolver.end()
    text, numbers, false = resolved(answer, PASSAGES)
    assert "".join(piece.text for piece in pieces) == text
    assert tuple(dict.fromkeys(n for piece in pieces for n in piece.numbers)) == numbers
    assert resolver.false == false


@given(st.text(alphabet="[]()【】`~\\\n #>1234５,、: citaonSourceé漢", max_size=120), st.data())
@settings(max_examples=500, deadline=None)
def test_any_text_is_read_alike_in_pieces(answer: str, data: st.DataObject) -> None:
    resolver, pieces, at = Resolver(PASSAGES), [], 0
    while at < len(answer):
        cut = data.draw(st.integers(1, 20))
        pieces += resolver.feed(answer[at : at + cut])
        at += cut
    pieces += resolver.end()
    assert "".join(piece.text for piece in pieces) == resolved(answer, PASSAGES)[0]


def test_an_open_bracket_does_not_hold_back_the_rest() -> None:
    resolver = Resolver(PASSAGES)
    assert "".join(piece.text for piece in resolver.feed("plain text ")) == "plain text "
    assert resolver.feed("[") == []
    assert "".join(p.text for p in resolver.feed("x" * 500)).startswith("[x")


def test_an_answer_without_marks_is_cited_where_every_sentence_stands() -> None:
    found = [
        passage(1, "a", "The limit is 60,000 yen.\nIt was raised in 2025."),
        passage(2, "b", "月額 10,000 円。毎月25日に支給する。"),
    ]
    assert standing("10,000 円", found) == (2,)
    assert standing("It was raised in 2025. 毎月25日に支給する。", found) == (1, 2)
    assert standing("The limit is 60,000 yen. It is generous.", found) == (), "one sentence stands nowhere"
    assert standing("yen", found) == (), "too little to say"
    source = [passage(1, "a", "The rate is 1.5 percent. The fee is 12,500 yen. It is not true that the gate is open on Sunday.")]
    assert standing("The rate is 1.5 percent.", source) == (1,)
    assert standing("12500 yen", source) == (1,), "a number is the same without its comma"
    for wrong in (
        "The rate is 15 percent.",
        "2,500 yen",
        "The gate is open on Sunday.",
        "1 percent",
        "rate is -1.5 percent",
        "ate is 1.5",
    ):
        assert standing(wrong, source) == (), wrong
    assert standing("", found) == ()


def test_quoted_words_have_to_stand_in_what_is_cited() -> None:
    source = passage(1, "a", "Hold the small\nbutton for ten seconds. 休業 三日以上に及ぶ場合は届け出る。")
    assert misquoted('It says "hold the small button" [1].', [source]) == ()
    assert misquoted("規程には「休業三日以上に及ぶ場合」とある[1]。", [source]) == ()
    assert misquoted('It says "hold the large button" [1].', [source]) == ("hold the large button",)
    assert misquoted('The "reset" button', [source]) == (), "a word in quotation marks is no quotation"
    rate = passage(1, "a", "The interest rate is 1.5 percent, the fee 60,000 yen.")
    assert misquoted('It says "the interest rate is 15 percent" [1].', [rate]) == ("the interest rate is 15 percent",)
    assert misquoted('It says "the fee 60.000 yen" [1].', [rate]) == ("the fee 60.000 yen",)
    assert misquoted('It says "the fee 60000 yen" [1].', [rate]) == ()
