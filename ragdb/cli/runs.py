"""explain, why-not, diff, feedback, prune: what questions left behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ragdb.cli.output import bold, counted, dim, json_line, say, style
from ragdb.cli.state import State, verb

if TYPE_CHECKING:
    from ragdb.rag import RagDB
    from ragdb.runs.explain import Finding, Move

Run = Annotated[int, typer.Argument(metavar="RUN", help="The number that ask and search print.", show_default=False)]
_AGE = re.compile(r"(\d+)\s*(d|days?|h|hours?|w|weeks?)?")


def _rag(state: State) -> RagDB:
    from ragdb.rag import RagDB

    return RagDB(state.place(state.settings()).url)


def explain(
    state: State,
    run: Run,
    top: Annotated[int, typer.Option(min=1, help="Chunks to show of each stage.")] = 10,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="STAGE STAGE", help="Only what moved between two stages, such as: fuse rerank.", show_default=False),
    ] = None,
) -> None:
    """Show how an answer was found.

    Every stage of the run with its chunks, and what fell there and why.
    """
    from ragdb.cli.funnel import ALL, print_funnel

    with _rag(state) as rag:
        funnel = rag.explain(run, top=ALL if between or not state.json else top)
    if between is not None:
        _print_moves(state, funnel.between(*between))
        return
    if state.json:
        json_line(funnel.to_dict())
        return
    say(bold(f"run {run}"))
    print_funnel(funnel, top=top)


def why_not(
    state: State,
    run: Run,
    chunk: Annotated[str, typer.Argument(metavar="CHUNK", help="Its label, its id, or a document's uri.", show_default=False)],
) -> None:
    """Show why a chunk that was expected did not come.

    Its exact rank in each leg, the words it lacks, the filter or right that hides it, what the reranker and the budget did.
    """
    from ragdb.runs import why_not as findings_of

    with _rag(state) as rag:
        findings = findings_of(rag, run, chunk)
    if state.json:
        json_line({"run_id": run, "chunk": chunk, "findings": [finding.to_dict() for finding in findings]})
        return
    for finding in findings:
        _print_finding(finding)


def _print_finding(finding: Finding) -> None:
    if finding.stage == "verdict":
        say(f"{bold('so')}: {finding.finding}  {dim(str(finding.detail.get('chunk') or ''))}".rstrip())
        return
    name = f" {finding.name}" if finding.name else ""
    score = f"  score {finding.score:.4f}" if finding.score is not None and finding.stage != "synthesize" else ""
    say(f"{bold(f'{finding.stage}{name}')}: {finding.finding}{dim(score)}")
    for key, value in finding.detail.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        if shown not in (None, ""):
            say(dim(f"    {key.replace('_', ' ')}: {shown}"))


def diff(
    state: State,
    before: Annotated[int, typer.Argument(metavar="RUN", help="The earlier run.", show_default=False)],
    after: Annotated[int, typer.Argument(metavar="RUN", help="The later run.", show_default=False)],
) -> None:
    """Show what moved between the rankings of two runs."""
    from ragdb.runs import diff as moves_of

    with _rag(state) as rag:
        _print_moves(state, moves_of(rag, before, after))


def _print_moves(state: State, moves: Sequence[Move]) -> None:
    if state.json:
        json_line({"moves": [{**move.to_dict(), "what": move.what} for move in moves]})
        return
    moved = [move for move in moves if move.what != "stayed"]
    colours = {"entered": "green", "up": "green", "left": "yellow", "down": "yellow"}
    for move in moved:
        places = f"{move.before or '-':>4} -> {move.after or '-':<4}"
        say(f"{places} {style(f'{move.what:<8}', fg=colours.get(move.what))} {move.label or f'chunk {move.chunk_id}'}")
    if len(moved) < len(moves):
        say(dim(f"{counted(len(moves) - len(moved), 'chunk')} stayed"))
    if not moves:
        say("nothing was ranked in either")


def feedback(
    state: State,
    run: Run,
    rating: Annotated[str, typer.Argument(metavar="good|bad|neither", help="What you think of the answer.", show_default=False)],
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="In your words.", show_default=False)] = None,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Who says so.", show_default=False)] = None,
) -> None:
    """Keep what a reader thought of an answer."""
    from ragdb.runs import feedback as give

    ratings = {"good": 1, "neither": 0, "bad": -1}
    if rating not in ratings:
        raise typer.BadParameter(f"the rating is {rating!r}; it is good, bad or neither")
    with _rag(state) as rag:
        give(rag, run, ratings[rating], comment=comment, who=who)
    if state.json:
        json_line({"run_id": run, "rating": ratings[rating]})
    else:
        say(f"kept: run {run} is {rating}")


def prune(
    state: State,
    runs: Annotated[str | None, typer.Option(metavar="AGE", help="Runs older than this: 90d, 12w.", show_default=False)] = None,
    caches: Annotated[str, typer.Option(metavar="AGE", help="And cached rewrites and vectors of questions.")] = "30d",
    yes: Annotated[bool, typer.Option("--yes", help="Also those of today.")] = False,
) -> None:
    """Delete old runs and caches, of all collections."""
    from ragdb.runs import prune as delete

    if state.collection:
        raise typer.BadParameter("prune goes by age and not by collection; leave --collection out")
    if runs and _age(runs, "--runs") < timedelta(days=1) and not yes:
        raise typer.BadParameter(f"--runs {runs} deletes the runs of today, with conversations and feedback; say --yes too")
    with _rag(state) as rag:
        deleted = delete(rag, runs=_age(runs, "--runs") if runs else None, caches=_age(caches, "--caches"))
    if state.json:
        json_line({"deleted": deleted})
        return
    say("deleted: " + ", ".join(f"{counted(count, name.replace('_', ' '))}" for name, count in deleted.items()))


def _age(text: str, option: str) -> timedelta:
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise typer.BadParameter(f"{option} is {text!r}; write an age like 90d, 12w or 36h")
    unit = {"h": "hours", "w": "weeks"}.get((found[2] or "d")[0], "days")
    if int(found[1]) > 36500:
        raise typer.BadParameter(f"{option} is {text!r}, longer ago than anything; write an age like 90d")
    return timedelta(**{unit: int(found[1])})


def register(app: typer.Typer) -> None:
    verb(app)(explain)
    verb(app, name="why-not")(why_not)
    verb(app)(diff)
    verb(app)(feedback)
    verb(app)(prune)
