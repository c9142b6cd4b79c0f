"""Starting the server of a cluster, clearing what a crash left, and stopping it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from pathlib import Path

from psycopg.pq import Ping

from ragdb.db.embedded.account import admit, environment, identity_of, own, run
from ragdb.db.embedded.address import PORT, ping, socket_dir_of
from ragdb.db.embedded.cluster import Cluster
from ragdb.db.embedded.creation import write_settings
from ragdb.db.embedded.postmaster import Postmaster, live_postmaster, serves, uprooted
from ragdb.db.embedded.telling import disk, last_lines, read_from, unwritable
from ragdb.errors import DatabaseUnreachable

logger = logging.getLogger(__name__)

START_SECONDS = 120.0  # a recovery after a crash replays up to max_wal_size
STOP_SECONDS = 60
LOG_BYTES = 10_000_000  # a log larger than this is put aside at the next start


def ensure_running(cluster: Cluster) -> bool:
    """Under the lock. Returns whether this call started the server."""
    deadline = time.monotonic() + START_SECONDS
    while (postmaster := live_postmaster(cluster)) is not None:
        if uprooted(postmaster.pid):
            logger.warning("the programs of the server in %s were deleted; starting it from those of today", cluster.data)
            halt(cluster, postmaster)
        elif postmaster.status == "ready" and not Path(postmaster.socket_dir, f".s.PGSQL.{PORT}").exists():
            logger.warning("the socket of the server in %s was deleted; starting it anew", cluster.data)
            halt(cluster, postmaster)
        elif ping(postmaster.socket_dir) is Ping.OK:
            return False
        elif time.monotonic() > deadline:
            raise _not_ready(cluster, postmaster.pid)
        else:
            time.sleep(0.05)  # it starts, or it stops
    _clear_crash(cluster)
    _launch(cluster, deadline)
    return True


def _clear_crash(cluster: Cluster) -> None:
    """After a crash: end the backends that outlived their postmaster, then remove the lock files it left.

    PostgreSQL refuses to start if any process of its user has the number in postmaster.pid, which after a reboot
    may be the user's editor. The file goes only when no server process of this cluster is left.
    """
    began = time.monotonic()
    while survivors := _survivors(cluster):
        waited = time.monotonic() - began
        if waited > 20:
            raise DatabaseUnreachable(f"server processes {survivors} of {cluster.data} outlived their postmaster; end them")
        if waited > 2:  # idle ones leave by themselves at once; these are in the middle of a query
            for pid in survivors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGQUIT if waited < 10 else signal.SIGKILL)
        time.sleep(0.1)
    stale = [cluster.data / "postmaster.pid", Path(socket_dir_of(cluster), f".s.PGSQL.{PORT}.lock")]
    for path in stale:
        if path.exists():
            logger.info("removing %s: its server is gone", path)
            path.unlink(missing_ok=True)


def _survivors(cluster: Cluster) -> list[int]:
    import psutil

    return [pid for pid in psutil.pids() if serves(pid, cluster)]


def _launch(cluster: Cluster, deadline: float) -> None:
    try:
        own(cluster)
        admit(cluster, identity_of(cluster))
        write_settings(cluster)
        if cluster.log.exists() and cluster.log.stat().st_size > LOG_BYTES:
            cluster.log.replace(cluster.log.with_name("server.log.1"))
    except OSError as error:
        raise unwritable(cluster.home, error) from error
    said = _spawn(cluster, deadline)
    if said is not None and ("shared memory" in said or "could not map" in said):
        logger.warning("the server could not get its memory; starting it with less")
        said = _spawn(cluster, deadline, "-c", "shared_buffers=8MB", "-c", "max_connections=20")
    if said is not None:
        raise DatabaseUnreachable(
            f"the embedded PostgreSQL in {cluster.data} does not start{disk(cluster.home)}; the last lines of {cluster.log}:\n"
            + (last_lines(said) or "(nothing was written)")
        )


def _spawn(cluster: Cluster, deadline: float, *settings: str) -> str | None:
    """Start the server and wait until it answers. Returns None, or what it wrote before it ended."""
    socket_dir = socket_dir_of(cluster)
    written = cluster.log.stat().st_size if cluster.log.exists() else 0
    # Through the shell's `&` the server is nobody's child: it outlives this process, and leaves it no zombie.
    # Each word is an argument of its own: no character of a path is read as shell syntax (pg_ctl would).
    arguments = ["-D", str(cluster.data), "-h", "", "-k", f'"{socket_dir}"', "-p", str(PORT), *settings]
    shell: subprocess.CompletedProcess[str] = subprocess.run(
        [
            "/bin/sh",
            "-c",
            'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!',
            "sh",
            str(cluster.log),
            str(cluster.bin / "postgres"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=environment(),
        start_new_session=True,  # Ctrl-C in the caller's terminal is not meant for the server
        **identity_of(cluster),
    )
    if shell.returncode != 0 or not shell.stdout.strip().isdigit():
        return shell.stderr or f"/bin/sh ended with {shell.returncode}"
    pid = int(shell.stdout)
    while ping(socket_dir) is not Ping.OK:
        if not _exists(pid):
            return shell.stderr + read_from(cluster.log, written)
        if time.monotonic() > deadline:
            raise _not_ready(cluster, pid)
        time.sleep(0.05)
    logger.info("started PostgreSQL %d in %s", cluster.version, cluster.data)
    return None


def _exists(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _not_ready(cluster: Cluster, pid: int) -> DatabaseUnreachable:
    return DatabaseUnreachable(
        f"the server (process {pid}) in {cluster.data} is not ready after {START_SECONDS:.0f} s and was left running, "
        f"as it may be recovering; try again later. The last lines of {cluster.log}:\n{last_lines(read_from(cluster.log, 0))}"
    )


def halt(cluster: Cluster, postmaster: Postmaster) -> None:
    for mode, seconds in (("fast", STOP_SECONDS), ("immediate", 10)):
        said = run(cluster, "pg_ctl", "stop", "-D", str(cluster.data), "-m", mode, "-w", "-t", str(seconds))
        if said.returncode == 0 or not serves(postmaster.pid, cluster):
            break
        logger.warning("the server in %s did not stop in %d s (%s): %s", cluster.data, seconds, mode, said.stdout.strip())
    else:
        raise DatabaseUnreachable(f"the server (process {postmaster.pid}) in {cluster.data} does not stop; end that process")
    for _ in range(100):  # its pid file goes a moment before it does
        if not serves(postmaster.pid, cluster):
            break
        time.sleep(0.05)
    if postmaster.socket_dir != str(cluster.data):
        with contextlib.suppress(OSError):  # not empty, or cleared already: only tidiness
            os.rmdir(postmaster.socket_dir)
    logger.info("stopped PostgreSQL %d in %s", cluster.version, cluster.data)
