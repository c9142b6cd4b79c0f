"""The report: what it says of runs, that it reads by itself, and that what people wrote cannot break out of it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib
import re
from itertools import pairwise
from typing import Any

import pytest
from markdown_it import MarkdownIt

from ragdb.errors import ConfigError, MissingExtra
from ragdb.evaluate import conclusion, figures, losses, plots, report
from ragdb.evaluate.types import EvalQuestion, EvalRun, EvalSet, Judgement, Result, Step
from tests.unit.report_example import PIPELINES, questions, run, runs, sweep

NASTY = [
    "<script>alert(1)</script>",
    "]]> {{ 7 * 7 }} {% for x in y %}",
    "a | b\nc || d `code` ```fence",
    "\"><img src=x onerror=alert(1)> ' onmouseover='x",
    "</title></style></svg><iframe src=//evil.example>",
    "[link](javascript:alert(1)) ![i](http://evil.example/p.png) **bold** _x_ @team #12 <!-- ",
    "&lt;b&gt; &amp; \\| \\",
]

bs4 = pytest.importorskip("bs4")  # the extra files
pytest.importorskip("jinja2")  # the extra eval
BeautifulSoup = bs4.BeautifulSoup
SET = questions()
RUNS = runs(SET)
HTML = report.html(SET, RUNS, baseline=RUNS[0])
PAGE = BeautifulSoup(HTML, "lxml")
MARKDOWN = report.markdown(SET, RUNS, baseline=RUNS[0])


def text(element: Any) -> str:
    return " ".join(element.get_text(" ").split())


def part(page: Any, name: str) -> Any:
    found = page.select_one(f"section[aria-labelledby={name}]")
    assert found is not None
    return found


def small(name: str = "one", number: int = 1, **results: Result) -> EvalRun:
    return EvalRun(number, name, "small", "help", {"name": name}, {}, name, results=tuple(results.values()))


def ranked(key: str, *uris: str, score: float = 0.5, **others: Any) -> Result:
    chunks = tuple(range(1, len(uris) + 1))
    return Result(key, chunks, uris, ("active",) * len(uris), scores={"ndcg@10": score}, **others)


SMALL = EvalSet("small", "help", tuple(EvalQuestion(key, f"Question {key}?", (Judgement("right"),)) for key in "abc"))


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_sections_come_in_order_and_each_says_how_to_read_it() -> None:
    sections = PAGE.select("main > section")
    assert [section.h2["id"] for section in sections if section.h2] == [
        "runs",
        "metrics",
        "funnel",
        "cost",
        "moves",
        "tags",
        "worst",
        "answers",
    ]
    assert all(section.select_one("p.how") for section in sections)
    assert [link["href"] for link in PAGE.select("nav a")] == [f"#{section.h2['id']}" for section in sections if section.h2]


def test_the_head_counts_questions_and_shows_only_settings_that_differ() -> None:
    assert "40: 36 answerable, 4 to be refused" in text(PAGE)
    columns = [cell.get_text() for cell in part(PAGE, "runs").select("thead th")]
    assert {"legs", "weights.lexical", "rerank"} <= {*columns}
    assert "rrf_k" not in columns and "name" not in columns
    assert "rrf_k 60" in text(part(PAGE, "runs"))


def test_the_verdict_comes_first_and_the_worst_run_first_in_it() -> None:
    lines = PAGE.select(".verdict li")
    assert lines[0]["class"][0] == "worse" and "planted: reranker inverted is worse than naive" in text(lines[0])
    assert [line["class"][0] for line in lines] == sorted(
        (line["class"][0] for line in lines), key=["worse", "unclear", "better"].index
    )


def test_a_planted_fault_stands_at_its_stage_in_words_and_in_figures() -> None:
    faulty = losses.funnels(SET, figures.shown(SET, RUNS, RUNS[1]))[-1]
    assert faulty.most == "rerank"
    lost = next(level.lost for level in faulty.levels if level.stage == "rerank")
    assert lost > faulty.n / 3
    page = BeautifulSoup(report.html(SET, RUNS, baseline=RUNS[1]), "lxml")
    funnel = part(page, "funnel").select(".funnel")[-1]
    assert f"Most was lost at rerank: {lost} of {faulty.n}. Against the baseline rerank loses {lost} more (0 before)." in text(
        funnel
    )
    most = funnel.select_one(".most")
    assert most is not None and most.get_text() == f"−{lost} lost"
    assert f"Most was lost at rerank: {lost} of {faulty.n}." in report.markdown(SET, RUNS, baseline=RUNS[1])


def test_a_funnel_counts_what_left_each_stage_and_a_leg_alone_loses_nothing() -> None:
    kept = {"lexical": Step(None, False), "semantic": Step(3, True), "fuse": Step(2, True), "found": Step(2, True)}
    fell = {"lexical": Step(1, True), "semantic": Step(None, False), "fuse": Step(None, False), "found": Step(None, False)}
    never = {"lexical": Step(None, False), "semantic": Step(None, False), "fuse": Step(None, False), "found": Step(None, False)}
    made = small(a=ranked("a", funnel=kept), b=ranked("b", funnel=fell), c=ranked("c", funnel=never))
    (funnel,) = losses.funnels(SMALL, figures.shown(SMALL, [made], None))
    assert [(level.stage, level.alive, level.lost) for level in funnel.levels] == [
        ("lexical", 1, 0),
        ("semantic", 1, 0),
        ("retrieve", 2, 1),
        ("fuse", 1, 1),
        ("found", 1, 0),
    ]
    assert funnel.words == "Most was lost at retrieve: 1 of 3."


def test_a_question_without_evidence_to_follow_is_counted_apart() -> None:
    made = small(a=ranked("a", funnel={"fuse": Step(1, True)}), b=ranked("b"))
    (funnel,) = losses.funnels(SMALL, figures.shown(SMALL, [made], None))
    assert (funnel.n, funnel.unknown) == (1, 1)
    assert "1 more could not be followed" in text(BeautifulSoup(report.html(SMALL, [made]), "lxml"))


def test_every_mean_stands_in_the_table_with_its_interval() -> None:
    (table, *_) = part(PAGE, "metrics").select("table")
    for line in figures.metric("ndcg@10", figures.shown(SET, RUNS, RUNS[0])).lines:
        assert line.mean is not None
        row = text(table.select("tbody tr")[line.shown.place])
        assert f"{line.mean.value:.3f} {line.mean.low:.3f} to {line.mean.high:.3f}, n 36" in row
        if line.change:
            assert (
                conclusion.signed(line.change.change) in row and f"{line.change.better} better, {line.change.worse} worse" in row
            )


def test_less_contamination_is_better() -> None:
    before = small("dirty", 1, **{key: dataclasses.replace(ranked(key), scores={"contamination@5": 0.8}) for key in "abc"})
    after = small("clean", 2, **{key: dataclasses.replace(ranked(key), scores={"contamination@5": 0.0}) for key in "abc"})
    line = figures.metric("contamination@5", figures.shown(SMALL, [after], before)).lines[1]
    assert line.change is not None and (line.change.better, line.change.worse) == (3, 0)
    clear = dataclasses.replace(line.change, p=0.01)
    assert conclusion.effect(clear) == "better"
    assert conclusion.effect(dataclasses.replace(clear, change=0.8, low=0.7, high=0.9)) == "worse"


def test_a_difference_whose_interval_holds_zero_is_neither_better_nor_worse() -> None:
    line = figures.metric("ndcg@10", figures.shown(SET, RUNS, RUNS[0])).lines[1]
    assert line.change is not None
    assert conclusion.effect(dataclasses.replace(line.change, low=-0.01, high=0.2, p=0.01)) == "unclear"
    assert conclusion.effect(dataclasses.replace(line.change, low=0.01, high=0.2, p=0.2)) == "unclear"


def test_rank_moves_name_the_questions_that_moved_most() -> None:
    before = small("old", 1, a=ranked("a", "right"), b=ranked("b", "x", "right"), c=ranked("c", "x"))
    after = small("new", 2, a=ranked("a", "x", "y"), b=ranked("b", "right"), c=ranked("c", "x", "y", "right"))
    old, new = figures.shown(SMALL, [after], before)
    moves = losses.moves(SMALL, old, new)
    assert [(move.question.key, move.before, move.after) for move in moves.most] == [("a", 1, None), ("c", None, 3), ("b", 2, 1)]
    assert (moves.up, moves.down, moves.n) == (2, 1, 3)
    assert moves.table[0][-1] == 1 and moves.table[1][0] == 1 and moves.table[-1][1] == 1 and sum(map(sum, moves.table)) == 3
    rows = text(part(BeautifulSoup(report.html(SMALL, [after], baseline=before), "lxml"), "moves"))
    assert "1 → none" in rows and "none → 3" in rows and "2 up, 1 down, 0 unmoved" in rows


def test_the_rank_of_a_document_counts_documents_not_chunks() -> None:
    assert losses.first_rank(SMALL.questions[0], ranked("a", "x", "x", "x", "right")) == 2


def test_the_worst_question_comes_first_with_what_was_expected_and_what_came() -> None:
    trap = EvalQuestion("t", "What is the limit?", (Judgement("limit"), Judgement("limit-2019", 0, trap=True)), language="en")
    funnel = {"lexical": Step(4, True), "semantic": Step(None, False), "fuse": Step(None, False), "found": Step(None, False)}
    bad = Result(
        "t",
        (5, 6),
        ("limit-2019", "other"),
        ("archived", "draft"),
        funnel,
        {"ndcg@10": 0.0},
        answer="It is 500.",
        run_id=4711,
    )
    page = BeautifulSoup(report.html(EvalSet("small", "help", (trap, *SMALL.questions)), [small(t=bad, a=ranked("a"))]), "lxml")
    first = part(page, "worst").select_one("article")
    assert first is not None
    said = text(first)
    for words in (
        "What is the limit?",
        "limit not found",
        "limit-2019 ⚠ trap archived",
        "other draft",
        "lost at fuse",
        "It is 500.",
        "ragdb explain 4711",
    ):
        assert words in said
    assert [(item["class"], text(item)) for item in first.select(".strip li")] == [
        ([], "lexical 4"),
        (["out"], "semantic ✗"),
        (["here"], "fuse ✗"),
        (["out"], "found ✗"),
    ]


def test_refusals_are_counted_on_both_kinds_of_questions() -> None:
    hopeless = EvalQuestion("h", "Who won the cup?")
    made = small(a=ranked("a", outcome="answered"), b=ranked("b", outcome="not_in_documents"), h=Result("h", outcome="answered"))
    every = EvalSet("small", "help", (*SMALL.questions, hopeless))
    (line,) = losses.refusals(every, figures.shown(every, [made], None))
    assert (line.rightly, line.hopeless, line.wrongly, line.answerable) == (0, 1, 1, 2)
    assert "Who won the cup?" in text(part(BeautifulSoup(report.html(every, [made]), "lxml"), "answers"))


def test_a_search_alone_has_no_refusals() -> None:
    made = small(a=ranked("a"), b=ranked("b"))
    assert losses.refusals(SMALL, figures.shown(SMALL, [made], None)) == []


def test_the_share_of_broken_verdicts_is_told() -> None:
    assert "14 160 9 %" in text(part(PAGE, "answers"))
    assert "14 of 160" in MARKDOWN


def test_what_makes_runs_hard_to_compare_is_said_first() -> None:
    one, other = RUNS[:2]
    fewer = dataclasses.replace(
        other,
        settings={**other.settings, "set_is": "beef", "collection_is": "cafe"},
        results=(dataclasses.replace(other.results[0], error="no model"), *other.results[1:30]),
    )
    page = text(BeautifulSoup(report.html(SET, [fewer], baseline=one), "lxml"))
    made = report.markdown(SET, [fewer], baseline=one)
    for words in (
        "judgements changed between runs",
        "What the collection help holds changed",
        "hybrid has 30 questions, 1 of them failed",
    ):
        assert words in page and words in made
    assert figures.cautions(figures.shown(SET, RUNS, None)) == []


def test_latency_leaves_out_what_failed() -> None:
    made = small(a=ranked("a", ms=10.0), b=ranked("b", ms=30.0), c=ranked("c", ms=9000.0, error="the server is gone"))
    _, (line,) = figures.speed(figures.shown(SMALL, [made], None))
    assert line.p50 == 20.0 and line.p95 == pytest.approx(29.0)


def test_tags_and_languages_have_a_row_each() -> None:
    rows = [text(row.th) for row in part(PAGE, "tags").select("tbody tr") if row.th]
    assert {"language: en", "language: ja", "travel", "leave", "identifier", "two parts"} == {*rows}


# --- one run, many runs, odd ones -------------------------------------------------------------------------------------


def test_one_run_alone_is_a_report_too() -> None:
    page = BeautifulSoup(report.html(SET, RUNS[1:2]), "lxml")
    assert "there is nothing to compare it with" in text(part(page, "moves"))
    assert len(page.select("main > section")) == 8
    assert "One run alone" in report.markdown(SET, RUNS[1:2])


def test_the_baseline_is_shown_once_and_first() -> None:
    every = figures.shown(SET, RUNS, RUNS[2])
    assert [one.name for one in every] == ["hybrid + rerank", "naive", "hybrid", "planted: reranker inverted"]
    assert [one.baseline for one in every] == [True, False, False, False]


def test_runs_of_the_same_name_are_told_apart_by_their_number() -> None:
    later = run(SET, PIPELINES[1], 99)
    assert [one.name for one in figures.shown(SET, [RUNS[1], later], None)] == ["hybrid (run 12)", "hybrid (run 99)"]


def test_twenty_runs_have_marks_that_all_differ() -> None:
    many = sweep(SET, 20)
    page = BeautifulSoup(report.html(SET, many), "lxml")
    marks = {(use["href"], *use["class"]) for use in part(page, "runs").select("use")}
    assert len(marks) == 20
    assert report.markdown(SET, many, baseline=many[0]).count("\n") < 80


def test_five_hundred_questions_stay_small() -> None:
    large = questions(500)
    page = report.html(large, runs(large))
    assert len(page.encode()) < 1_000_000
    assert len(BeautifulSoup(page, "lxml").select("article.card")) == 30


def test_results_of_questions_that_the_set_no_longer_has_are_left_out() -> None:
    shrunk = dataclasses.replace(SET, questions=SET.questions[:10])
    assert {len(one.results) for one in figures.shown(shrunk, RUNS, None)} == {10}


def test_a_run_without_a_result_is_shown_as_not_finished() -> None:
    page = BeautifulSoup(report.html(SMALL, [small()]), "lxml")
    assert "not finished" in text(part(page, "runs"))
    assert "No result has a score." in text(page)
    assert "No result has a score." in report.markdown(SMALL, [small()])


def test_no_run_another_set_and_an_unknown_metric_are_refused_with_the_fact() -> None:
    with pytest.raises(ConfigError, match="ragdb eval run handbook"):
        report.html(SET, [])
    with pytest.raises(ConfigError, match="run 11 is of the set 'handbook', this report of 'small'"):
        report.html(SMALL, RUNS)
    with pytest.raises(ConfigError, match="no result has the metric ndcg@7; there are ndcg@10"):
        report.html(SET, RUNS, metrics=["ndcg@7"])
    with pytest.raises(ConfigError, match="it is a list of names"):
        report.html(SET, RUNS, metrics="ndcg@10")


def test_without_jinja2_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name == "jinja2":
            raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")
        return real(name, *rest)

    report._environment.cache_clear()
    report._template.cache_clear()
    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtra, match=r"pip install 'ragdb\[eval\]'"):
        report.html(SET, RUNS)


def test_the_same_input_gives_the_same_text() -> None:
    assert report.html(SET, RUNS, baseline=RUNS[0]) == HTML
    assert report.markdown(SET, RUNS, baseline=RUNS[0]) == MARKDOWN


# --- it reads by itself -----------------------------------------------------------------------------------------------


def test_the_page_asks_nobody_for_anything_and_runs_no_script() -> None:
    assert not PAGE.select("script, iframe, object, embed, img, form, base")
    assert [link["href"] for link in PAGE.select("link")] == ["data:,"]
    for element in PAGE.find_all(True):
        for name, value in element.attrs.items():
            assert name not in ("src", "srcset", "action", "style") and not name.startswith("on")
            assert name != "href" or value.startswith(("#", "data:,"))
    assert {*re.findall(r"url\((.*?)\)", HTML)} == {"#lost"} and "@import" not in HTML


def test_the_policy_allows_this_very_style_sheet_and_nothing_else() -> None:
    policy = PAGE.select_one("meta[http-equiv=Content-Security-Policy]")
    style = PAGE.select_one("style")
    assert policy is not None and style is not None
    digest = base64.b64encode(hashlib.sha256(style.get_text().encode()).digest()).decode()
    assert (
        policy["content"]
        == f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_headings_do_not_skip_a_level_and_plots_say_what_they_show() -> None:
    levels = [int(heading.name[1]) for heading in PAGE.select("h1, h2, h3")]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    assert len(PAGE.select("[role=img]")) > 10
    assert all(plot["aria-label"].strip() for plot in PAGE.select("[role=img]"))
    for picture in PAGE.select("svg"):
        assert picture.get("aria-hidden") == "true" or picture.get("role") == "img"
    assert len({element["id"] for element in PAGE.select("[id]")}) == len(PAGE.select("[id]"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    """Text 4.5 : 1, marks 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11)."""
    style = PAGE.style.get_text() if PAGE.style else ""
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[0 if scheme == "light" else 1]))
    for back in ("page", "card"):
        for front in ("text", "quiet", "good", "bad"):
            assert contrast(colours[front], colours[back]) >= 4.5, (front, back)
    assert contrast(colours["bad"], colours["badback"]) >= 4.5
    for place in range(plots.COLOURS):
        assert contrast(colours[f"c{place}"], colours["page"]) >= 4.5
        assert contrast(colours[f"c{place}"], colours["bar"]) >= 3


def contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_questions_carry_their_language() -> None:
    assert PAGE.select_one("#worst ~ article [lang=ja]") is not None


# --- what people wrote stays text -------------------------------------------------------------------------------------


def nasty() -> tuple[EvalSet, list[EvalRun]]:
    asked = tuple(
        EvalQuestion(f"k{place} {words}", words, (Judgement(f"{words}/{place}"),), reference=words, language=words, tags=(words,))
        for place, words in enumerate(NASTY)
    )
    runs_ = [
        EvalRun(
            number,
            NASTY[number],
            "set <b>",
            "help <i>",
            {"name": NASTY[number], "<u>": NASTY[number]},
            {"ragdb": NASTY[number], "<s>": NASTY[number], "set_is": NASTY[number]},
            "",
            results=tuple(
                Result(
                    question.key,
                    (1, 2),
                    (question.question, f"{question.question}/x"),
                    (question.question, "active"),
                    {"fuse": Step(None, False)},
                    {"ndcg@10": 0.1 * number, "odd <em>@1": 0.5},
                    answer=question.question,
                    error=question.question,
                    run_id=5,
                )
                for question in asked
            ),
        )
        for number in range(len(NASTY))
    ]
    return EvalSet("set <b>", "help", asked, NASTY[0]), runs_


def test_what_people_wrote_makes_no_element_and_stays_readable() -> None:
    eval_set, every = nasty()
    page = BeautifulSoup(report.html(eval_set, every, baseline=every[0], title=NASTY[4]), "lxml")
    known = {element.name for element in PAGE.find_all(True)} | {"figcaption", "blockquote", "wbr"}
    assert {element.name for element in page.find_all(True)} <= known
    for element in page.find_all(True):
        assert not any(name.startswith("on") or name in ("src", "style") for name in element.attrs)
    said = page.get_text()
    for words in NASTY:
        assert words in said
    assert "49" not in re.findall(r"\b49\b", said)


def test_markdown_makes_the_tables_that_github_renders_and_nothing_of_what_people_wrote() -> None:
    eval_set, every = nasty()
    made = report.markdown(eval_set, every, baseline=every[0], title=NASTY[5])
    page = BeautifulSoup(MarkdownIt("gfm-like", {"linkify": False}).render(made), "lxml")
    assert {element.name for element in page.find_all(True)} <= {
        *("html", "body", "h2", "ul", "li", "p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td")
    }
    for table in page.select("table"):
        assert len({len(row.select("th, td")) for row in table.select("tr")}) == 1
    for words in NASTY[:2]:
        assert " ".join(words.split()) in text(page)
    for code in page.select("code"):  # nothing is a mention or a reference there
        code.decompose()
    assert not re.search(r"(?<!\w)[@#]\w", text(page))


def test_markdown_is_short_with_the_verdict_first() -> None:
    lines = MARKDOWN.splitlines()
    assert len(lines) < 60
    assert lines[0].startswith("## ") and lines[2].startswith("- ❌ planted: reranker inverted is worse than naive")
    page = BeautifulSoup(MarkdownIt("gfm-like", {"linkify": False}).render(MARKDOWN), "lxml")
    metrics, worst = page.select("table")
    assert [cell.get_text() for cell in metrics.select("th")] == [
        "pipeline",
        "ndcg@10",
        "recall@20",
        "precision@5",
        "mrr@10",
        "contamination@5",
        "faithfulness",
        "answer_relevance",
        "p50",
        "p95",
    ]
    assert len(metrics.select("tbody tr")) == len(PIPELINES) and len(worst.select("tbody tr")) == 5


# --- where marks stand ------------------------------------------------------------------------------------------------


def test_an_axis_starts_at_zero_has_round_ticks_and_turns_logarithmic_for_a_wide_range() -> None:
    assert plots.axis([3.0, 17.0]).ticks == ((0.0, "0"), (50.0, "10"), (100.0, "20"))
    assert plots.axis([0.0003, 0.0004]).ticks[-1] == (100.0, "0.0004")
    wide = plots.axis([4.0, 900.0])
    assert wide.log and [label for _, label in wide.ticks] == ["1", "10", "100", "1,000"]
    assert plots.axis([]).ticks[0] == (0.0, "0") and plots.axis([0.0]).at(0.0) == 0.0


def test_labels_of_marks_at_the_same_place_do_not_cover_each_other() -> None:
    placed = plots.label([(place, 50.0, 50.0, 49.0, 51.0, "a name of some length", "A") for place in range(12)])
    shown = [(point.dx, point.dy) for point in placed if point.label]
    assert len(shown) == len({*shown}) >= 2
    assert [point.place for point in placed] == [*range(12)]


def test_what_was_not_found_stands_at_the_end_of_the_rank_axis() -> None:
    axis = plots.rank_axis(50)
    assert axis.ticks[0] == (0.0, "1") and axis.ticks[-1] == (100.0, "none")
    assert axis.at(50) == pytest.approx(90, abs=0.1)


def test_the_example_is_the_same_every_time() -> None:
    assert run(SET, PIPELINES[1]) == run(SET, PIPELINES[1])
