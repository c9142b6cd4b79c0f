"""The schema's life: upgrade, downgrade, and one clear word where a database is not as this version needs it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from ragdb.db import frozen
from ragdb.db.caller import denied
from ragdb.db.connect import libpq_url, shown, sqlalchemy_url
from ragdb.db.sqlfiles import migrations_folder, sql_folder
from ragdb.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnreachable,
    ExtensionMissing,
    SchemaAhead,
    SchemaBehind,
    SchemaMissing,
)

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

logger = logging.getLogger("ragdb.db")

# 0.8: iterative index scans; 0.8.2: the fix of parallel HNSW builds.
PGVECTOR_NEEDED = (0, 8, 2)
POSTGRES_NEEDED = 160000
_UPGRADE = "run: ragdb db upgrade"


@contextmanager
def connection(target: Any) -> Iterator[psycopg.Connection[Any]]:
    """A psycopg connection for one task; DatabaseUnreachable names the server where there is none."""
    try:
        conn = psycopg.connect(libpq_url(target), connect_timeout=10, **named(libpq_url(target)))
    except psycopg.OperationalError as error:
        raise unreachable(target, error) from None
    with conn:
        try:
            yield conn
        except psycopg.errors.InsufficientPrivilege as error:
            raise denied(error.diag.message_primary or str(error)) from error


def named(url: str) -> dict[str, Any]:
    """`ragdb` as the connection's name in pg_stat_activity, unless the URL has another."""
    return {} if "application_name" in psycopg.conninfo.conninfo_to_dict(url) else {"application_name": "ragdb"}


def unreachable(target: Any, error: Exception) -> DatabaseUnreachable:
    reason = " ".join(str(error).split())
    return DatabaseUnreachable(
        f"no connection to {shown(target)}: {reason}; check RAGDB_DATABASE_URL, or start the embedded server: ragdb db start"
    )


def preflight(conn: psycopg.Connection[Any]) -> None:
    """Refuses, before anything is made, a server without what the schema stands on."""
    if conn.info.server_version < POSTGRES_NEEDED:
        raise DatabaseError(f"the server is PostgreSQL {conn.info.server_version // 10000}; ragdb needs 16 or newer")
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseError(
            f"the database has encoding {encoding}; ragdb needs UTF8: create database ... encoding 'UTF8' template template0"
        )
    row = conn.execute(
        "select extversion, extnamespace::regnamespace::text, has_schema_privilege(extnamespace, 'usage'), "
        "has_schema_privilege('public', extnamespace, 'create') "
        "from pg_extension where extname = 'vector'"
    ).fetchone()
    if row is None:
        raise ExtensionMissing(
            f"the extension pgvector is not in database {conn.info.dbname!r}; "
            "an administrator runs there: CREATE EXTENSION vector;  then run: ragdb db upgrade"
        )
    version, schema, usable, open_to_all = row
    if open_to_all:
        # ragdb's functions run as their owner and look pgvector's types up in that schema.
        logger.warning(
            "everybody may create objects in schema %s, where pgvector is; an administrator should run: "
            "REVOKE CREATE ON SCHEMA %s FROM PUBLIC;",
            schema,
            schema,
        )
    if not usable:
        raise ExtensionMissing(
            f"role {conn.info.user!r} may not use schema {schema}, where pgvector is; "
            f"an administrator runs: GRANT USAGE ON SCHEMA {schema} TO {conn.info.user};"
        )
    if tuple(int(part) for part in version.split(".")[:3]) < PGVECTOR_NEEDED:
        needed = ".".join(map(str, PGVECTOR_NEEDED))
        raise ExtensionMissing(
            f"pgvector is {version}, ragdb needs {needed} or newer; "
            "after an update of the package an administrator runs: ALTER EXTENSION vector UPDATE;"
        )


def head() -> str:
    """The revision that this version of ragdb needs."""
    return frozen.revisions()[-1]


def current(conn: psycopg.Connection[Any]) -> str | None:
    """The revision of the database; None without a schema."""
    found = conn.execute("select to_regclass('ragdb.alembic_version') is not null").fetchone()
    if not found or not found[0]:
        return None
    row = conn.execute("select version_num from ragdb.alembic_version").fetchone()
    return row[0] if row else None


