"""One database address in its many spellings: a libpq URL, an SQLAlchemy URL, an Engine."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from ragdb.errors import ConfigError


def _as_url(target: str | URL | Engine | Any) -> URL:
    if isinstance(target, URL):
        return target
    if isinstance(target, str):
        try:
            return make_url(target)
        except ArgumentError:
            raise ConfigError(
                f"{_hide(target)!r} is no database URL; write it like postgresql://user:password@host:5432/database"
            ) from None
    engine = getattr(target, "sync_engine", target)  # an AsyncEngine
    if isinstance(engine, Engine):
        return engine.url
    raise ConfigError(f"{type(target).__name__} is neither a database URL nor an SQLAlchemy Engine")


def _hide(target: str) -> str:
    return target.split("@", 1)[-1] if "@" in target else target


def _postgres(url: URL) -> URL:
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(f"{url.render_as_string()} is not PostgreSQL; ragdb lives in PostgreSQL only")
    return url


def libpq_url(target: str | URL | Engine | Any) -> str:
    """What psycopg and psql take, password included."""
    address, mark, query = (
        _postgres(_as_url(target)).set(drivername="postgresql").render_as_string(hide_password=False).partition("?")
    )
    # libpq knows %20 for a space, not the + of forms; a plus sign itself is %2B by now.
    return address + mark + query.replace("+", "%20")


def sqlalchemy_url(target: str | URL | Engine | Any) -> URL:
    """The same address for SQLAlchemy over psycopg 3."""
    return _postgres(_as_url(target)).set(drivername="postgresql+psycopg")


def shown(target: str | URL | Engine | Any) -> str:
    """The address without its password, for messages."""
    return _postgres(_as_url(target)).set(drivername="postgresql").render_as_string(hide_password=True)
