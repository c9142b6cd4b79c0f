"""Rewriting and routing in a pipeline: more lists, the user's own words everywhere else, and faults that cost nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB, models, presets
from ragdb.db import probe
from ragdb.errors import ConfigError, EmbedderError, LLMError, RerankerError
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.testing.server import FakeOpenAIServer, Reply
from ragdb.types import Message
from ragdb.types import Query as SearchQuery

Query = Callable[..., list[tuple[Any, ...]]]


class Recording:
    """A reranker that keeps what it was asked, and the order as it is."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.questions.append(query)
        return [1.0] * len(passages)


def filled(url: str, **how: Any) -> RagDB:
    rag = RagDB(url, collection="help", embedder=FakeEmbedder(), **how)
    rag.add(Document("router", "# Router\n\nReset the router with a pin."))
    rag.add(Document("wfh", "# Allowance\n\nThe remote work allowance is 5,000 yen a month."))
    rag.add(Document("battery", "# Battery\n\nThe battery lasts ten hours."))
    return rag


def says(messages: Sequence[Message]) -> str:
    prompt = messages[0].content
    if "four search queries" in prompt:
        return json.dumps({"queries": ["remote work allowance", "money for staff", "telework benefit", "what is remote work"]})
    if "short passage" in prompt:
        return json.dumps({"queries": ["The remote work allowance is 9,999 yen."]})
    if "List up to" in prompt:
        return json.dumps({"queries": ["remote", "allowance", "yen"]})
    if "follow-up question" in prompt:
        return json.dumps({"queries": ["How much is the remote work allowance?"]})
    if "numbered passages" in prompt:
        return "It is 5,000 yen [1]."
    return json.dumps({"queries": ["How much is the remote work allowance?"]})


def stage(result: Any, name: str) -> list[Any]:
    return [trace for trace in result.stages if trace.stage == name]


def test_each_query_is_a_list_of_its_own_in_its_legs(ragdb_url: str) -> None:
    pipeline = Pipeline(rewrite=("multi", "hyde", "terms"))
    with filled(ragdb_url, llm=FakeLLM(says)) as rag:
        result = rag.search("WFH?", pipeline=pipeline)
    names = [trace.name for trace in stage(result, "retrieve")]
    five = [f"{leg}/{n}" if n else leg for n in range(5) for leg in ("lexical", "semantic")]
    assert names == [*five, "semantic/5", "lexical/6"]
    assert [trace.query for trace in stage(result, "retrieve")][-2:] == [
        "The remote work allowance is 9,999 yen.",
        "remote allowance yen",
    ]
    assert [trace.name for trace in stage(result, "rewrite")] == ["multi", "hyde", "terms"]
    assert "'remote work allowance'" in stage(result, "rewrite")[0].note
    assert result[0].uri == "wfh", "the question itself shares no word with it"
    assert "RRF of 12 lists" in stage(result, "fuse")[0].note


def test_the_users_own_words_go_to_the_reranker_and_into_the_answer(ragdb_url: str) -> None:
    reranker, llm = Recording(), FakeLLM(says)
    pipeline = dataclasses.replace(presets.rag_fusion, require_evidence=False)
    with filled(ragdb_url, llm=llm, reranker=reranker) as rag:
        answer = rag.ask("WFH money?", pipeline=pipeline)
    assert answer.outcome == "answered"
    assert reranker.questions == ["WFH money?"]
    written = llm.calls[-1]
    assert "WFH money?" in written.prompt
    assert "telework" not in written.prompt


def test_hyde_is_embedded_as_a_passage(ragdb_url: str) -> None:
    class Prefixed(FakeEmbedder):
        def __init__(self) -> None:
            super().__init__(name="ragdb.testing.fakes:FakeEmbedder")
            self.passages: list[str] = []

        def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
            self.passages += texts
            return super().embed_passages(texts)

    embedder = Prefixed()
    with filled(ragdb_url, llm=FakeLLM(says)) as rag:
        rag.context._given_embedder, rag.context._own, rag.context._embedders = embedder, None, {}
        rag.search("WFH?", pipeline=Pipeline(rewrite=("hyde",)))
    assert [text for text in embedder.passages if text != probe.TEXT] == ["The remote work allowance is 9,999 yen."]


