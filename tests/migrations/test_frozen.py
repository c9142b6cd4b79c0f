"""What was released stays as it was: files with checksums, and what `make freeze` refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import ragdb
from ragdb.db import catalog, declared, frozen, schema
from ragdb.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Release

MakeDatabase = Callable[..., str]


@pytest.mark.postgres(16, 18)
def test_sql_and_the_models_say_what_the_newest_revision_installs(ragdb_empty_database: MakeDatabase) -> None:
    url = ragdb_empty_database()
    with psycopg.connect(url) as conn:
        conn.execute("create extension vector")
        conn.execute(declared.script().encode())
        conn.execute(schema.roles_script().encode())
        differences = catalog.compare(catalog.recorded(schema.head()), catalog.read(conn))
    assert [str(one) for one in differences] == [], (
        f"sql/ and ragdb/db/tables.py are no longer what revision {schema.head()} makes. "
        + (
            'It is released: write a revision (make revision NAME="what it does"), see CONTRIBUTING.md, "After 0.1.0"'
            if frozen.is_released(schema.head())
            else "It is not released yet: let it make them (versions/), then: make freeze"
        )
    )


def test_files_of_released_revisions_are_as_they_were_released() -> None:
    for revision in frozen.released():
        frozen.verify(revision)


def test_no_file_that_is_installed_has_a_tab() -> None:
    """Alembic writes a tab as spaces into a script, and the function would be another one."""
    assert [path for path, text in {**declared.bodies(), "tables": declared.tables()}.items() if "\t" in text] == []


def test_a_release_has_all_its_revisions_frozen() -> None:
    if ".dev" not in ragdb.__version__:
        assert frozen.released() == frozen.revisions(), f"{ragdb.__version__} is a release: make freeze"
    released = [revision for revision in frozen.revisions() if frozen.is_released(revision)]
    assert released == frozen.revisions()[: len(released)]


def test_freezing_writes_all_that_the_revision_installs_and_says_so(this_release: Release) -> None:
    assert f"releases {this_release.revision}" in this_release.said[0] or "nothing to do" in this_release.said[0]
    place = this_release.place / "migrations" / "frozen" / "0001"
    assert "CREATE TABLE ragdb.chunk (" in (place / "tables.sql").read_text()
    assert "SET STORAGE MAIN" in (place / "tables.sql").read_text()
    assert (place / "policies.sql").is_file()
    assert len((place / "SHA256SUMS").read_text().splitlines()) == sum(p.is_file() for p in place.rglob("*")) - 1
    assert "nothing to do" in this_release.freeze()


def test_a_later_release_freezes_only_what_changed(next_release: Release) -> None:
    place = next_release.place / "migrations" / "frozen" / next_release.revision
    assert sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()) == [
        "SHA256SUMS",
        "functions/as_timestamp.sql",
        "functions/shelf_of.sql",
        "views/stale_documents.sql",
    ]
    assert f"98.2 releases {next_release.revision}" in next_release.said[0]


@pytest.mark.slow
def test_a_change_after_the_release_is_refused_until_it_has_a_revision(this_release: Release, tmp_path: Path) -> None:
    changed = this_release.copy(tmp_path / "changed")
    changed.edit("sql/functions/as_timestamp.sql", "is no date or time", "is no date")
    said = changed.freeze(check=False)
    assert "nothing was written" in said and "make revision NAME=" in said
    assert "function as_timestamp(value text): changed" in said


def test_a_changed_frozen_file_is_named_with_what_to_do(
    this_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = this_release.copy(tmp_path / "changed")
    monkeypatch.setattr(frozen, "migrations_folder", lambda: changed.place / "migrations")
    frozen.verify("0001")
    changed.edit("migrations/frozen/0001/functions/as_timestamp.sql", "is no date or time", "is no date")
    with pytest.raises(ConfigError, match=r"as_timestamp\.sql was changed.*git checkout.*revision of its own"):
        frozen.verify("0001")
    # nor can it be installed
    with pytest.raises(ConfigError, match="as_timestamp"):
        frozen.bodies("0001")
    (changed.place / "migrations/frozen/0001/functions/as_timestamp.sql").unlink()
    (changed.place / "migrations/frozen/0001/functions/mine.sql").write_text("")
    assert [one.split("/")[-1] for one in frozen.problems("0001")] == [
        "as_timestamp.sql is missing",
        "mine.sql is not in SHA256SUMS",
    ]


SIGNATURES = {
    "another argument": ("ragdb.as_timestamp(value text)", "ragdb.as_timestamp(value text, zone text default 'UTC')"),
    "another result": ("returns timestamptz\n", "returns timestamp\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SIGNATURES)
def test_a_changed_signature_is_refused(this_release: Release, tmp_path: Path, what: str) -> None:
    changed = this_release.copy(tmp_path / "changed")
    changed.version("98.2.dev0")
    changed.python("migrations/new_revision.py", "zones")
    for old, new in (
        SIGNATURES[what],
        *(
            [("function ragdb.as_timestamp(text) is", "function ragdb.as_timestamp(text, text) is")]
            if what == "another argument"
            else []
        ),
    ):
        changed.edit("sql/functions/as_timestamp.sql", old, new)
    said = changed.freeze(check=False)
    assert "a signature is never changed" in said and "a name of its own" in said
    assert "as_timestamp(value text) returns timestamp with time zone is as_timestamp(" in said


@pytest.mark.slow
def test_what_is_taken_away_is_refused_until_the_schema_says_which_programs_it_needs(
    this_release: Release, tmp_path: Path
) -> None:
    changed = this_release.copy(tmp_path / "changed", f"{int(this_release.revision) + 1:04d}")
    changed.version("98.2")
    changed.python("migrations/new_revision.py", "no more failed jobs")
    (changed.place / "sql" / "views" / "failed_jobs.sql").unlink()
    changed.edit("sql/roles.sql", ", ragdb.failed_jobs", "")
    said = changed.freeze(check=False)
    assert "expand, then contract" in said and "view failed_jobs: missing" in said
    assert not (changed.place / "migrations" / "frozen" / changed.revision).exists()
    changed.edit("sql/functions/oldest_program.sql", "return '0001'", f"return '{changed.revision}'")
    changed.version("98.2.dev0")
    assert f"{changed.revision}: installed from sql/ and the models, until a release" in changed.freeze()
    assert not (changed.place / "migrations" / "frozen" / changed.revision).exists()
    changed.version("98.2")
    changed.freeze()
    assert (changed.place / "migrations" / "frozen" / changed.revision / "removed.txt").read_text() == "views/failed_jobs.sql\n"


@pytest.mark.slow
def test_a_way_back_that_does_not_lead_back_is_refused(next_release: Release, tmp_path: Path) -> None:
    changed = next_release.copy(tmp_path / "changed")
    for path in (changed.place / "migrations" / "frozen" / changed.revision).rglob("*"):
        if path.is_file():
            path.unlink()
    changed.edit(
        f"migrations/versions/{changed.revision}_shelf_of_a_document.py",
        "    op.drop_column('document', 'shelf', schema='ragdb')\n",
        "",
    )
    said = changed.freeze(check=False)
    assert "a downgrade does not lead back" in said and "column document.shelf: added" in said
