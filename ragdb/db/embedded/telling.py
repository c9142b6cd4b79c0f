"""What an error tells beyond itself: whose folder it is, how full the disk is, what the log says last."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from ragdb.errors import ConfigError

LOW_DISK_BYTES = 200_000_000
MB = 1024 * 1024


def not_mine(path: Path) -> ConfigError:
    owner = "another user"
    with contextlib.suppress(OSError, KeyError):  # only to say a name instead of nothing
        import pwd

        owner = "the user " + pwd.getpwuid(path.stat().st_uid).pw_name
    return ConfigError(f"{path} belongs to {owner} and cannot be used by this one; set RAGDB_HOME to a folder of your own")


def unwritable(home: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write in {home}: {error.strerror}; set RAGDB_HOME to a folder that this user may write")


def disk(home: Path) -> str:
    with contextlib.suppress(OSError):  # no folder, no figure
        free = shutil.disk_usage(home).free
        if free < LOW_DISK_BYTES:
            return f" (only {free // MB} MB are free on that disk)"
    return ""


def read_from(log: Path, offset: int) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(offset, log.stat().st_size - 64_000))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(the log cannot be read: {error})"


def last_lines(text: str, count: int = 15) -> str:
    lines: Sequence[str] = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-count:])
