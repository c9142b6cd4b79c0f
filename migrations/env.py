"""Runs ragdb's migrations, online or as a script (`--sql`), and leaves everything outside its schema alone."""

from __future__ import annotations

import os
from typing import Any

import pgvector.sqlalchemy  # noqa: F401  (teaches SQLAlchemy the vector types for autogenerate)
from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from ragdb.db.tables import SCHEMA, metadata

# A plain owner of the schema may not run `create schema if not exists`, even where it exists.
CREATE_SCHEMA = f"do $$ begin if to_regnamespace('{SCHEMA}') is null then create schema {SCHEMA}; end if; end $$"


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    return name == SCHEMA if type_ == "schema" else True


def include_object(_object: Any, name: str | None, type_: str, reflected: bool, _compare_to: Any) -> bool:
    # Built per model by an explicit verb, not by a migration.
    return not (type_ == "index" and reflected and (name or "").startswith("embedding_hnsw_"))


def run(**how: Any) -> None:
    context.configure(
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=include_name,
        include_object=include_object,
        transaction_per_migration=True,
        **how,
    )
    with context.begin_transaction():
        context.execute(CREATE_SCHEMA)
        context.run_migrations()


if context.is_offline_mode():
    # paramstyle named: the printed script must not double its percent signs.
    run(dialect_name="postgresql", dialect_opts={"paramstyle": "named"}, literal_binds=True)
elif (given := context.config.attributes.get("connection")) is not None:
    run(connection=given)
else:
    url = os.environ.get("RAGDB_DATABASE_URL") or context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("no database: set RAGDB_DATABASE_URL=postgresql://...")
    from ragdb.db.connect import sqlalchemy_url

    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        run(connection=connection)
        connection.commit()
