"""`make freeze`: records what the newest revision makes, and at a release what it installs.

Always: the catalogue of the newest revision, for `ragdb db check` (catalog/NNNN.json). Where the version in ragdb/__init__.py is
that of a release (0.1.0, not 0.1.0.dev0) the files of each new revision too (frozen/NNNN/), which then never change again.

It tries everything on an embedded server first, and writes nothing where the newest revision does not come to what sql/ and the
models say, or where a signature was changed, a way back does not lead back, or something is taken from programs in use.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

import ragdb
from ragdb.db import catalog, declared, embedded, frozen, schema
from ragdb.db.connect import libpq_url
from ragdb.db.sqlfiles import migrations_folder
from ragdb.errors import ConfigError

WRITE_A_REVISION = 'A change after a release is a revision of its own: make revision NAME="what it does"'


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ragdb-freeze-") as folder:
        home = Path(folder).resolve()
        server = embedded.start(home)
        try:
            with psycopg.connect(server, autocommit=True) as conn:
                conn.execute("alter system set fsync = off")  # nothing in it outlives this
                conn.execute("select pg_reload_conf()")
            for line in freeze(server, release=is_release(ragdb.__version__)):
                print(line)  # noqa: T201
        except ConfigError as error:
            print(f"nothing was written: {error}", file=sys.stderr)  # noqa: T201
            return 1
        finally:
            embedded.stop(home)
    return 0


def is_release(version: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)+(\.post\d+)?", version) is not None


def freeze(server: str, *, release: bool) -> Iterator[str]:
    """Does it, and yields what was done, a line each. `server`: the URL of a server where databases may be made."""
    released = frozen.released()
    for one in released:
        frozen.verify(one)
    new = [one for one in frozen.revisions() if one not in released]
    said = declare(server)
    head = schema.head()
    if not new:
        refuse(
            catalog.compare(catalog.recorded(head), said),
            f"sql/ and the models are not what revision {head} installs, and it is released. {WRITE_A_REVISION}. "
            f"(Where it was frozen, but is not tagged yet: git rm -r {frozen.folder(head)}, and make freeze again)",
        )
        yield f"{head} is released, and sql/ and the models are what it installs: nothing to do"
        return
    made = walk(server, released[-1] if released else None, new)
    refuse(catalog.compare(said, made[head]), f"revision {head} does not come to what sql/ and the models say")
    for one, objects in made.items():
        yield record(one, objects)
    if not release:
        yield f"{', '.join(new)}: installed from sql/ and the models, until a release ({ragdb.__version__} is none)"
        return
    for one in new:
        files, removed = frozen.changes(frozen.bodies(frozen.previous(one)), frozen.bodies(one))
        if removed:
            files[frozen.REMOVED] = "".join(f"{path}\n" for path in removed)
        if frozen.previous(one) is None:
            files[frozen.TABLES] = frozen.tables()
        place = frozen.write(one, files)
        counts = Counter(path.split("/")[0] for path in files)
        yield f"{place}: {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items())) or 'no files'}"
    yield f"{ragdb.__version__} releases {', '.join(new)}, which installs these files from now on. {WRITE_A_REVISION}"


def declare(server: str) -> catalog.Objects:
    """What sql/ and the models say, made in a database of its own."""
    make_database(server, "declared")
    with schema.connection(at(server, "declared")) as conn:
        conn.execute(declared.script().encode())
        conn.execute(schema.roles_script().encode())
        return catalog.read(conn)


def walk(server: str, last: str | None, new: list[str]) -> dict[str, catalog.Objects]:
    """What each new revision makes of the last released one; refused where a database or a program would not survive it."""
    make_database(server, "migrated")
    url = at(server, "migrated")
    before: State | None = None
    if last is not None:
        before = at_revision(url, last)
        with schema.connection(at(server, "declared")) as conn:
            refuse_signatures(before.signatures, signatures(conn))
    states = {one: at_revision(url, one) for one in new}
    after = states[new[-1]]
    refuse([f"{name}{each}" for name, each in after.signatures.items() if " and " in each], "one name, one function")
    if before is not None and last is not None:
        if after.oldest_program == before.oldest_program:
            refuse(
                [str(one) for one in catalog.compare(before.objects, after.objects) if takes_away(one)],
                "programs of earlier releases may use what is taken away. Leave it until a later release (expand, then "
                "contract), or, where none uses it, let sql/functions/oldest_program.sql say which revision a program "
                f"needs (now {after.oldest_program})",
            )
        schema.downgrade(url, last)
        back = at_revision(url, last)
        refuse(catalog.compare(before.objects, back.objects), f"a downgrade does not lead back to revision {last}")
        again = at_revision(url, "head")
        refuse(catalog.compare(after.objects, again.objects), f"up, down to {last} and up again makes another schema")
    with schema.connection(url) as conn:
        conn.execute(schema.roles_script().encode())
        # the roles are those of the newest
        return {one: state.objects for one, state in states.items()} | {new[-1]: catalog.read(conn)}


@dataclass(frozen=True)
class State:
    """A database at a revision; the grants of roles left out."""

    objects: catalog.Objects
    signatures: dict[str, str]
    oldest_program: str


def at_revision(url: str, revision: str) -> State:
    schema.upgrade(url, revision)
    with schema.connection(url) as conn:
        objects = {kind: found for kind, found in catalog.read(conn).items() if kind != "grant"}
        return State(objects, signatures(conn), oldest_program(conn))


def refuse_signatures(was: dict[str, str], is_: dict[str, str]) -> None:
    refuse(
        [f"{name}{was[name]} is {name}{is_[name]} now" for name in sorted(was.keys() & is_.keys()) if was[name] != is_[name]],
        "a signature is never changed, since programs in use call it: give the new function a name of its own, "
        "and leave the old one",
    )


def takes_away(one: catalog.Difference) -> bool:
    """Whether a program that knows nothing of the change may fail by it."""
    if one.kind == "column" and one.change == "added":
        return "not null" in (one.found or "") and not re.search(r"default|identity|generated", one.found or "")
    if one.kind == "column" and one.change == "changed":
        return True
    return one.kind in ("table", "view", "column", "function") and one.change == "missing"


def signatures(conn: psycopg.Connection[object]) -> dict[str, str]:
    """Arguments and result of each function, by its name."""
    found = defaultdict(list)
    for name, signature in conn.execute(
        "select proname, '(' || pg_get_function_identity_arguments(oid) || ') returns ' || pg_get_function_result(oid) "
        "from pg_proc where pronamespace = 'ragdb'::regnamespace order by 1, 2"
    ):
        found[name].append(signature)
    return {name: " and ".join(each) for name, each in found.items()}


def oldest_program(conn: psycopg.Connection[object]) -> str:
    [said] = conn.execute("select ragdb.oldest_program()").fetchone() or [""]
    return str(said)


def record(revision: str, made: catalog.Objects) -> str:
    file = migrations_folder() / "catalog" / f"{revision}.json"
    text = catalog.as_json(made)
    changed = not file.exists() or file.read_text(encoding="utf-8") != text
    file.write_text(text, encoding="utf-8")
    return f"{file}: {'written' if changed else 'as it was'}"


def refuse(differences: list[catalog.Difference] | list[str], what: str) -> None:
    if differences:
        raise ConfigError("\n  ".join([what + ":", *map(str, differences)]))


def at(server: str, name: str) -> str:
    return libpq_url(make_url(server).set(database=name))


def make_database(server: str, name: str) -> None:
    """A fresh database with pgvector."""
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {} template template0 encoding 'UTF8'").format(sql.Identifier(name)))
    with psycopg.connect(at(server, name), autocommit=True) as conn:
        conn.execute("create extension vector")


if __name__ == "__main__":
    sys.exit(main())
