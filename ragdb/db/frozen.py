"""What each released revision installed: `migrations/frozen/NNNN/`, written once, by `make freeze` at a release.

    tables.sql                     the DDL of all tables; only the first revision has it
    views/ functions/ policies.sql the files of sql/ that the revision brought or changed
    removed.txt                    paths of files that it took away, where it did
    SHA256SUMS                     of all these; `sha256sum -c` reads it

A revision without a folder is not released: it installs what `sql/` and the models say.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ragdb.db import declared
from ragdb.db.sqlfiles import migrations_folder
from ragdb.errors import ConfigError

SUMS = "SHA256SUMS"
REMOVED = "removed.txt"
TABLES = "tables.sql"
_ORDER = {"views": 0, "functions": 1}


def folder(revision: str) -> Path:
    """Where the files of a released revision are."""
    return migrations_folder() / "frozen" / revision


def is_released(revision: str) -> bool:
    return (folder(revision) / SUMS).is_file()


def revisions() -> list[str]:
    """All revisions, oldest first."""
    return sorted(path.name.split("_", 1)[0] for path in (migrations_folder() / "versions").glob("[0-9]*.py"))


def released() -> list[str]:
    """The released ones, oldest first."""
    return [revision for revision in revisions() if is_released(revision)]


def previous(revision: str) -> str | None:
    """The revision before this one; None before the first."""
    earlier = [one for one in revisions() if one < revision]
    return earlier[-1] if earlier else None


def tables() -> str:
    """The DDL with which the first revision makes the tables."""
    first = revisions()[0]
    return _read(first)[TABLES] if is_released(first) else declared.tables()


def bodies(revision: str | None) -> dict[str, str]:
    """Every file that is installed once a database is at this revision, by its path in `sql/`, in the order in which they run.

    That is the newest frozen copy of each, or `sql/` itself where the revision is not released. None: nothing is installed.
    """
    if revision is None:
        return {}
    if not is_released(revision):
        return declared.bodies()
    found: dict[str, str] = {}
    for one in released():
        if one > revision:
            break
        files = _read(one)
        for path in files.pop(REMOVED, "").split():
            del found[path]
        files.pop(TABLES, None)
        found |= files
    return {path: found[path] for path in sorted(found, key=lambda path: (_ORDER.get(path.split("/")[0], 2), path))}


def changes(before: dict[str, str], after: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Of two answers of `bodies`: what is new or different in the second, and the paths that only the first has."""
    return {path: text for path, text in after.items() if before.get(path) != text}, sorted(before.keys() - after.keys())


def write(revision: str, files: dict[str, str]) -> Path:
    """Makes the folder of a revision; ConfigError where there is one."""
    place = folder(revision)
    if place.exists():
        raise ConfigError(f"{place} is there already: a released revision is never written again")
    lines = []
    for path, text in sorted(files.items()):
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
        lines.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {path}\n")
    place.mkdir(parents=True, exist_ok=True)
    # last: a folder without it is no release
    (place / SUMS).write_bytes("".join(lines).encode())
    return place


def problems(revision: str) -> list[str]:
    """How the files of a released revision differ from their checksums; none where all is well."""
    place = folder(revision)
    lines = (place / SUMS).read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file() and path.name != SUMS}
    found = []
    for name in sorted(sums.keys() | there.keys()):
        if name not in there:
            found.append(f"{place / name} is missing")
        elif name not in sums:
            found.append(f"{place / name} is not in {SUMS}")
        elif hashlib.sha256(there[name].read_bytes()).hexdigest() != sums[name]:
            found.append(f"{place / name} was changed")
    return found


def verify(revision: str) -> None:
    """ConfigError where a released revision's files are not as they were released."""
    if found := problems(revision):
        raise ConfigError(
            f"revision {revision} is released, and databases have it: {'; '.join(found)}. "
            f"Put the files back (git checkout -- {folder(revision)}); "
            'a change of SQL goes to sql/ and into a revision of its own (CONTRIBUTING.md, "After 0.1.0")'
        )


def _read(revision: str) -> dict[str, str]:
    verify(revision)
    place = folder(revision)
    return {
        path.relative_to(place).as_posix(): path.read_bytes().decode()
        for path in place.rglob("*")
        if path.is_file() and path.name != SUMS
    }
