"""What `ragdb sync` costs: the first sync, the same folder again, one sentence of 100 chunks, and the search for a folder's documents.

    python benchmarks/sync.py [--files 10000] [--others 100000] [--database-url URL]

Without a URL an embedded server in a temporary folder, with full page writes, so that WAL is what a server would write.
The embedder is the fake one: the figures are ragdb's and PostgreSQL's own.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from ragdb import RagDB, ingest
from ragdb.db import embedded, schema
from ragdb.testing import FakeEmbedder


def timed(what: str, work: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = work()
    print(f"{what:<58}{time.perf_counter() - began:9.2f} s")
    return made


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--files", type=int, default=10_000)
    given.add_argument("--others", type=int, default=100_000, help="documents of other origin in the collection")
    given.add_argument("--database-url")
    options = given.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ragdb-bench-", dir="/tmp"))
    url = options.database_url or embedded.start(scratch / "pg")
    try:
        schema.upgrade(url)
        measured(url, scratch, options.files, options.others)
    finally:
        if not options.database_url:
            embedded.stop(scratch / "pg")
        shutil.rmtree(scratch, ignore_errors=True)


def measured(url: str, scratch: Path, files: int, others: int) -> None:
    folder = scratch / "docs"
    for n in range(files):
        path = folder / str(n // 100) / f"{n}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Page {n}\n\nThe text of page number {n}, with word{n % 997} and word{n % 89}.\n")
    embedder = FakeEmbedder()
    with RagDB(url, collection="bench", embedder=embedder) as rag, psycopg.connect(url, autocommit=True) as conn:
        calls: list[str] = []
        call = rag.context.database.call
        rag.context.database.call = lambda name, /, **values: (calls.append(name), call(name, **values))[1]  # type: ignore[method-assign]

        def counted(what: str) -> None:
            calls.clear()
            before = embedder.calls
            done = timed(what, lambda: ingest.sync(rag, folder))
            print(
                f"{'':4}{len(done.added)} added, {len(done.changed)} changed, {done.unchanged} unchanged; {len(calls)} SQL calls, {embedder.calls - before} of the embedder"
            )

        counted(f"first sync of {files} files")
        counted("the same again")
        conn.execute(
            "insert into ragdb.document (collection_id, uri, source, ingest_state) "
            "select collection_id, 'other/' || n, '/srv/other/' || n %% 1000 || '/' || n || '.md', 'ready' from ragdb.collection, generate_series(1, %s) n",
            [others],
        )
        conn.execute("analyze ragdb.document")
        counted(f"the same again, beside {others} documents of other origin")
        conn.execute("set plan_cache_mode = force_generic_plan")
        conn.execute(f"prepare below(text, text, text, text, bigint, integer) as {_body(conn)}")
        middle = str(folder / "5" / "512.md").replace("'", "''")
        plan = conn.execute(
            f"explain (analyze, buffers, costs off, timing off) execute below('bench', '{folder}', '', '{middle}', 0, 5000)"
        ).fetchall()
        print("\n".join(f"    {line}" for (line,) in plan))

        def touch() -> None:
            for path in folder.rglob("*.md"):
                path.touch()

        touch()
        counted("every file touched: hashed, nothing else")
        sentence(rag, conn, scratch)
        shutil.rmtree(folder / "0")
        counted("a folder of 100 files deleted")


def _body(conn: psycopg.Connection[Any]) -> str:
    """The statement of ragdb.documents_below, with parameters in the place of its arguments."""
    row = conn.execute("select prosrc from pg_proc where oid = 'ragdb.documents_below'::regproc").fetchone()
    assert row is not None
    body = "\n".join(line for line in row[0].splitlines() if not line.strip().startswith("--"))
    for number, name in enumerate(("collection", "folder", "prefix", "after_source", "after_id", "how_many"), start=1):
        # an argument stands behind a bracket, a comma or an operator, a column behind its table
        body = re.sub(rf"(?<=[(, ]){name}(?![\w.])", f"${number}", body)
    return body


def sentence(rag: RagDB, conn: psycopg.Connection[Any], scratch: Path) -> None:
    """One changed sentence of a document of 100 chunks, of about 120 words each, after a checkpoint: WAL of the change alone."""
    folder = scratch / "long"
    folder.mkdir()
    words = [f"word{n * 7919 % 4001}" for n in range(12_000)]
    sections = [f"## Section {n}\n\n{' '.join(words[n * 115 : n * 115 + 115])}.\n\n" for n in range(100)]
    (folder / "long.md").write_text("# Long\n\n" + "".join(sections))
    done = ingest.sync(rag, folder)
    print(f"a document of {done.chunks} chunks")
    sections[3] = sections[3].replace(" ", " one changed sentence ", 3)
    (folder / "long.md").write_text("# Long\n\n" + "".join(sections))
    time.sleep(0.1)
    conn.execute("checkpoint")
    before = conn.execute("select pg_current_wal_insert_lsn()").fetchone()
    done = timed("one sentence of it changed", lambda: ingest.sync(rag, folder))
    size = conn.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", before).fetchone()
    assert size is not None
    print(f"    {done.embedded} chunks embedded, {int(size[0]) / 1e6:.2f} MB of WAL, full pages after a checkpoint in")


if __name__ == "__main__":
    main()
