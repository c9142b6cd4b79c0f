"""What a watched table costs the application: rows inserted, updated and deleted beside the same without a watch, and the backfill.

    python benchmarks/watch.py [URL] [--rows 100000]

Without URL an embedded PostgreSQL in a temporary folder. Every figure is a ratio or a rate of one run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from ragdb.db import embedded, schema

BODY = "repeat('The valve of line ' || i || ' is closed before the pressure falls below two bar. ', 20)"


@contextmanager
def server(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    home = Path(tempfile.mkdtemp(prefix="ragdb-watch-", dir="/tmp"))
    try:
        yield embedded.start(home)
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


CPU = False


def now(conn: psycopg.Connection[tuple[object, ...]]) -> float:
    """Seconds by the clock; with --cpu those of processor time of this connection's server process, in steps of 0.01."""
    if not CPU:
        return time.perf_counter()
    ticks = Path(f"/proc/{conn.info.backend_pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def timed(conn: psycopg.Connection[tuple[object, ...]], statement: str) -> float:
    start = now(conn)
    conn.execute(statement.encode())
    return now(conn) - start


def statements(conn: psycopg.Connection[tuple[object, ...]], table: str, first: int, n: int) -> dict[str, float]:
    """Milliseconds a row of one statement over `n` rows, and of a transaction for each row (its median; with --cpu its mean)."""
    last = first + n - 1
    found = {
        "insert, one statement": timed(
            conn,
            f"insert into {table} (id, body, title, tenant) select i, {BODY}, 'Line ' || i, i % 9 from generate_series({first}, {last}) i",
        )
        / n,
        "update of the text": timed(conn, f"update {table} set body = body || ' Again.' where id between {first} and {last}") / n,
        "update of a watched number": timed(conn, f"update {table} set tenant = tenant + 1 where id between {first} and {last}")
        / n,
        "update, nothing new": timed(conn, f"update {table} set body = body, title = title where id between {first} and {last}")
        / n,
        "update of another column": timed(conn, f"update {table} set views = views + 1 where id between {first} and {last}") / n,
    }
    each = []
    for i in range(last + 1, last + 301):
        each.append(
            timed(
                conn,
                f"insert into {table} (id, body, title, tenant) select i, {BODY}, 'Line ' || i, i % 9 from generate_series({i}, {i}) i",
            )
        )
    found["insert, a transaction a row"] = statistics.mean(each) if CPU else statistics.median(each)
    found["delete"] = timed(conn, f"delete from {table} where id between {first} and {last + 300}") / n
    return {name: seconds * 1000 for name, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--cpu", action="store_true", help="processor time of the server process (Linux, same machine), where others keep it busy"
    )
    given = parser.parse_args()
    global CPU  # noqa: PLW0603
    CPU = given.cpu
    with server(given.url) as url:
        schema.upgrade(url)
        with psycopg.connect(url, autocommit=True) as conn:
            for table in ("plain", "watched"):
                conn.execute(f"drop table if exists public.{table}".encode())
                conn.execute(
                    f"create table public.{table} (id bigint primary key, body text, title text, tenant integer, views integer default 0)".encode()
                )
            conn.execute("select ragdb.create_collection('watched')")
            conn.execute(
                "select ragdb.watch_table('public.watched', id => 'id', content => 'body', title => 'title', "
                "metadata => '{\"tenant\": \"tenant\"}', collection => 'watched')"
            )
            statements(conn, "public.watched", 1, 300)
            plain = statements(conn, "public.plain", 10_000_000, 3000)
            watched = statements(conn, "public.watched", 10_000_000, 3000)
            print(f"{'':<30}{'plain':>10}{'watched':>10}{'ratio':>8}   (ms a row)")
            submit = (
                "select count(*) from generate_series(1, 3000) i, "
                f"lateral ragdb.submit_document('watched', 'submitted/' || i, {BODY}, 'Line ' || i, '{{\"tenant\": 1}}')"
            )
            print(f"ragdb.submit_document alone, one statement: {timed(conn, submit) / 3:.3f} ms a document")
            for name, ms in plain.items():
                print(f"{name:<30}{ms:>10.3f}{watched[name]:>10.3f}{watched[name] / max(ms, 0.001):>8.1f}")

            conn.execute("alter table public.watched disable trigger user")
            conn.execute(
                f"insert into public.watched (id, body, title, tenant) select i, {BODY}, 'Line ' || i, i % 9 from generate_series(1, {given.rows}) i".encode()
            )
            conn.execute("alter table public.watched enable trigger user")
            for what in ("backfill, nothing there yet", "backfill again, all is there"):
                rates, seen, start = [], 0, now(conn)
                mark = start
                while True:
                    [(rows, _, _, _, done)] = conn.execute("select * from ragdb.backfill_table('public.watched')").fetchall()
                    before, seen = seen, seen + rows
                    if before // (given.rows // 4) != seen // (given.rows // 4):
                        rates.append(given.rows / 4 / (now(conn) - mark))
                        mark = now(conn)
                    if done:
                        break
                seconds = now(conn) - start
                quarters = ", ".join(f"{rate:,.0f}" for rate in rates)
                print(
                    f"{what}: {seen:,} rows in {seconds:.1f} s; rows a second by quarters: {quarters}; documents looked through: {now(conn) - mark:.1f} s"
                )
            start = now(conn)
            [(lacking,)] = conn.execute("select rows_without_document from ragdb.watched_tables").fetchall()
            print(f"ragdb.watched_tables: {lacking} rows lack a document, told in {now(conn) - start:.2f} s")
            conn.execute("select ragdb.unwatch_table('public.watched')")


if __name__ == "__main__":
    main()