def test_a_question_asked_again_costs_no_call_and_no_embedding(ragdb_url: str, query: Query) -> None:
    pipeline = Pipeline(rewrite=("multi", "hyde"))
    llm = FakeLLM(says)
    with filled(ragdb_url, llm=llm) as rag:
        first = rag.search("WFH?", pipeline=pipeline)
        embedder = rag.context.embedder()
        assert isinstance(embedder, FakeEmbedder)
        calls, embedded = len(llm.calls), embedder.calls
        again = rag.search("WFH?", pipeline=pipeline)
        assert (len(llm.calls), embedder.calls) == (calls, embedded)
        assert [h.chunk_id for h in again] == [h.chunk_id for h in first]
        assert all("(from an earlier run)" in trace.note for trace in stage(again, "rewrite"))
        query("update ragdb.rewrite set created_at = now() - interval '8 days'")
        rag.search("WFH?", pipeline=pipeline)
        assert len(llm.calls) == calls + 2, "what is older than a week is made anew"


def test_that_there_was_nothing_to_add_is_kept_too_and_a_failure_is_not(ragdb_url: str) -> None:
    llm = FakeLLM(['["reset the router?"]', LLMError("down"), '["restart the router"]'])
    pipeline = Pipeline(rewrite=("reword",))
    with filled(ragdb_url, llm=llm) as rag:
        for question, notes in (
            ("Reset the router", ("nothing to add", "nothing to add (from an earlier run)")),
            ("Router?", ("left out: down", "'restart the router'")),
        ):
            for note in notes:
                assert stage(rag.search(question, pipeline=pipeline), "rewrite")[0].note == note
    assert len(llm.calls) == 3


def test_a_follow_up_is_condensed_for_the_search_only(ragdb_url: str) -> None:
    reranker = Recording()
    history = (Message("user", "Do you pay for remote work?"), Message("assistant", "Yes, there is an allowance."))
    with filled(ragdb_url, llm=FakeLLM(says), reranker=reranker) as rag:
        answer = rag.ask("And how much?", pipeline=presets.advanced, history=history)
        assert answer.outcome == "answered"
        assert [c.uri for c in answer.citations] == ["wfh"]
        assert reranker.questions == ["Do you pay for remote work?\nAnd how much?"], "in the user's own words"
        assert [trace.query for trace in stage(answer, "retrieve")][:2] == ["How much is the remote work allowance?"] * 2
        assert "And how much?" in {trace.query or "And how much?" for trace in stage(answer, "retrieve")[2:]}
        condensed = next(trace for trace in answer.stages if trace.name == "condense")
        assert "How much is the remote work allowance?" in condensed.note
        without = rag.search("And how much?", pipeline=presets.advanced)
        assert "condense" not in [trace.name for trace in without.stages]


def test_without_a_language_model_the_presets_do_without(ragdb_url: str, tmp_path: Path) -> None:
    with filled(ragdb_url, options={"reranker": {"folder": tmp_path}}) as rag:
        for pipeline in (presets.advanced, presets.rag_fusion):
            result = rag.search("How do I reset the router?", pipeline=pipeline)
            assert result[0].uri == "router"
            assert all("needs a language model" in trace.note for trace in stage(result, "rewrite"))
            [trace] = stage(result, "rerank") or [None]
            assert trace is None or "ragdb fetch-model" in trace.note


