"""What a migration is written with: its locks, and the SQL files that it installs and takes back.

    def upgrade() -> None:
        begin("document")
        op.add_column("document", sa.Column("shelf", sa.Text), schema="ragdb")
        install(revision)

    def downgrade() -> None:
        begin("document")
        uninstall(revision)
        op.drop_column("document", "shelf", schema="ragdb")

All of it is plain SQL text, so that the script of `ragdb db sql` is what runs online. How: docs/decisions/0016-frozen-sql.md
"""

from __future__ import annotations

import re

from alembic import op
from sqlalchemy import DDL

from ragdb.db import frozen
from ragdb.errors import ConfigError

# pgvector may live in any schema: types, operators and the functions' fixed search_path find it by this.
_SEARCH_PATH = """\
select set_config('search_path', 'pg_catalog, ' || quote_ident(n.nspname) || ', pg_temp', true)
  from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"""

# Below deadlock_timeout (1 s): where a migration and a reader wait for each other, it is the migration that gives up.
_LOCK_TIMEOUT = "set local lock_timeout = '500ms'"

# A waiting ACCESS EXCLUSIVE lock holds up everybody who comes after it. So it is asked for in slices of 100 ms, and between
# two of them everybody goes on. A failed slice lets go of the tables it had.
_HOLD = """\
do $$
declare
  give_up timestamptz := clock_timestamp() + coalesce(nullif(current_setting('ragdb.lock_wait', true), ''), '30s')::interval;
  holders text;
begin
  loop
    begin
      perform set_config('lock_timeout', '100ms', true);
      lock table {tables} in access exclusive mode;
      exit;
    exception when lock_not_available then
      if clock_timestamp() > give_up then
        select string_agg(format('pid %s (%s%s, %s, for %s)', a.pid, a.usename, ', ' || nullif(a.application_name, ''),
                                 coalesce(a.state, 'at work'), date_trunc('second', clock_timestamp() - a.xact_start)), ', ')
          into holders
          from pg_stat_activity a
         where a.pid <> pg_backend_pid()
           and a.pid in (select l.pid from pg_locks l where l.granted and l.relation = any (array[{names}]::regclass[]));
        raise exception 'others hold {said}: %', coalesce(holders, 'somebody who has just let go')
          using errcode = 'lock_not_available',
                hint = 'Nothing was changed. Run it again when they have finished, or end them: select pg_terminate_backend(pid)'
                       ' (to wait longer: PGOPTIONS=''-c ragdb.lock_wait=5min'').';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', '500ms', true);
end $$"""

_CREATED = re.compile(
    r"(?m)^create (?:or replace )?(?:(function|view) ragdb\.(\w+)|(trigger|policy) (\w+)\b[^;]*? on ragdb\.(\w+))", re.IGNORECASE
)


def run(sql: str) -> None:
    """Runs a statement, or a script of several, as it is written."""
    # DDL and not op.execute(str): a colon in a body is no bind parameter.
    op.execute(DDL(sql.replace("%", "%%")))  # type: ignore[no-untyped-call]


def begin(*tables: str) -> None:
    """How each revision begins: it finds pgvector, and holds the tables of ragdb that it alters (they must be named).

    It waits 30 seconds for them (the setting `ragdb.lock_wait`), and nobody waits for it longer than a tenth of a second a table
    meanwhile. Then it fails, says who holds them, and nothing was changed.
    """
    run(_SEARCH_PATH)
    run(_LOCK_TIMEOUT)
    if tables:
        names = [f"ragdb.{table}" for table in tables]
        quoted = ", ".join(f"'{name}'" for name in names)
        run(_HOLD.format(tables=", ".join(names), names=quoted, said=" or ".join(names)))


def install(revision: str) -> None:
    """Installs the files of `sql/` that the revision brought or changed, and drops what they no longer define."""
    _change(frozen.bodies(frozen.previous(revision)), frozen.bodies(revision))


def uninstall(revision: str) -> None:
    """Installs the files as they were before the revision, and drops what it had brought.

    A view that loses columns is made anew, without its grants: `ragdb db roles` gives them back.
    """
    _change(frozen.bodies(revision), frozen.bodies(frozen.previous(revision)), back=True)


def build_index(name: str, on: str) -> None:
    """An index on a large table, beside readers and writers: `on` is "ragdb.document (shelf)". Alone in its revision.

    What a build that was stopped has left is dropped first, so that the revision can be run again.
    Errors: ConfigError inside a transaction of the caller's.
    """
    context = op.get_context()
    if context.config is not None and context.config.attributes.get("inside"):
        raise ConfigError(
            f"{name} is built concurrently, and PostgreSQL does that in no transaction: give ragdb.db.upgrade() the URL or the "
            "Engine, not a connection"
        )
    begin()
    run(
        f"do $$ begin if exists (select from pg_index where indexrelid = to_regclass('ragdb.{name}') and not indisvalid) "
        f"then drop index ragdb.{name}; end if; end $$"
    )
    with context.autocommit_block():
        run(f"create index concurrently if not exists {name} on {on}")


def _change(before: dict[str, str], after: dict[str, str], *, back: bool = False) -> None:
    changed, removed = frozen.changes(before, after)
    was = {one for path in [*changed, *removed] for one in objects(before.get(path, ""))}
    is_ = {one for text in changed.values() for one in objects(text)}
    # A body may call what comes later in the alphabet; a test calls each function.
    run("set local check_function_bodies = off")
    for kind, name, table in sorted(was):
        if kind == "policy":  # there is no `create or replace policy`
            run(f"drop policy {name} on ragdb.{table}")
    for path, text in changed.items():
        run(_narrowed(text) if back and path in before else text)
    for kind, name, table in sorted(was - is_, key=lambda one: (_DROPS.index(one[0]), one)):
        if kind != "policy":
            run(f"drop {kind} {name} on ragdb.{table}" if table else f"drop {kind} ragdb.{name}")
    # PostgreSQL lets everybody execute new functions; here nobody may who is not told to. Every revision ends with this:
    # default privileges of a schema cannot take back what the database gives.
    run("revoke all on all functions in schema ragdb from public")


# what hangs on others goes before them
_DROPS = ("trigger", "view", "function", "policy")


def objects(text: str) -> list[tuple[str, str, str]]:
    """What a file defines: kind, name, and of triggers and policies the table."""
    return [(kind or other, name or own, table) for kind, name, other, own, table in _CREATED.findall(text)]


def _narrowed(text: str) -> str:
    """A file whose views may have more columns now: `create or replace` takes none away."""
    drops = "\n".join(f"drop view ragdb.{name};" for kind, name, _ in objects(text) if kind == "view")
    if not drops:
        return text
    return f"do $narrowed$ begin\n{text}\nexception when invalid_table_definition then\n{drops}\n{text}\nend $narrowed$"
