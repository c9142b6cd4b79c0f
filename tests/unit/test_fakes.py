from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ragdb.embedders import embed_checked, embed_query_checked
from ragdb.errors import EmbedderError, LLMError
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.types import Completion, Message

SIX = [f"text {i}" for i in range(6)]


def test_a_fake_vector_is_the_same_in_another_process() -> None:
    code = "from ragdb.testing import FakeEmbedder; print(FakeEmbedder().embed_query('snow 除雪当番'))"
    there = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert there.strip() == str(FakeEmbedder().embed_query("snow 除雪当番"))


@pytest.mark.parametrize("text", ["!!!", "…", "\u200b", "a", "除", "👩‍👩‍👧", "\ud83d", "_"])
def test_a_fake_vector_has_length_one_whatever_the_text(text: str) -> None:
    assert math.hypot(*FakeEmbedder().embed_query(text)) == pytest.approx(1)


def test_a_fake_embedder_counts_and_keeps_what_it_was_given_and_refuses_blank_text() -> None:
    fake = FakeEmbedder()
    fake.embed_passages(["a", "b"])
    fake.embed_query("c")
    assert (fake.calls, fake.texts) == (2, ["a", "b", "c"])
    for blank in ("", " \n\t", "\u3000\u3000"):
        with pytest.raises(EmbedderError, match="blank"):
            fake.embed_passages(["a", blank])


@pytest.mark.parametrize("fail", [TimeoutError("late"), TimeoutError])
def test_a_fake_embedder_fails_as_told_and_an_unknown_failure_is_transient(fail: Any) -> None:
    with pytest.raises(EmbedderError, match="TimeoutError") as caught:
        embed_checked(FakeEmbedder(fail=fail), ["a"])
    assert caught.value.transient
    with pytest.raises(EmbedderError):
        embed_query_checked(FakeEmbedder(fail=fail), "a")


def test_an_embedders_own_error_passes_as_it_is() -> None:
    error = EmbedderError("out of quota")
    with pytest.raises(EmbedderError) as caught:
        embed_checked(FakeEmbedder(fail=error), ["a"])
    assert caught.value is error


@pytest.mark.parametrize(
    ("fail", "words", "transient"),
    [
        (lambda texts: [[1.0] * 8] * (len(texts) - 1), "returned 3 vectors for 4 texts", True),
        (lambda texts: [[1.0] * 8] * (len(texts) + 1), "returned 5 vectors for 4 texts", True),
        (lambda texts: [[1.0] * 16] * len(texts), r"16 dimensions for text 0, 8 were expected", False),
        (lambda texts: [[1.0] * 7 + [math.nan]] * len(texts), "returned nan at position 7 of the vector of text 0", False),
        (lambda texts: [[math.inf] * 8] * len(texts), "returned inf", False),
        (lambda texts: [[0.0] * 8] * len(texts), "zero vector for text 0", False),
    ],
)
def test_vectors_that_cannot_be_stored_are_refused(fail: Callable[[list[str]], Any], words: str, transient: bool) -> None:
    with pytest.raises(EmbedderError, match=words) as caught:
        embed_checked(FakeEmbedder(fail=fail), SIX, batch_size=4)
    assert caught.value.transient is transient


def test_blank_text_never_reaches_the_embedder() -> None:
    fake = FakeEmbedder()
    with pytest.raises(EmbedderError, match="text 5 "):
        embed_checked(fake, [*SIX[:5], "\u3000"])
    with pytest.raises(EmbedderError, match="blank"):
        embed_query_checked(fake, " ")
    assert fake.calls == 0


def test_texts_go_in_batches_with_the_number_done_after_each() -> None:
    fake, done = FakeEmbedder(), list[int]()
    assert embed_checked(fake, SIX, batch_size=4, progress=done.append) == fake.embed_passages(SIX)
    assert (done, fake.calls) == ([4, 6], 3)
    assert embed_checked(fake, []) == []
    assert embed_checked(fake, [str(i) for i in range(40)], progress=done.append)
    assert done[2:] == [16, 32, 40]


def test_a_fake_llm_gives_its_answers_in_order_and_no_more() -> None:
    answers = [
        "one",
        None,
        LLMError("busy", transient=True),
        Completion("cut", finish_reason="length"),
        lambda messages: messages[-1].content,
    ]
    llm = FakeLLM(answers)
    ask = [Message("user", "echo me")]
    assert llm.complete(ask, max_tokens=5).text == "one"
    assert llm.complete(ask).text == ""
    with pytest.raises(LLMError, match="busy"):
        llm.complete(ask)
    assert llm.complete(ask).finish_reason == "length"
    assert "".join(piece for piece in llm.stream(ask, deadline=3) if isinstance(piece, str)) == "echo me"
    with pytest.raises(AssertionError, match=r"call 6 .* 5 answers"):
        llm.complete(ask)
    assert [call.max_tokens for call in llm.calls][:2] == [5, None]
    assert (llm.calls[4].deadline, llm.calls[0].prompt) == (3, "echo me")


def test_a_fake_llm_with_one_answer_gives_it_for_ever() -> None:
    llm = FakeLLM("same", context_window=1024, max_output_tokens=512)
    assert [llm.complete([]).text for _ in range(3)] == ["same"] * 3
    assert (llm.context_window, llm.max_output_tokens) == (1024, 512)
