"""`ragdb sync` as its users meet it, and `--watch`: it follows the folder, outlives a restart of the server, ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ragdb import RagDB, ingest
from ragdb.cli.main import main
from ragdb.errors import SyncRefused
from ragdb.ingest import watching
from ragdb.ingest.watching import Batch
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
FAKE = "ragdb.testing.fakes:FakeEmbedder"
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "router.md").write_text("# Router\n\nHold the reset button.\n")
    (folder / "sub" / "tea.md").write_text("# Tea\n\nGreen tea in stock.\n")
    (folder / "cable.md").write_text("# Cable\n\nThe blue cable.\n")
    return folder


@pytest.fixture
def cli(ragdb_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    for name in list(os.environ):
        if name.startswith("RAGDB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    monkeypatch.setenv("RAGDB_EMBEDDER", FAKE)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ragdb", *map(str, arguments)])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return int(code or 0), out, err

    return run


def test_the_report_counts_what_was_done(cli: Cli, docs: Path) -> None:
    code, out, _ = cli("sync", docs, "-c", "help")
    assert code == 0
    assert out.startswith("3 added, 0 changed, 0 renamed, 0 deleted, 0 unchanged, 0 failed; 3 chunks, 3 embedded")
    (docs / "router.md").rename(docs / "reset.md")
    (docs / "sub" / "tea.md").unlink()
    (docs / "bad.md").write_bytes(b"\x89PNG\r\n\x1a\n")
    code, out, err = cli("sync", docs, "-c", "help", "--json")
    made = json.loads(out)
    assert code == 1
    assert made["renamed"] == [{"from": "router.md", "to": "reset.md"}]
    assert (made["added"], made["changed"], made["deleted"], made["unchanged"], made["embedded"]) == (
        [],
        [],
        ["sub/tea.md"],
        1,
        0,
    )
    assert [Path(failure["path"]).name for failure in made["failed"]] == ["bad.md"]
    assert made["erased"]["chunks"] == 1
    assert "PNG image" in err
    shown = json.loads(cli("show", "reset.md", "-c", "help", "--json")[1])
    assert shown["source_state"]["size"] == len("# Router\n\nHold the reset button.\n")


def test_a_dry_run_prints_a_line_for_each_document(cli: Cli, docs: Path) -> None:
    code, out, _ = cli("sync", docs, "--dry-run")
    assert (code, out.splitlines()) == (
        0,
        [
            "add     cable.md",
            "add     router.md",
            "add     sub/tea.md",
            "would do: 3 added, 0 changed, 0 renamed, 0 deleted, 0 unchanged, 0 failed",
        ],
    )
    assert cli("ls")[0] == 1  # not even the collection
    cli("sync", docs)
    for path in docs.rglob("*.md"):
        path.unlink()
    code, out, err = cli("sync", docs, "--dry-run")
    assert (code, "delete  router.md" in out, "refused without --yes" in err) == (0, True, True)
    assert json.loads(cli("sync", docs, "--dry-run", "--json")[1])["refused"].startswith(f"{docs} holds no file")


def test_too_much_going_is_an_error_with_the_counts(cli: Cli, docs: Path) -> None:
    cli("sync", docs)
    for path in docs.rglob("*.md"):
        path.unlink()
    code, out, err = cli("sync", docs)
    assert (code, out) == (1, "")
    assert "3 of its 3 documents would be deleted" in err
    assert "--yes" in err
    assert cli("sync", docs, "--yes")[1].startswith("0 added, 0 changed, 0 renamed, 3 deleted")


def test_the_queue_leaves_the_embedding_to_a_worker(cli: Cli, docs: Path) -> None:
    code, out, _ = cli("sync", docs, "--queue", "--json")
    assert (code, json.loads(out)["waiting"], json.loads(out)["embedded"]) == (0, 3, 0)
    assert json.loads(cli("sync", docs, "--queue", "--json")[1])["waiting"] == 3
    cli("worker", "--once")
    assert json.loads(cli("sync", docs, "--json")[1])["unchanged"] == 3


def test_rm_gives_the_receipt(cli: Cli, docs: Path) -> None:
    cli("sync", docs)
    receipt = json.loads(cli("rm", "router.md", "--json")[1])["removed"][0]
    assert (receipt["uri"], receipt["chunks"], receipt["embeddings"], receipt["revisions"]) == ("router.md", 1, 1, 1)


def test_watching_without_its_library_names_the_extra(cli: Cli, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    code, _, err = cli("sync", docs, "--watch")
    assert (code, "pip install 'ragdb[files]'" in err) == (1, True)
    assert cli("sync", docs, "--watch", "--dry-run")[0] == 2


# --- watch -----------------------------------------------------------------------------------------


def wait_until(true: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


class Watched:
    """A folder that a thread watches."""

    def __init__(self, rag: RagDB, folder: Path, **how: Any) -> None:
        pytest.importorskip("watchfiles", reason="needs the extra `files`")
        self.stop = threading.Event()
        self.seen: list[Batch | SyncRefused] = []
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(rag, folder, how), daemon=True)
        self.thread.start()

    def _run(self, rag: RagDB, folder: Path, how: dict[str, Any]) -> None:
        try:
            for one in watching.watch(rag, folder, stop=self.stop, **how):
                self.seen.append(one)
        except BaseException as error:
            self.error = error
            raise

    def end(self) -> None:
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def watched(rag: RagDB, docs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(watching, "_QUIET", 100)
    made = Watched(rag, docs)
    wait_until(lambda: made.seen)
    yield made
    made.end()
    assert made.error is None


def state(query: Query) -> list[tuple[str, str]]:
    return query('select uri, ingest_state from ragdb.document order by uri collate "C"')


def test_a_watched_folder_is_followed(watched: Watched, docs: Path, query: Query) -> None:
    first = watched.seen[0]
    assert isinstance(first, Batch)
    assert (first.first, len(first.synced.added)) == (True, 3)
    (docs / "deep" / "er").mkdir(parents=True)
    (docs / "deep" / "er" / "new.md").write_text("# New\n\nnew\n")
    (docs / ".hidden.md").write_text("# Hidden\n")
    (docs / "cable.md").write_text("# Cable\n\nThe red cable.\n")
    wait_until(lambda: ("deep/er/new.md", "ready") in state(query))
    wait_until(lambda: query("select true from ragdb.document_revision where content like '%red cable%'"))
    (docs / "deep").rename(docs / "deeper")
    wait_until(lambda: ("deeper/er/new.md", "ready") in state(query))
    (docs / "router.md").unlink()
    wait_until(lambda: ("router.md", "ready") not in state(query))
    assert [uri for uri, _ in state(query)] == ["cable.md", "deeper/er/new.md", "sub/tea.md"]
    renamed = [one.synced.renamed for one in watched.seen if isinstance(one, Batch) and one.synced.renamed]
    assert renamed == [[{"from": "deep/er/new.md", "to": "deeper/er/new.md"}]]


def test_a_batch_of_changes_is_one_sync(watched: Watched, docs: Path, query: Query) -> None:
    for n in range(50):
        (docs / f"n{n}.md").write_text(f"# N{n}\n\ntext {n}\n")
    wait_until(lambda: len(state(query)) == 53)
    wait_until(lambda: sum(len(one.synced.added) for one in watched.seen[1:] if isinstance(one, Batch)) == 50)
    assert len(watched.seen) <= 4


def test_a_watched_folder_that_loses_most_is_asked_about_and_watched_on(watched: Watched, docs: Path, query: Query) -> None:
    docs.rename(docs.parent / "away")
    time.sleep(1.5)
    (docs.parent / "away").rename(docs)  # the disk is back
    (docs / "late.md").write_text("# Late\n\nlate\n")
    wait_until(lambda: ("late.md", "ready") in state(query))
    assert len(state(query)) == 4
    watched.seen.clear()
    for path in docs.rglob("*.md"):
        path.unlink()
    wait_until(lambda: any(isinstance(one, SyncRefused) for one in watched.seen))
    assert len(state(query)) == 4
    (docs / "again.md").write_text("# Again\n\nagain\n")
    time.sleep(1.5)
    for name in ("router.md", "cable.md", "late.md"):
        (docs / name).write_text(f"# {name}\n\n{name}\n")
    wait_until(lambda: ("again.md", "ready") in state(query))


def test_watching_outlives_lost_connections_and_a_second_sync(
    watched: Watched, rag: RagDB, docs: Path, query: Query, ragdb_url: str
) -> None:
    refused = threading.Event()

    def ended(texts: list[str]) -> None:
        # in the middle of a document: every connection of ours but this test's goes
        if not refused.is_set():
            refused.set()
            with psycopg.connect(ragdb_url, autocommit=True) as conn:
                conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'ragdb'"
                )

    made = rag.context.embedder()
    assert isinstance(made, FakeEmbedder)
    made.fail = ended  # type: ignore[assignment]
    (docs / "new.md").write_text("# New\n\nnew\n")
    wait_until(refused.is_set)
    wait_until(lambda: ("new.md", "ready") in state(query))
    made.fail = None


# What a script starts in the background ignores Ctrl-C, and so does what that starts: these tests, and their program.
HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from ragdb.cli.main import main; main()"
PROGRAM = [sys.executable, "-c", HEARS, "sync", "--watch", "-c", "help"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_watching_cleanly(ragdb_url: str, docs: Path, query: Query, how: signal.Signals) -> None:
    pytest.importorskip("watchfiles", reason="needs the extra `files`")
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "RAGDB_DATABASE_URL": ragdb_url, "RAGDB_EMBEDDER": FAKE}
    process = subprocess.Popen([*PROGRAM, docs], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        wait_until(lambda: query("select count(*) = 3 from ragdb.document where ingest_state = 'ready'") == [(True,)])
        (docs / "new.md").write_text("# New\n\nnew\n")
        wait_until(lambda: ("new.md", "ready") in state(query))
        process.send_signal(how)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert out.startswith(b"3 added")
    assert b"stopped. What was done so far is kept." in err
    assert query("select count(*) from pg_locks where locktype = 'advisory'") == [(0,)]
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(name=FAKE)) as rag:
        assert ingest.sync(rag, docs).unchanged == 4
