"""Whether the schema is still what its migration made: the catalogue's rows against those recorded for the revision.

`sql/catalog.sql` reads them (functions, columns, constraints, indexes, triggers, policies, grants, comments, ...),
`migrations/catalog/NNNN.json` holds them. Nothing is changed, so monitoring may run it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psycopg

from ragdb.db import hnsw, schema
from ragdb.db.sqlfiles import migrations_folder, sql_folder

Objects = dict[str, dict[str, str]]
"""Definitions by kind and name; a long one, unless it is an index's, is its digest."""

_LONG = 160


@dataclass(frozen=True)
class Difference:
    """One object that is not as recorded. `change`: missing, changed, added. `harmless`: an index that somebody added."""

    kind: str
    name: str
    change: Literal["missing", "changed", "added"]
    expected: str | None = None
    found: str | None = None
    harmless: bool = False

    def __str__(self) -> str:
        if self.change == "changed" and self.expected is not None and self.found is not None:
            if self.expected.startswith("sha256:") or self.found.startswith("sha256:"):
                return f"{self.kind} {self.name}: changed"
            return f"{self.kind} {self.name}: is {self.found or 'nothing'!r}, should be {self.expected or 'nothing'!r}"
        shown = f": {self.found}" if self.found and not self.found.startswith("sha256:") else ""
        return f"{self.kind} {self.name}: {self.change}{shown}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(target: Any) -> list[Difference]:
    """Every difference between a database (URL or Engine) and its revision; none where all is well. Reads only.

    Errors: SchemaMissing, SchemaBehind, SchemaAhead where the database is not at this version's revision.
    """
    with schema.connection(target) as conn:
        conn.read_only = True
        schema.require(conn, exactly=True)
        return [*compare(recorded(schema.head()), read(conn)), *_indexes(conn)]


def read(conn: psycopg.Connection[Any]) -> Objects:
    """The objects of the schema as `sql/catalog.sql` tells them."""
    with conn.transaction():
        # On the path: names of pg_catalog and of pgvector come out bare, all others with their schema.
        conn.execute(
            "select set_config('search_path', 'pg_catalog, ' || quote_ident(n.nspname), true) "
            "from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"
        )
        rows = conn.execute((sql_folder() / "catalog.sql").read_bytes()).fetchall()
        # A role without USAGE there is shown its types with the schema all the same.
        hidden = conn.execute(
            "select quote_ident(n.nspname) || '.' from pg_extension e join pg_namespace n on n.oid = e.extnamespace "
            "where e.extname = 'vector' and not has_schema_privilege(n.oid, 'usage')"
        ).fetchone()
    found: Objects = {}
    for kind, *texts in rows:
        name, definition = (text.replace(hidden[0], "") if hidden and text else text for text in texts)
        # an index is kept whole: what it is decides whether an added one does harm
        found.setdefault(kind, {})[name] = definition if kind == "index" else _short(definition or "")
    return found


def recorded(revision: str) -> Objects:
    """What a revision makes."""
    objects: Objects = json.loads((migrations_folder() / "catalog" / f"{revision}.json").read_text(encoding="utf-8"))
    return objects


def compare(expected: Objects, found: Objects) -> list[Difference]:
    """Differences by kind and name. What belongs to something that is missing or added as a whole is not told again."""
    differences = []
    for kind in sorted((expected.keys() | found.keys()) - {"grant"}):
        should, is_ = expected.get(kind, {}), found.get(kind, {})
        for name in sorted(should.keys() | is_.keys()):
            if name not in is_:
                differences.append(Difference(kind, name, "missing", expected=should[name]))
            elif name not in should:
                differences.append(Difference(kind, name, "added", found=is_[name], harmless=_harmless(kind, is_[name])))
            elif should[name] != is_[name]:
                differences.append(Difference(kind, name, "changed", should[name], is_[name]))
    whole = {
        (d.name, d.change) for d in differences if d.kind in ("table", "view", "materialized view") and d.change != "changed"
    }
    parts = ("column", "constraint", "trigger", "policy", "rule")
    differences = [d for d in differences if d.kind not in parts or (d.name.split(".")[0], d.change) not in whole]
    return [*differences, *_grants(_by_role(expected.get("grant", {})), _by_role(found.get("grant", {})))]


def _by_role(grants: dict[str, str]) -> dict[str, dict[str, str]]:
    roles: dict[str, dict[str, str]] = {}
    for name, privileges in grants.items():
        on, _, role = name.rpartition(" to ")
        roles.setdefault(role, {})[on] = privileges
    return roles


def _grants(profiles: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> list[Difference]:
    """A role should have the rights of a role of `sql/roles.sql`, whatever its name, or none: those it is nearest to."""
    differences = []
    for role, has in sorted(found.items()):
        none: dict[str, str] = {}
        should = min([none, *profiles.values()], key=lambda profile: len(profile.items() ^ has.items()))
        for on in sorted(should.keys() | has.keys()):
            if should.get(on) == has.get(on):
                continue
            change: Literal["missing", "changed", "added"] = (
                "added" if on not in should else "missing" if on not in has else "changed"
            )
            differences.append(Difference("grant", f"{on} to {role}", change, should.get(on), has.get(on)))
    return differences


def _harmless(kind: str, definition: str) -> bool:
    """An index of the DBA's own changes no result; a unique one can refuse what ragdb writes."""
    return kind == "index" and not definition.startswith("CREATE UNIQUE")


def _indexes(conn: psycopg.Connection[Any]) -> list[Difference]:
    """Of each model's HNSW index, where there is one: valid, and the one that searches use."""
    differences = []
    found = hnsw.read(conn, count=False)
    for model in found:
        if model.state == "invalid":
            differences.append(Difference("index", model.index, "changed", "valid", "invalid: run ragdb embedder index"))
        elif model.state == "valid" and not hnsw.fits(model):
            differences.append(Difference("index", model.index, "changed", "the index that searches use", model.definition))
    names = {model.index for model in found}
    left = conn.execute(
        "select relname from pg_class where relnamespace = 'ragdb'::regnamespace and relname ~ '^embedding_hnsw_[0-9]+$'"
    ).fetchall()
    differences += [
        Difference("index", name, "added", found="of no model", harmless=True) for (name,) in left if name not in names
    ]
    return differences


def _short(definition: str) -> str:
    if len(definition) <= _LONG and "\n" not in definition:
        return definition
    return f"sha256:{hashlib.sha256(definition.encode()).hexdigest()[:16]}"


def as_json(objects: Objects) -> str:
    """As `migrations/catalog/` holds them."""
    return json.dumps(objects, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
