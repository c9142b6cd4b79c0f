"""A report of runs as the database has them: the values that are stored are those that it reads."""

from __future__ import annotations

import pytest

from ragdb import Document, RagDB
from ragdb.evaluate import EvalQuestion, Judgement, report, run, runs, sets
from ragdb.evaluate.settings import pipeline_of

BeautifulSoup = pytest.importorskip("bs4").BeautifulSoup  # the extra files


def test_a_report_of_stored_runs_shows_every_section_with_its_figures(rag: RagDB) -> None:
    for part in ("router", "printer", "scanner"):
        rag.add(Document(f"{part}.md", f"# The {part}\n\nHold the button of the {part} for ten seconds.\n"))
    rag.add(Document("router-old.md", "# The router\n\nHold the button of the router for a minute.\n", status="archived"))
    rag.context.database.call("refresh_lexical_stats")
    sets.make(rag, "help")
    asked = [
        EvalQuestion(f"q-{part}", f"How do I reset the {part}?", (Judgement(f"{part}.md"),), tags=("reset",), language="en")
        for part in ("router", "printer", "scanner")
    ]
    asked.append(EvalQuestion("none", "Who won the chess championship in Reykjavik?"))
    sets.put_questions(rag, "help", asked)
    made = run(rag, "help", [pipeline_of("hybrid:legs=lexical"), pipeline_of("naive")])
    stored = [runs.get(rag.context.database, one.eval_run_id) for one in made]
    eval_set = sets.read(rag, "help")

    page = BeautifulSoup(report.html(eval_set, stored, baseline=stored[0]), "lxml")
    said = " ".join(page.get_text(" ").split())
    assert "4: 3 answerable, 1 to be refused" in said
    for name in ("ndcg@10", "recall@20", "precision@5", "mrr@10", "map@100", "contamination@5", "false_refusal"):
        assert name in said
    assert [element.get_text() for element in page.select("#funnel ~ .funnels .funnel:first-child .rows div:first-child")] == [
        "indexed"
    ]
    assert [name.get_text() for name in page.select("#runs ~ .scroll tbody th")] == [
        "A hybrid:legs=lexical (baseline)",
        "B naive",
    ]
    assert "rightly refused" in said
    traces = {result.run_id for one in stored for result in one.results}
    assert all(int(code.get_text().split()[-1]) in traces for code in page.select(".card p code"))

    text = report.markdown(eval_set, stored, baseline=stored[0])
    assert "hybrid:legs=lexical" in text and len(text.splitlines()) < 60
