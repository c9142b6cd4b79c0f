"""What this version says the schema is: the tables of ragdb.db.tables as DDL, and the files of `sql/`.

A revision that is not released yet installs from here; at its release `make freeze` copies it (ragdb.db.frozen).
"""

from __future__ import annotations

from typing import Any

from ragdb.db.sqlfiles import sql_folder

# What models cannot say. Why: docs/decisions/0002-schema.md
STORAGE = """\
ALTER TABLE ragdb.chunk ALTER COLUMN lexical_weights SET STORAGE MAIN;

ALTER TABLE ragdb.embedding ALTER COLUMN v SET STORAGE MAIN;
"""


def tables() -> str:
    """The DDL of all tables with their indexes and comments, as a script."""
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.schema import CreateIndex, CreateTable, SetColumnComment, SetTableComment

    from ragdb.db.tables import metadata

    # paramstyle named: percent signs are not doubled
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    statements = []
    for table in metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made: list[Any] = [CreateTable(table), *(CreateIndex(index) for index in indexes), SetTableComment(table)]
        made += [SetColumnComment(column) for column in table.columns]
        # SQLAlchemy indents by tabs and leaves a space after commas; what is kept as a file should have neither
        texts = (str(one.compile(dialect=dialect)).strip().replace(" \n\t", "\n\t").replace("\n\t", "\n  ") for one in made)
        statements += [f"{text};\n" for text in texts]
    return "\n".join(statements) + "\n" + STORAGE


def bodies() -> dict[str, str]:
    """The files of `sql/` that a revision installs, by their path in it, in the order in which they run."""
    folder = sql_folder()
    paths = [*sorted((folder / "views").glob("*.sql")), *sorted((folder / "functions").glob("*.sql")), folder / "policies.sql"]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def script() -> str:
    """All of it as one script, for an empty database with pgvector: what the newest revision has to come to."""
    return "\n".join(
        [
            "create schema ragdb;",
            "create table ragdb.alembic_version (version_num varchar(32) constraint alembic_version_pkc primary key);",
            "select set_config('search_path', 'pg_catalog, ' || extnamespace::regnamespace::text || ', pg_temp', true)"
            " from pg_extension where extname = 'vector';",
            "set local check_function_bodies = off;",
            tables(),
            *bodies().values(),
            "revoke all on all functions in schema ragdb from public;",
        ]
    )
