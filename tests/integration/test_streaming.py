"""An answer as it is written: the parts are the answer, a cut and a reader who leaves are recorded, connections are free."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.errors import ContextTooSmall, EmptyQuery
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.testing.server import FakeOpenAIServer, Reply
from ragdb.types import AnswerPart, Completion, Message

Query = Callable[..., list[tuple[Any, ...]]]
QUESTION = "How do I reset the router?"


def filled(url: str, llm: Any, **how: Any) -> RagDB:
    rag = RagDB(url, collection="help", embedder=FakeEmbedder(), llm=llm, **how)
    rag.add(Document("router", "# Router\n\nHold the button for ten seconds to reset the router."))
    rag.add(Document("lights", "# Lights\n\nThe router has four lights."))
    return rag


def free(rag: RagDB) -> bool:
    stats = rag.context.database._opened().get_stats()
    return stats["pool_available"] == stats["pool_size"]


def text(parts: Sequence[AnswerPart]) -> str:
    begin = max((n for n, part in enumerate(parts) if part.replaces), default=0)
    return "".join(str(part) for part in parts[begin:])


@pytest.mark.parametrize(
    ("written", "said", "cited"),
    [
        ("Hold the button [1]. It takes [Source 1] ten seconds.", "Hold the button [1]. It takes [1] ten seconds.", [1]),
        ("<think>which one? [2]</think>\n\nHold it [1].", "Hold it [1].", [1]),
        ("I wonder [2]. </think> Hold it [1].", "Hold it [1].", [1]),
        ("In [2024] [9] hold it [2][1].", "In [2024]  hold it [2][1].", [2, 1]),
        ("`a[1]` NOT_IN_DOCUMENTS", "`a[1]` NOT_IN_DOCUMENTS", []),
        ("The router has four lights.", "The router has four lights. [2]", [2]),
        ("The router has five lights.", "The router has five lights.", []),
    ],
)
def test_a_stream_and_a_whole_answer_are_the_same(
    ragdb_url: str, query: Query, written: str, said: str, cited: list[int]
) -> None:
    with filled(ragdb_url, FakeLLM(written)) as rag:
        whole = rag.ask(QUESTION)
        stream = rag.stream(QUESTION)
        parts = list(stream)
    answer = stream.answer
    assert answer is not None
    assert (text(parts), answer.text, whole.text) == (said, said, said)
    assert [c.number for c in answer.citations] == [c.number for c in whole.citations] == cited
    begin = max((n for n, part in enumerate(parts) if part.replaces), default=0)
    assert list(dict.fromkeys(c.number for part in parts[begin:] for c in part.citations)) == cited
    assert (answer.outcome, answer.uncited) == (whole.outcome, whole.uncited)
    assert [t.stage for t in answer.stages] == [t.stage for t in whole.stages]
    assert answer.usage["models"] == whole.usage["models"]
    assert query("select outcome, answer from ragdb.run where run_id = %s", answer.run_id) == [("answered", said)]


def test_what_costs_no_call_comes_in_one_part(ragdb_url: str) -> None:
    with filled(ragdb_url, FakeLLM([])) as rag:
        for question in ("Hello!", "社長の趣味は？"):
            stream = rag.stream(question)
            assert [str(part) for part in stream] == [stream.answer.text if stream.answer else None]
    with filled(ragdb_url, None) as rag:
        stream = rag.stream(QUESTION)
        [part] = stream
        assert part.citations and stream.answer and stream.answer.mode == "extractive"
        with pytest.raises(EmptyQuery):
            rag.stream(" ")


def test_the_word_for_not_in_the_documents_is_never_shown(ragdb_url: str) -> None:
    with filled(ragdb_url, FakeLLM("NOT_IN_DOCUMENTS, sorry")) as rag:
        stream = rag.stream(QUESTION)
        assert "".join(map(str, stream)) == "The answer is not in the documents."
        assert stream.answer and stream.answer.outcome == "not_in_documents"


def test_an_empty_stream_is_tried_once_more(ragdb_url: str) -> None:
    with filled(ragdb_url, FakeLLM(["", "Hold it [1]."])) as rag:
        stream = rag.stream(QUESTION)
        assert "".join(map(str, stream)) == "Hold it [1]."
        assert stream.answer and stream.answer.usage["calls"] == 2
    with filled(ragdb_url, FakeLLM(["", ""])) as rag:
        stream = rag.stream(QUESTION)
        said = "".join(map(str, stream))
        assert stream.answer and (stream.answer.outcome, stream.answer.text) == ("llm_failed", said)


def test_a_stream_that_the_server_cuts_keeps_what_came_and_says_so(ragdb_url: str, query: Query) -> None:
    cut = Reply.stream(["Hold ", "the [1", "] button"], cut=True)
    with (
        FakeOpenAIServer(chat=cut) as server,
        filled(ragdb_url, "openai:any", options={"llm": {"base_url": server.base_url}}) as rag,
    ):
        stream = rag.stream(QUESTION)
        parts = list(stream)
        assert free(rag)
    answer = stream.answer
    assert answer is not None
    assert text(parts) == answer.text
    assert answer.text.startswith("Hold the [1] button\n\nThe language model gave no answer")
    assert answer.outcome == "llm_failed"
    assert query("select outcome from ragdb.run order by run_id desc limit 1") == [("llm_failed",)]
    assert query("select note like '%broke off%' from ragdb.run_stage order by run_id desc, step desc limit 1") == [(True,)]


class Endless(FakeLLM):
    """Writes until it is left; `closed` is set then."""

    def __init__(self) -> None:
        super().__init__("")
        self.closed = threading.Event()

    def stream(self, messages: Sequence[Message], **_: Any) -> Iterator[str | Completion]:
        try:
            while True:
                yield "word [1] "
        finally:
            self.closed.set()


@pytest.mark.parametrize("how", ["close", "with", "gone", "unread"])
def test_a_reader_who_leaves_is_recorded_and_the_call_ends(ragdb_url: str, query: Query, how: str) -> None:
    llm = Endless()
    with filled(ragdb_url, llm) as rag:
        if how == "with":
            with rag.stream(QUESTION) as stream:
                next(stream)
        else:
            stream = rag.stream(QUESTION)
            if how != "unread":
                assert str(next(stream)) == "word", "space at the end waits: nothing may come behind it"
            if how != "gone":
                stream.close()
                stream.close()
                assert stream.answer is not None
                assert list(stream) == []
        del stream
        assert how == "unread" or llm.closed.wait(5)
        assert free(rag)
    [(outcome, answer)] = query("select outcome, answer from ragdb.run")
    assert outcome == "cancelled"
    assert answer == ("" if how == "unread" else "word")


def test_asyncio_reads_a_stream_and_may_leave_it(ragdb_url: str, query: Query) -> None:
    async def read(rag: RagDB) -> tuple[str, list[str]]:
        stream = await rag.aio.stream(QUESTION)
        said = "".join([str(part) async for part in stream])
        assert stream.answer is not None and stream.answer.text == said
        outcomes = []
        async with await rag.aio.stream(QUESTION) as second:
            async for _ in second:
                break
        outcomes.append(second.answer.outcome if second.answer else "")

        async def slowly() -> None:
            async with await rag.aio.stream(QUESTION) as third:
                async for _ in third:
                    await asyncio.sleep(30)

        task = asyncio.create_task(slowly())
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return said, outcomes

    with filled(ragdb_url, FakeLLM("Hold the button [1].")) as rag:
        assert asyncio.run(read(rag)) == ("Hold the button [1].", ["cancelled"])
        assert free(rag)
    assert [row[0] for row in query("select outcome from ragdb.run order by run_id")] == ["answered", "cancelled", "cancelled"]


def test_fifty_people_ask_while_every_connection_is_free_inside_the_models(ragdb_url: str) -> None:
    """Four connections, slow models: nobody holds a connection while a model runs."""
    busy: list[int] = []

    class Watching(FakeEmbedder):
        def embed_query(self, text: str) -> list[float]:
            time.sleep(0.05)
            return super().embed_query(text)

    with filled(ragdb_url, FakeLLM("")) as rag:
        rag.context.close()
        rag.context.database.max_size = 4
        rag.context._given_embedder, rag.context._embedder = Watching(name="ragdb.testing.fakes:FakeEmbedder"), None

        any_evidence = Pipeline(require_evidence=False)
        # All fifty are inside the model at once only if none of them keeps one of the four connections.
        barrier = threading.Barrier(50, timeout=60)

        def meet(_: Sequence[Message]) -> str:
            barrier.wait()
            stats = rag.context.database._opened().get_stats()
            busy.append(stats["pool_size"] - stats["pool_available"])
            barrier.wait()
            return "Hold it [1]."

        rag.context.llm = FakeLLM(meet)
        with ThreadPoolExecutor(50) as people:
            answers = list(people.map(lambda n: rag.ask(f"Reset router {n}?", pipeline=any_evidence), range(50)))
        assert busy == [0] * 50
        assert {answer.outcome for answer in answers} == {"answered"}
        assert all(answer.run_id for answer in answers)


@pytest.mark.parametrize(
    "pieces",
    [
        ["thoughts about it\n</think>", "\n\n", "NOT_IN", "_DOCUMENTS"],
        ["Use the ", "</think>", " tag [1]."],
        ["Some thought ", "</think>", "  ", "\n"],
        ["[9] ", " "],
        ["Hold it [1].", "\n", "\n\n"],
        ["<think>a</think>", "Hold ", "it [1]. "],
        ["I wonder", " [2]. </th", "ink> Ho", "ld it for ten seconds now [1]."],
    ],
)
def test_what_is_seen_late_is_read_as_in_a_whole_answer(ragdb_url: str, pieces: list[str]) -> None:
    class Pieces(FakeLLM):
        def stream(self, messages: Sequence[Message], **_: Any) -> Iterator[str | Completion]:
            yield from pieces

    with filled(ragdb_url, Pieces("".join(pieces))) as rag:
        whole = rag.ask(QUESTION)
        stream = rag.stream(QUESTION)
        parts = list(stream)
    answer = stream.answer
    assert answer is not None
    assert (answer.outcome, answer.text, answer.citations) == (whole.outcome, whole.text, whole.citations)
    assert text(parts) == answer.text, "what was shown is what is stored"


def test_a_model_that_breaks_in_words_of_its_own_is_no_reader_who_left(ragdb_url: str, query: Query) -> None:
    class Broken(FakeLLM):
        def stream(self, messages: Sequence[Message], **_: Any) -> Iterator[str | Completion]:
            yield "Hold "
            raise ZeroDivisionError("oops")

    with filled(ragdb_url, Broken("")) as rag:
        stream = rag.stream(QUESTION)
        with pytest.raises(ZeroDivisionError):
            list(stream)
    assert query("select outcome, error from ragdb.run") == [("llm_failed", "ZeroDivisionError: oops")]


def test_a_part_that_was_given_up_is_waited_for_again(ragdb_url: str) -> None:
    class Slow(FakeLLM):
        def stream(self, messages: Sequence[Message], **_: Any) -> Iterator[str | Completion]:
            for piece in ("Hold ", "it ", "[1]."):
                time.sleep(0.3)
                yield piece

    async def read(rag: RagDB) -> str:
        stream, said = await rag.aio.stream(QUESTION), ""
        while True:
            try:
                said += str(await asyncio.wait_for(stream.__anext__(), 0.1))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return said

    with filled(ragdb_url, Slow("")) as rag:
        assert asyncio.run(read(rag)) == "Hold it [1]."


def test_a_long_conversation_does_not_fill_the_window(ragdb_url: str) -> None:
    long = [{"role": role, "content": "word " * 400} for role in ("user", "assistant") * 3]
    llm = FakeLLM("Hold it [1].", context_window=1500, max_output_tokens=300)
    with filled(ragdb_url, llm) as rag:
        answer = rag.ask(QUESTION, history=long)
        assert answer.outcome == "answered"
        assert answer.usage["history_left_out"] >= 4
        assert sum(llm.count_tokens(m.content) for m in llm.calls[-1].messages) <= 1200
        assert rag.ask("Thanks!", history=long).outcome == "no_retrieval"


def test_who_closes_a_stream_from_another_thread_waits_for_the_part(ragdb_url: str, query: Query) -> None:
    inside = threading.Event()

    class Slow(FakeLLM):
        def stream(self, messages: Sequence[Message], **_: Any) -> Iterator[str | Completion]:
            yield "Hold "
            inside.set()
            time.sleep(0.5)
            yield "it."

    with filled(ragdb_url, Slow("")) as rag:
        stream = rag.stream(QUESTION)
        reader = threading.Thread(target=lambda: list(itertools.islice(stream, 2)))
        reader.start()
        assert inside.wait(10)
        stream.close()
        reader.join(10)
        assert stream.answer is not None
        assert stream.answer.outcome == "cancelled"
    assert query("select outcome, count(*) from ragdb.run group by 1") == [("cancelled", 1)]


def test_a_window_that_holds_no_prompt_is_refused_before_a_model_routes(ragdb_url: str) -> None:
    llm = FakeLLM([], context_window=310, max_output_tokens=300)
    with filled(ragdb_url, llm) as rag, pytest.raises(ContextTooSmall):
        rag.ask(QUESTION, pipeline=Pipeline(route="llm"))
    assert llm.calls == []
