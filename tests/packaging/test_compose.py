"""docker-compose.yml, read as text: what has gone wrong with such files before stays right."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).parents[2] / "docker-compose.yml"
UNITS = {"kb": 1024, "mb": 1024**2, "gb": 1024**3}


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    assert list(services) == ["postgres", "migrate", "worker"]
    return services["postgres"]


def _size(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([kmg]b)", text.lower()).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def _setting(service: dict[str, Any], name: str) -> str:
    words: list[str] = service["command"]
    return next(word.partition("=")[2] for word in words if word.startswith(name + "="))


def test_the_file_keeps_to_the_schema_of_compose(tmp_path: Path) -> None:
    """The JSON schema of the Compose Specification, as check-jsonschema brings it."""
    validate = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    assert subprocess.run([*validate, FILE], capture_output=True, check=False).returncode == 0
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(FILE.read_text(encoding="utf-8").replace("shm_size", "shmsize"))
    refused = subprocess.run([*validate, wrong], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "shmsize" in refused.stdout


def test_the_schema_is_made_by_a_service_that_waits_for_a_healthy_server() -> None:
    migrate = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]["migrate"]
    assert migrate["command"] == ["ragdb", "db", "upgrade"]
    assert migrate["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert migrate["environment"]["RAGDB_DATABASE_URL"] == "postgresql://ragdb@postgres:5432/ragdb"
    assert migrate["environment"]["PGPASSWORD"].startswith("${RAGDB_POSTGRES_PASSWORD:?")
    assert migrate["profiles"] == ["migrate"], "a service that ends is not for `up --wait`"


def test_a_worker_may_finish_before_it_is_killed_and_is_started_only_when_asked_for() -> None:
    worker = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]["worker"]
    assert worker["profiles"] == ["worker"]
    grace = float(worker["command"][worker["command"].index("--grace") + 1])
    assert int(worker["stop_grace_period"].removesuffix("s")) > grace
    assert worker["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_the_volume_is_where_images_of_postgresql_18_keep_their_data(service: dict[str, Any]) -> None:
    assert service["image"] == "pgvector/pgvector:pg18"
    assert service["volumes"] == ["postgres:/var/lib/postgresql"]


def test_the_port_is_open_to_this_machine_only(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_there_is_no_default_password_and_its_absence_is_explained(service: dict[str, Any]) -> None:
    assert re.fullmatch(
        r"\$\{RAGDB_POSTGRES_PASSWORD:\?set RAGDB_POSTGRES_PASSWORD .+\}", service["environment"]["POSTGRES_PASSWORD"]
    )
    assert "POSTGRES_HOST_AUTH_METHOD" not in service["environment"]


def test_shared_memory_holds_a_parallel_index_build(service: dict[str, Any]) -> None:
    assert _size(service["shm_size"]) >= 2 * _size(_setting(service, "maintenance_work_mem"))


def test_healthy_means_ready_by_tcp_after_the_init_files(service: dict[str, Any]) -> None:
    assert "--host 127.0.0.1" in service["healthcheck"]["test"][1]


def test_an_init_file_creates_the_extension(service: dict[str, Any]) -> None:
    (config,) = service["configs"]
    assert config["target"].startswith("/docker-entrypoint-initdb.d/")
    assert config["target"].endswith(".sql")
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))["configs"][config["source"]]["content"]
    assert content.strip() == "create extension if not exists vector;"


def test_compose_itself_accepts_the_file_and_refuses_it_without_a_password(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs docker with its compose plugin")
    command = [docker, "compose", "--file", str(FILE), "--project-directory", str(tmp_path), "config", "--quiet"]
    path = {"PATH": str(Path(docker).parent), "HOME": str(tmp_path)}
    assert subprocess.run(command, env=path | {"RAGDB_POSTGRES_PASSWORD": "x"}, check=False).returncode == 0
    without = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "set RAGDB_POSTGRES_PASSWORD" in without.stderr
