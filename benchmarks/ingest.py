"""How fast workers make documents ready, beside bare COPY of the same rows; and what is left when they are killed.

    python benchmarks/ingest.py [--documents 10000] [--workers 2] [--json]
    python benchmarks/ingest.py --chaos [--seconds 60] [--every 2] [--restarts 2]

Documents of two chunks, fake embedder of 8 dimensions, a server of its own with fsync on. They are queued in two ways: cut
already (`ragdb.ingest.bulk`, or rag.add with a session), and as text that the workers cut (ragdb.submit_document). Beside it:
COPY of the very rows that came out (document, text, section, chunk, place, embedding) into the emptied tables by one
connection, in one transaction, with the trigger that makes lexemes and weights on, and off (lexemes and weights copied too).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from ragdb import Document, RagDB
from ragdb.db import embedded, schema
from ragdb.ingest import bulk
from ragdb.testing import FakeEmbedder

TABLES = ("document", "document_revision", "section", "chunk", "chunk_place", "embedding")
WORDS = [f"word{n}" for n in range(5000)]


def text(n: int, rng: random.Random) -> str:
    first, second = (" ".join(rng.choices(WORDS, k=60)) for _ in range(2))
    return f"# Page {n}\n\n{first} {n}\n\n## More\n\n{second} {n}\n"


def start(url: str) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "ragdb.cli.main", "worker", "--poll", "0.5"],
        env={**os.environ, "PYTHONPATH": path, "RAGDB_DATABASE_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def value(url: str, sql: str) -> Any:
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(sql).fetchone()
        return row and row[0]


def queue_up(url: str, documents: int, *, cut: bool) -> None:
    rng = random.Random(1)
    with RagDB(url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.context.ensure_collection(rag.context.database)
        if cut:
            for _ in bulk.load(rag.context, (Document(f"d{n}", text(n, rng)) for n in range(documents))):
                pass
            return
    with psycopg.connect(url) as conn:
        for n in range(documents):
            conn.execute("select ragdb.submit_document('help', %s, %s)", [f"d{n}", text(n, rng)])


def drained(url: str, workers: int) -> float:
    """Seconds from the first document ready to the last: what starting Python takes is not what is measured."""
    processes = [start(url) for _ in range(workers)]
    try:
        while value(url, "select exists (select from ragdb.job)"):
            time.sleep(0.2)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
    return float(value(url, "select extract(epoch from max(ready_at) - min(ready_at)) from ragdb.document"))


def copied(url: str, *, trigger: bool) -> float:
    """Seconds of COPY of the rows that are there, into the same tables emptied."""
    with psycopg.connect(url) as conn:
        columns = {}
        held = {}
        for table in TABLES:
            left_out = ("lexemes", "lexical_weights") if trigger and table == "chunk" else ()
            names = conn.execute(
                "select array_agg(quote_ident(attname) order by attnum) from pg_attribute "
                "where attrelid = %s::regclass and attnum > 0 and not attisdropped and attname <> all(%s)",
                [f"ragdb.{table}", list(left_out)],
            ).fetchone()
            columns[table] = ", ".join(names[0])  # type: ignore[index]
            with conn.cursor().copy(f"copy ragdb.{table} ({columns[table]}) to stdout") as out:  # type: ignore[arg-type]
                held[table] = b"".join(bytes(block) for block in out)
        conn.execute("truncate ragdb.document cascade")
        if not trigger:
            conn.execute("alter table ragdb.chunk disable trigger user")
        conn.commit()
        began = time.perf_counter()
        for table in TABLES:
            with conn.cursor().copy(f"copy ragdb.{table} ({columns[table]}) from stdin") as into:  # type: ignore[arg-type]
                into.write(held[table])
        conn.commit()
        seconds = time.perf_counter() - began
        conn.execute("alter table ragdb.chunk enable trigger user")
        conn.commit()
    return seconds


def whole(url: str, documents: int) -> dict[str, Any]:
    """What must hold after everything: all zero but the first."""
    checks = {
        "ready": "select count(*) from ragdb.document where ingest_state = 'ready'",
        "not_ready": "select count(*) from ragdb.document where ingest_state <> 'ready'",
        "jobs_left": "select count(*) from ragdb.job",
        "chunks_twice": "select count(*) - count(distinct (document_id, content)) from ragdb.chunk",
        "chunks_missing": f"select {2 * documents} - count(*) from ragdb.chunk",
        "chunks_without_place": "select count(*) from ragdb.chunk k where not exists (select from ragdb.chunk_place p where p.chunk_id = k.chunk_id)",
        "chunks_without_vector": "select count(*) from ragdb.chunk k where not exists (select from ragdb.embedding e where e.chunk_id = k.chunk_id)",
        "texts_too_many": "select count(*) from ragdb.document_revision r join ragdb.document d using (document_id) where r.revision <> d.ready_revision",
    }
    return {name: value(url, sql) for name, sql in checks.items()}


def speed(url: str, documents: int, workers: int) -> dict[str, Any]:
    found: dict[str, Any] = {"documents": documents, "workers": workers}
    for name, cut in (("cut already", True), ("cut by the workers", False)):
        schema.drop(url)
        schema.upgrade(url)
        queue_up(url, documents, cut=cut)
        found[name] = round(documents / drained(url, workers))
    found["copy, trigger on"] = round(documents / copied(url, trigger=True))
    found["copy, trigger off"] = round(documents / copied(url, trigger=False))
    for name in ("cut already", "cut by the workers"):
        found[f"copy (trigger on) / {name}"] = round(found["copy, trigger on"] / found[name], 2)
    return found


def busy(url: str, processes: list[subprocess.Popen[bytes]]) -> int:
    """The first worker that has jobs in hand. Killing one that still starts would prove nothing, and starting takes seconds."""
    while True:
        if all(process.poll() is not None for process in processes):
            raise SystemExit(f"the workers ended by themselves, with {[process.returncode for process in processes]}")
        with psycopg.connect(url, autocommit=True) as conn:
            held = {name.split(":")[-2] for (name,) in conn.execute("select leased_by from ragdb.job where state = 'processing'")}
        for number, process in enumerate(processes):
            if str(process.pid) in held:
                return number
        time.sleep(0.01)


def chaos(home: Path, url: str, documents: int, workers: int, seconds: float, every: float, restarts: int) -> dict[str, Any]:
    """Kills a worker that has jobs in hand, `every` seconds after the last one (or when one has), and restarts the server without a checkpoint now and then."""
    queue_up(url, documents, cut=False)
    processes = [start(url) for _ in range(workers)]
    kills, hits, worst, done, gone = 0, 0, 0, 0, 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(every)
        victim = busy(url, processes)
        gone += sum(process.poll() is not None for process in processes)
        processes[victim].kill()
        processes[victim].wait()
        # one that was still starting, or had nothing in hand, proves nothing
        own = f"leased_by like '%:{processes[victim].pid}:%'"
        hits += value(url, f"select exists (select from ragdb.job where state = 'processing' and {own})")
        processes[victim] = start(url)
        kills += 1
        worst = max(worst, value(url, "select coalesce(max(attempts), 0) from ragdb.job"))
        if done < restarts and time.monotonic() - began > (done + 1) * seconds / (restarts + 1):
            pid = int(next(home.glob("pg*/postmaster.pid")).read_text().splitlines()[0])
            os.kill(pid, signal.SIGQUIT)  # as pg_ctl stop -m immediate
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.05)
            embedded.start(home)
            done += 1
    ready = value(url, "select count(*) from ragdb.document where ingest_state = 'ready'")
    until = time.monotonic() + 600
    while value(url, "select exists (select from ragdb.job where state <> 'failed')") and time.monotonic() < until:
        time.sleep(0.3)
    for process in processes:
        process.terminate()
    codes = [process.wait(60) for process in processes]
    return {
        "kills": kills,
        "of these with jobs in hand": hits,
        "restarts": done,
        "workers that ended by themselves": gone,
        "ready while killed": ready,
        "most attempts": worst,
        "exit codes": codes,
        **whole(url, documents),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chaos", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    # a socket's path has to be short
    home = Path(tempfile.mkdtemp(prefix="ragdb-bench-", dir="/tmp" if Path("/tmp").is_dir() else None))  # noqa: S108
    url = embedded.start(home)
    try:
        schema.upgrade(url)
        if given.chaos:
            found = chaos(home, url, given.documents, given.workers, given.seconds, given.every, given.restarts)
        else:
            found = speed(url, given.documents, given.workers)
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
    if given.json:
        print(json.dumps(found))
    else:
        for name, figure in found.items():
            print(f"{name:<36} {figure}")


if __name__ == "__main__":
    main()