def require(conn: psycopg.Connection[Any], *, exactly: bool = False) -> None:
    """Passes where this version runs with the schema; else says which command makes it so.

    A newer schema is fine where it says so itself (`ragdb.oldest_program()`): the database is upgraded first, the programs after
    it. `exactly`: not for what compares the schema with what this version knows.
    """
    have, need = current(conn), head()
    if have == need:
        return
    if have is None:
        raise SchemaMissing(f"database {conn.info.dbname!r} has no ragdb schema yet; {_UPGRADE}")
    if have < need:
        raise SchemaBehind(f"database at {have}, this version needs {need}; {_UPGRADE}")
    oldest = None if exactly else _oldest_program(conn)
    if oldest is not None and oldest <= need:
        return
    raise SchemaAhead(f"database at {have}, this version knows up to {need}; install the newer ragdb: pip install -U ragdb")


def _oldest_program(conn: psycopg.Connection[Any]) -> str | None:
    """The lowest revision whose programs run with the database's; None where the database does not say."""
    try:
        with conn.transaction():
            row = conn.execute("select ragdb.oldest_program()").fetchone()
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InsufficientPrivilege) as error:
        logger.debug("which programs run with this schema is not known: %s", error)
        return None
    return row[0] if row else None


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration for ragdb's own migrations."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    if connection is not None:
        made.attributes["connection"] = connection
    return made


def _migrate(target: Any, action: str, revision: str) -> None:
    from alembic import command
    from sqlalchemy import Connection, create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    try:
        if isinstance(target, Connection):
            inside = config(target)
            inside.attributes["inside"] = True
            getattr(command, action)(inside, revision)
            return
        with connection(target) as conn:
            preflight(conn)
        engine = create_engine(sqlalchemy_url(target), poolclass=NullPool)
        # not begin(): each revision is a transaction of its own, and a large index is built outside of one
        with engine.connect() as sa_connection:
            getattr(command, action)(config(sa_connection), revision)
            sa_connection.commit()
    except DBAPIError as error:
        # psycopg says sqlstate, psycopg2 pgcode
        if (getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)) == "55P03":
            raise _locked(error.orig) from error
        raise


def _locked(error: Any) -> DatabaseError:
    fact = error.diag.message_primary or str(error)
    hint = error.diag.message_hint or "Nothing was changed. Run it again; who holds it: select * from pg_stat_activity"
    return DatabaseError(f"the migration gave up: {fact}. {hint}")


def upgrade(target: Any, revision: str = "head") -> None:
    """Brings a database (URL, Engine or SQLAlchemy Connection) to a revision; checks first. Each revision is all or nothing.

    Over a Connection all of it is the caller's transaction. Errors: DatabaseError where a lock was not to be had in time.
    """
    _migrate(target, "upgrade", revision)


def script(revision: str = "head") -> str:
    """The migrations up to a revision (or `from:to`) as a script for psql, in one transaction each; needs no database."""
    import io

    from alembic import command

    written = io.StringIO()
    made = config()
    made.output_buffer = written
    command.upgrade(made, revision, sql=True)
    return written.getvalue()


def roles_script(prefix: str = "ragdb") -> str:
    """`sql/roles.sql`: the roles `<prefix>_writer`, `_reader` and `_auditor` with their rights; needs no database."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,50}", prefix):
        raise ConfigError(
            f"the prefix of the roles is {prefix!r}; it has lower-case letters, digits and _, and at most 51 of them"
        )
    return re.sub(r"\bragdb_(writer|reader|auditor)\b", rf"{prefix}_\1", (sql_folder() / "roles.sql").read_text(encoding="utf-8"))


def upgrade_if_behind(target: Any) -> bool:
    """Upgrades a database of ragdb's own where its schema is missing or behind; returns whether it did. One process at a time."""
    with connection(target) as conn:
        if (current(conn) or "") >= head():
            return False
        conn.commit()
        conn.autocommit = True
        conn.execute("select pg_advisory_lock(hashtext('ragdb.upgrade'))")  # ends with the connection
        if (current(conn) or "") >= head():
            return False
        upgrade(target)
        return True


def drop(target: Any) -> None:
    """Removes the schema with everything in it, its version table too. The extension and the roles stay."""
    with connection(target) as conn:
        conn.execute("drop schema if exists ragdb cascade")


def downgrade(target: Any, revision: str) -> None:
    """Takes a database back to a revision; `base` removes everything but the schema and its version table."""
    _migrate(target, "downgrade", revision)
