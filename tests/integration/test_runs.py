"""What questions leave behind: why a chunk did not come, what moved, conversations, feedback, costs, and how it is kept small."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from ragdb import Document, Pipeline, RagDB, presets
from ragdb.errors import ConfigError, LLMError, UnknownRun
from ragdb.runs import diff, feedback, prune, why_not
from ragdb.runs.explain import Finding
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.types import Completion, Message

Query = Callable[..., list[tuple[Any, ...]]]
QUESTION = "How do I reset the router with a pin?"


@pytest.fixture
def rag(ragdb_url: str) -> Any:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM("Hold it [1].")) as made:
        for n in range(40):
            reset = " Reset it with a pin." if n % 7 == 0 else ""
            made.add(Document(f"d{n}", f"# Page {n}\n\nThe router number {n} has a button.{reset}", metadata={"tenant": n % 3}))
        made.add(Document("old", "# Old\n\nReset the router with a pin.", status="archived"))
        yield made


def by_stage(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {
        f"{finding.stage} {finding.name}".strip() if finding.stage == "retrieve" else finding.stage: finding
        for finding in findings
    }


# --- why not --------------------------------------------------------------------------------------


def test_why_not_tells_what_the_lists_say(rag: RagDB) -> None:
    """Held against the legs themselves: exact rank, index rank and score are those of a list that is long enough."""
    pipeline = Pipeline(candidates=5, window=0)
    run = rag.ask(QUESTION, k=3, pipeline=pipeline)
    long = rag.search(QUESTION, k=60, pipeline=Pipeline(candidates=100))
    lists = {trace.name: trace for trace in long.stages if trace.stage == "retrieve"}
    ranked = {leg: list(zip(trace.chunk_ids, trace.scores, strict=True)) for leg, trace in lists.items()}
    for label in ("d3#page-3#00", "d35#page-35#00", "d0#page-0#00"):
        found = by_stage(why_not(rag, run.run_id or 0, label))
        [chunk] = [hit.chunk_id for hit in long if hit.label == label]
        assert by_stage(why_not(rag, run.run_id or 0, chunk)).keys() == found.keys(), "by its id too"
        for leg, entries in ranked.items():
            place = [i for i, _ in entries].index(chunk) + 1
            finding = found[f"retrieve {leg}"]
            assert finding.rank == place
            assert finding.detail.get("index_rank", place) == place
            assert finding.score == pytest.approx(dict(entries)[chunk], abs=1e-6)
            short = next(t for t in run.stages if t.stage == "retrieve" and t.name == leg)
            assert finding.finding.startswith("not among the 5" if chunk not in short.chunk_ids else f"rank {place} of 5")


def test_why_not_names_the_words_and_the_verdict(rag: RagDB) -> None:
    run_id = rag.ask(QUESTION, k=3, pipeline=Pipeline(candidates=5, window=0)).run_id or 0
    far = by_stage(why_not(rag, run_id, "d3#page-3#00"))
    assert far["retrieve lexical"].detail["lacks"] == ["pin", "reset"]
    assert far["retrieve lexical"].detail["holds"] == ["router"]
    assert far["verdict"].finding == "no leg had it among its 5 candidates"
    cited = rag.explain(run_id)
    first = next(row.label for row in cited.rows if row.stage == "synthesize" and row.label)
    assert by_stage(why_not(rag, run_id, first))["verdict"].finding == "it was cited"


def test_why_not_names_the_part_of_the_filter(rag: RagDB) -> None:
    run_id = rag.search(QUESTION, where={"tenant": 1, "uri": {"prefix": "d"}}).run_id or 0
    hidden = [finding for finding in why_not(rag, run_id, "d0#page-0#00") if finding.stage == "where"]
    assert [(finding.name, finding.detail) for finding in hidden] == [("tenant", {"asked": 1, "has": 0})]
    found = by_stage(why_not(rag, run_id, "d0#page-0#00"))
    assert found["retrieve lexical"].finding.startswith("hidden; without the filter rank ")
    assert found["verdict"].finding == "hidden by tenant"
    archived = by_stage(why_not(rag, rag.search(QUESTION).run_id or 0, "old#old#00"))
    assert archived["where"].detail == {"asked": "active", "has": "archived"}


def test_why_not_tells_of_evidence_reranker_and_budget(rag: RagDB) -> None:
    class Odd:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            return [-float("number 7 " in passage) for passage in passages]

    rag.context._reranker, rag.context._given_reranker = Odd(), Odd()
    run_id = rag.search(QUESTION, k=2, pipeline=Pipeline(rerank=True, rerank_min_score=-0.5)).run_id or 0
    found = by_stage(why_not(rag, run_id, "d7#page-7#00"))
    assert found["rerank"].finding == "fell: scored below -0.5"
    assert found["verdict"].finding == "the reranker put it below the cut"
    rag.context._reranker = rag.context._given_reranker = None
    weak = rag.ask("Which router has a banana?", k=5, pipeline=Pipeline(window=0)).run_id or 0
    last = rag.explain(weak, top=50).ranking("fuse")
    label = next(iter(last.values())).label or ""
    assert by_stage(why_not(rag, weak, label))["verdict"].finding == "it was found, and is no evidence for the question"
    small = Pipeline(window=0, context_tokens=40)
    rag.context.llm = None
    packed = rag.ask(QUESTION, k=6, pipeline=small)
    fell = [i for trace in packed.stages if trace.stage == "pack" for i in trace.dropped.get("token budget", ())]
    assert by_stage(why_not(rag, packed.run_id or 0, fell[0]))["verdict"].finding == "the token budget was used up before it"


def test_why_not_of_what_is_not_there(rag: RagDB) -> None:
    run_id = rag.search(QUESTION).run_id or 0
    with pytest.raises(ConfigError, match="has no chunk nowhere#00"):
        why_not(rag, run_id, "nowhere#00")
    with pytest.raises(UnknownRun):
        why_not(rag, 10**9, "d0#page-0#00")


def test_the_owner_is_told_of_rights_and_nobody_else(rag: RagDB, query: Query, ragdb_url: str) -> None:
    query("create role asks login")
    query("grant usage on schema ragdb to asks; grant execute on all functions in schema ragdb to asks")
    query("grant select on ragdb.alembic_version to asks")
    query("revoke execute on function ragdb.put_document(text, jsonb, jsonb) from asks, public")
    query("select ragdb.grant_collection('help', 'asks', '{\"tenant\": 1}')")
    with RagDB(ragdb_url.replace("postgres@", "asks@"), collection="help", embedder=FakeEmbedder()) as reader:
        run_id = reader.search(QUESTION).run_id or 0
        with pytest.raises(ConfigError, match="has no chunk"):
            why_not(reader, run_id, "d0#page-0#00")
        assert by_stage(why_not(reader, run_id, "d7#page-7#00"))["verdict"].finding == "it came back"
    found = [f for f in why_not(rag, run_id, "d0#page-0#00") if f.stage == "where"]
    assert [(f.name, f.finding.partition(";")[0]) for f in found] == [
        ("rights", "role asks may not read its document"),
        ("who", "asked by role asks"),
    ]


# --- what moved -----------------------------------------------------------------------------------


def test_what_moved_between_two_stages_and_two_runs(rag: RagDB) -> None:
    class Backwards:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            return [float(n) for n in range(len(passages))]

    plain = rag.search(QUESTION, k=4)
    rag.context._reranker, rag.context._given_reranker = Backwards(), Backwards()
    turned = rag.search(QUESTION, k=4, pipeline=Pipeline(rerank=True, rerank_candidates=4))
    moves = rag.explain(turned.run_id or 0, top=100).between("fuse", "rerank")
    assert [(move.before, move.after, move.what) for move in moves[:4]] == [
        (4, 1, "up"),
        (3, 2, "up"),
        (2, 3, "down"),
        (1, 4, "down"),
    ]
    between = diff(rag, plain.run_id or 0, turned.run_id or 0)
    assert [move.chunk_id for move in between[:4]] == [hit.chunk_id for hit in turned]
    other = rag.search("number 39 button", k=4, pipeline=Pipeline(rerank=False))
    assert {move.what for move in diff(rag, plain.run_id or 0, other.run_id or 0)} >= {"entered", "left"}
    with pytest.raises(ConfigError, match="has no single stage 'nothing'"):
        rag.explain(turned.run_id or 0).between("nothing", "rerank")


# --- conversations --------------------------------------------------------------------------------


def test_a_conversation_is_its_stored_runs(rag: RagDB, query: Query) -> None:
    def says(messages: Sequence[Message]) -> str:
        prompt = messages[0].content
        return '{"queries": ["reset the router with a pin"]}' if "follow-up question" in prompt else "Hold it [1]."

    llm = FakeLLM(says)
    rag.context.llm, rag.context._rewriters = llm, {}
    first = rag.ask(QUESTION, conversation="chat-1")
    second = rag.ask("And with what?", conversation="chat-1")
    assert [trace.name for trace in second.stages if trace.stage == "rewrite"] == ["condense"], (
        "a follow-up means nothing to a search"
    )
    assert second.outcome == "answered"
    sent = llm.calls[-1].messages
    assert [m.content for m in sent[1:]] == [QUESTION, "Hold it [1].", "And with what?"]
    assert query("select conversation, count(*) from ragdb.run group by 1") == [("chat-1", 2)]
    assert query("select question, answer from ragdb.turns('chat-1', 'help')") == [
        (QUESTION, first.text),
        ("And with what?", second.text),
    ]
    other = rag.ask("And with what?", conversation="chat-2")
    assert [m.role for m in llm.calls[-1].messages][1:] == ["user"] or other.outcome == "not_in_documents"
    stream = rag.stream("Why?", conversation="chat-1")
    list(stream)
    assert query("select count(*) from ragdb.run where conversation = 'chat-1'") == [(3,)]
    for name in ("", " ", "漢" * 700, "a\x00b", 7):
        with pytest.raises(ConfigError, match="conversation is"):
            rag.ask("x", conversation=name)  # type: ignore[arg-type]


def test_a_deleted_document_is_out_of_the_conversation(rag: RagDB, query: Query) -> None:
    answer = rag.ask(QUESTION, conversation="chat")
    assert query("select count(*) from ragdb.turns('chat', 'help')") == [(1,)]
    # a turn that was answered from what was said, and one that found something else besides
    rag.ask("Shorter, please", conversation="chat")
    rag.ask("Which router has number 39?", conversation="chat", pipeline=Pipeline(require_evidence=False))
    assert query("select count(*) from ragdb.turns('chat', 'help')") == [(3,)]
    rag.delete(answer.citations[0].uri)
    assert query("select count(*) from ragdb.turns('chat', 'help')") == [(0,)]
    assert query("select count(*) from ragdb.claim") == [(0,)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"usage": {"models": [{"model": "m", "calls": "many"}]}},
        {"usage": {"models": [3]}},
        {"stages": [{"step": 1, "stage": "fuse", "name": "", "chunk_ids": [], "scores": [], "dropped": [1], "ms": 1}]},
        {"stages": [{"step": 1, "stage": "fuse", "name": "", "chunk_ids": [], "scores": [], "dropped": {"x": ["a"]}, "ms": 1}]},
        {"ms": "NaN"},
        {"conversation": "x" * 2001},
    ],
)
def test_a_run_that_would_break_the_views_is_refused(rag: RagDB, query: Query, wrong: dict[str, Any]) -> None:
    run = {"collection": "help", "verb": "ask", "question": "q", "pipeline": {}, "k": 1, "ms": 1}
    query("select ragdb.record_run(%s::jsonb)", json.dumps(run))
    with pytest.raises(psycopg.Error, match="not of the form") as caught:
        query("select ragdb.record_run(%s::jsonb)", json.dumps(run | wrong))
    assert caught.value.sqlstate == "RD004"
    for view in ("run_cost", "run_outcome", "run_latency", "run_candidate"):
        query(f"select * from ragdb.{view}")


# --- sentences, feedback, costs -------------------------------------------------------------------


def test_sentences_and_what_they_cite_are_rows(rag: RagDB, query: Query) -> None:
    rag.context.llm = FakeLLM('Hold it [1]. It is easy. The page says "press the purple lever" [1][2].')
    answer = rag.ask(QUESTION)
    assert answer.uncited == ("It is easy.",)
    assert answer.misquoted == ("press the purple lever",)
    rows = query(
        "select c.numbers, c.misquoted, substr(r.answer, c.start_at + 1, c.end_at - c.start_at) "
        "from ragdb.claim c join ragdb.run r using (run_id) where run_id = %s order by ordinal",
        answer.run_id,
    )
    assert rows == [
        ([1], 0, "Hold it [1]."),
        ([], 0, "It is easy."),
        ([1, 2], 1, 'The page says "press the purple lever" [1][2].'),
    ]
    [(sentences, uncited, misquoted)] = query("select sentences, uncited, misquoted from ragdb.run_outcome where verb = 'ask'")
    assert (sentences, uncited, misquoted) == (3, 1, 1)


def test_feedback_is_kept_by_reader(rag: RagDB, query: Query) -> None:
    run_id = rag.ask(QUESTION).run_id or 0
    feedback(rag, run_id, -1, comment="wrong", who="ann")
    feedback(rag, run_id, 1, who="ann")
    feedback(rag, run_id, -1, who="bob")
    feedback(rag, run_id, 0)
    assert query("select who, rating, comment from ragdb.feedback order by who nulls last") == [
        ("ann", 1, None),
        ("bob", -1, None),
        (None, 0, None),
    ]
    assert query("select good, bad from ragdb.run_outcome where verb = 'ask'") == [(1, 1)]
    with pytest.raises(ConfigError, match="the rating is 5"):
        feedback(rag, run_id, 5)
    with pytest.raises(UnknownRun):
        feedback(rag, 10**9, 1)


def test_costs_by_a_table_of_ones_own(ragdb_url: str, query: Query) -> None:
    model = "ragdb.testing.fakes:FakeLLM"
    prices = {model: {"prompt": 1.0, "completion": 10.0, "call": 0.5}}
    llm = FakeLLM(Completion("Hold it [1].", prompt_tokens=1000, completion_tokens=100))
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=llm, prices=prices) as rag:
        rag.add(Document("d", "Reset the router with a pin."))
        answer = rag.ask(QUESTION)
        assert answer.usage["cost"] == pytest.approx(0.5 + 0.001 + 0.001)
        rag.context.llm = FakeLLM(LLMError("down"))
        assert rag.ask(QUESTION).usage["cost"] == 0, "a call that failed"
    rows = query("select stage, model, calls, failed, prompt_tokens, cost::text from ragdb.run_cost")
    assert rows == [("synthesize", model, 2, 1, 1000, "0.502")]
    for wrong in ({"m": {"promt": 1}}, {"m": {"prompt": -1}}, {"m": 3}, {"m": {}}):
        with pytest.raises(ConfigError, match="the prices of 'm'"):
            RagDB(ragdb_url, prices=wrong)  # type: ignore[arg-type]


def test_a_server_that_reads_less_than_was_sent_is_told(rag: RagDB, query: Query) -> None:
    rag.context.llm = FakeLLM(Completion("Hold it [1].", prompt_tokens=12, completion_tokens=3))
    answer = rag.ask(QUESTION)
    assert answer.usage["truncated_by_server"] is True
    assert "the server read only a part of the prompt" in answer.stages[-1].note
    assert query("select truncated_by_server from ragdb.run_outcome where verb = 'ask'") == [(1,)]
    rag.context.llm = FakeLLM("Hold it [1].")
    assert "truncated_by_server" not in rag.ask(QUESTION).usage


# --- kept small -----------------------------------------------------------------------------------


def test_old_runs_and_caches_are_pruned(rag: RagDB, query: Query) -> None:
    for n in range(4):
        rag.ask(f"{QUESTION} {n}")
    query("update ragdb.run set started_at = now() - interval '100 days' where run_id % 2 = 0")
    query("update ragdb.query_vector set created_at = now() - interval '100 days'")
    assert prune(rag, runs=timedelta(days=90)) == {"run": 2, "rewrite": 0, "query_vector": 4}
    assert query("select count(*) from ragdb.run") == [(2,)]
    assert query("select count(*) from ragdb.run_stage s left join ragdb.run r using (run_id) where r.run_id is null") == [(0,)]
    assert prune(rag) == {"run": 0, "rewrite": 0, "query_vector": 0}, "runs are kept unless an age is given"


def test_a_share_of_the_runs_is_stored(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM("Hold it [1]."), record=0) as rag:
        rag.add(Document("d", "Reset the router with a pin."))
        answer = rag.ask(QUESTION)
        assert (answer.run_id, answer.outcome, bool(answer.stages)) == (None, "answered", True)
        assert rag.search(QUESTION).run_id is None
        assert rag.ask(QUESTION, conversation="c").run_id is not None, "or there would be no conversation"
        rag.context.llm = FakeLLM(LLMError("down"))
        assert rag.ask(QUESTION).run_id is not None, "what failed is worth looking at"
        calls = rag.context.embedder().calls  # type: ignore[attr-defined]
        rag.search(QUESTION)
        assert rag.context.embedder().calls == calls, "the caches are kept all the same"  # type: ignore[attr-defined]
    for share in (-1, 1.5, True, "all"):
        with pytest.raises(ConfigError, match="record is"):
            RagDB(ragdb_url, record=share)  # type: ignore[arg-type]


def test_every_text_is_redacted_before_it_is_stored(ragdb_url: str, query: Query) -> None:
    def redact(text: str) -> str:
        return text.replace("Ann", "***").replace("Hold", "###")

    def says(messages: Sequence[Message]) -> str:
        return (
            '["reset the router of Ann"]'
            if "search query" in messages[0].content or "queries" in messages[0].content
            else "Hold it, Ann [1]."
        )

    pipeline = dataclasses.replace(presets.hybrid, rewrite=("reword",), require_evidence=False)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM(says), redact=redact) as rag:
        rag.add(Document("d", "Ann resets the router with a pin. Hold it."))
        answer = rag.ask("How does Ann reset the router?", where={"title": "Ann"}, pipeline=pipeline)
        assert answer.outcome == "nothing_retrieved"
        answer = rag.ask("How does Ann reset the router?", pipeline=pipeline)
        assert "Ann" in answer.text
    stored = query("select r::text, s::text from ragdb.run r join ragdb.run_stage s using (run_id)")
    stored += query("select c::text, '' from ragdb.citation c")
    stored += query("select w::text, '' from ragdb.rewrite w")
    assert stored
    assert not [row for row in stored if "Ann" in "".join(row) or "Hold" in "".join(row)]
    assert query("select count(*) from ragdb.claim") == [(0,)], "offsets into another text would point anywhere"


def test_a_redaction_that_fails_stores_nothing(ragdb_url: str, query: Query) -> None:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), redact=lambda text: None) as rag:  # type: ignore[arg-type,return-value]
        rag.add(Document("d", "Reset the router with a pin."))
        answer = rag.ask(QUESTION)
        assert (answer.outcome, answer.run_id) == ("answered", None)
    assert query("select count(*) from ragdb.run") == [(0,)]


# --- held together --------------------------------------------------------------------------------


def test_python_sql_and_json_say_the_same(rag: RagDB, query: Query) -> None:
    """One search and one run, by whichever door."""
    pipeline = Pipeline(candidates=20)
    result = rag.search(QUESTION, k=10, pipeline=pipeline)
    by_sql = query(
        "select chunk_id, score, ranks from ragdb.search(%s, collection => 'help', k => 10, options => '{\"candidates\": 20}')",
        QUESTION,
    )
    assert [(hit.chunk_id, pytest.approx(hit.score), dict(hit.ranks)) for hit in result] == by_sql
    assert [hit["chunk_id"] for hit in result.to_dict()["hits"]] == [row[0] for row in by_sql]
    answer = rag.ask(QUESTION, pipeline=pipeline)
    explained = rag.explain(answer.run_id or 0, top=1000)
    rows = query("select step, stage, name, rank, score, label, fell, chunk_id, note from ragdb.explain(%s, 1000)", answer.run_id)
    assert [(r.step, r.stage, r.name, r.rank, r.score, r.label, r.fell, r.chunk_id, r.note) for r in explained.rows] == rows
    assert [next(iter(row.values())) for row in explained.to_dict()["rows"]] == [row[0] for row in rows]
    stored = query(
        "select step, chunk_id, rank, score from ragdb.run_candidate where run_id = %s and fell is null order by 1, 3",
        answer.run_id,
    )
    traced = [
        (trace.step, chunk_id, rank, score)
        for trace in answer.stages
        for rank, (chunk_id, score) in enumerate(zip(trace.chunk_ids, trace.scores, strict=True), start=1)
    ]
    assert stored == traced
    assert [(row[0], row[6]) for row in rows if row[6]] == [
        (trace.step, why) for trace in answer.stages for why, ids in trace.dropped.items() for _ in sorted(ids)
    ]
    cited = query("select number, label, start_at, end_at, quote from ragdb.run_citations(%s)", answer.run_id)
    assert cited == [(c.number, c.label, c.start, c.end, c.quote) for c in answer.citations]
    as_json = answer.to_dict()
    assert [(c["number"], c["label"]) for c in as_json["citations"]] == [row[:2] for row in cited]
    assert query("select outcome, answer from ragdb.run where run_id = %s", answer.run_id) == [
        (as_json["outcome"], as_json["text"])
    ]


def test_a_trace_that_fails_does_not_take_the_callers_rows_along(rag: RagDB, query: Query, ragdb_url: str) -> None:
    query("create table public.article (body text)")
    query("alter table ragdb.run add constraint broken check (question <> 'router')")
    engine = create_engine(ragdb_url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        session.execute(text("insert into public.article values ('mine')"))
        result = rag.search("router", session=session)
        assert len(result) > 0
        assert result.run_id is None
        session.commit()
    engine.dispose()
    assert query("select body from public.article") == [("mine",)]
