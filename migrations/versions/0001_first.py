"""Everything: the tables, views, functions and policies."""

from __future__ import annotations

import re

from ragdb.db import frozen
from ragdb.db.revision import begin, install, objects, run

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    begin()
    run(frozen.tables())
    install(revision)


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
    for text in frozen.bodies(revision).values():
        for kind, name, _ in objects(text):
            if kind == "view":
                run(f"drop view if exists ragdb.{name} cascade")
    for name in reversed(re.findall(r"(?m)^CREATE TABLE ragdb\.(\w+)", frozen.tables())):
        run(f"drop table if exists ragdb.{name} cascade")
