"""`ragdb`: the program, its options, and what becomes of errors."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from ragdb.cli import (
    chat,
    collections,
    database,
    demo,
    documents,
    embedders,
    eval_fit,
    importing,
    models,
    questions,
    queue,
    runs,
    sync,
    trial,
    watching,
    work,
)
from ragdb.cli.output import note, speak_unicode
from ragdb.cli.state import Collection, DatabaseUrl, Home, Json, State, Verbose, state_of
from ragdb.errors import RagDBError

app = typer.Typer(
    name="ragdb",
    help="Retrieval-augmented generation that lives in your PostgreSQL.",
    epilog="To see it at work: ragdb demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # Rich would double the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import ragdb

        typer.echo(f"ragdb {ragdb.__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    database_url: DatabaseUrl = None,
    home: Home = None,
    collection: Collection = None,
    json: Json = False,
    verbose: Verbose = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False,
) -> None:
    state_of(ctx).take(database_url=database_url, home=home, collection=collection, json=json, verbose=verbose)


documents.register(app)
sync.register(app)
importing.register(app)
questions.register(app)
chat.register(app)
runs.register(app)
trial.register(app)
work.register(app)
watching.register(app)
models.register(app)
demo.register(app)
database.register(app)
app.add_typer(collections.app, name="collection")
app.add_typer(embedders.app, name="embedder")
app.add_typer(queue.app, name="queue")
app.add_typer(eval_fit.app, name="eval")
app.add_typer(database.app, name="db")


def main() -> None:
    """Runs the program. An error of ragdb's is one message on stderr and exit code 1; its traceback needs `--verbose`."""
    speak_unicode()
    state = State()
    try:
        app(obj=state, prog_name="ragdb")
    except (KeyboardInterrupt, BrokenPipeError) as error:
        _leave_quietly()
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)
    except Exception as error:  # noqa: BLE001  the last place: nobody but the user is left to tell
        if state.verbose:
            traceback.print_exc()
        if isinstance(error, RagDBError):
            note(f"error: {error}")
        else:
            note(f"error: {type(error).__name__}: {error}\nNot a message of ragdb's own; --verbose shows where it comes from.")
        sys.exit(1)
    finally:
        _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly()


def _leave_quietly() -> None:
    """Whoever read our output is gone: what Python still wants to flush at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
