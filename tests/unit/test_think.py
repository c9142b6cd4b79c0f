from __future__ import annotations

import pytest

from ragdb.llms.think import strip_think


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<think>maybe {"queries":["WRONG"]}</think>{"queries":["right"]}', '{"queries":["right"]}'),
        ("<think></think>\n\nAnswer [1].", "Answer [1]."),
        ("\n <THINK>\nlong\nthoughts\n</THINK>\nAnswer", "Answer"),
        ("<think>wrap it in <think> and </think>, I think</think>Answer", "Answer"),
        ("<think>the user wrote <think> here</think>Answer", "Answer"),
        ("<think>r</think>Wrap it in <think> and </think> tags [1].", "Wrap it in <think> and </think> tags [1]."),
    ],
)
def test_a_leading_block_is_removed(text: str, expected: str) -> None:
    assert strip_think(text) == expected


@pytest.mark.parametrize("text", ["<think>never closed", "  <think>", "<think>a <think> b", "<think>only thoughts</think>"])
def test_a_block_without_an_answer_behind_it_is_an_empty_text(text: str) -> None:
    assert strip_think(text) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plan…</think>right", "right"),
        ("I should look at the tags.\n</think>\n\nAnswer [1].", "Answer [1]."),
        ("plan </think> right", "right"),
        ("考える\n</think>\n\nはい、6時です [1]。", "はい、6時です [1]。"),
        ("plan</think>`ls -l` lists files", "`ls -l` lists files"),
        ("plan</think>", ""),
        ("</think>Answer", "Answer"),
    ],
)
def test_what_stands_before_a_lone_closing_tag_is_removed(text: str, expected: str) -> None:
    assert strip_think(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Wrap it in <think> and </think> tags [1].",
        "Close the block with `</think>` and go on [1].",
        "End it with a </think> tag [1].",
        "The block ends at the closing tag </think> [1].",
        "思考の終わりは</think>タグで示します [1]。",
        "Begin with <think> [1].",
        "Use <think>, then </think>, then </think> again.",
        "Answer [1].\n",
        "a < b and <thinker>",
        "",
    ],
)
def test_an_answer_about_the_tags_stays_as_it_is(text: str) -> None:
    assert strip_think(text) == text
