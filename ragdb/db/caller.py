"""How Python speaks SQL: named functions, called with named parameters, over whatever connection there is.

`Caller.call("search", question="vacuum", k=5)` runs `select * from ragdb.search(question => ..., k => ...)` on a
psycopg connection or on the caller's own SQLAlchemy Session or Connection, whose driver does not matter: every
value that drivers disagree about (jsonb, arrays) travels as text and is cast in the statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ragdb import errors

Row = dict[str, Any]

_NAME = re.compile(r"[a-z_]+")
# Our SQLSTATEs, raised by sql/functions: the class says what the caller can do about it.
_BY_STATE: dict[str, type[errors.RagDBError]] = {
    "RD001": errors.BadFilter,
    "RD002": errors.UnknownCollection,
    "RD003": errors.EmbedderMismatch,
    "RD004": errors.ConfigError,
    "RD005": errors.EmptyQuery,
    "RD006": errors.BadDocument,
    "RD007": errors.DatabaseError,
    "RD008": errors.StaleLease,
    "RD009": errors.UnknownRun,
    "RD010": errors.StaleModel,
    "RD011": errors.NotCut,
}


class Caller(Protocol):
    """Something that can call ragdb's SQL functions."""

    def call(self, function: str, /, **arguments: Any) -> list[Row]:
        """All rows that `ragdb.<function>` returns."""
        ...


def one(rows: Sequence[Row]) -> Row:
    """The single row of a function that returns exactly one."""
    if len(rows) != 1:
        raise errors.DatabaseError(f"expected one row, got {len(rows)}")
    return rows[0]


def value(rows: Sequence[Row]) -> Any:
    """The single value of a function that returns a scalar."""
    return next(iter(one(rows).values()))


def from_json(given: Any) -> Any:
    """jsonb as Python values: some drivers decode it, some hand over its text."""
    return json.loads(given) if isinstance(given, str) else given


def _wire(given: Any) -> tuple[Any, str | None]:
    """A value as every driver takes it, and the type to cast it to (None: as it is)."""
    if isinstance(given, Mapping) or (isinstance(given, (list, tuple)) and given and isinstance(given[0], Mapping)):
        return json.dumps(given, ensure_ascii=False, allow_nan=False), "jsonb"
    if isinstance(given, UUID):
        return str(given), "uuid"
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, UUID) for item in given):
        return "{" + ",".join(map(str, given)) + "}", "uuid[]"
    if isinstance(given, (list, tuple)):
        kind = "double precision[]" if any(isinstance(item, float) for item in given) else "bigint[]"
        return "{" + ",".join(map(repr, given)) + "}", kind
    return given, None


def statement(function: str, arguments: Mapping[str, Any], placeholder: str) -> tuple[str, dict[str, Any]]:
    """The call as SQL with placeholders (`%({})s` or `:{}`) and its values."""
    values: dict[str, Any] = {}
    parts = []
    for name, given in arguments.items():
        if not _NAME.fullmatch(name):
            raise errors.ConfigError(f"{name!r} is no parameter name")
        values[name], cast = _wire(given)
        mark = placeholder.format(name)
        parts.append(f'"{name}" => ' + (f"cast(cast({mark} as text) as {cast})" if cast else mark))
    # Names are the program's own and checked above; values travel as parameters.
    return f"select * from ragdb.{function}({', '.join(parts)})", values  # noqa: S608


def translated(error: Exception, state: str | None, message: str, hint: str | None) -> Exception:
    """One of ours for an error that a ragdb function raised; any other error as it is."""
    if state == "42501":
        return denied(message)
    kind = _BY_STATE.get(state or "")
    if kind is None:
        return error
    return kind(f"{message}. {hint}" if hint else message)


def denied(message: str) -> errors.AccessDenied:
    """One of ours for PostgreSQL's "permission denied for ..."."""
    return errors.AccessDenied(
        f"{message}; roles for readers and writers are made by: ragdb db roles; the schema as a whole is its owner's"
    )


class PsycopgCaller:
    """Over a psycopg connection; outside a transaction block each call commits by itself."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def call(self, function: str, /, **arguments: Any) -> list[Row]:
        sql, values = statement(function, arguments, "%({})s")
        try:
            with self.connection.cursor(row_factory=dict_row) as cursor:
                return list(cursor.execute(sql, values).fetchall())
        except psycopg.Error as error:
            found = translated(error, error.sqlstate, error.diag.message_primary or str(error), error.diag.message_hint)
            raise found from (None if found is not error else error.__cause__)

    @contextmanager
    def transaction(self) -> Iterator[PsycopgCaller]:
        with self.connection.transaction():
            yield self


def in_transaction_of(session: Any) -> SessionCaller | PsycopgSessionCaller:
    """A caller over the application's own connection: an SQLAlchemy Session or Connection, or a psycopg connection.

    Raises ConfigError for what is none of these, with what to give instead.
    """
    if isinstance(session, psycopg.Connection):
        return PsycopgSessionCaller(session)
    if hasattr(session, "run_sync") or isinstance(session, psycopg.AsyncConnection):
        way = "await rag.aio.add(..., session=session)" if hasattr(session, "run_sync") else "an SQLAlchemy AsyncSession"
        raise errors.ConfigError(f"session is an {type(session).__name__}, which has to be awaited; use: {way}")
    if not (hasattr(session, "execute") and hasattr(session, "begin_nested")):
        kind = f"{type(session).__module__}.{type(session).__qualname__}"
        raise errors.ConfigError(
            f"session is a {kind}; give an SQLAlchemy Session or Connection, or a psycopg (3) connection. "
            "With any other driver call ragdb.submit_document(...) in SQL"
        )
    return SessionCaller(session)


class PsycopgSessionCaller(PsycopgCaller):
    """Inside the caller's own transaction, over their psycopg connection."""

    def savepoint(self) -> Any:
        """`with` it: what fails inside is undone, and the caller's transaction goes on."""
        return self.connection.transaction()


class SessionCaller:
    """Inside the caller's own transaction, over an SQLAlchemy Session or Connection of any driver."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def savepoint(self) -> Any:
        """`with` it: what fails inside is undone, and the caller's transaction goes on."""
        return self.session.begin_nested()

    def call(self, function: str, /, **arguments: Any) -> list[Row]:
        sql, values = statement(function, arguments, ":{}")
        try:
            return [dict(row) for row in self.session.execute(text(sql), values).mappings()]
        except DBAPIError as error:
            original = error.orig
            state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
            diag = getattr(original, "diag", None)
            cause = getattr(original, "__cause__", None)  # asyncpg keeps its own error there
            message = getattr(diag, "message_primary", None) or getattr(cause, "message", None) or str(original)
            hint = getattr(diag, "message_hint", None) or getattr(cause, "hint", None)
            found = translated(error, state, message, hint)
            raise found from (None if found is not error else error.__cause__)
