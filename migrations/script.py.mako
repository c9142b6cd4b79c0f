"""${message}"""

from __future__ import annotations

from ragdb.db.revision import begin, install, uninstall

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    # First the tables (name those that are altered: begin("document")), then the files of sql/ that changed.
    begin()
    install(revision)


def downgrade() -> None:
    begin()
    uninstall(revision)
