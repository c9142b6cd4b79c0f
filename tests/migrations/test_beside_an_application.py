"""Beside an application's own Alembic and models: nothing of ragdb is dropped, joined to, and pointed at by foreign keys."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, ForeignKey, MetaData, create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import ragdb.alembic
from ragdb import Document, RagDB
from ragdb.db import tables
from ragdb.db.connect import sqlalchemy_url
from ragdb.testing import FakeEmbedder

pytestmark = pytest.mark.postgres(16, 18)


class Base(DeclarativeBase):
    metadata = MetaData()


class Article(Base):
    """A table of the application, with a foreign key to ragdb's document."""

    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    document_id: Mapped[int] = mapped_column(ForeignKey(tables.Document.document_id, ondelete="CASCADE"))
    author: Mapped[str]


def changes(connection: Connection, **options: Any) -> list[Any]:
    """What autogenerate would write."""
    return compare_metadata(MigrationContext.configure(connection, opts={"include_schemas": True, **options}), Base.metadata)


def test_autogenerate_of_an_application_leaves_ragdb_alone(ragdb_url: str) -> None:
    engine = create_engine(sqlalchemy_url(ragdb_url))
    with engine.connect() as connection:
        Base.metadata.create_all(connection)
        assert changes(connection, include_name=ragdb.alembic.include_name) == []
        # without it, all of ragdb would go
        assert {change[0] for change in changes(connection) if isinstance(change, tuple)} >= {"remove_table"}
    engine.dispose()


def test_an_application_joins_to_documents_and_a_deleted_one_takes_its_row_along(ragdb_url: str) -> None:
    engine = create_engine(sqlalchemy_url(ragdb_url))
    Base.metadata.create_all(engine)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        added = rag.add(Document("router.md", "Reset the router."))
        with Session(engine) as session:
            session.add(Article(document_id=added.document_id, author="Ann"))
            session.commit()
            found = session.execute(
                select(tables.Document.uri, Article.author).join(Article, Article.document_id == tables.Document.document_id)
            ).all()
            assert found == [("router.md", "Ann")]
        rag.delete("router.md")
    with engine.connect() as connection:
        assert connection.execute(text("select count(*) from article")).scalar() == 0
    engine.dispose()


def test_a_hook_of_the_applications_own_still_decides() -> None:
    both = ragdb.alembic.and_also(lambda name, type_, parent_names: name != "audit")
    assert [both(name, "schema", {}) for name in ("ragdb", "audit", "public", None)] == [False, False, True, True]
    assert both("ragdb", "table", {"schema_name": "public"})