def test_auto_takes_what_was_fetched_where_a_pipeline_reranks(ragdb_url: str, tmp_path: Path, test_data: Path) -> None:
    pytest.importorskip("flashrank", reason="needs the extra rerank")
    model = test_data.parent / "models" / "mini-ja-en"
    if not model.is_dir():
        pytest.skip(f"there is no cross-encoder in {model}")
    options = {"reranker": {"folder": tmp_path / "models"}}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / models.DEFAULT_RERANKER).symlink_to(model)
    pipeline = dataclasses.replace(presets.advanced, rewrite=(), rerank_timeout=60.0)
    for name in ("auto", None):
        with filled(ragdb_url, reranker=name, options=options) as rag:
            result = rag.search("How do I reset the router?", pipeline=pipeline)
            assert result[0].rerank_score is not None
    with filled(ragdb_url, reranker="auto", options=options) as rag:
        assert stage(result, "rerank")[0].note == f"flashrank:{models.DEFAULT_RERANKER}"
        assert rag.search("How do I reset the router?")[0].rerank_score is None, "the default does not rerank unasked"


def test_a_fetched_model_that_cannot_be_read_leaves_the_fused_order(ragdb_url: str, tmp_path: Path) -> None:
    (tmp_path / "models" / models.DEFAULT_RERANKER).mkdir(parents=True)
    with filled(ragdb_url, reranker="auto", options={"reranker": {"folder": tmp_path / "models"}}) as rag:
        result = rag.search("How do I reset the router?", pipeline=presets.advanced)
    assert result[0].uri == "router"
    assert stage(result, "rerank")[0].note.startswith("left out: ")


def test_a_reranker_that_was_named_has_to_be_there(ragdb_url: str, tmp_path: Path) -> None:
    pytest.importorskip("flashrank", reason="needs the extra rerank")
    options = {"reranker": {"folder": tmp_path}}
    with filled(ragdb_url, reranker="flashrank:ms-marco-MiniLM-L-12-v2", options=options) as rag:
        with pytest.raises(RerankerError, match="ragdb fetch-model ms-marco-MiniLM-L-12-v2"):
            rag.search("router")
        assert rag.search("router", pipeline=presets.naive)[0].rerank_score is None


@pytest.mark.parametrize("greeting", ["Hello!", "こんにちは"])
def test_a_greeting_is_answered_without_a_search(ragdb_url: str, greeting: str) -> None:
    llm = FakeLLM([])
    with filled(ragdb_url, llm=llm) as rag:
        answer = rag.ask(greeting)
        assert (answer.outcome, answer.citations, llm.calls) == ("no_retrieval", (), [])
        assert [trace.stage for trace in answer.stages] == ["route", "synthesize"]
        assert answer.run_id is not None
        assert len(rag.search(greeting)) > 0, "a search searches"


def test_an_identifier_gets_no_made_up_passage_and_a_wide_question_is_taken_apart(ragdb_url: str) -> None:
    llm = FakeLLM(says)
    pipeline = Pipeline(route=True, rewrite=("hyde", "terms"))
    with filled(ragdb_url, llm=llm) as rag:
        result = rag.search("What is ERR_CONN_RESET?", pipeline=pipeline)
        assert next((t.name, t.note) for t in stage(result, "rewrite")) == ("hyde", "left out: it names ERR_CONN_RESET")
        assert len(llm.calls) == 1
        result = rag.search("Compare the battery and the router", pipeline=pipeline)
        assert [trace.name for trace in stage(result, "rewrite")] == ["hyde", "terms", "decompose"]


