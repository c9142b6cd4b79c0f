"""What is installed is whole: the wheel carries SQL, migrations, prompts and examples, and migrates with them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True, capture_output=True
    )
    return next(out.glob("ragdb-*.whl"))


def test_the_wheel_carries_everything_that_is_no_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for source, target in (
        ("sql/functions", "ragdb/_sql/functions"),
        ("sql/views", "ragdb/_sql/views"),
        ("migrations", "ragdb/_migrations"),
        ("examples/handbook", "ragdb/_examples/handbook"),
        ("ragdb/prompts", "ragdb/prompts"),
    ):
        files = [p for p in (ROOT / source).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        assert files
        missing = [p for p in files if f"{target}/{p.relative_to(ROOT / source).as_posix()}" not in names]
        assert missing == []
    assert "ragdb/py.typed" in names


def test_an_installed_wheel_migrates_with_its_own_files(
    wheel: Path, tmp_path: Path, ragdb_empty_database: Callable[..., str]
) -> None:
    import psycopg

    zipfile.ZipFile(wheel).extractall(tmp_path)
    url = ragdb_empty_database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension vector")
    program = "import sys; import ragdb, ragdb.db; assert ragdb.__file__.startswith(sys.argv[1]), ragdb.__file__; ragdb.db.upgrade(sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with psycopg.connect(url) as conn:
        assert conn.execute("select count(*) > 0 from pg_proc where pronamespace = 'ragdb'::regnamespace").fetchone() == (True,)
