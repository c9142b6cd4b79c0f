"""Making a cluster, and the settings that ragdb gives it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

from ragdb.db.embedded.account import SYSTEM_USER, admit, identity_of, run
from ragdb.db.embedded.address import SUPERUSER
from ragdb.db.embedded.cluster import Cluster
from ragdb.db.embedded.telling import MB, disk, last_lines, unwritable
from ragdb.errors import ConfigError

logger = logging.getLogger(__name__)


def create(cluster: Cluster) -> None:
    """initdb beside, then rename: a cluster is there whole or not at all, even if this process is killed."""
    if cluster.data.exists() and any(cluster.data.iterdir()):
        raise ConfigError(f"{cluster.data} is no PostgreSQL cluster and not empty; move it away, or choose another RAGDB_HOME")
    for leftover in cluster.home.glob(".new-pg*"):  # under the lock, nobody is writing there
        shutil.rmtree(leftover)
    draft = cluster.home / f".new-pg{cluster.version}"
    identity = identity_of(cluster)
    if identity:
        logger.warning(
            "running as root: the server and the files in %s are those of the system user %s", cluster.data, SYSTEM_USER
        )
    admit(cluster, identity)
    try:
        draft.mkdir(mode=0o700)
        if identity:
            os.chown(draft, identity["user"], identity["group"])
        # C.UTF-8 of the builtin provider knows Unicode and sorts the same on every system and after every upgrade.
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if cluster.version >= 17 else ()
        made = run(
            cluster,
            "initdb",
            f"--pgdata={draft}",
            f"--username={SUPERUSER}",
            "--encoding=UTF8",
            "--no-locale",
            *locale,
            "--data-checksums",
            "--auth-local=trust",  # whoever may enter the socket's folder is the server's user, or root
            "--auth-host=scram-sha-256",  # should its user ever open a TCP port, it needs a password
            "--no-instructions",
        )
        if made.returncode != 0:
            raise ConfigError(
                f"cannot make a PostgreSQL cluster in {cluster.home}{disk(cluster.home)}; initdb said:\n{last_lines(made.stdout)}"
            )
        with open(draft / "postgresql.conf", "a") as conf:
            conf.write("\ninclude_if_exists = 'ragdb.conf'\n")
        draft.rename(cluster.data)
    except OSError as error:
        raise unwritable(cluster.home, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # renamed, or of no use


def write_settings(cluster: Cluster) -> None:
    """ragdb.conf, for a laptop, and less where the machine has less. ALTER SYSTEM overrides it."""
    import psutil

    memory = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):  # a container's limit, where there is one
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    shared = min(256, max(16, memory // (8 * MB)))
    maintenance = min(256, max(32, memory // (8 * MB)))
    wal = min(2048, max(128, shutil.disk_usage(cluster.home).free // (8 * MB)))
    lines = [
        "# Written by ragdb at every start. Change settings with ALTER SYSTEM: it overrides this file.",
        "listen_addresses = ''",
        "unix_socket_permissions = 0700",
        "max_connections = 100",
        f"shared_buffers = {shared}MB",
        f"maintenance_work_mem = {maintenance}MB",
        f"max_wal_size = {wal}MB",
        f"min_wal_size = {min(80, wal // 2)}MB",
        "synchronous_commit = on",
        "log_checkpoints = off",
    ]
    with contextlib.suppress(OSError):  # no /dev/shm on macOS
        if shutil.disk_usage("/dev/shm").free < 2 * maintenance * MB:  # noqa: S108  looked at, not written to
            # Parallel builds of an HNSW index put maintenance_work_mem into /dev/shm; containers have 64 MB there.
            lines.append("max_parallel_maintenance_workers = 0")
    # A new file, moved into place: root must not write through a link that the server's user may have put there.
    draft = cluster.data / ".ragdb.conf.new"
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w") as file:
        file.write("\n".join(lines) + "\n")
    owner = cluster.data.stat()
    if os.geteuid() == 0:
        os.chown(draft, owner.st_uid, owner.st_gid, follow_symlinks=False)
    draft.replace(cluster.data / "ragdb.conf")
