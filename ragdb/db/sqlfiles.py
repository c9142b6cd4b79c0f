"""Where the SQL lies: `sql/` and `migrations/` of the repository, or their copies inside an installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def _folder(name: str) -> Path:
    installed = _PACKAGE / f"_{name}"
    return installed if installed.is_dir() else _PACKAGE.parent / name


def sql_folder() -> Path:
    """The folder with `functions/` and `views/`."""
    return _folder("sql")


def migrations_folder() -> Path:
    """Alembic's script location."""
    return _folder("migrations")


def examples_folder() -> Path:
    """The example handbook and its questions."""
    return _folder("examples")
