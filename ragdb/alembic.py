"""For an application with an Alembic of its own: its autogenerate must not see ragdb's tables, nor drop them.

    context.configure(..., include_schemas=True, include_name=ragdb.alembic.include_name)

ragdb's own migrations run by `ragdb db upgrade`, or `ragdb.db.upgrade(connection)`, with a version table in their schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

IncludeName = Callable[[str | None, str, Mapping[str, Any]], bool]


def include_name(name: str | None, type_: str, parent_names: Mapping[str, Any]) -> bool:
    """Alembic's hook of that name: everything but the schema `ragdb`."""
    return not (type_ == "schema" and name == "ragdb")


def and_also(other: IncludeName) -> IncludeName:
    """`include_name` together with a hook that the application has already."""
    return lambda name, type_, parent_names: include_name(name, type_, parent_names) and other(name, type_, parent_names)
