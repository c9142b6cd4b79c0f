"""ask, search: questions and what they find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ragdb.cli.output import bold, counted, dim, json_line, note, say, width, wrapped
from ragdb.cli.state import State, json_object, pipeline_named, verb

if TYPE_CHECKING:
    from ragdb.types import Answer, Hit, StageTrace

Question = Annotated[str, typer.Argument(metavar="QUESTION", help="In your words.", show_default=False)]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="JSON", help='Only from such documents, as in \'{"lang": "en"}\'; \'{"status": "any"}\' for archived ones too.'
    ),
]
# how the notes begin of a stage, or a leg, that a question did without
_DID_WITHOUT = ("left out", "kept the fused", "none is here", "behind")
PipelineName = Annotated[
    str | None,
    typer.Option(
        "--pipeline", metavar="NAME", help="naive (vectors), hybrid (the default), advanced, rag_fusion, or a file NAME.json."
    ),
]


def ask(
    state: State,
    question: Question,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Chunks to answer from.")] = 6,
    where: Where = None,
    pipeline: PipelineName = None,
    llm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The language model (RAGDB_LLM), such as openai:gpt-5-mini.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the funnel too.")] = False,
) -> None:
    """Answer a question from the documents, with sources."""
    from ragdb.cli.funnel import ALL, print_funnel

    filters, preset = json_object(where, "--where"), pipeline_named(pipeline)
    with state.rag(llm=llm) as rag:
        answer = rag.ask(question, k=k, where=filters, pipeline=preset)
        funnel = rag.explain(answer.run_id, top=ALL) if explain and answer.run_id else None
    if state.json:
        json_line({**answer.to_dict(), **({"explanation": funnel.to_dict()} if funnel else {})})
        _fail_with(answer)
        return
    print_answer(answer)
    _tell_what_was_left_out(answer.stages, answer.usage.get("fell_back", ()))
    if funnel:
        say()
        print_funnel(funnel, top=5)
    elif answer.run_id:
        say(dim(f"\nrun {answer.run_id}; how it was found: {state.command(f'explain {answer.run_id}')}"))
    _fail_with(answer)


def _fail_with(answer: Answer) -> None:
    if answer.outcome == "llm_failed":
        note(f"error: {answer.error}")
        raise typer.Exit(1)


def print_answer(answer: Answer) -> None:
    """The answer, the line that says how it was made, and its sources."""
    say(answer.text)
    if answer.mode == "extractive" and answer.outcome == "answered":
        say(dim("\n(quoted from the documents; no language model is set)"))
    if answer.sources:
        say(f"\n{bold('Sources')}\n{answer.sources}")


def search(
    state: State,
    question: Question,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many chunks.")] = 10,
    offset: Annotated[int, typer.Option(min=0, help="After the first so many.")] = 0,
    where: Where = None,
    pipeline: PipelineName = None,
) -> None:
    """Find the best chunks for a question."""
    filters, preset = json_object(where, "--where"), pipeline_named(pipeline)
    with state.rag() as rag:
        result = rag.search(question, k=k, offset=offset, where=filters, pipeline=preset)
    if state.json:
        json_line(result.to_dict())
        return
    for rank, hit in enumerate(result, start=offset + 1):
        _print_hit(rank, hit)
    _tell_what_was_left_out(result.stages)
    run = f"; how they were found: {state.command(f'explain {result.run_id}')}" if result.run_id else ""
    note(f"{counted(len(result), 'chunk')}{run}" if result.hits else f"nothing found{run}")


def _print_hit(rank: int, hit: Hit) -> None:
    ranks = ", ".join(f"{leg} {n}" for leg, n in sorted(hit.ranks.items()))
    status = "" if hit.status == "active" else f"  [{hit.status}]"
    score = hit.score if hit.rerank_score is None else hit.rerank_score
    say(f"{rank:>3}  {score:.4f}  {bold(hit.label)}{status}  {dim(ranks)}")
    for line in wrapped(hit.content, (width() or 120) - 6, 3):
        say(f"     {line}")


def _tell_what_was_left_out(stages: Sequence[StageTrace], fell_back: Sequence[str] = ()) -> None:
    """A pipeline that was asked for and did without some of it: who reads the answer should know."""
    for trace in stages:
        if trace.note.startswith(_DID_WITHOUT) or (trace.stage in fell_back and trace.stage in ("route", "pack")):
            note(f"{trace.stage}{f' {trace.name}' if trace.name else ''}: {trace.note}")


def register(app: typer.Typer) -> None:
    verb(app)(ask)
    verb(app)(search)
