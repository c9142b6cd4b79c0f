"""Whether a server of a cluster runs: what postmaster.pid claims, held against the processes there are."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from psycopg.pq import Ping

from ragdb.db.embedded.address import ping, socket_path_fits
from ragdb.db.embedded.cluster import Cluster
from ragdb.db.embedded.telling import not_mine


@dataclass(frozen=True)
class Postmaster:
    """What postmaster.pid says. It outlives a crash, so it is a claim, not a fact."""

    pid: int
    socket_dir: str
    status: str


def live_postmaster(cluster: Cluster) -> Postmaster | None:
    """What postmaster.pid says, if a server process of this cluster has that number, or one answers in its folder."""
    postmaster = read_postmaster(cluster)
    if postmaster is None or serves(postmaster.pid, cluster):
        return postmaster
    # Another container may serve the same folder: its processes cannot be seen from here, its socket can. Only a
    # socket inside the data folder counts: a copied cluster still names the socket of the original.
    own = str(cluster.data)
    if socket_path_fits(own) and ping(own) in (Ping.OK, Ping.REJECT):
        return Postmaster(postmaster.pid, own, postmaster.status)
    return None


def read_postmaster(cluster: Cluster) -> Postmaster | None:
    try:
        lines = (cluster.data / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        return Postmaster(int(lines[0]), lines[4], lines[7].strip() if len(lines) > 7 else "")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise not_mine(cluster.data) from error
    except (ValueError, IndexError):
        return None  # being written, or cut short by a full disk


def serves(pid: int, cluster: Cluster) -> bool:
    """Whether `pid` is a live server process of this cluster, and no other program that got its number.

    Every server process works in the data folder, the ones that outlived their postmaster too.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        if process.name() != "postgres" or process.status() == psutil.STATUS_ZOMBIE:
            return False
        with contextlib.suppress(FileNotFoundError):  # macOS has no /proc
            # The inode tells a folder from one of the same name that was deleted under a running server.
            return os.path.samestat(os.stat(f"/proc/{pid}/cwd"), cluster.data.stat())
        return bool(process.cwd() == str(cluster.data))
    except (psutil.Error, PermissionError):
        return False  # gone, or another user's: PostgreSQL reasons the same way, a data folder has one user


def uprooted(pid: int) -> bool:
    """Whether the program was deleted under the server (a virtual environment made anew): it cannot load pgvector."""
    with contextlib.suppress(OSError):  # no /proc on macOS, or another user's process
        program = os.readlink(f"/proc/{pid}/exe")
        return program.endswith(" (deleted)")
    return False
