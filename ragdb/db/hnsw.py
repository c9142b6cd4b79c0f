"""HNSW indexes: one for each vector set, built by its owner's explicit verb and never by a migration or a worker.

The index is `ragdb.embedding_hnsw_<model_id>`, partial on its model, over half precision (`halfvec`), which holds 4,000
dimensions and half the memory; the search sorts by the exact vectors afterwards. Until it is there, search is exact.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from ragdb.db import schema
from ragdb.db.pool import Database
from ragdb.errors import ConfigError, DatabaseError

MAX_DIMS = 4000  # of halfvec in an HNSW index: pgvector's HNSW_MAX_DIM * 2
M, EF_CONSTRUCTION = 16, 64  # pgvector's own defaults

Progress = Callable[[str, int, int], None]
"""Called with the phase, and how much of it is done of how much (0 of 0 where that is not known)."""


@dataclass(frozen=True)
class Model:
    """A vector set and its index. `state`: valid, invalid (left by a build that failed), building, none."""

    model_id: int
    name: str
    dims: int
    collections: tuple[str, ...]  # those that it is the active one of
    sets: tuple[str, ...]  # those that keep a set of it
    vectors: int
    state: str
    definition: str | None
    size: int

    @property
    def index(self) -> str:
        return f"embedding_hnsw_{self.model_id}"

    @property
    def indexable(self) -> bool:
        return self.dims <= MAX_DIMS


@dataclass(frozen=True)
class Built:
    """What `build` found and did. `action`: built, kept (a valid one was there), none (too many dimensions)."""

    model: Model
    action: str
    repaired: bool
    seconds: float


_COUNTED: LiteralString = "(select e.model_id, count(*) as vectors from ragdb.embedding e group by e.model_id)"
_UNCOUNTED: LiteralString = "(select null::bigint as model_id, null::bigint as vectors)"
_MODELS: LiteralString = """
select m.model_id, m.name, m.dims,
       array(select c.name from ragdb.collection c where c.active_model_id = m.model_id order by c.name) as collections,
       array(select c.name from ragdb.vector_set s join ragdb.collection c using (collection_id)
              where s.model_id = m.model_id order by c.name) as sets,
       coalesce(n.vectors, 0) as vectors,
       case when i.indexrelid is null then 'none'
            when exists (select from pg_stat_progress_create_index p
                          where p.datname = current_database() and p.relid = 'ragdb.embedding'::regclass
                            and p.index_relid = i.indexrelid) then 'building'
            when i.indisvalid and i.indisready then 'valid' else 'invalid' end as state,
       pg_get_indexdef(i.indexrelid) as definition,
       coalesce(pg_relation_size(i.indexrelid), 0) as size
  from ragdb.embedding_model m
  left join (select e.model_id, count(*) as vectors from ragdb.embedding e group by e.model_id) n using (model_id)
  left join pg_index i on i.indexrelid = to_regclass(format('ragdb.embedding_hnsw_%s', m.model_id))
 order by m.model_id
"""


_PROGRESS: LiteralString = """
select phase, case when blocks_total > 0 then blocks_done else tuples_done end,
       case when blocks_total > 0 then blocks_total else tuples_total end
  from pg_stat_progress_create_index where pid = %s