def test_a_model_routes_where_it_is_asked_to_and_no_rule_fits(ragdb_url: str) -> None:
    said = ['{"kind": "talk"}', '{"kind": "many"}', '{"queries": ["battery", "router"]}', "no idea", LLMError("down")]
    llm = FakeLLM(said)
    pipeline = Pipeline(route="llm", rewrite=("decompose",))
    with filled(ragdb_url, llm=llm) as rag:
        assert rag.ask("Hello!", pipeline=pipeline).outcome == "no_retrieval"
        assert not llm.calls, "a rule was enough"
        talk = rag.ask("And how is your day, machine?", pipeline=pipeline)
        assert (talk.outcome, stage(talk, "route")[0].note) == ("no_retrieval", "no_retrieval: talk, says the model")
        many = rag.search("the battery, the router", pipeline=pipeline)
        assert [trace.name for trace in stage(many, "rewrite")] == ["decompose"]
        # what the model says of the kind is of no use: simple, and the question is searched
        alone = dataclasses.replace(pipeline, rewrite=())
        for note in ("the model said 'no idea'", "the model did not say: down"):
            result = rag.search("router reset", pipeline=alone)
            assert stage(result, "route")[0].note == f"simple: one question; {note}"
            assert result[0].uri == "router"


def test_what_models_were_asked_is_counted_stage_by_stage(ragdb_url: str, query: Query) -> None:
    def answered(body: dict[str, Any]) -> str:
        return says([Message("user", body["messages"][0]["content"])])

    ranks = Reply.json({"results": [{"index": 0, "relevance_score": 1.0}], "usage": {"total_tokens": 40}})
    with FakeOpenAIServer(chat=answered, rerank=ranks) as server:
        reranker = f"http:{server.base_url}/rerank"
        options = {"llm": {"base_url": server.base_url}}
        with filled(ragdb_url, llm="openai:any", reranker=reranker, options=options) as rag:
            pipeline = Pipeline(rewrite=("reword", "multi"), rerank_candidates=1, require_evidence=False)
            answer = rag.ask("WFH?", k=1, pipeline=pipeline)
    rows = [
        (row["stage"], row["name"], row["calls"], row["prompt_tokens"], row["completion_tokens"])
        for row in answer.usage["models"]
    ]
    assert rows == [
        ("rewrite", "reword", 1, 7, 3),
        ("rewrite", "multi", 1, 7, 3),
        ("rerank", "", 1, 40, 0),
        ("synthesize", "openai:any", 1, 7, 3),
    ]
    assert query("select usage -> 'models' from ragdb.run order by run_id desc limit 1") == [(answer.usage["models"],)]


def test_a_fast_rewriter_is_not_said_to_be_slow(ragdb_url: str) -> None:
    def slow(messages: Sequence[Message]) -> str:
        if "four search queries" in messages[0].content:
            time.sleep(0.5)
        return says(messages)

    with filled(ragdb_url, llm=FakeLLM(slow)) as rag:
        result = rag.search("WFH?", pipeline=Pipeline(rewrite=("multi", "reword")))
    multi, reword = stage(result, "rewrite")
    assert multi.ms >= 500 > reword.ms


def test_queries_are_embedded_beside_each_other(ragdb_url: str) -> None:
    class Slow(FakeEmbedder):
        def __init__(self) -> None:
            super().__init__(name="ragdb.testing.fakes:FakeEmbedder")
            self.meeting = threading.Barrier(5, timeout=10)

        def embed_query(self, text: str) -> list[float]:
            self.meeting.wait()
            return super().embed_query(text)

    with filled(ragdb_url, llm=FakeLLM(says)) as rag:
        rag.context._given_embedder, rag.context._embedder = Slow(), None
        result = rag.search("WFH?", pipeline=Pipeline(rewrite=("multi",)))
    assert len([trace for trace in stage(result, "retrieve") if trace.name.startswith("semantic")]) == 5


