"""eval run, runs, compare, gate, sweep, tune, report: what pipelines make of a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragdb.cli.eval_tables import end_with, show_comparison, show_runs
from ragdb.cli.evaluation import SetName, app, opened
from ragdb.cli.output import columns, counted, json_line, note, say
from ragdb.cli.progress import Several
from ragdb.cli.state import State, json_object, verb
from ragdb.errors import ConfigError

__all__ = ["app"]

if TYPE_CHECKING:
    from ragdb.evaluate.how import How
    from ragdb.evaluate.types import EvalRun, EvalSet
    from ragdb.pipeline import Pipeline
    from ragdb.protocols import LLM
    from ragdb.rag import RagDB

Pipelines = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline",
        "-p",
        metavar="NAME",
        help="A preset, a preset with settings (hybrid:rerank=true,weights=0.3/0.7), or a file.",
    ),
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", "-m", metavar="NAME@K", help="ndcg@10, recall@20, ...; repeat it, else the usual.")
]
K = Annotated[int, typer.Option("-k", min=1, max=1000, help="Chunks that an answer is made from.")]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, max=64, help="Questions at a time; above 1 times are those of a busy machine.")
]
Again = Annotated[bool, typer.Option("--again", help="Ask again what was asked before in the same way.")]
Answers = Annotated[bool, typer.Option("--answers", help="Let the language model write the answers; else they are quotations.")]
JudgeName = Annotated[
    str | None,
    typer.Option("--judge", metavar="LLM", help="A language model that scores the answers: `same`, or openai:gpt-4o, ..."),
]


@verb(app)
def run(
    state: State,
    eval_set: SetName,
    pipeline: Pipelines = None,
    metric: Metrics = None,
    k: K = 6,
    jobs: Jobs = 1,
    answers: Answers = False,
    judge: JudgeName = None,
    context: Annotated[
        str, typer.Option("--context", help="gold: answer from the judged chunks, without a search.")
    ] = "retrieved",
    where: Annotated[str | None, typer.Option("--where", metavar="JSON", help="A filter over each question's own.")] = None,
    again: Again = False,
) -> None:
    """Ask the questions of a set through pipelines, and show their metrics.

    What was asked before in the same way costs nothing; what broke off goes on. Ctrl-C keeps what was done.
    """
    from ragdb.evaluate import running

    with opened(state, eval_set) as rag:
        given = json_object(where, "--where") or {}
        how = _how(rag, metric, k=k, jobs=jobs, answers=answers, judge=judge, context=context, where=given, again=again)
        with Several() as asking:
            found = running.run(rag, eval_set, _pipelines(rag, pipeline), how=how, collection=_other(state), progress=asking.told)
    show_runs(state, found, how.metrics if metric else None)
    end_with(found)


@verb(app)
def runs(
    state: State,
    eval_set: Annotated[str | None, typer.Argument(metavar="[SET]", help="Of this set only.")] = None,
    how_many: Annotated[int, typer.Option("--limit", min=1, help="At most so many, newest first.")] = 20,
) -> None:
    """List the runs, newest first."""
    from ragdb.evaluate import runs as stored

    with opened(state) as rag:
        found = stored.listed(rag.context.database, eval_set=eval_set, how_many=how_many)
    if state.json:
        json_line({"runs": [one.to_dict() for one in found]})
        return
    heads = ("run", "set", "collection", "started", "state", "pipeline")
    columns(
        heads,
        [
            (
                str(one.eval_run_id),
                one.eval_set,
                one.collection,
                f"{one.started_at:%Y-%m-%d %H:%M}" if one.started_at else "",
                "finished" if one.finished_at else "broke off",
                one.name,
            )
            for one in found
        ],
    )
    note(counted(len(found), "run"))


@verb(app)
def compare(
    state: State,
    eval_set: SetName,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A run: its number, or a pipeline's name for the newest.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another run of the set.")],
    metric: Metrics = None,
) -> None:
    """Compare two runs: metrics with a paired test, tags, the stages that lost the evidence, the questions that changed most."""
    from ragdb.evaluate import comparing, measures, scoring, sets
    from ragdb.evaluate import runs as stored

    with opened(state, eval_set) as rag:
        judged = sets.read(rag, eval_set)
        db = rag.context.database
        pair = [stored.find(db, eval_set, ref) for ref in (before, after)]
        pair = [scoring.measured(rag.context, one.eval_run_id, judged, metric or measures.DEFAULT) for one in pair]
        found = comparing.compare(judged, *pair, metrics=metric)
    if state.json:
        json_line(found.to_dict())
    else:
        show_comparison(found)


@verb(app)
def gate(
    state: State,
    eval_set: SetName,
    baseline: Annotated[str, typer.Option("--baseline", metavar="RUN", help="The run to be no worse than: number or name.")],
    max_drop: Annotated[
        list[str] | None,
        typer.Option("--max-drop", metavar="METRIC=X", help="By how much a mean may be worse, repeat it; else the usual."),
    ] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", "-p", metavar="NAME", help="Else the baseline's own.")] = None,
    run_: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Judge this stored run, and ask nothing.")] = None,
    jobs: Jobs = 1,
    judge: JudgeName = None,
    again: Again = False,
) -> None:
    """Ask the set again, and end with exit code 1 where a metric is worse than the baseline by more than is allowed.

    It is asked as the baseline was: its -k, --where, --context and --answers. Contamination and false refusals are worse
    where they rise. Without --max-drop: ndcg@10, recall@20 and the evidence alive after chunk and cited by 0.01,
    contamination@5 by nothing.
    """
    from ragdb.evaluate import gating, measures, running, scoring, sets
    from ragdb.evaluate import how as how_asked
    from ragdb.evaluate import runs as stored
    from ragdb.pipeline import Pipeline

    allowed = _allowed(max_drop) if max_drop else dict(gating.DEFAULT)
    with opened(state, eval_set) as rag:
        judged = sets.read(rag, eval_set)
        old = stored.find(rag.context.database, eval_set, baseline)
        chosen = _pipelines(rag, [pipeline])[0] if pipeline else Pipeline.from_dict(old.pipeline)
        retrieval = [name for name in allowed if not how_asked.comes_with_asking(name) and not measures.stage_of(name)]
        measures.check(retrieval)
        gating.check_questions(judged, old, how_asked.set_digest(judged))
        old = scoring.measured(rag.context, old.eval_run_id, judged, retrieval)
        if run_ is not None:
            new = stored.find(rag.context.database, eval_set, run_)
            new = scoring.measured(rag.context, new.eval_run_id, judged, retrieval)
        else:
            same = how_asked.how_of(old)
            how = _how(rag, retrieval or None, judge=judge, jobs=jobs, again=again, gate=True, **same)
            about = _other(state) or old.collection
            with Several() as asking:
                new = running.run(rag, eval_set, [chosen], how=how, collection=about, progress=asking.told)[0]
        end_with([new])
        found = gating.gate(judged, old, new, max_drop=allowed)
    if state.json:
        json_line({"passed": found.passed, "reason": found.reason, "run": new.eval_run_id, **found.comparison.to_dict()})
    else:
        show_comparison(found.comparison)
        if new.eval_run_id == old.eval_run_id:
            note(f"nothing has changed since run {old.eval_run_id}, so it was compared with itself; --again asks all the same")
        say(f"{'passed' if found.passed else 'refused'}: {found.reason}")
    if not found.passed:
        raise typer.Exit(1)


@verb(app)
def sweep(
    state: State,
    eval_set: SetName,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=V1,V2...", help="chunk_size=64,128 candidates=20,50 rrf_k=10,60 weights=0.3/0.7,0.7/0.3 ..."),
    ],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", metavar="NAME", help="What the settings are put into.")] = "hybrid",
    metric: Metrics = None,
    k: K = 6,
    jobs: Jobs = 1,
    again: Again = False,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the collections that other chunk sizes made, afterwards.")] = False,
) -> None:
    """Run a set for every combination of settings, best first.

    Other chunks become a collection beside (help~markdown:128), in which only new texts are embedded.
    """
    from ragdb.evaluate import sets, sweeping

    grid = {}
    for one in settings:
        key, eq, values = one.partition("=")
        if not eq or not values:
            raise typer.BadParameter(f"{one!r}: write it like candidates=20,50,100")
        grid[key] = [value for value in values.split(",") if value]
    with opened(state, eval_set) as rag:
        how = _how(rag, metric, k=k, jobs=jobs, again=again)
        with Several() as asking:
            found = sweeping.sweep(rag, eval_set, grid, base=_pipelines(rag, [pipeline])[0], how=how, progress=asking.told)
        if drop:
            for name in sweeping.drop(rag, sets.read(rag, eval_set).collection):
                note(f"removed the collection {name}")
    ranked = [one for one, _ in sweeping.best(found, how.metrics[0])]
    show_runs(state, ranked, how.metrics if metric else None)
    end_with(found)


def _other(state: State) -> str | None:
    """The collection that was named for this call; None: the set's own."""
    settings = state.settings()
    return settings.collection if state.collection else None


