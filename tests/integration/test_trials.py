"""A live A/B: who goes where, what is recorded, and what the view makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from ragdb import Document, RagDB, Trial, presets
from ragdb.cli.main import app
from ragdb.db import schema
from ragdb.runs import feedback
from ragdb.testing import FakeEmbedder, FakeLLM

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]
OTHER = replace(presets.hybrid, name="other", window=0)


@pytest.fixture
def make(ragdb_url: str) -> Iterator[Callable[..., RagDB]]:
    opened: list[RagDB] = []

    def make(**given: Any) -> RagDB:
        opened.append(RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), **given))
        return opened[-1]

    rag = make()
    rag.add(Document("a", "# Router\n\nHold the button of the router for ten seconds to reset it."))
    yield make
    for rag in opened:
        rag.close()


def arms(query: Query) -> list[tuple[Any, ...]]:
    return query("select trial, arm, pipeline ->> 'name' from ragdb.run order by run_id")


def test_each_question_is_recorded_with_its_side_and_that_sides_pipeline(make: Callable[..., RagDB], query: Query) -> None:
    for share, arm, name in ((1, "treatment", "other"), (0, "control", "hybrid")):
        rag = make(trial=Trial("t", OTHER, share))
        rag.ask("how do I reset the router")
        list(rag.stream("how do I reset the router"))
        asyncio.run(rag.aio.ask("how do I reset the router"))
        assert arms(query)[-3:] == [("t", arm, name)] * 3


def test_what_names_its_own_pipeline_and_what_has_no_answer_are_no_part_of_it(make: Callable[..., RagDB], query: Query) -> None:
    rag = make(trial=Trial("t", OTHER, 1))
    rag.ask("how do I reset the router", pipeline=presets.naive)
    rag.search("router")
    make().ask("how do I reset the router")
    assert arms(query) == [(None, None, "naive"), (None, None, "hybrid"), (None, None, "hybrid")]


def test_all_turns_of_a_conversation_are_on_one_side(make: Callable[..., RagDB], query: Query) -> None:
    trial = Trial("t", OTHER, 0.5)
    rag = make(trial=trial)
    chats = ("one", "two", "three", "four", "five", "six")
    for _ in range(3):
        for chat in chats:
            rag.ask("how do I reset the router", conversation=chat)
    seen = query("select conversation, array_agg(distinct arm) from ragdb.run group by 1")
    assert dict(seen) == {chat: [trial.arm(chat)] for chat in chats}
    assert {arm for (_, [arm]) in seen} == {"control", "treatment"}


def test_a_sample_of_runs_leaves_a_trial_whole(make: Callable[..., RagDB], query: Query) -> None:
    """Failures are always recorded: beside a sample of the rest they would look many, more so on the side that fails more."""
    rag = make(record=0.0, trial=Trial("t", OTHER, 0.5))
    for _ in range(20):
        rag.ask("how do I reset the router")
    rag.ask("how do I reset the router", pipeline=presets.naive)
    assert query("select count(*), count(arm) from ragdb.run") == [(20, 20)]


def test_the_view_counts_each_side(make: Callable[..., RagDB], query: Query) -> None:
    prices = {FakeLLM().name: {"call": 0.5}}
    for share in (0, 1):
        rag = make(trial=Trial("t", OTHER, share), llm=FakeLLM("Hold the button. [1]"), prices=prices)
        answers = [rag.ask("how do I reset the router") for _ in range(3)]
        rag.ask("Hello!")
        feedback(rag, answers[0].run_id, 1, who="ann")  # type: ignore[arg-type]
        feedback(rag, answers[0].run_id, -1, who="bob")  # type: ignore[arg-type]
        feedback(rag, answers[1].run_id, 0, who="ann")  # type: ignore[arg-type]
    rows = query(
        "select trial, collection, arm, runs, questions, answered, llm_failed, good, bad, mean_cost > 0, p50_ms > 0 from ragdb.run_trial"
    )
    assert rows == [("t", "help", arm, 4, 3, 3, 0, 1, 1, True, True) for arm in ("control", "treatment")]


def a_run(outcome: str, arm: str = "control", **more: Any) -> Jsonb:
    return Jsonb(
        {
            "collection": "help",
            "verb": "ask",
            "question": "q",
            "pipeline": {},
            "k": 1,
            "ms": 5,
            "trial": "t",
            "arm": arm,
            "outcome": outcome,
        }
        | more
    )


def test_shares_come_with_wilsons_interval(make: Callable[..., RagDB], query: Query) -> None:
    for n in range(10):
        query("select ragdb.record_run(%s)", a_run("answered" if n < 8 else "not_in_documents"))
    query("select ragdb.record_run(%s)", a_run("cancelled"))
    query("select ragdb.record_run(%s)", a_run("no_retrieval"))
    [row] = query(
        "select runs, questions, cancelled, answered_share::float, answered_low::float, answered_high::float, good_share from ragdb.run_trial"
    )
    # 8 of 10: scipy.stats.binomtest(8, 10).proportion_ci(method="wilson")
    assert row == (12, 10, 1, 0.8, pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4), None)


def test_an_evaluation_is_no_part_of_a_trial(make: Callable[..., RagDB], query: Query) -> None:
    query("insert into ragdb.eval_set (name, collection) values ('s', 'help')")
    query(
        "insert into ragdb.eval_run (eval_set_id, name, collection, pipeline, fingerprint) "
        "select eval_set_id, 'r', 'help', '{}', 'x' from ragdb.eval_set"
    )
    query("select ragdb.record_run(%s)", a_run("answered"))
    query("update ragdb.run set eval_run_id = (select eval_run_id from ragdb.eval_run)")
    assert query("select * from ragdb.run_trial") == []


@pytest.mark.parametrize("more", [{"arm": "left"}, {"arm": None}, {"trial": None}, {"trial": ""}, {"trial": "x" * 201}])
def test_a_side_without_a_trial_is_not_stored(make: Callable[..., RagDB], query: Query, more: dict[str, Any]) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        query("select ragdb.record_run(%s)", a_run("answered", **more))
    assert caught.value.sqlstate == "RD004"


def test_auditors_and_writers_see_trials_and_readers_do_not(make: Callable[..., RagDB], query: Query) -> None:
    query("select ragdb.record_run(%s)", a_run("answered"))
    query(schema.roles_script())
    for role in ("ragdb_writer", "ragdb_auditor"):
        query(f"set role {role}")
        assert query("select trial, runs from ragdb.run_trial") == [("t", 1)]
        query("reset role")
    query("set role ragdb_reader")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        query("select * from ragdb.run_trial")


def test_a_trial_among_many_runs_is_found_by_its_index(query: Query) -> None:
    query(
        "insert into ragdb.run (collection, verb, question, pipeline, k, ms, outcome, trial, arm) "
        "select 'help', 'ask', 'q', '{}', 1, 1, 'answered', case when n % 50 = 0 then 't' end, case when n % 50 = 0 then 'control' end "
        "from generate_series(1, 20000) n"
    )
    query("analyze ragdb.run")
    plan = "\n".join(line for (line,) in query("explain select * from ragdb.run_trial where trial = 't'"))
    assert "run_trial_idx" in plan


def test_the_command_lists_trials(
    make: Callable[..., RagDB], query: Query, ragdb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    assert "no question was part of a trial" in CliRunner().invoke(app, ["trial"]).stderr
    for arm in ("control", "treatment"):
        query("select ragdb.record_run(%s)", a_run("answered", arm, usage={"cost": 0.25}))
    told = CliRunner().invoke(app, ["trial"])
    assert told.exit_code == 0
    assert told.stdout.splitlines()[1].split()[:5] == ["t", "help", "control", "1", "100.0"]
    rows = json.loads(CliRunner().invoke(app, ["--json", "trial", "t"]).stdout)["trials"]
    assert [(r["arm"], r["answered_share"], r["mean_cost"]) for r in rows] == [("control", 1.0, 0.25), ("treatment", 1.0, 0.25)]
    assert json.loads(CliRunner().invoke(app, ["--json", "trial", "none"]).stdout) == {"trials": []}
