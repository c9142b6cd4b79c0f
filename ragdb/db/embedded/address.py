"""Where a server listens: the folder of its socket, the URL for it, and whether one answers there."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from urllib.parse import quote

from psycopg.pq import PGconn, Ping

from ragdb.db.embedded.cluster import Cluster
from ragdb.errors import ConfigError

SUPERUSER = "postgres"
PORT = 5432  # only names the socket file; fixed, so that a PGPORT of the caller changes nothing
SOCKET_PATH_BYTES = 103  # sockaddr_un.sun_path on macOS; Linux allows 107


def url_of(socket_dir: str, database: str) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={quote(os.fsencode(socket_dir), safe='')}&port={PORT}"


def ping(socket_dir: str) -> Ping:
    conninfo = url_of(socket_dir, SUPERUSER) + "&connect_timeout=5"
    return Ping(PGconn.ping(conninfo.encode("utf-8", "surrogateescape")))


def socket_dir_of(cluster: Cluster) -> str:
    """The data folder, or a private one in /tmp where the path is too long or has what libpq would read as syntax."""
    own = str(cluster.data)
    if socket_path_fits(own):
        return own
    status = cluster.data.stat()
    digest = hashlib.sha256(os.fsencode(own) + b"%d" % status.st_ino).hexdigest()[:12]
    base = Path("/tmp") if os.path.isdir("/tmp") else Path(tempfile.gettempdir())  # noqa: S108  short, and the owner is checked
    folder = base / f"ragdb-{status.st_uid}-{digest}"
    try:
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(folder, status.st_uid, status.st_gid)
    except FileExistsError:
        pass  # from an earlier start; checked below
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != status.st_uid or found.st_mode & 0o077:
        raise ConfigError(
            f"{folder} is not a folder of the server's user alone; remove it, or choose a shorter RAGDB_HOME than {cluster.home}"
        )
    return str(folder)


def socket_path_fits(folder: str) -> bool:
    return len(os.fsencode(f"{folder}/.s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES and not set(folder) & set(',"')
