"""`ragdb eval`: from a file of questions to a gate that refuses, a page, and a list of what went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragdb import Document, RagDB
from ragdb.testing import FakeEmbedder
from ragdb.testing.server import FakeOpenAIServer
from tests.integration.test_embedder_index import Cli, cli

__all__ = ["cli"]

PARTS = ("router", "printer", "scanner", "camera", "speaker", "monitor", "keyboard", "tablet", "phone", "lamp", "fan", "heater")


@pytest.fixture
def pages(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        for part in PARTS:
            rag.add(Document(f"{part}.md", f"# The {part}\n\nHold the button of the {part} for ten seconds.\n"))
        rag.context.database.call("refresh_lexical_stats")
        yield rag


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    rows = [{"qid": f"q{n}", "query": f"Which button of the {part}?", "relevant_docs": [part]} for n, part in enumerate(PARTS)]
    rows.append({"qid": "u1", "query": "Who won the chess championship in Reykjavik?", "relevant_docs": []})
    file = tmp_path / "golden.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


@pytest.mark.usefixtures("pages")
def test_the_whole_way_from_a_file_to_a_gate(cli: Cli, golden: Path, tmp_path: Path) -> None:
    imported = cli("eval", "import", str(golden), "-c", "help", "--set", "q")
    assert imported.code == 0, imported.err
    assert imported.out.startswith(
        "q: 13 questions added, 0 changed, 12 judgements; 12 can be answered, 1 are there to be refused"
    )
    assert "12 documents matched by file name" in imported.err
    assert "help        13" in cli("eval", "sets").out
    ran = cli("eval", "run", "q", "-p", "hybrid:legs=lexical", "-p", "naive")
    assert ran.code == 0, ran.err
    assert "hybrid:legs=lexical" in ran.out
    assert "evidence alive  indexed 1.00" in ran.out
    by_json = json.loads(cli("eval", "run", "q", "-p", "hybrid:legs=lexical", "--json").out)["runs"][0]
    assert by_json["cached"]
    assert by_json["metrics"]["ndcg@10"]["value"] == 1.0
    assert "finished  hybrid:legs=lexical" in cli("eval", "runs", "q").out
    passed = cli("eval", "gate", "q", "--baseline", "hybrid:legs=lexical")
    assert passed.code == 0, passed.err
    assert "passed: no metric is worse than allowed" in passed.out
    refused = cli("eval", "gate", "q", "--baseline", "hybrid:legs=lexical", "-p", "naive", "--max-drop", "ndcg@10=0.01")
    assert refused.code == 1
    assert "refused: ndcg@10 went from 1.0000 to" in refused.out
    assert "most is lost at fuse" in refused.out
    compared = cli("eval", "compare", "q", "hybrid:legs=lexical", "naive", "-m", "mrr@10")
    assert compared.code == 0, compared.err
    assert "mrr@10" in compared.out
    swept = cli("eval", "sweep", "q", "candidates=5,50", "chunk_size=64", "--drop")
    assert swept.code == 0, swept.err
    assert "removed the collection help~markdown:64" in swept.err
    page = tmp_path / "report.html"
    reported = cli("eval", "report", "q", "--html", str(page), "--markdown", str(tmp_path / "report.md"))
    assert reported.code == 0, reported.err
    assert "<html" in page.read_text(encoding="utf-8")
    assert "| " in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "ndcg@10" in cli("eval", "report", "q", "naive").out
    exported = cli("eval", "export", "q").out.splitlines()
    assert exported[0].split()[1:] == ["0", "router.md", "1"]
    run = str(by_json["run"])
    assert cli("eval", "export", run).out.splitlines()[0].split()[1] == "Q0"
    again = tmp_path / "again.jsonl"
    again.write_text(cli("eval", "export", "q", "--questions").out, encoding="utf-8")
    # what was exported comes back as it was
    assert "0 questions added, 0 changed" in cli("eval", "import", str(again), "-c", "help", "--set", "q").out
    assert cli("eval", "drop", run, "--yes").out == "deleted: 1 runs\n"
    assert cli("eval", "drop", "q", "--yes").code == 0


def test_a_refused_gate_refuses_again_and_its_run_takes_no_name_away(cli: Cli, golden: Path, pages: RagDB) -> None:
    cli("eval", "import", str(golden), "-c", "help", "--set", "q")
    assert cli("eval", "run", "q", "-p", "hybrid:legs=lexical").code == 0
    for part in PARTS[:3]:
        pages.delete(f"{part}.md")
    for _ in range(2):
        refused = cli("eval", "gate", "q", "--baseline", "hybrid:legs=lexical")
        assert refused.code == 1
        assert "most is lost at indexed: 3 questions lost their evidence there, 0 before" in refused.out
    names = [run["name"] for run in json.loads(cli("eval", "runs", "q", "--json").out)["runs"]]
    assert names == ["hybrid:legs=lexical, gate", "hybrid:legs=lexical"]
    # who asks for it by its name makes it a run of that name, and nothing is asked again
    ran = json.loads(cli("eval", "run", "q", "-p", "hybrid:legs=lexical", "--json").out)["runs"][0]
    assert (ran["cached"], ran["name"]) == (True, "hybrid:legs=lexical")


@pytest.mark.usefixtures("pages")
def test_tuning_tells_its_gain_and_stores_nothing_unasked(cli: Cli, golden: Path) -> None:
    cli("eval", "import", str(golden), "-c", "help", "--set", "q")
    tuned = cli("eval", "tune", "q", "--folds", "3")
    assert tuned.code == 0, tuned.err
    assert "of held-out questions" in tuned.out
    assert "nothing is stored" in tuned.err
    stored = cli("eval", "tune", "q", "--folds", "3", "--store", "--force")
    assert stored.code == 0, stored.err
    assert "stored for help" in stored.out
    assert "ragdb's own hold again" in cli("eval", "tune", "q", "--forget").out


def test_a_metric_that_a_judge_could_not_be_checked_on_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {
        "key": "r1",
        "metric": "answer_relevance",
        "question": "Which button?",
        "answer": "The red one.",
        "contexts": ["Red."],
    }
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text(json.dumps({**item, "reference": None, "expected": 1, "why": "it answers"}), encoding="utf-8")
    with FakeOpenAIServer(chat='{"noncommittal": false, "1": "Which button?", "2": "Which one?", "3": "What?"}') as server:
        monkeypatch.setenv("RAGDB_LLM", "openai:any")
        monkeypatch.setenv("RAGDB_LLM_BASE_URL", server.base_url)
        told = cli("eval", "judge", "--labelled", str(labelled), "-c", "nothing-here")
    assert told.code == 0, told.err
    assert "answer_relevance was not checked on every item: there is no embedder" in told.err
    assert "name a collection that has one: -c" in told.err
    assert not [request for request in server.requests if "chat" in request.path]


@pytest.mark.usefixtures("pages")
def test_what_is_wrong_is_said_with_what_there_is(cli: Cli, golden: Path, tmp_path: Path) -> None:
    assert "no evaluation set 'nothing'. There are: none yet" in cli("eval", "run", "nothing", "-p", "naive").err
    cli("eval", "import", str(golden), "-c", "help", "--set", "q")
    assert "no pipeline is called 'hybird'" in cli("eval", "run", "q", "-p", "hybird").err
    assert "no metric 'ndgc@10'" in cli("eval", "run", "q", "-p", "naive", "-m", "ndgc@10").err
    assert "has no finished run 'naive'; there are none yet" in cli("eval", "gate", "q", "--baseline", "naive").err
    assert "has no finished run; first: ragdb eval run q" in cli("eval", "report", "q").err
    assert "there is no language model to judge by" in cli("eval", "judge").err
    assert "there is none; set RAGDB_LLM" in cli("eval", "draft", "q").err
    assert "has no draft x" in cli("eval", "accept", "q", "x").err
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("Frage,Seite\nWas?,a.md\n", encoding="utf-8")
    assert "which column is question? It has Frage, Seite" in cli("eval", "import", str(wrong), "-c", "help").err
    told = cli("eval", "import", str(wrong), "-c", "help", "--map", "question=Frage", "--map", "relevant=Seite")
    assert "1 judged document not in the collection help: a.md" in told.err
    lines = (
        '{"key": "a", "question": "What lies beside the rack?", "relevant": [{"uri": "%s", "quote": "words of no page"}]}\n'
        '{"key": "b", "question": "Where is the rack?", "relevant": ["%s"], "paraphrase_of": "nobody"}\n'
    )
    uri = json.loads(cli("ls", "-c", "help", "--json").out.splitlines()[0])["documents"][0]["uri"]
    (tmp_path / "odd.jsonl").write_text(lines % (uri, uri), encoding="utf-8")
    told = cli("eval", "import", str(tmp_path / "odd.jsonl"), "-c", "help")
    assert "a quote that does not stand in its document, which counts as not found: a\n" in told.err
    assert "paraphrase_of names a question that the set does not have: b\n" in told.err


@pytest.mark.usefixtures("pages")
def test_a_second_import_stays_with_the_collection_and_tells_quotes_that_are_gone(cli: Cli, golden: Path, tmp_path: Path) -> None:
    assert cli("eval", "import", str(golden), "-c", "help", "--set", "q").code == 0
    more = tmp_path / "more.jsonl"
    row = {"id": "m", "question": "Which button?", "relevant": [{"uri": "fan.md", "quote": "Push the fan"}]}
    more.write_text(json.dumps(row), encoding="utf-8")
    again = cli("eval", "import", str(more), "--set", "q")
    assert "a quote that does not stand in its document, which counts as not found: m" in again.err
    assert json.loads(cli("eval", "sets", "--json").out)["sets"][0]["collection"] == "help"


@pytest.mark.usefixtures("pages")
def test_an_export_is_whole_or_nothing_and_a_report_is_one_line_of_json(cli: Cli, golden: Path) -> None:
    assert cli("eval", "import", str(golden), "-c", "help", "--set", "q").code == 0
    assert cli("eval", "run", "q", "-p", "naive").code == 0
    report = cli("eval", "report", "q", "--json").out
    assert report.count("\n") == 1
    assert json.loads(report)["text"].startswith("## Evaluation of q")
    assert "no number" in cli("eval", "import", str(golden), "-c", "help", "--set", "7").err


@pytest.mark.usefixtures("pages")
def test_a_gate_asks_in_the_way_of_its_baseline_and_refuses_one_of_other_questions(
    cli: Cli, golden: Path, tmp_path: Path
) -> None:
    assert cli("eval", "import", str(golden), "-c", "help", "--set", "q").code == 0
    baseline = ("--baseline", 'hybrid:legs=lexical, where {"team": "none"}')
    assert cli("eval", "run", "q", "-p", "hybrid:legs=lexical", "-k", "2", "--where", '{"team": "none"}').code == 0
    passed = cli("eval", "gate", "q", *baseline, "--again", "--json")
    assert passed.code == 0, passed.err
    # nothing is found under that filter, then as now
    assert json.loads(passed.out)["differences"][0]["after"] == 0.0
    assert json.loads(passed.out)["cautions"] == []
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "m", "question": "Which button?", "relevant": ["fan.md"]}', encoding="utf-8")
    assert cli("eval", "import", str(more), "--set", "q").code == 0
    refused = cli("eval", "gate", "q", *baseline)
    assert refused.code == 1
    assert "ask it again: ragdb eval run q -p hybrid:legs=lexical" in refused.err
