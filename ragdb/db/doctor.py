"""What a DBA would look at first: versions, rights, indexes, statistics, memory, plans; each finding with its fix.

Reads only. Counts rows of whole tables, so it takes seconds on millions of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, LiteralString

import psycopg
from psycopg.rows import dict_row

from ragdb.db import catalog, schema
from ragdb.errors import RagDBError

Level = Literal["ok", "warning", "error"]
Rows = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True)
class Finding:
    """`about` names what was looked at; `fix` is what to run or change, empty where all is well."""

    level: Level
    about: str
    found: str
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(target: Any) -> list[Finding]:
    """All findings on a database (URL or Engine), the good ones too.

    Errors: DatabaseUnreachable. Whatever else is wrong, with the schema too, is a finding.
    """
    with schema.connection(target) as conn:
        conn.read_only = True
        cursor = conn.cursor(row_factory=dict_row)

        def rows(query: LiteralString, *values: Any) -> list[dict[str, Any]]:
            with conn.transaction():  # a query that fails ends no other
                return cursor.execute(query, values or None).fetchall()

        try:
            schema.preflight(conn)
        except RagDBError as error:
            return [Finding("error", "server", str(error))]
        findings = list(_server(rows))
        try:
            schema.require(conn, exactly=True)
        except RagDBError as error:
            return [*findings, Finding("error", "schema", str(error))]
        for look in (_indexes, _grants, _statistics, _memory, _upkeep, _queue, _watches, _fusion, _plans):
            findings += look(rows)
    return [*findings[:2], *_schema(target), *findings[2:]]


def _server(rows: Rows) -> Iterator[Finding]:
    [row] = rows(
        "select current_setting('server_version') as postgres, e.extversion as vector, n.nspname as schema, "
        "has_schema_privilege('public', n.oid, 'create') as open "
        "from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"
    )
    yield Finding("ok", "server", f"PostgreSQL {row['postgres']}, pgvector {row['vector']} in schema {row['schema']}")
    if row["open"]:
        yield Finding(
            "error",
            "extension schema",
            f"everybody may create objects in {row['schema']}, where ragdb's functions look types up",
            f"an administrator runs: REVOKE CREATE ON SCHEMA {row['schema']} FROM PUBLIC;",
        )
    else:
        yield Finding("ok", "extension schema", f"only its owner creates objects in {row['schema']}")


def _schema(target: Any) -> Iterator[Finding]:
    harmful = [str(difference) for difference in catalog.check(target) if not difference.harmless]
    if not harmful:
        yield Finding("ok", "schema", f"as revision {schema.head()} made it")
    for line in harmful[:20]:
        yield Finding("error", "schema", line, "put back what was changed; ragdb db check lists all differences")


def _indexes(rows: Rows) -> Iterator[Finding]:
    problems = rows('select "table", index, problem from ragdb.index_health where problem is not null')
    for row in problems:
        level: Level = "warning" if row["problem"] == "is being built" else "error"
        found, _, fix = row["problem"].partition("; run: ")
        yield Finding(level, f"index {row['index']}", found, fix)
    if not problems:
        yield Finding("ok", "indexes", "all valid, and one for each model that needs it")


def _grants(rows: Rows) -> Iterator[Finding]:
    """Grants of collections that do nothing, or that end the searches of a role with an error."""
    grants = rows(
        "select c.name as collection, g.grantee, g.grant_id, g.grantee = 'public' or r.oid is not null as known, "
        "g.grantee = 'public' or exists (select from pg_roles m where (m.oid = r.oid or pg_has_role(m.oid, r.oid, 'member')) "
        "  and not m.rolsuper and has_function_privilege(m.oid, p.oid, 'execute')) as searches "
        "from pg_proc p cross join ragdb.collection_grant g join ragdb.collection c using (collection_id) "
        "left join pg_roles r on r.rolname = g.grantee "
        "where p.proname = 'search' and p.pronamespace = 'ragdb'::regnamespace order by 1, 2, 3"
    )
    fine = True
    for row in grants:
        about, fix = f"grant of {row['collection']} to {row['grantee']}", ""
        if not row["known"]:
            found = "there is no such role"
            fix = f"select ragdb.revoke_collection('{row['collection']}', '{row['grantee']}')"
        elif not row["searches"]:
            found, fix = (
                "neither the role nor a member of it may call ragdb.search()",
                f"grant ragdb_reader to {row['grantee']}; see: ragdb db roles",
            )
        else:
            try:
                rows(
                    'select ragdb.where_clause(ragdb.with_settings("where"), 1) from ragdb.collection_grant where grant_id = %s',
                    row["grant_id"],
                )
            except psycopg.Error as error:
                found = f"its where is wrong, so the role's searches fail: {error.diag.message_primary}"
                fix = "select ragdb.revoke_collection(...) and ragdb.grant_collection(...) with a right one"
        if fix:
            fine = False
            yield Finding("warning", about, found, fix)
    if fine:
        yield Finding("ok", "grants", f"{len(grants)} on collections")


def _statistics(rows: Rows) -> Iterator[Finding]:
    collections = rows("select collection, chunks, vectors, stats_drift, pivot_drift from ragdb.overview")
    fine = True
    for row in collections:
        name = row["collection"]
        if row["chunks"] and (row["stats_drift"] is None or row["stats_drift"] > 0.5):
            fine = False
            found = "never counted"
            if row["stats_drift"] is not None:
                found = f"the number of chunks has moved by {row['stats_drift']:.0%} since they were counted"
            yield Finding(
                "warning",
                f"document frequencies of {name}",
                found,
                f"select * from ragdb.refresh_lexical_stats('{name}')",  # noqa: S608  (printed, not run)
            )
        if row["chunks"] > 1000 and (row["pivot_drift"] or 0) > 0.5:
            fine = False
            yield Finding(
                "warning",
                f"BM25 weights of {name}",
                f"chunks are {row['pivot_drift']:.0%} longer or shorter than the length they were weighed by",
                f"select ragdb.reweigh('{name}') rewrites every chunk; at a quiet hour",
            )
    if fine:
        yield Finding("ok", "statistics", f"fresh in {len(collections)} collection{'' if len(collections) == 1 else 's'}")


def _memory(rows: Rows) -> Iterator[Finding]:
    [row] = rows(
        "select pg_size_bytes(current_setting('shared_buffers')) as buffers, "
        "pg_size_bytes(current_setting('maintenance_work_mem')) as maintenance, "
        "coalesce((select sum(pg_relation_size(x.oid)) from pg_class x where x.relnamespace = 'ragdb'::regnamespace "
        "           and x.relname like 'embedding\\_hnsw\\_%'), 0)::bigint as hnsw, "
        "pg_relation_size('ragdb.chunk') + pg_relation_size('ragdb.chunk_lexemes_idx') as lexical"
    )
    mb = {name: int(number) >> 20 for name, number in row.items()}
    found = f"shared_buffers {mb['buffers']} MB; HNSW indexes {mb['hnsw']} MB, chunks with their GIN index {mb['lexical']} MB"
    if row["hnsw"] > row["buffers"]:
        yield Finding(
            "warning",
            "memory",
            found,
            f"raise shared_buffers above {mb['hnsw']} MB, or searches read the graph from the system's cache or the disk",
        )
    else:
        yield Finding("ok", "memory", found)


def _upkeep(rows: Rows) -> Iterator[Finding]:
    [settings] = rows(
        "select current_setting('autovacuum')::boolean as autovacuum, current_setting('track_counts')::boolean as track_counts, "
        "current_setting('fsync')::boolean as fsync, current_setting('full_page_writes')::boolean as full_page_writes"
    )
    fine = True
    for name, on in settings.items():
        if not on:
            fine = False
            loss = "rows may be lost in a crash" if name in ("fsync", "full_page_writes") else "dead rows and old plans pile up"
            yield Finding("error", f"setting {name}", f"off: {loss}", f"alter system set {name} = on; select pg_reload_conf()")
    tables = rows(
        "select relname, n_live_tup, n_dead_tup, last_analyze is null and last_autoanalyze is null as never "
        "from pg_stat_user_tables where schemaname = 'ragdb' and n_live_tup + n_dead_tup > 10000 order by relname"
    )
    for row in tables:
        if row["never"]:
            fine = False
            yield Finding("warning", f"table {row['relname']}", "never analyzed", f"analyze ragdb.{row['relname']}")
        if row["n_dead_tup"] > 0.3 * row["n_live_tup"]:
            fine = False
            found = f"{row['n_dead_tup']} dead rows beside {row['n_live_tup']}"
            yield Finding("warning", f"table {row['relname']}", found, f"vacuum (analyze) ragdb.{row['relname']}")
    if fine:
        yield Finding("ok", "upkeep", "autovacuum works, nothing piles up")


def _queue(rows: Rows) -> Iterator[Finding]:
    [row] = rows(
        "select count(*) filter (where state = 'failed') as failed, count(*) filter (where state <> 'failed') as waiting, "
        "coalesce(extract(epoch from now() - min(created_at) filter (where state <> 'failed')), 0)::int as oldest from ragdb.job"
    )
    if row["failed"]:
        yield Finding(
            "warning",
            "queue",
            f"{row['failed']} documents failed",
            "select uri, last_error from ragdb.document where ingest_state = 'failed'; then add them again",
        )
    if row["waiting"] and row["oldest"] > 600:
        found = f"{row['waiting']} documents wait, the oldest for {row['oldest'] // 60} minutes"
        yield Finding("warning", "queue", found, "start a worker: ragdb worker")
    if not row["failed"] and not (row["waiting"] and row["oldest"] > 600):
        yield Finding("ok", "queue", f"{row['waiting']} documents wait")


def _watches(rows: Rows) -> Iterator[Finding]:
    """Watched tables of the application that are not followed, or of which rows lack a document."""
    found = rows("select watch_id, table_name, state, coalesce(rows_without_document, 0) as lacking from ragdb.watched_tables")
    fine = True
    for row in found:
        again = f"ragdb watch {row['table_name']} --again"
        if row["state"].startswith("triggers"):
            fine = False
            fix = f"watch it again (docs/watch.md), or end it: select ragdb.unwatch({row['watch_id']})"
            if row["state"] == "triggers are disabled":
                fix = f"alter table {row['table_name']} enable trigger user; then: {again}"
            yield Finding("error", f"watched table {row['table_name']}", row["state"], fix)
        elif row["lacking"] or row["state"] != "watched":
            fine = False
            yield Finding(
                "warning", f"watched table {row['table_name']}", f"{row['state']}; {row['lacking']} rows lack a document", again
            )
    if fine:
        yield Finding("ok", "watched tables", f"{len(found)} followed")


def _fusion(rows: Rows) -> Iterator[Finding]:
    """Settings of fuse that were fitted to a vector set which is not the one that searches read now."""
    for row in rows(
        "select c.name, c.fusion -> 'source' ->> 'set' as eval_set, c.fusion -> 'source' ->> 'model' as fitted, m.name as active "
        "from ragdb.collection c join ragdb.embedding_model m on m.model_id = c.active_model_id "
        "where c.fusion -> 'source' ->> 'model' <> m.name order by c.name"
    ):
        yield Finding(
            "warning",
            f"settings of fuse of {row['name']}",
            f"were fitted to the vectors of {row['fitted']}, and those of {row['active']} are searched",
            f"ragdb eval tune {row['eval_set'] or 'SET'} --store, or: select ragdb.set_fusion('{row['name']}', null)",
        )


def _plans(rows: Rows) -> Iterator[Finding]:
    """The plans of both legs in the largest collection, for a question made of one of its chunks."""
    largest = rows(
        "select c.name, x.chunk_id from ragdb.lexical_stats s join ragdb.collection c using (collection_id) "
        "cross join lateral (select k.chunk_id from ragdb.document d join ragdb.chunk k using (document_id) "
        "                     where d.collection_id = c.collection_id and d.status = 'active' limit 1) x "
        "where c.analyzer = 'builtin' and s.n_chunks > c.exact_limit order by s.n_chunks desc limit 1"
    )
    if not largest:
        yield Finding("ok", "plans", "every collection is small enough to be scored whole")
        return
    [row] = largest
    plans = rows(
        "select p.leg, p.path, string_agg(p.line, e'\\n') as plan "
        "  from ragdb.chunk k "
        "  left join ragdb.collection c on c.name = %s "
        "  left join ragdb.embedding e on e.chunk_id = k.chunk_id and e.model_id = c.active_model_id "
        " cross join lateral ragdb.search_plan(left(k.content, 500), c.name, query_vector => e.v::real[]::float8[]) p "
        " where k.chunk_id = %s group by p.leg, p.path",
        row["name"],
        row["chunk_id"],
    )
    for plan in plans:
        index = {"gin": "chunk_lexemes_idx", "hnsw": "embedding_hnsw_"}.get(plan["path"])
        about = f"plan of the {plan['leg']} leg in {row['name']}"
        if index and index in plan["plan"]:
            yield Finding("ok", about, f"{plan['path']}, by {index.rstrip('_')}")
        elif index:
            fix = "analyze ragdb.chunk, ragdb.embedding; then look at: select line from ragdb.search_plan(...)"
            yield Finding("error", about, f"{plan['path']}, but the plan does not use {index.rstrip('_')}", fix)
        else:
            yield Finding("warning", about, f"{plan['path']}: every matching chunk is read", "see the findings on indexes")
