"""Records what the newest revision makes, for `ragdb db check`: run by `make freeze` after a change of sql/ or the tables."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ragdb.db import catalog, embedded, schema
from ragdb.db.sqlfiles import migrations_folder


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ragdb-freeze-") as folder:
        home = Path(folder).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            with schema.connection(url) as conn:
                conn.execute(schema.roles_script().encode())
                text = catalog.freeze(conn)
        finally:
            embedded.stop(home)
    file = migrations_folder() / "catalog" / f"{schema.head()}.json"
    changed = not file.exists() or file.read_text(encoding="utf-8") != text
    file.write_text(text, encoding="utf-8")
    print(f"{file}: {'written' if changed else 'as it was'}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