"""


def _url(target: Any) -> Any:
    return target.target if isinstance(target, Database) else target


def models(target: Any) -> list[Model]:
    """Every vector set with the state of its index; `target` is a Database, a URL or an Engine."""
    with schema.connection(_url(target)) as conn:
        schema.require(conn)
        return read(conn)


def read(conn: psycopg.Connection[Any], *, count: bool = True) -> list[Model]:
    """As `models`, over a connection that is there. `count` False: vectors is 0, and ragdb.embedding is not read."""
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_MODELS if count else _MODELS.replace(_COUNTED, _UNCOUNTED))
        return [Model(**{**row, "collections": tuple(row["collections"]), "sets": tuple(row["sets"])}) for row in rows]


def chosen(all_models: list[Model], *, name: str | None = None, collection: str | None = None) -> list[Model]:
    """The model of this name, or the one of this collection, or all. Raises ConfigError, with the names there are."""
    found = [
        model for model in all_models if (name is None or model.name == name) and (collection is None or collection in model.sets)
    ]
    if found or (name is None and collection is None):
        return found
    there = ", ".join(f"{m.name} (of {', '.join(m.sets) or 'no collection'})" for m in all_models) or "none yet"
    wanted = " and ".join(
        part for part in (name and f"is called {name!r}", collection and f"belongs to collection {collection!r}") if part
    )
    raise ConfigError(f"no embedding model {wanted}; there are: {there}. Adding a document records its model")


def ddl(conn: psycopg.Connection[Any], model: Model, *, m: int = M, ef_construction: int = EF_CONSTRUCTION) -> list[str]:
    """The statements that make the model's index, each to be run outside a transaction; none for too many dimensions."""
    if not model.indexable:
        return []
    statements = []
    if model.state == "invalid":
        statements.append(_drop(model).as_string(conn))
    vector_schema = sql.Identifier(_vector_schema(conn))
    create = sql.SQL(
        "create index concurrently {index} on ragdb.embedding\n"
        "  using hnsw ((v::{schema}.halfvec({dims})) {schema}.halfvec_cosine_ops)\n"
        "  with (m = {m}, ef_construction = {ef})\n"
        "  where model_id = {model_id}"
    ).format(
        index=sql.Identifier(model.index),
        schema=vector_schema,
        dims=sql.Literal(model.dims),
        m=sql.Literal(m),
        ef=sql.Literal(ef_construction),
        model_id=sql.Literal(model.model_id),
    )
    return [*statements, create.as_string(conn)]


def _drop(model: Model) -> sql.Composed:
    return sql.SQL("drop index concurrently if exists ragdb.{}").format(sql.Identifier(model.index))


