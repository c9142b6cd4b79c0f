"""Everything: tables from ragdb.db.tables, views and functions from sql/."""

from __future__ import annotations

from alembic import op
from sqlalchemy import DDL, text
from sqlalchemy.schema import CreateIndex, CreateTable, SetColumnComment, SetTableComment

from ragdb.db import sqlfiles
from ragdb.db.tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# pgvector may live in any schema: types, operators and the functions' fixed search_path find it by this.
SEARCH_PATH = """
select set_config('search_path', 'pg_catalog, ' || quote_ident(n.nspname) || ', pg_temp', true)
  from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'
"""

STORAGE = """
alter table ragdb.chunk alter column lexical_weights set storage main;
alter table ragdb.embedding alter column v set storage main
"""


def run(sql: str) -> None:
    # DDL and not op.execute(str): a colon in a body is no bind parameter.
    op.execute(DDL(sql.replace("%", "%%")))


def upgrade() -> None:
    run(SEARCH_PATH)
    for table in metadata.sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda i: str(i.name)):
            op.execute(CreateIndex(index))
        op.execute(SetTableComment(table))
        for column in table.columns:
            op.execute(SetColumnComment(column))
    for statement in STORAGE.split(";"):
        run(statement.strip())
    # Bodies call functions that come later in the alphabet; a test calls each of them.
    run("set local check_function_bodies = off")
    for path in (*sqlfiles.views(), *sqlfiles.functions(), sqlfiles.sql_folder() / "policies.sql"):
        run(path.read_text(encoding="utf-8"))
    # PostgreSQL lets everybody execute new functions; here nobody may who is not told to. Every migration ends with
    # this: default privileges of a schema cannot take back what the database gives.
    run("revoke all on all functions in schema ragdb from public")


DROP_ROUTINES = """
do $$
declare
  r record;
begin
  for r in select p.oid::regprocedure as signature from pg_proc p where p.pronamespace = 'ragdb'::regnamespace loop
    execute 'drop function if exists ' || r.signature || ' cascade';
  end loop;
end $$
"""


def downgrade() -> None:
    # The schema and its version table stay: Alembic writes to it after this. `ragdb db drop` removes them.
    run(DROP_ROUTINES)
    for path in sqlfiles.views():
        op.execute(text(f"drop view if exists ragdb.{path.stem} cascade"))
    for table in reversed(metadata.sorted_tables):
        op.execute(text(f"drop table if exists ragdb.{table.name} cascade"))
