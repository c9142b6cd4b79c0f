"""eval import, sets, questions, export, draft, accept, reject, drop: the sets of judged questions."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragdb.cli.output import columns, counted, json_line, note, say
from ragdb.cli.state import State, verb
from ragdb.errors import ConfigError

if TYPE_CHECKING:
    from ragdb.rag import RagDB

app = typer.Typer(
    help="Measure pipelines by judged questions, compare them, refuse a worse one.", no_args_is_help=True, rich_markup_mode=None
)

SetName = Annotated[str, typer.Argument(metavar="SET", help="The set, as `ragdb eval sets` shows it.", show_default=False)]


@contextmanager
def opened(state: State, eval_set: str | None = None) -> Iterator[RagDB]:
    """A RagDB on the database, for the collection that -c names, else for that of the set."""
    from ragdb.evaluate import sets
    from ragdb.from_settings import arguments
    from ragdb.rag import RagDB

    settings = state.settings()
    url, keywords = state.place(settings).url, arguments(settings)
    if eval_set is not None and state.collection is None:
        with RagDB(url) as rag:
            about = {row["name"]: row["collection"] for row in sets.listed(rag)}
        if eval_set in about:
            keywords["collection"] = about[eval_set]
    with RagDB(url, **keywords) as rag:
        yield rag


@verb(app, name="import")
def import_(
    state: State,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A BEIR folder, a CSV or JSON Lines file, or TREC topics (with --qrels).")
    ],
    name: Annotated[str | None, typer.Option("--set", metavar="NAME", help="The set; else named like the file.")] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="FIELD=COLUMN", help="What a field is called in the file, FIELD=- for not at all; repeat it."
        ),
    ] = None,
    qrels: Annotated[Path | None, typer.Option("--qrels", metavar="FILE", help="Judgements, for TREC topics.")] = None,
    split: Annotated[str, typer.Option("--split", help="Of a BEIR folder: qrels/SPLIT.tsv.")] = "test",
) -> None:
    """Import judged questions into a set, about the collection that -c names, else the one it is about already.

    Fields of a row: question, relevant, and where they are there key, reference, traps, quotes, tags, language, where,
    paraphrase_of. Names of documents are their uris, or file names that only one document has.
    """
    from ragdb.evaluate import importing, sets

    if qrels is not None:
        read = importing.read_trec(path, qrels)
    elif path.is_dir():
        read = importing.read_beir(path, split=split)
    else:
        read = importing.read_rows(path, _mapping(mapping or []))
    eval_set = name or path.resolve().stem
    with opened(state, eval_set) as rag:  # of a set that is there: about its collection
        collection = rag.context.collection
        questions, unknown, by_name = importing.matched(rag, collection, read.questions)
        sets.make(rag, eval_set, collection=collection, source=str(path))
        put = sets.put_questions(rag, eval_set, questions)
        misquoted = sets.quotes_not_found(rag, eval_set)
        alone = sets.unknown_paraphrases(rag, eval_set)
    if state.json:
        json_line(
            {
                "set": eval_set,
                "collection": collection,
                "added": put.added,
                "changed": put.changed,
                "judgements": put.judgements,
                "unknown_documents": unknown,
                "unknown_quotes": misquoted,
                "unknown_paraphrases": alone,
                "ignored": list(read.ignored),
            }
        )
        return
    answerable = sum(question.answerable for question in questions)
    say(
        f"{eval_set}: {counted(put.added, 'question')} added, {put.changed} changed, {counted(put.judgements, 'judgement')}; "
        f"{answerable} can be answered, {len(questions) - answerable} are there to be refused"
    )
    for line in read.notes:
        note(line)
    if read.ignored:
        note(f"not used: {', '.join(read.ignored)} (see --map)")
    if by_name:
        note(f"{counted(by_name, 'document')} matched by file name")
    if unknown:
        note(f"{counted(len(unknown), 'judged document')} not in the collection {collection}: {_first(unknown)}")
    if misquoted:
        note(f"a quote that does not stand in its document, which counts as not found: {_first(misquoted)}")
    if alone:
        note(f"paraphrase_of names a question that the set does not have: {_first(alone)}")


def _first(keys: list[str]) -> str:
    return ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")


def _mapping(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, eq, column = one.partition("=")
        if not eq or not column:
            raise typer.BadParameter(f"--map {one!r}: write it like --map relevant=relevant_docs")
        found[name] = column
    return found


@verb(app, name="sets")
def sets_(state: State) -> None:
    """List the sets."""
    from ragdb.evaluate import sets

    with opened(state) as rag:
        rows = sets.listed(rag)
    if state.json:
        json_line({"sets": rows})
        return
    heads = ("set", "collection", "questions", "answerable", "drafts", "runs")
    columns(heads, [tuple(str(row[key]) for key in ("name", *heads[1:])) for row in rows])
    note(counted(len(rows), "set"))


@verb(app)
def questions(
    state: State,
    eval_set: SetName,
    drafts: Annotated[bool, typer.Option("--drafts", help="Those that wait for a person to accept them.")] = False,
) -> None:
    """List the questions of a set with what was judged."""
    from ragdb.evaluate import sets

    with opened(state) as rag:
        found = sets.read(rag, eval_set, states=("draft",) if drafts else ("accepted",))
    if state.json:
        json_line(found.to_dict())
        return
    for question in found.questions:
        tags = f"  [{', '.join(question.tags)}]" if question.tags else ""
        say(f"{question.key}  {question.question}{tags}")
        if question.reference:
            say(f"    {question.reference}")
        for judgement in question.judgements:
            what = "trap" if judgement.trap else f"grade {judgement.grade}"
            words = f': "{judgement.quote}"' if judgement.quote else ""
            say(f"    {what}  {judgement.label or judgement.uri}{words}")
    note(counted(len(found.questions), "draft" if drafts else "question"))


@verb(app)
def draft(
    state: State,
    eval_set: SetName,
    how_many: Annotated[int, typer.Option("--questions", "-n", min=1, max=1000, help="How many to propose.")] = 20,
) -> None:
    """Let the language model propose questions from the documents, for a person to accept.

    They count for nothing until then: ragdb eval questions SET --drafts, then ragdb eval accept SET KEY.
    """
    from ragdb.cli.progress import Counting
    from ragdb.evaluate import drafting, sets

    proposals: list[drafting.Proposal] = []
    with opened(state, eval_set) as rag:
        if eval_set not in {row["name"] for row in sets.listed(rag)}:
            sets.make(rag, eval_set)
        with Counting("questions drafted", how_many) as bar:

            def told(proposal: drafting.Proposal) -> None:
                proposals.append(proposal)
                bar.more(proposal.question is not None)

            made = drafting.draft(rag, eval_set, how_many=how_many, progress=told)
        sets.put_questions(rag, eval_set, made)
    if state.json:
        json_line({"set": eval_set, "drafts": [question.to_dict() for question in made]})
        return
    for question in made:
        say(f"{question.key}  {question.question}")
    note(drafting.summary(proposals))
    note(f"{counted(len(made), 'draft')}; look at them: {state.command('eval questions')} {eval_set} --drafts")


@verb(app)
def accept(
    state: State,
    eval_set: SetName,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys of drafts, or: all.")],
) -> None:
    """Accept drafts: from now on they count."""
    _decide(state, eval_set, keys, "accepted")


@verb(app)
def reject(
    state: State,
    eval_set: SetName,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys of drafts, or: all.")],
) -> None:
    """Reject drafts: they are kept, so that they are not proposed again."""
    _decide(state, eval_set, keys, "rejected")


def _decide(state: State, eval_set: str, keys: list[str], decision: Any) -> None:
    from ragdb.evaluate import sets

    with opened(state) as rag:
        drafts = [question.key for question in sets.read(rag, eval_set, states=("draft",)).questions]
        wanted = drafts if keys == ["all"] else keys
        if unknown := [key for key in wanted if key not in drafts]:
            raise ConfigError(f"{eval_set} has no draft {', '.join(unknown)}; it has {', '.join(drafts) or 'none'}")
        done = sets.set_state(rag, eval_set, wanted, decision)
    if state.json:
        json_line({"set": eval_set, decision: wanted})
    else:
        say(f"{eval_set}: {counted(done, 'question')} {decision}")


@verb(app)
def export(
    state: State,
    what: Annotated[str, typer.Argument(metavar="RUN|SET", help="A run's number, for its TREC run; a set, for its qrels.")],
    questions: Annotated[
        bool, typer.Option("--questions", help="Of a set: its questions as JSON Lines, to import again.")
    ] = False,
) -> None:
    """Write a run or the judgements of a set in TREC's form, for trec_eval and its kin, to stdout."""
    from ragdb.evaluate import exporting, runs, sets

    with opened(state) as rag:
        if runs.is_number(what):
            lines: Any = exporting.trec_run(runs.get(rag.context.database, int(what)))
        elif questions:
            lines = (jsons.dumps(row, ensure_ascii=False) for row in exporting.rows(sets.read(rag, what)))
        else:
            lines = exporting.trec_qrels(sets.read(rag, what))
        # all or nothing: a name that the format cannot hold leaves no half file
        sys.stdout.write("".join([f"{line}\n" for line in lines]))


@verb(app)
def drop(
    state: State,
    what: Annotated[str, typer.Argument(metavar="RUN|SET", help="A run's number, or a set with all of its runs.")],
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
) -> None:
    """Delete a run, or a set with its questions and runs, and their traces."""
    from ragdb.evaluate import runs, sets

    if not yes and not typer.confirm(
        f"delete {'run ' if runs.is_number(what) else 'the set '}{what} with all that belongs to it?"
    ):
        raise typer.Exit(1)
    with opened(state) as rag:
        if runs.is_number(what):
            receipt = {"runs": runs.delete(rag.context.database, int(what))}
            if not receipt["runs"]:
                raise ConfigError(f"there is no evaluation run {what}; list them with: ragdb eval runs")
        else:
            receipt = sets.delete(rag, what)
    if state.json:
        json_line(receipt)
    else:
        say(f"deleted: {', '.join(f'{count} {name}' for name, count in receipt.items())}")
