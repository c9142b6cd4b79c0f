"""demo: a small handbook, three questions, and every step on the way to their answers. Downloads nothing."""

from __future__ import annotations

import tomllib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ragdb.cli.output import bold, counted, dim, json_line, note, say, style
from ragdb.cli.report import Report
from ragdb.cli.state import DEFAULT_EMBEDDER, State, verb

if TYPE_CHECKING:
    from ragdb.rag import RagDB

COLLECTION = "handbook"
_SQL = f"select uri, label, score from ragdb.search('rollback', collection => '{COLLECTION}', k => 3)"  # noqa: S608  printed
_QUESTIONS = 3
_TOP = 5


def demo(state: State) -> None:
    """Show ragdb at work on a small handbook.

    Asks three questions and prints the answers and how they were found. Runs on an embedded PostgreSQL in
    RAGDB_HOME, else in a folder of its own; downloads nothing.
    """
    from ragdb.db import embedded, schema
    from ragdb.rag import RagDB

    home = _home(state)
    was_running = embedded.running(home)
    if not was_running:
        note(f"starting an embedded PostgreSQL in {home} ...")
    url = embedded.start(home)
    try:
        schema.upgrade_if_behind(url)
        with RagDB(url, collection=COLLECTION, embedder=DEFAULT_EMBEDDER) as rag:
            report = _added(rag, quiet=state.json)
            answers = [_asked(rag, question, quiet=state.json) for question in _questions()]
    finally:
        if not was_running:
            embedded.stop(home)
    if state.json:
        figures = {"chunks": report.chunks, "embedded": report.embedded}
        json_line(
            {
                "home": str(home),
                "documents": {name: len(done) for name, done in report.done.items()},
                **figures,
                "answers": answers,
            }
        )
    else:
        _what_next(State(home=home))
    if report.failed:
        raise typer.Exit(1)


def _home(state: State) -> Path:
    """RAGDB_HOME, else a folder beside the one that the other commands use: a demo does not mix with real documents."""
    import os

    from ragdb.db import embedded

    if state.home:
        return state.home.expanduser().absolute()
    home = embedded.default_home()
    return home.absolute() if os.environ.get("RAGDB_HOME", "").strip() else home.with_name("ragdb-demo")


def _added(rag: RagDB, *, quiet: bool) -> Report:
    from ragdb.cli.progress import Bar
    from ragdb.db.sqlfiles import examples_folder
    from ragdb.ingest import folder, worker

    worker.release_dead(rag.context.database)
    report = Report()
    found = folder.find([examples_folder() / "handbook"])
    if rag.context.counts()["n_documents"] < len(found.files):
        note(f"adding {counted(len(found.files), 'page')} of a handbook; the model runs here, which takes a minute or so ...")
    with Bar(len(found.files), sum(file.size for file in found.files)) as bar:
        for result in folder.add_files(
            rag.context, found.files, begun=lambda file: bar.begin(file.uri, file.size), progress=bar.embedded
        ):
            report.take(result)
    if not quiet:
        chunks = counted(rag.context.counts()["n_chunks"], "chunk")
        parts = [f"{len(done)} {name}" for name, done in report.done.items() if done]
        pages = counted(len(found.files), "page")
        say(f"{bold('The handbook')} of a company that does not exist: {pages} in Japanese and English, {chunks}.")
        say(f"{', '.join(parts)}; {counted(report.embedded, 'chunk')} embedded now.")
    return report


def _questions() -> list[str]:
    from ragdb.db.sqlfiles import examples_folder

    with closing((examples_folder() / "questions.toml").open("rb")) as file:
        return [question["text"] for question in tomllib.load(file)["question"][:_QUESTIONS]]


def _asked(rag: RagDB, question: str, *, quiet: bool) -> dict[str, Any]:
    from ragdb.cli.funnel import ALL, print_funnel
    from ragdb.cli.questions import print_answer

    answer = rag.ask(question)
    if quiet:
        return answer.to_dict()
    say(f"\n{style('─' * 72, dim=True)}\n{style(question, bold=True, fg='cyan')}\n")
    print_answer(answer)
    if answer.run_id:
        say(f"\n{bold('How it was found')} {dim(f'(run {answer.run_id})')}")
        print_funnel(rag.explain(answer.run_id, top=ALL), top=_TOP)
    return answer.to_dict()


def _what_next(state: State) -> None:
    say(f"\n{style('─' * 72, dim=True)}\n{bold('What next')}")
    for verb_, about in (
        (f'ask "在宅勤務は週に何日までできますか？" -c {COLLECTION}', "ask something else"),
        (f'search "wind speed" -c {COLLECTION} --where \'{{"language": "en"}}\'', "only the English pages"),
        (f"ls -c {COLLECTION}", "the pages, archived ones and drafts too"),
        (f'db psql -c "{_SQL}"', "the same from psql"),
        ("add FOLDER -c mine", "your own files"),
        ("db stop", "the commands above leave the server running"),
    ):
        say(f"  {state.command(verb_)}\n      {dim(about)}")


def register(app: typer.Typer) -> None:
    verb(app)(demo)
