"""db upgrade, downgrade, drop, current, sql, roles, check, start, stop, psql, url: the database as a database."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ragdb.cli.output import counted, json_line, note, say
from ragdb.cli.state import State, embedded_only, state_of, verb
from ragdb.errors import ConfigError

app = typer.Typer(help="The schema, the embedded server, psql.", no_args_is_help=True)


@verb(app)
def upgrade(
    state: State,
    revision: Annotated[str, typer.Argument(metavar="[REVISION]", help="Up to this one.")] = "head",
) -> None:
    """Make the schema, or bring it to this version."""
    from ragdb.db import schema

    place = state.place(state.settings(), migrate=False)
    before = _revision(place.url)
    with _known(revision):
        schema.upgrade(place.url, revision)
    after = _revision(place.url)
    if state.json:
        json_line({"revision": after, "before": before, "changed": before != after})
    elif before == after:
        say(f"nothing to do: the database is at {after}")
    else:
        say(f"upgraded from {before or 'no schema'} to {after}")


@verb(app)
def downgrade(
    state: State,
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="A revision; base removes every table of ragdb.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take the schema back to an earlier revision.

    Asks on a terminal: it can remove documents.
    """
    from ragdb.db import schema
    from ragdb.db.connect import shown

    place = state.place(state.settings(), migrate=False)
    before = _revision(place.url)
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Take {shown(place.url)} from {before or 'no schema'} back to {revision}?", abort=True, err=True)
    with _known(revision):
        schema.downgrade(place.url, revision)
    after = _revision(place.url)
    if state.json:
        json_line({"revision": after, "before": before, "changed": before != after})
    else:
        say(f"downgraded from {before or 'no schema'} to {after or 'no schema'}")