def _vector_schema(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute(
        "select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"
    ).fetchone()
    if row is None:
        raise DatabaseError("the extension pgvector is not in this database")
    return str(row[0])


def script(target: Any, given: list[Model], *, m: int = M, ef_construction: int = EF_CONSTRUCTION) -> dict[int, list[str]]:
    """For each model (by id) the statements that `build` would run; nothing is changed."""
    with schema.connection(_url(target)) as conn:
        return {
            model.model_id: [] if model.state == "valid" else ddl(conn, model, m=m, ef_construction=ef_construction)
            for model in given
        }


def build(
    target: Any,
    model: Model,
    *,
    m: int = M,
    ef_construction: int = EF_CONSTRUCTION,
    progress: Progress | None = None,
    said: Callable[[str], None] | None = None,
) -> Built:
    """Builds the model's index without blocking readers or writers, an invalid leftover of it removed first.

    A valid one is left as it is. `said` gets a line about what is done, `progress` the phases. Raises ConfigError for
    options that pgvector refuses, DatabaseError where another session builds it, where the role is not the owner, and
    where the build fails; then what it left is dropped again.
    """
    said = said or (lambda _line: None)
    if not (2 <= m <= 100 and 4 <= ef_construction <= 1000 and ef_construction >= 2 * m):
        raise ConfigError(
            f"m is {m}, ef_construction {ef_construction}; m is 2 to 100, ef_construction 4 to 1000 and at least twice m"
        )
    began = time.monotonic()
    if not model.indexable:
        return Built(model, "none", repaired=False, seconds=0.0)
    with schema.connection(_url(target)) as conn:
        conn.autocommit = True
        model = next(found for found in read(conn) if found.model_id == model.model_id)
        if model.state == "building":
            raise DatabaseError(
                f"another session is building {model.index} now; pg_stat_progress_create_index shows how far it is"
            )
        if model.state == "valid":
            _must_fit(model)
            return Built(model, "kept", repaired=False, seconds=0.0)
        if model.state == "invalid":
            said(f"{model.index} is invalid, left by a build that did not end; it is dropped and built again")
        if model.vectors and (hint := _memory_hint(conn, model, m)):
            said(hint)
        _run(_url(target), conn, model, ddl(conn, model, m=m, ef_construction=ef_construction), progress)
        done = next(found for found in read(conn) if found.model_id == model.model_id)
    return Built(done, "built", repaired=model.state == "invalid", seconds=time.monotonic() - began)


def drop(target: Any, model_id: int) -> bool:
    """Drops the index of a model beside readers and writers; False where there is none. DatabaseError for another owner."""
    with schema.connection(_url(target)) as conn:
        conn.autocommit = True
        model = next((found for found in read(conn, count=False) if found.model_id == model_id), None)
        if model is None or model.state == "none":
            return False
        try:
            conn.execute(_drop(model))
        except psycopg.errors.InsufficientPrivilege as error:
            raise DatabaseError(
                f"{error.diag.message_primary}: an index is dropped by the owner of ragdb's tables; "
                "run this as the role that ran `ragdb db upgrade`"
            ) from error
        return True


def fits(model: Model) -> bool:
    """Whether the index is one that searches use: somebody may have made another of that name by hand."""
    expression = rf"\(\(v\)::(.+\.)?halfvec\({model.dims}\)\) (.+\.)?halfvec_cosine_ops"
    return bool(re.search(rf"USING hnsw \({expression}\).* WHERE \(model_id = {model.model_id}\)$", model.definition or ""))


def _must_fit(model: Model) -> None:
    if not fits(model):
        raise DatabaseError(
            f"ragdb.{model.index} is not the index that searches use: {model.definition}; "
            f"drop it (drop index concurrently ragdb.{model.index}) and run this again"
        )


def _memory_hint(conn: psycopg.Connection[Any], model: Model, m: int) -> str | None:
    """A line where the graph will not fit into maintenance_work_mem: beyond it the build goes on, many times slower."""
    # per element: half-precision vector, its neighbours (2 m on the lowest layer, about m above) with distances, headers
    need = model.vectors * (2 * model.dims + 3 * m * 16 + 200)
    row = conn.execute("select pg_size_bytes(current_setting('maintenance_work_mem'))").fetchone()
    have = row[0] if row else 0
    if need <= have:
        return None
    megabytes = 1 + (need >> 20)
    return (
        f"the index needs about {megabytes} MB while it is built, maintenance_work_mem is {have >> 20} MB, and beyond it "
        "building is many times slower; to raise it for this run: "
        f"PGOPTIONS='-c maintenance_work_mem={megabytes + megabytes // 8}MB' ragdb embedder index"
    )


def _run(url: Any, conn: psycopg.Connection[Any], model: Model, statements: list[str], progress: Progress | None) -> None:
    """Runs the statements in a thread, so that this one can watch them and answer Ctrl-C."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for statement in statements:
                # made by ddl() of identifiers and numbers
                conn.execute(statement.encode())
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            failed.append(error)

    pid = conn.info.backend_pid
    thread = threading.Thread(target=work, name="ragdb-hnsw", daemon=True)
    thread.start()
    try:
        if progress is None:
            thread.join()
        else:
            with schema.connection(url) as watcher:
                watcher.autocommit = True
                while thread.is_alive():
                    row = watcher.execute(_PROGRESS, [pid]).fetchone()
                    if row:
                        progress(row[0], row[1] or 0, row[2] or 0)
                    thread.join(0.2)
    except BaseException:
        conn.cancel_safe()
        thread.join()
        if failed:
            _forget(conn, model)
        raise
    if failed:
        error = failed[0]
        if not isinstance(error, psycopg.Error):
            raise error
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            raise DatabaseError(
                f"{error.diag.message_primary}: an index is built by the owner of ragdb's tables; "
                "run this as the role that ran `ragdb db upgrade`, or give it the statements of: ragdb embedder index --sql"
            ) from error
        if isinstance(error, psycopg.errors.DuplicateTable):
            raise DatabaseError(f"another session has just begun to build {model.index}") from error
        left = "nothing is left of it" if _forget(conn, model) else "an invalid index is left, which the next run drops"
        raise DatabaseError(
            f"building {model.index} failed: {error.diag.message_primary or error}; {left}, and search stays exact"
        ) from error


def _forget(conn: psycopg.Connection[Any], model: Model) -> bool:
    """Drops what a failed build leaves; where even that fails, the next build finds and drops it."""
    with contextlib.suppress(psycopg.Error):
        conn.execute(_drop(model))
        return True
    return False