def _pipelines(rag: RagDB, names: Sequence[str | None] | None) -> list[Pipeline]:
    from ragdb.cli.state import pipeline_named
    from ragdb.evaluate.settings import pipeline_of

    if not names:
        return [rag.pipeline]
    return [pipeline_named(name) if name and name.endswith(".json") else pipeline_of(name or "hybrid") for name in names]


def _how(rag: RagDB, metrics: Sequence[str] | None, *, judge: str | None = None, **given: Any) -> How:
    from ragdb.evaluate import how as how_asked
    from ragdb.evaluate import measures

    judging = None
    if judge is not None:
        from ragdb.evaluate.judge import Judge

        context = rag.context
        judging = Judge(chosen_llm(rag, judge), embedder=context.embedder(), prompts=context.prompts, prices=context.prices)
    wanted = tuple(metrics or measures.DEFAULT)
    # a metric of the first 200 needs as many chunks to look at
    given.setdefault("depth", min(1000, max(how_asked.DEPTH, *(measures.cut(metric) for metric in wanted))))
    return how_asked.How(metrics=wanted, judge=judging, **given)


def chosen_llm(rag: RagDB, name: str) -> LLM:
    """The language model of this name, with the settings of the one that answers; `same`: that one."""
    from ragdb import adapters

    if name == "same":
        if rag.context.llm is None:
            raise ConfigError("there is no language model to judge by; set RAGDB_LLM, or name one")
        return rag.context.llm
    return adapters.resolve_llm(name, defaults=rag.context.options.get("llm", {}))


def measured_runs(rag: RagDB, judged: EvalSet, refs: Sequence[str] | None, metrics: Sequence[str] | None) -> list[EvalRun]:
    """Runs by number or name, with metrics; without any the newest finished one of each pipeline, in the order they were made."""
    from ragdb.evaluate import measures, scoring
    from ragdb.evaluate import runs as stored

    db = rag.context.database
    if refs:
        ids = [stored.find(db, judged.name, ref).eval_run_id for ref in refs]
    else:
        newest: dict[str, int] = {}
        for one in stored.listed(db, eval_set=judged.name, how_many=1000):
            if one.finished_at is not None:
                newest.setdefault(one.name, one.eval_run_id)
        ids = sorted(newest.values())
    if not ids:
        raise ConfigError(f"the set {judged.name!r} has no finished run; first: ragdb eval run {judged.name}")
    return [scoring.measured(rag.context, one, judged, metrics or measures.DEFAULT) for one in dict.fromkeys(ids)]


def _allowed(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, number = one.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise typer.BadParameter(f"--max-drop {one!r}: write it like --max-drop ndcg@10=0.01") from None
    return found