@verb(app)
def drop(
    state: State,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove ragdb from the database: the schema and everything in it.

    Asks, unless told --yes. pgvector and the roles stay.
    """
    from ragdb.db import schema
    from ragdb.db.connect import shown

    place = state.place(state.settings(), migrate=False)
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("nothing was removed: there is nobody to ask; ragdb db drop --yes does it")
        typer.confirm(f"Remove every document of ragdb from {shown(place.url)}?", abort=True, err=True)
    before = _revision(place.url)
    schema.drop(place.url)
    if state.json:
        json_line({"dropped": before is not None, "before": before})
    else:
        say("dropped" if before else "nothing to do: there was no schema")


@verb(app)
def current(state: State) -> None:
    """Show the database's revision and the newest one."""
    from ragdb.db import schema

    have, need = _revision(state.place(state.settings(), migrate=False).url), schema.head()
    if state.json:
        json_line({"revision": have, "head": need})
    elif have == need:
        say(f"{have} (head)")
    else:
        say(f"{have or 'no schema'} (head: {need})")
        note(
            f"run: {state.command('db upgrade')}"
            if (have or "") < need
            else "the database is newer than this ragdb: pip install -U ragdb"
        )


@verb(app)
def sql(
    state: State,
    revisions: Annotated[
        str, typer.Argument(metavar="[REVISION | FROM:TO]", help="Up to this one, from nothing or from another.")
    ] = "head",
) -> None:
    """Print the migrations as a script for psql; nothing is connected to.

    For who reviews DDL and runs it with tools of their own: psql -v ON_ERROR_STOP=1 -f ragdb.sql, as the role that
    is to own ragdb, in a database where an administrator has run CREATE EXTENSION vector.
    """
    from ragdb.db import schema

    with _known(revisions):
        script = schema.script(revisions)
    if state.json:
        json_line({"revisions": revisions, "sql": script})
    else:
        say(script.rstrip("\n"))


@verb(app)
def roles(
    state: State,
    prefix: Annotated[str, typer.Option(help="Roles are named PREFIX_writer, PREFIX_reader, PREFIX_auditor.")] = "ragdb",
) -> None:
    """Print the roles and their rights as a script for psql; nothing is connected to.

    Run it as the owner of ragdb's schema, the first time as a role that may create roles, and again after each upgrade.
    """
    from ragdb.db import schema

    script = schema.roles_script(prefix)
    if state.json:
        json_line({"prefix": prefix, "sql": script})
    else:
        say(script.rstrip("\n"))


@verb(app)
def check(state: State) -> None:
    """Compare the schema with what its migration made; reads only.

    Names each difference and exits with 1 if there is one, so that monitoring may run it. An index that you added is
    told and no difference.
    """
    from ragdb.db import catalog, schema

    differences = catalog.check(state.place(state.settings(), migrate=False).url)
    harmful = [difference for difference in differences if not difference.harmless]
    if state.json:
        json_line({"revision": schema.head(), "differences": [d.to_dict() for d in differences], "ok": not harmful})
    else:
        for difference in differences:
            (note if difference.harmless else say)(str(difference))
        say(f"{len(harmful) or 'no'} difference{'' if len(harmful) == 1 else 's'} from revision {schema.head()}")
    if harmful:
        raise typer.Exit(1)


@contextmanager
def _known(revision: str) -> Iterator[None]:
    from alembic.util import CommandError

    try:
        yield
    except CommandError as error:
        raise ConfigError(f"revision {revision!r}: {error}; base, head, or the number of a migration") from error


def _revision(url: str) -> str | None:
    from ragdb.db import schema

    with schema.connection(url) as conn:
        return schema.current(conn)


@verb(app)
def start(state: State) -> None:
    """Start the embedded PostgreSQL."""
    from ragdb import from_settings

    settings = embedded_only(state).model_copy(update={"database_url": None})
    place = from_settings.place(settings)
    if state.json:
        json_line({"home": str(place.home), "url": place.url, "started": place.started})
    else:
        say(f"{'started' if place.started else 'was running'}: {place.home}")


@verb(app)
def stop(state: State) -> None:
    """Stop the embedded PostgreSQL."""
    from ragdb import from_settings
    from ragdb.db import embedded

    home = from_settings.embedded_home(embedded_only(state))
    stopped = embedded.stop(home)
    if state.json:
        json_line({"home": str(home), "stopped": stopped})
    else:
        say(f"{'stopped' if stopped else 'was not running'}: {home}")


@verb(app)
def url(state: State) -> None:
    """Print the database's URL, for psql and others.

    With its password, where it has one. Starts the embedded server if that is the database.
    """
    from ragdb.db.connect import libpq_url

    found = libpq_url(state.place(state.settings(), migrate=False).url)
    if state.json:
        json_line({"url": found})
    else:
        say(found)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(
    ctx: typer.Context,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[PSQL ARGUMENTS]...", help="Such as -c 'select 1'.")] = None,
) -> None:
    """Open psql on the database.

    Everything after the word goes to psql.
    """
    from sqlalchemy import make_url

    from ragdb.db import embedded
    from ragdb.db.connect import libpq_url

    state = state_of(ctx)
    place = state.place(state.settings())
    program = str(embedded.bin_path(place.home) / "psql") if place.home else shutil.which("psql")
    if program is None:
        raise ConfigError("there is no psql on the PATH; install PostgreSQL's client programs, or use: ragdb db url")
    address = make_url(libpq_url(place.url))
    environment = dict(os.environ)
    if address.password is not None:
        # Not in the arguments: every user of the machine can read those.
        environment["PGPASSWORD"] = str(address.password)
        address = address._replace(password=None)
    sys.stdout.flush()
    os.execve(program, ["psql", address.render_as_string(hide_password=False), *(arguments or []), *ctx.args], environment)  # noqa: S606


def doctor(state: State) -> None:
    """Look at the database as a DBA would; reads only.

    Versions, rights, the schema, indexes, statistics, memory, settings, the queue, the plans of both legs; each finding
    with its fix. Exits with 1 if one of them is an error. On millions of chunks it takes some seconds.
    """
    from ragdb.db import doctor as db_doctor

    findings = db_doctor.examine(state.place(state.settings(), migrate=False).url)
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    if state.json:
        json_line({"findings": [finding.to_dict() for finding in findings], "errors": errors, "warnings": warnings})
    else:
        for finding in findings:
            say(f"{finding.level:8} {finding.about}: {finding.found}")
            if finding.fix:
                say(f"{'':8} -> {finding.fix}")
        say(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
    if errors:
        raise typer.Exit(1)


def register(top: typer.Typer) -> None:
    verb(top)(doctor)
