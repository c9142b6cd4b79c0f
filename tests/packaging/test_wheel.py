"""What is installed is whole: the wheel carries SQL, migrations, prompts and examples, and migrates with them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import ragdb

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
        ("sql", "ragdb/_sql"),
        ("migrations", "ragdb/_migrations"),
        ("examples/handbook", "ragdb/_examples/handbook"),
        ("ragdb/prompts", "ragdb/prompts"),
        ("ragdb/evaluate/templates", "ragdb/evaluate/templates"),
    ):
        files = [p for p in (ROOT / source).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        assert files
        missing = [p for p in files if f"{target}/{p.relative_to(ROOT / source).as_posix()}" not in names]
        assert missing == []
    assert "ragdb/py.typed" in names


PROGRAM = """
import importlib.resources, sys
import ragdb.db
from ragdb import Document, RagDB
from ragdb.testing import FakeEmbedder

assert ragdb.__file__.startswith(sys.prefix), ragdb.__file__
assert importlib.resources.files("ragdb").joinpath("py.typed").is_file()
url = sys.argv[1]
ragdb.db.upgrade(url)
with RagDB(url, collection="help", embedder=FakeEmbedder()) as rag:
    rag.add(Document("router", "# Router\\n\\nReset the router with a pin."))
    rag.add(Document("手当", "# 手当\\n\\n在宅勤務手当は月額五千円です。"))
    print(rag.search("reset the router")[0].uri, rag.search("在宅勤務手当")[0].uri, rag.ask("How do I reset the router?").outcome)
"""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an empty environment with the wheel, and what it asks for, in it."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, check=False, cwd=place, env=ELSEWHERE)
    if "No matching distribution" in done.stderr and "Connection" in done.stderr:
        pytest.skip("the package index cannot be reached, to install what ragdb depends on")
    assert done.returncode == 0, done.stderr
    return place / "bin"


# Nothing of the checkout, nor of the surroundings, reaches the installed package.
ELSEWHERE = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"} | {
    name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or name.startswith(("PIP_", "SSL_"))
}


def run(command: list[object], place: Path, **variables: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, env=ELSEWHERE | variables, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_wheel_migrates_adds_and_searches_with_its_own_files(
    installed: Path, tmp_path: Path, ragdb_empty_database: Callable[..., str]
) -> None:
    import psycopg

    url = ragdb_empty_database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension vector")
    assert run([installed / "python", "-c", PROGRAM, url], tmp_path) == "router 手当 answered\n"
    # the program, its scripts and what it was recorded by come along
    program = installed / "ragdb"
    assert "no differences" in run([program, "db", "check"], tmp_path, RAGDB_DATABASE_URL=url)
    assert "create role" in run([program, "db", "roles"], tmp_path)
    assert "CREATE TABLE ragdb.chunk" in run([program, "db", "sql"], tmp_path)
    assert run([program, "--version"], tmp_path) == f"ragdb {ragdb.__version__}\n"


def test_the_version_is_that_of_the_changelog() -> None:
    """The newest heading is the version's, or, before a release of it, "Unreleased"."""
    headings = re.findall(r"(?m)^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    released = [heading for heading in headings if heading != "Unreleased"]
    version = ragdb.__version__
    if re.search(r"dev|a|b|rc", version):
        assert headings[0] == "Unreleased", f"{version} is not released: what it brings stands under Unreleased"
        assert version.split(".dev")[0] not in released
    else:
        assert released[0] == version


def test_the_wheel_and_the_source_archive_carry_what_releases_installed(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling")
    here = tmp_path / "ragdb-src"
    for name in ("ragdb", "sql", "migrations", "examples"):
        shutil.copytree(ROOT / name, here / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, here / name)
    frozen = here / "migrations" / "frozen" / "9999" / "functions"
    frozen.mkdir(parents=True)
    (frozen / "x.sql").write_text("select 1;\n")
    (frozen.parent / "SHA256SUMS").write_text("")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", "out"], cwd=here, check=True, capture_output=True)
    [built] = (here / "out").glob("*.whl")
    [archive] = (here / "out").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        sources = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    for path in ("9999/SHA256SUMS", "9999/functions/x.sql"):
        assert f"ragdb/_migrations/frozen/{path}" in zipfile.ZipFile(built).namelist()
        assert f"migrations/frozen/{path}" in sources
