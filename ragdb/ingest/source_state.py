"""What is stored of a file that was read: enough to tell, without opening it, that it is still the same."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import ragdb
from ragdb.context import Context
from ragdb.readers import SUFFIXES

_BLOCK = 1 << 20
_SECOND = 1_000_000_000
# A file that is written twice within one tick of its file system's clock keeps its time: 1 to 10 ms on Linux, up to 2 s where
# times are whole seconds.
_TICK = 20_000_000


@dataclass(frozen=True, slots=True)
class SourceState:
    """`mtime_ns` None: the file was changed so shortly before that its time alone does not tell the next change."""

    size: int
    mtime_ns: int | None
    sha256: str = ""
    read_with: str = ""

    @classmethod
    def stored(cls, value: Any) -> Self | None:
        """What the database has; None where that is nothing, or nothing that this version writes."""
        if not isinstance(value, Mapping) or not isinstance(value.get("size"), int):
            return None
        mtime = value.get("mtime_ns")
        known = mtime if isinstance(mtime, int) else None
        return cls(value["size"], known, str(value.get("sha256", "")), str(value.get("read_with", "")))

    def to_dict(self) -> dict[str, Any]:
        return {"size": self.size, "mtime_ns": self.mtime_ns, "sha256": self.sha256, "read_with": self.read_with}

    def looks_like(self, now: SourceState) -> bool:
        """Whether size and time say that the file is the same."""
        return self.size == now.size and self.mtime_ns is not None and self.mtime_ns == now.mtime_ns


def look(path: Path) -> SourceState:
    """Size and time of the file, links followed; it is not opened. Raises OSError."""
    known = path.stat()
    tick = 2 * _SECOND if known.st_mtime_ns % _SECOND == 0 else _TICK
    settled = abs(time.time_ns() - known.st_mtime_ns) > tick
    return SourceState(known.st_size, known.st_mtime_ns if settled else None)


def sha256(path: Path) -> str:
    """The hash of a file's bytes, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class Reading:
    """How files are read now: by which version, rules and chunker. What was read otherwise is read again."""

    def __init__(self, context: Context) -> None:
        self._common = [ragdb.__version__, context.rules.digest, context.chunking().recipe]
        self._by_suffix: dict[str, str] = {}

    def read_with(self, path: Path) -> str:
        """16 hexadecimal digits that tell one way of reading this file from another."""
        suffix = path.suffix.lower()
        if suffix not in self._by_suffix:
            said = json.dumps([*self._common, SUFFIXES.get(suffix)])
            self._by_suffix[suffix] = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]
        return self._by_suffix[suffix]

    def before(self, path: Path) -> SourceState | None:
        """The state of a file that is about to be read; None where it cannot be, and its reader will say why."""
        if not os.path.isfile(path):  # a pipe would block
            return None
        try:
            now = look(path)
            return SourceState(now.size, now.mtime_ns, sha256(path), self.read_with(path))
        except OSError:
            return None


def after(path: Path, before: SourceState | None) -> SourceState | None:
    """The state of a file that has been read, None where it changed meanwhile: what was read may be neither."""
    if before is None:
        return None
    try:
        known = path.stat()
    except OSError:
        return None
    same = known.st_size == before.size and before.mtime_ns in (None, known.st_mtime_ns)
    return before if same else None