FAULTS = {
    "an empty string": (Reply.chat(""),),
    "HTML": (Reply.html(),),
    "broken JSON in the answer": (Reply.chat('{"queries": ["a'),),
    "broken JSON": (Reply.broken(),),
    "an endless thought": (Reply.chat("<think>" + "hm " * 5000),),
    "429, then success": (Reply.error(429), Reply.chat('{"queries": ["remote work allowance"]}')),
    "a hang": (Reply.chat("late", delay=60),),
    "500": (Reply.error(500),),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_question_ends_in_time_whatever_the_server_does(ragdb_url: str, fault: str) -> None:
    with FakeOpenAIServer(chat=list(FAULTS[fault])) as server:
        options = {"llm": {"base_url": server.base_url}}
        with filled(ragdb_url, llm="openai:any", options=options) as rag:
            pipeline = Pipeline(rewrite=("reword",), rewrite_timeout=2.0, timeout=2.0)
            began = time.monotonic()
            answer = rag.ask("How do I reset the router?", pipeline=pipeline)
            assert time.monotonic() - began < 7
    [trace] = [t for t in answer.stages if t.stage == "rewrite"]
    if fault == "429, then success":
        assert trace.note == "'remote work allowance'"
    else:
        assert trace.note.startswith("left out: ")
    assert [t.query for t in answer.stages if t.name == "lexical"] == [None], "the question itself was searched with"
    fused = next(t for t in answer.stages if t.stage == "fuse")
    assert fused.chunk_ids


def test_a_rewriter_that_hangs_is_left_behind(ragdb_url: str) -> None:
    release = threading.Event()

    def hang(_: Sequence[Message]) -> str:
        release.wait(20)
        return "late"

    with filled(ragdb_url, llm=FakeLLM(hang)) as rag:
        began = time.monotonic()
        result = rag.search("router", pipeline=Pipeline(rewrite=("reword", "multi"), rewrite_timeout=0.2))
        assert time.monotonic() - began < 3
        assert [t.note for t in stage(result, "rewrite")] == ["left out: not done in 0.2 s"] * 2
        assert result[0].uri == "router"
        release.set()


def test_many_queries_for_many_people_through_a_small_pool(ragdb_url: str) -> None:
    """Five queries in two legs, fifty threads, four connections: nobody waits for ever."""
    with filled(ragdb_url, llm=FakeLLM(says)) as rag:
        rag.context.database.max_size = 4
        pipeline = Pipeline(rewrite=("multi",))
        with ThreadPoolExecutor(50) as people:
            found = list(people.map(lambda n: rag.search(f"WFH number {n % 7}?", pipeline=pipeline), range(50)))
    assert all(result[0].uri == "wfh" for result in found)
    assert all(len(stage(result, "retrieve")) == 10 for result in found)


# --- whatever comes from outside ------------------------------------------------------------------


def test_half_characters_and_nul_from_a_server_are_stored_as_something_else(ragdb_url: str, query: Query) -> None:
    half = Reply('{"choices": [{"message": {"content": "Hold it \\ud83d [1]. \\u0000"}, "finish_reason": "stop"}]}')
    refused = Reply('{"error": {"message": "bad \\ud800 token \\u0000"}}', status=400)
    with FakeOpenAIServer(chat=[refused, half]) as server:
        options = {"llm": {"base_url": server.base_url}}
        with filled(ragdb_url, llm="openai:any", options=options) as rag:
            answer = rag.ask("How do I reset the router?", pipeline=Pipeline(rewrite=("reword",)))
    assert answer.text == "Hold it \ufffd [1]."
    assert query("select answer from ragdb.run where run_id = %s", answer.run_id) == [(answer.text,)]


class Odd:
    """A reranker that fails in words that cannot be stored."""

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        raise RuntimeError("a\ud800b\x00c")


def test_an_error_in_odd_words_is_recorded_too(ragdb_url: str) -> None:
    with filled(ragdb_url, reranker=Odd()) as rag:
        result = rag.search("router")
    assert result.run_id is not None
    assert result[0].uri == "router"


class Dripping:
    """A server that sends its headers a byte at a time and never ends: no read of it times out."""

    def __enter__(self) -> str:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.left = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
            while not self.left.wait(0.1):
                connection.sendall(b"a")

    def __exit__(self, *_: object) -> None:
        self.left.set()
        self.socket.close()


def test_a_server_that_drips_its_headers_is_left_behind(ragdb_url: str) -> None:
    with Dripping() as url:
        options = {"llm": {"base_url": f"{url}/v1"}}
        pipeline = Pipeline(
            rewrite=("reword", "multi", "hyde"), rewrite_timeout=1.0, rerank=True, rerank_timeout=1.0, timeout=1.0
        )
        with filled(ragdb_url, llm="openai:any", reranker=f"http:{url}/rerank", options=options) as rag:
            began = time.monotonic()
            answer = rag.ask("How do I reset the router?", pipeline=pipeline)
            assert time.monotonic() - began < 9, "a second each, and two for asking how large the window is"
    assert answer.outcome == "llm_failed"
    assert [t.note for t in stage(answer, "rewrite")] == ["left out: no answer in time; see rewrite_timeout"] * 3
    assert stage(answer, "rerank")[0].note.startswith("kept the fused order: ")
    assert answer.usage["fell_back"] == ["rewrite", "rerank"]


def test_stages_that_did_without_their_model_are_named(ragdb_url: str, query: Query) -> None:
    class Away:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            raise RuntimeError("away")

    def down(messages: Sequence[Message]) -> str:
        if "numbered passages" in messages[0].content:
            return "With a pin [1]."
        raise LLMError("down")

    question = "Is the router reset with a pin, and how?"
    with filled(ragdb_url, llm=FakeLLM(down), reranker=Away()) as rag:
        answer = rag.ask(question, pipeline=Pipeline(route="llm", rewrite=("reword",), rerank=True))
        assert (answer.outcome, answer.usage["fell_back"]) == ("answered", ["route", "rewrite", "rerank"])
        assert query("select usage -> 'fell_back' from ragdb.run where run_id = %s", answer.run_id) == [
            (["route", "rewrite", "rerank"],)
        ]
        assert "fell_back" not in rag.ask(question, pipeline=Pipeline(rerank=False)).usage
    with filled(ragdb_url) as rag:
        answer = rag.ask(question, pipeline=Pipeline(route="llm", rerank=False))
        assert answer.usage["fell_back"] == ["route"]
        assert stage(answer, "route")[0].note.endswith("by the rules, for there is no model")


class Sleeping:
    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        time.sleep(20)
        return [1.0] * len(passages)


def test_a_reranker_that_sleeps_is_left_behind(ragdb_url: str) -> None:
    with filled(ragdb_url, reranker=Sleeping()) as rag:
        began = time.monotonic()
        result = rag.search("router", pipeline=Pipeline(rerank=True, rerank_timeout=0.3))
        assert time.monotonic() - began < 3
    assert "when the time was over" in stage(result, "rerank")[0].note


def test_a_hundred_hanging_rewriters_keep_no_other_one_waiting(ragdb_url: str) -> None:
    release = threading.Event()

    def hang(_: Sequence[Message]) -> str:
        release.wait(30)
        return "late"

    with filled(ragdb_url, llm=FakeLLM(hang)) as rag:
        hanging = Pipeline(rewrite=("reword", "multi", "hyde", "stepback"), rewrite_timeout=0.05)
        with ThreadPoolExecutor(10) as people:
            list(people.map(lambda n: rag.search(f"router {n}", pipeline=hanging), range(25)))
        rag.context.llm, rag.context._rewriters = FakeLLM(says), {}
        result = rag.search("WFH?", pipeline=Pipeline(rewrite=("reword",)))
        release.set()
    assert "remote work allowance" in stage(result, "rewrite")[0].note


class Backwards:
    """Scores what it sees by its length, so that the order is another one."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.seen.append(len(passages))
        return [float(len(passage)) for passage in passages]


def test_pages_of_a_reranked_search_show_every_chunk_once(ragdb_url: str) -> None:
    reranker = Backwards()
    with RagDB(ragdb_url, collection="pages", embedder=FakeEmbedder(), reranker=reranker) as rag:
        for n in range(30):
            rag.add(Document(f"d{n}", f"The pump number {n} " + "turns " * (n * 7 % 11)))
        pipeline = Pipeline(rerank=True, rerank_candidates=8)
        pages = [[h.chunk_id for h in rag.search("pump", k=5, offset=o, pipeline=pipeline)] for o in range(0, 30, 5)]
        whole = [h.chunk_id for h in rag.search("pump", k=30, pipeline=pipeline)]
    shown = [chunk for page in pages for chunk in page]
    assert len(set(shown)) == len(shown) == 30
    assert shown == whole
    assert set(reranker.seen) == {8}, "as many as the setting says"


def test_what_scores_too_little_is_not_in_the_documents(ragdb_url: str) -> None:
    with filled(ragdb_url, reranker=Backwards()) as rag:
        answer = rag.ask("How do I reset the router?", pipeline=Pipeline(rerank=True, rerank_min_score=1e6))
    assert answer.outcome == "not_in_documents"


def test_quotations_come_in_the_order_of_the_reranker(ragdb_url: str) -> None:
    class Last:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            return [float("four lights" in passage) for passage in passages]

    with filled(ragdb_url, reranker=Last()) as rag:
        rag.add(Document("lights", "# Lights\n\nThe router has four lights; reset shows red."))
        assert rag.ask("router reset").citations[0].uri == "lights"
        plain = rag.ask("router reset", pipeline=Pipeline(rerank=False))
        assert {c.uri for c in plain.citations} == {"router", "lights"}


def test_a_follow_up_that_was_condensed_badly_is_searched_in_its_own_words_too(ragdb_url: str) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]
    refusal = '["I am sorry, but I cannot help with zzz qqq"]'
    with filled(ragdb_url, llm=FakeLLM([refusal, "Hold it [1]."])) as rag:
        pipeline = Pipeline(rewrite=("condense",))
        answer = rag.ask("How do I reset the router?", pipeline=pipeline, history=history)
    assert answer.outcome == "answered"
    assert [t.name for t in stage(answer, "validate")] == ["evidence", "evidence, own words"]


def test_a_model_answers_with_what_was_said_before(ragdb_url: str) -> None:
    llm = FakeLLM(["Remote work pays 5,000 yen [1].", "5,000 yen.", LLMError("gone")])
    history = (Message("user", "How much is the allowance?"), Message("assistant", "5,000 yen a month."))
    with filled(ragdb_url, llm=llm) as rag:
        rag.ask("How much is the remote work allowance?", history=history)
        assert [m.role for m in llm.calls[0].messages] == ["system", "user", "assistant", "user"]
        shorter = rag.ask("Shorter, please", history=history)
        assert (shorter.outcome, shorter.text, shorter.citations) == ("no_retrieval", "5,000 yen.", ())
        assert [t.stage for t in shorter.stages] == ["route", "synthesize"]
        assert "5,000 yen a month." in llm.calls[1].prompt
        failed = rag.ask("Say that again", history=history)
        assert (failed.outcome, failed.text) == ("llm_failed", "The language model gave no answer.")


@pytest.mark.parametrize("history", ["said", [("user", "x")], [{"role": "user"}, {"role": "boss", "content": "x"}], [3]])
def test_a_history_that_is_none_is_refused(ragdb_url: str, history: Any) -> None:
    with filled(ragdb_url) as rag:
        with pytest.raises(ConfigError, match="what was said before"):
            rag.search("router", history=history)
        assert len(rag.search("router", history=None)) > 0


def test_a_rewritten_question_that_cannot_be_embedded_costs_its_list_only(ragdb_url: str) -> None:
    def fails(texts: list[str]) -> None:
        if any("remote" in text for text in texts):
            raise EmbedderError("too long")

    with filled(ragdb_url, llm=FakeLLM(says)) as rag:
        rag.context._embedder = FakeEmbedder(name="ragdb.testing.fakes:FakeEmbedder", fail=fails)
        result = rag.search("WFH?", pipeline=dataclasses.replace(presets.naive, rewrite=("reword",)))
    assert len(result) > 0


class Mine:
    """A rewriter of the user's: made by name, and from whatever it returns."""

    returned: Any = ()

    @classmethod
    def load(cls, model: str = "") -> Mine:
        return cls()

    def rewrite(self, question: Any, history: Sequence[Message]) -> Any:
        return self.returned

    def cache_key(self, question: Any, history: Sequence[Message]) -> str:
        return "mine\x00"


@pytest.mark.parametrize(
    ("returned", "note"),
    [
        (["remote work"], "'remote work'"),
        ([SearchQuery("remote work", legs=("lexical",))], "'remote work'"),
        ([SearchQuery("remote work", legs=("lexica",))], "left out: tests"),
        ([3], "made 3; a rewriter makes texts"),
        (None, "left out: "),
    ],
)
def test_a_rewriter_of_ones_own(ragdb_url: str, monkeypatch: pytest.MonkeyPatch, returned: Any, note: str) -> None:
    monkeypatch.setattr(Mine, "returned", returned)
    name = f"{__name__}:Mine"
    with filled(ragdb_url) as rag:
        result = rag.search("router", pipeline=Pipeline(rewrite=(name,)))
        assert result[0].uri == "router"
        assert note.replace("tests", name) in stage(result, "rewrite")[0].note


def test_two_rewriters_that_write_the_same_make_one_list(ragdb_url: str) -> None:
    with filled(ragdb_url, llm=FakeLLM('["telework pay"]')) as rag:
        result = rag.search("WFH?", pipeline=Pipeline(rewrite=("reword", "stepback")))
    assert [t.name for t in stage(result, "retrieve")] == ["lexical", "semantic", "lexical/1", "semantic/1"]
    assert stage(result, "retrieve")[2].note.startswith("'telework pay': ")


def test_a_row_of_the_cache_that_is_none_is_made_anew(ragdb_url: str, query: Query) -> None:
    with filled(ragdb_url, llm=FakeLLM(says)) as rag:
        pipeline = Pipeline(rewrite=("reword",))
        rag.search("WFH?", pipeline=pipeline)
        for row in ("[1]", '[{"x": 2}]', '[{"text": 3, "legs": 4}]'):
            query("update ragdb.rewrite set queries = %s::jsonb", row)
            assert "earlier run" not in stage(rag.search("WFH?", pipeline=pipeline), "rewrite")[0].note


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rerankr": {}}, "options has rerankr"),
        ({"llm": {"contextwindow": 4096}}, "no llm takes an option contextwindow.*did you mean context_window"),
    ],
)
def test_a_mistyped_option_is_refused(ragdb_url: str, options: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RagDB(ragdb_url, llm="openai:any", options=options)


def test_a_forked_process_asks_on_its_own_connections(ragdb_url: str) -> None:
    """An answer for another process's question is the worst of all: each has a client, a pool and threads of its own."""

    def echo(body: dict[str, Any]) -> str:
        return body["messages"][-1]["content"].replace("router", "echo")

    with FakeOpenAIServer(chat=echo) as server:
        options = {"llm": {"base_url": server.base_url}}
        with filled(ragdb_url, llm="openai:any", options=options) as rag:
            asyncio.run(rag.aio.ask("reset the router, parent?"))
            read, write = os.pipe()
            child = os.fork()
            if child == 0:  # pragma: no cover
                status = 1
                try:
                    said = [asyncio.run(rag.aio.ask(f"reset the router, child {n}?")).text for n in range(3)]
                    os.write(write, "|".join(said).encode())
                    status = 0
                finally:
                    os._exit(status)
            mine = [rag.ask(f"reset the router, parent {n}?").text for n in range(3)]
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                theirs = pipe.read().decode().split("|")
            os.waitpid(child, 0)
    assert mine == [f"reset the echo, parent {n}?" for n in range(3)]
    assert theirs == [f"reset the echo, child {n}?" for n in range(3)]
