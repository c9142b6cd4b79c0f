"""Two releases to rehearse an upgrade with: this one, frozen, and a next one with a revision that only these tests have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ragdb.db import schema

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Release:
    """A checkout of its own, with ragdb/, sql/ and migrations/; its programs run from there."""

    place: Path
    revision: str
    said: list[str] = field(default_factory=list)

    def python(
        self, *words: str, url: str | None = None, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGDB_", "PYTHON", "PG"))}
        names = kept | {"PYTHONPATH": str(self.place)} | ({"RAGDB_DATABASE_URL": url} if url else {}) | variables
        done = subprocess.run(
            [sys.executable, *words], cwd=self.place, env=names, text=True, capture_output=True, check=False, timeout=240
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def ragdb(self, url: str, *words: str, check: bool = True, **variables: str) -> str:
        done = self.python("-m", "ragdb", *words, url=url, check=check, **variables)
        return done.stdout + done.stderr

    def freeze(self, *, check: bool = True) -> str:
        done = self.python("migrations/freeze.py", check=check)
        said = done.stdout + done.stderr
        self.said.append(said)
        return said

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.place / path).read_text(encoding="utf-8")
        assert old in text, (path, old)
        (self.place / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    def version(self, version: str) -> None:
        file = self.place / "ragdb" / "__init__.py"
        file.write_text(re.sub(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', file.read_text(encoding="utf-8")))

    def copy(self, place: Path, revision: str | None = None) -> Release:
        shutil.copytree(self.place, place, ignore=shutil.ignore_patterns("__pycache__"))
        return Release(place, revision or self.revision)


SHELF_OF = """\
-- On which shelf a document stands: 100% by its row.
create or replace function ragdb.shelf_of(document_id bigint) returns text
language sql stable
set search_path from current
as $function$
  select d.shelf || case when d.uri like '%:none:%' then E'\\\\' else '' end from ragdb.document d where d.document_id = shelf_of.document_id
$function$;
comment on function ragdb.shelf_of(bigint) is 'The shelf of a document; 50:50 ''none'' or a name.';

create or replace function ragdb.fold_shelf() returns trigger
language plpgsql
set search_path from current
as $function$
begin
  new.shelf := lower(new.shelf);
  return new;
end
$function$;
comment on function ragdb.fold_shelf() is 'Shelves are written in lower case.';

create or replace trigger document_shelf before insert or update of shelf on ragdb.document
  for each row execute function ragdb.fold_shelf();
comment on trigger document_shelf on ragdb.document is 'Shelves are written in lower case.';
"""


@pytest.fixture(scope="session")
def this_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What is here, as it will be released: everything frozen."""
    place = tmp_path_factory.mktemp("release") / "this"
    for name in ("ragdb", "sql", "migrations"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    release = Release(place, schema.head())
    release.version("98.1")
    release.freeze()
    return release


@pytest.fixture(scope="session")
def next_release(this_release: Release) -> Release:
    """The one after it: a column with an index and a trigger, two functions more, one body and one view changed."""
    number = f"{int(this_release.revision) + 1:04d}"
    release = this_release.copy(this_release.place.with_name("next"), number)
    release.version("98.2")
    # what a developer does, by CONTRIBUTING.md
    release.python("migrations/new_revision.py", "Shelf of a document")
    file = f"migrations/versions/{number}_shelf_of_a_document.py"
    release.edit(file, "from ragdb.db.revision", "import sqlalchemy as sa\nfrom alembic import op\n\nfrom ragdb.db.revision")
    release.edit(
        file,
        "    begin()\n    install(revision)\n",
        "    begin('document')\n"
        "    op.add_column('document', sa.Column('shelf', sa.Text, nullable=False, server_default='none:%', comment='where it stands'),"
        " schema='ragdb')\n"
        "    op.create_index('document_shelf_idx', 'document', ['shelf'], schema='ragdb')\n"
        "    install(revision)\n",
    )
    release.edit(
        file,
        "    begin()\n    uninstall(revision)\n",
        "    begin('document')\n    uninstall(revision)\n    op.drop_column('document', 'shelf', schema='ragdb')\n",
    )
    tables = "ragdb/db/tables.py"
    release.edit(
        tables,
        '        Index("document_ready_at_idx", "ready_at"),',
        '        Index("document_shelf_idx", "shelf"),\n        Index("document_ready_at_idx", "ready_at"),',
    )
    release.edit(
        tables,
        '    document_id: Mapped[int] = identity("key")\n    collection_id',
        '    document_id: Mapped[int] = identity("key")\n'
        '    shelf: Mapped[str] = mapped_column(Text, nullable=False, server_default="none:%", comment="where it stands")\n'
        "    collection_id",
    )
    (release.place / "sql" / "functions" / "shelf_of.sql").write_text(SHELF_OF, encoding="utf-8")
    release.edit("sql/functions/as_timestamp.sql", "is no date or time'", "is 100%% no date'")
    view = "sql/views/stale_documents.sql"
    release.edit(view, " as overdue\n", " as overdue, d.shelf\n")
    release.freeze()
    return release
