"""eval tune, report, judge: settings fitted to a set, a page to look at, and whether a judge can be believed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragdb.cli.eval_runs import Metrics, chosen_llm, measured_runs
from ragdb.cli.evaluation import SetName, app, opened
from ragdb.cli.output import columns, counted, json_line, note, say
from ragdb.cli.state import State, verb
from ragdb.errors import ConfigError

__all__ = ["app"]

if TYPE_CHECKING:
    from ragdb.evaluate.checking import Agreement


@verb(app)
def tune(
    state: State,
    eval_set: SetName,
    metric: Annotated[str, typer.Option("--metric", "-m", metavar="NAME@K", help="What is fitted.")] = "ndcg@10",
    folds: Annotated[int, typer.Option("--folds", min=2, help="Parts of the cross-validation.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Deals the questions into the parts.")] = 1,
    store: Annotated[
        bool, typer.Option("--store", help="Keep the choice for the collection: searches use it from then on.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Store it although the gain's interval includes 0.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Only take back what was stored.")] = False,
) -> None:
    """Fit the weights of the legs, rrf_k and candidates to the questions of a set, and measure the gain on held-out ones."""
    from ragdb.cli.progress import Counting
    from ragdb.evaluate import tuning

    with opened(state, eval_set) as rag:
        if forget:
            tuning.forget(rag)
            say(f"{rag.context.collection}: the stored settings are gone, ragdb's own hold again")
            return
        with Counting("questions", 0) as bar:
            found = tuning.tune(rag, eval_set, metric=metric, folds=folds, seed=seed, progress=lambda done, of: bar.more(1))
        # told before it is refused: the figures are what the refusal is about
        if not state.json:
            say(f"now:    {found.current}")
            say(f"chosen: {found.chosen}")
            say(found.verdict)
            rows = [(f"{one.mean:.4f}", f"{one.plateau:.4f}", str(one.setting)) for one in found.tried[:5]]
            columns((f"{metric}", "with its neighbours", "setting, over all questions"), rows)
            folds_ = [(str(fold.questions), f"{fold.before:.4f}", f"{fold.after:.4f}", str(fold.chosen)) for fold in found.folds]
            columns(("held out", "now", "chosen", "by the other questions"), folds_)
        if store:
            found = tuning.keep(rag, found, force=force)
        collection = rag.context.collection
    if state.json:
        json_line(found.to_dict())
        return
    note(f"{counted(found.questions, 'question')}, {counted(len(found.tried), 'setting')}, {found.seconds:.0f} s")
    if found.stored:
        say(f"stored for {collection}; to undo it: {state.command('eval tune')} {eval_set} --forget")
    else:
        note("nothing is stored; --store keeps the choice for the collection")


@verb(app)
def report(
    state: State,
    eval_set: SetName,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN...]", help="Numbers, or names for the newest; else the newest of each pipeline."),
    ] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", metavar="RUN", help="What the others are compared with.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs nothing else.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write it for a pull request.")] = None,
    metric: Metrics = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the page.")] = None,
) -> None:
    """Write what runs came to as an HTML page, and as Markdown for a pull request; without a file, Markdown to stdout."""
    from ragdb.evaluate import report as reports
    from ragdb.evaluate import sets

    with opened(state, eval_set) as rag:
        judged = sets.read(rag, eval_set)
        found = measured_runs(rag, judged, runs, metric)
        base = measured_runs(rag, judged, [baseline], metric)[0] if baseline else None
    written = {}
    for kind, path, make in (("html", html, reports.html), ("markdown", markdown, reports.markdown)):
        if path is not None:
            _write(path, make(judged, found, baseline=base, metrics=metric, title=title))
            written[kind] = str(path)
    shown = None if written else reports.markdown(judged, found, baseline=base, metrics=metric, title=title)
    if state.json:
        told = written if shown is None else {"text": shown}
        json_line({"runs": [one.eval_run_id for one in found], **told})
    elif shown is not None:
        sys.stdout.write(shown)
    else:
        say(f"{counted(len(found), 'run')} of {eval_set}: {', '.join(written.values())}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; name a file in a folder that is there") from error


@verb(app, name="judge")
def judge_(
    state: State,
    llm: Annotated[str, typer.Argument(metavar="[LLM]", help="The judge, or `same`: the language model that answers.")] = "same",
    labelled: Annotated[
        Path | None,
        typer.Option("--labelled", metavar="FILE", help="Items with what a person expects, JSON Lines; else ragdb's own."),
    ] = None,
) -> None:
    """Check a judge on labelled items before its scores are believed."""
    from ragdb.cli.progress import Counting
    from ragdb.evaluate.checking import check_judge, read_labelled
    from ragdb.evaluate.judge import Judge

    items = read_labelled(labelled)
    with opened(state) as rag:
        # answer relevance compares by the collection's embedder, where there is a collection
        embedder = rag.context.embedder() if rag.context.info() else None
        judge = Judge(chosen_llm(rag, llm), embedder=embedder, prompts=rag.context.prompts, prices=rag.context.prices)
        with Counting("items", len(items)) as bar:
            found = check_judge(judge, items, progress=lambda item: bar.more(1))
    if state.json:
        json_line(found.to_dict())
        return
    heads = ("metric", "items", "broken", "agreement", "of high", "of low", "separation")
    columns(heads, [_agreement(one) for one in found.metrics])
    for metric, why in {one.item.metric: one.left_out for one in found.items if one.left_out}.items():
        hint = "; name a collection that has one: -c" if metric == "answer_relevance" and embedder is None else ""
        note(f"{metric} was not checked on every item: {why}{hint}")
    for one in found.items:
        # a cosine is near neither 0 nor 1: only its separation tells
        if one.left_out or (one.item.metric == "answer_relevance" and not one.broken):
            continue
        if one.broken or not one.agrees:
            said = f"broken: {one.broken}" if one.broken else f"{one.value}, expected {one.item.expected:g}"
            note(f"{one.item.key} ({one.item.metric}): {said}")
    for doubt in found.doubts():
        say(doubt)


def _agreement(one: Agreement) -> tuple[str, ...]:
    shown = "-" if one.agreement is None else f"{one.agreement.value:.2f} ({one.agreement.low:.2f} to {one.agreement.high:.2f})"
    separation = "-" if one.separation is None else f"{one.separation:.2f}"
    halves = ["{}/{}".format(*half) for half in (one.of_high, one.of_low)]
    return (one.metric, str(one.n), str(one.broken), shown, *halves, separation)
