"""`make revision NAME="..."`: a file for the next revision, from script.py.mako."""

from __future__ import annotations

import sys

from alembic import command

from ragdb.db import frozen, schema


def main(name: str) -> None:
    head = frozen.revisions()[-1]
    if not frozen.is_released(head):
        # T201: this is a program
        print(f"{head} is not released yet and may be changed in place; a second one is for a large index (build_index)")  # noqa: T201
    config = schema.config()
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    command.revision(config, message=name, rev_id=f"{int(head) + 1:04d}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].strip():
        sys.exit('give it a name: make revision NAME="shelf of a document"')
    main(sys.argv[1])
