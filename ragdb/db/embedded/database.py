"""The database `ragdb` in a running server, with pgvector in it."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg import sql

from ragdb.db.embedded.address import SUPERUSER, url_of
from ragdb.db.embedded.cluster import Cluster
from ragdb.db.embedded.postmaster import Postmaster, live_postmaster, read_postmaster, uprooted
from ragdb.db.embedded.telling import disk
from ragdb.errors import DatabaseUnreachable

logger = logging.getLogger(__name__)

DATABASE = "ragdb"


def ensure_database(cluster: Cluster) -> None:
    try:
        socket_dir = _require(read_postmaster(cluster), cluster).socket_dir
        with psycopg.connect(url_of(socket_dir, SUPERUSER), autocommit=True, connect_timeout=10) as connection:
            if connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchone() is None:
                _create_database(connection, cluster)
        with psycopg.connect(url_of(socket_dir, DATABASE), autocommit=True, connect_timeout=10) as connection:
            if not _extension_is_current(connection):
                connection.execute("create extension if not exists vector")
                connection.execute("alter extension vector update")  # the package may have brought a newer one
    except psycopg.Error as error:
        raise DatabaseUnreachable(
            f"the embedded PostgreSQL in {cluster.data} runs, but its database {DATABASE!r} "
            f"cannot be made{disk(cluster.home)}: {error}"
        ) from error


def running_whole(cluster: Cluster) -> bool:
    """The short way, without the lock: a server that answers, from programs that exist, with database and pgvector."""
    postmaster = live_postmaster(cluster)
    if postmaster is None or uprooted(postmaster.pid):
        return False
    try:
        with psycopg.connect(url_of(postmaster.socket_dir, DATABASE), connect_timeout=5) as connection:
            return _extension_is_current(connection)
    except psycopg.Error as error:
        logger.debug("looking closer at %s: %s", cluster.data, error)
        return False


def _require(postmaster: Postmaster | None, cluster: Cluster) -> Postmaster:
    if postmaster is None:
        raise DatabaseUnreachable(f"the server in {cluster.data} ended right after its start; see {cluster.log}")
    return postmaster


def _create_database(connection: psycopg.Connection[Any], cluster: Cluster) -> None:
    create = sql.SQL("create database {} template template0 encoding 'UTF8' ").format(sql.Identifier(DATABASE))
    if cluster.version >= 17:
        connection.execute(create + sql.SQL("locale_provider builtin builtin_locale 'C.UTF-8' lc_collate 'C' lc_ctype 'C'"))
        return
    for ctype in ("C.UTF-8", "en_US.UTF-8"):  # lc_ctype knows upper and lower case only if the system has the locale
        try:
            connection.execute(create + sql.SQL("lc_collate 'C' lc_ctype {}").format(sql.Literal(ctype)))
            return
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.WrongObjectType) as error:
            logger.info("PostgreSQL %d cannot use lc_ctype %s: %s", cluster.version, ctype, error)
    logger.warning("no UTF-8 locale on this system: PostgreSQL %d tells upper from lower case in ASCII only", cluster.version)
    connection.execute(create)


def _extension_is_current(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute(
        "select installed_version is not distinct from default_version from pg_available_extensions where name = 'vector'"
    ).fetchone()
    return row is not None and row[0] is True
