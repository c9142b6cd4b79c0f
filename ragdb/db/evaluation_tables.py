"""The tables of evaluation: questions with judgements, and what pipelines made of them.

A judgement names a document by its uri, and may name words of it (`quote`): both outlive a new chunking, as chunk ids
do not. A result keeps the documents that were found in order, so that any metric can be computed again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from ragdb.db.base import EMPTY_OBJECT, NOW, Base, TimestampTZ, identity

_NO_TEXTS = text("'{}'::text[]")
_NO_IDS = text("'{}'::bigint[]")


class EvalSet(Base):
    __tablename__ = "eval_set"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name = btrim(name) and length(name) >= 1 and length(name) <= 200", name="name"),
        {"comment": "A set of questions that people judged, to measure pipelines by."},
    )
    eval_set_id: Mapped[int] = identity("key")
    name: Mapped[str] = mapped_column(Text, nullable=False, comment="what users call it")
    collection: Mapped[str] = mapped_column(
        Text, nullable=False, comment="name of the collection that its judgements are about, asked unless told otherwise"
    )
    description: Mapped[str | None] = mapped_column(Text, comment="what it is for; may be updated by hand")
    source: Mapped[str | None] = mapped_column(Text, comment="where it was imported from")
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was made")


class EvalQuestion(Base):
    __tablename__ = "eval_question"
    __table_args__ = (
        UniqueConstraint("eval_set_id", "key"),
        CheckConstraint("key <> '' and question <> ''", name="text"),
        CheckConstraint("state in ('accepted', 'draft', 'rejected')", name="state"),
        CheckConstraint("jsonb_typeof(\"where\") = 'object'", name="where"),
        Index("eval_question_drafted_from_idx", "drafted_from", postgresql_where=text("drafted_from is not null")),
        {
            "comment": "A question of a set. One without a relevant document is there to be refused, and counts for that and for contamination only."
        },
    )
    eval_question_id: Mapped[int] = identity("key")
    eval_set_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.eval_set.eval_set_id", ondelete="CASCADE"), nullable=False, comment="the set"
    )
    key: Mapped[str] = mapped_column(Text, nullable=False, comment="the question's own id in its set")
    question: Mapped[str] = mapped_column(Text, nullable=False, comment="what is asked")
    reference: Mapped[str | None] = mapped_column(Text, comment="a right answer, as a person wrote it")
    language: Mapped[str | None] = mapped_column(Text, comment="language of the question")
    tags: Mapped[list[str]] = mapped_column(
        ARRAY(Text), nullable=False, server_default=_NO_TEXTS, comment="kinds of questions, for figures of each kind"
    )
    where_filter: Mapped[dict[str, Any]] = mapped_column(
        "where", JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="the filter it is asked with"
    )
    paraphrase_of: Mapped[str | None] = mapped_column(
        Text, comment="key of the question that it asks in other words, for rank stability"
    )
    state: Mapped[str] = mapped_column(
        Text, nullable=False, server_default="accepted", comment="accepted; draft: proposed by a model; rejected: by a person"
    )
    drafted_from: Mapped[int | None] = mapped_column(
        BigInteger, comment="document that a model made it from; a draft goes with the document"
    )
    drafted_by: Mapped[str | None] = mapped_column(Text, comment="the language model that proposed it")
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when it was made")


class EvalJudgement(Base):
    __tablename__ = "eval_judgement"
    __table_args__ = (
        CheckConstraint("uri <> ''", name="uri"),
        CheckConstraint("not trap or grade <= 0", name="trap"),
        # a quote may be longer than an index takes
        Index(
            "eval_judgement_key",
            "eval_question_id",
            text("md5(uri)"),
            text("md5(coalesce(label, ''))"),
            text("md5(coalesce(quote, ''))"),
            unique=True,
        ),
        Index("eval_judgement_uri_idx", text("md5(uri)")),
        {"comment": "What a person said about one document, or some words of it, for one question."},
    )
    eval_judgement_id: Mapped[int] = identity("key")
    eval_question_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.eval_question.eval_question_id", ondelete="CASCADE"), nullable=False, comment="the question"
    )
    uri: Mapped[str] = mapped_column(Text, nullable=False, comment="uri of the document; it may not be there yet, or no more")
    label: Mapped[str | None] = mapped_column(Text, comment="label of a chunk, as this chunking cuts it; null: not said")
    quote: Mapped[str | None] = mapped_column(
        Text, comment="the words that answer the question, as they stand in the document; null: not said, or it was deleted"
    )
    grade: Mapped[int] = mapped_column(
        Integer, nullable=False, server_default="1", comment="how relevant: 1 and more; 0 and less: not"
    )
    trap: Mapped[bool] = mapped_column(
        Boolean, nullable=False, server_default=text("false"), comment="it looks right and is wrong: contamination where found"
    )


class EvalRun(Base):
    __tablename__ = "eval_run"
    __table_args__ = (
        Index("eval_run_fingerprint_idx", "eval_set_id", "fingerprint"),
        CheckConstraint("jsonb_typeof(pipeline) = 'object' and jsonb_typeof(settings) = 'object'", name="objects"),
        {"comment": "One pipeline asked the questions of one set."},
    )
    eval_run_id: Mapped[int] = identity("key")
    eval_set_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.eval_set.eval_set_id", ondelete="CASCADE"), nullable=False, comment="the set"
    )
    name: Mapped[str] = mapped_column(Text, nullable=False, comment="what it is called in tables, the pipeline's name by default")
    collection: Mapped[str] = mapped_column(Text, nullable=False, comment="name of the collection that was asked")
    pipeline: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False, comment="the pipeline and its settings")
    settings: Mapped[dict[str, Any]] = mapped_column(
        JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="everything else that the results hang on: k, models, chunks"
    )
    fingerprint: Mapped[str] = mapped_column(
        Text,
        nullable=False,
        comment="hash of set, collection, pipeline and settings: the same again is not asked twice, and what broke off goes on",
    )
    started_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")
    finished_at: Mapped[datetime | None] = mapped_column(TimestampTZ, comment="when all were asked; null: not yet")
    started_by: Mapped[str] = mapped_column(Text, nullable=False, server_default=text("session_user"), comment="by which login")
    comment: Mapped[str | None] = mapped_column(Text, comment="what it is for; may be updated by hand")


class EvalResult(Base):
    __tablename__ = "eval_result"
    __table_args__ = (
        Index("eval_result_eval_question_id_idx", "eval_question_id"),
        Index("eval_result_document_ids_idx", "document_ids", postgresql_using="gin"),
        CheckConstraint("cardinality(uris) = cardinality(statuses) and cardinality(uris) = cardinality(chunk_ids)", name="lists"),
        {"comment": "What one pipeline found for one question, and where it lost what it should have found."},
    )
    eval_run_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.eval_run.eval_run_id", ondelete="CASCADE"), primary_key=True, autoincrement=False, comment="the run"
    )
    eval_question_id: Mapped[int] = mapped_column(
        ForeignKey("ragdb.eval_question.eval_question_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the question",
    )
    run_id: Mapped[int | None] = mapped_column(
        BigInteger, comment="its trace (ragdb.explain), for as long as that is kept; null: not stored"
    )
    chunk_ids: Mapped[list[int]] = mapped_column(
        ARRAY(BigInteger), nullable=False, server_default=_NO_IDS, comment="chunks found, best first"
    )
    uris: Mapped[list[str]] = mapped_column(
        ARRAY(Text), nullable=False, server_default=_NO_TEXTS, comment="document of each of them"
    )
    statuses: Mapped[list[str]] = mapped_column(
        ARRAY(Text), nullable=False, server_default=_NO_TEXTS, comment="status of that document then"
    )
    funnel: Mapped[dict[str, Any]] = mapped_column(
        JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="{stage: {rank, alive}} of the best evidence; {}: none judged"
    )
    outcome: Mapped[str | None] = mapped_column(Text, comment="as in run")
    answer: Mapped[str | None] = mapped_column(Text, comment="the answer; null: none, or a document it was made from was deleted")
    document_ids: Mapped[list[int]] = mapped_column(
        ARRAY(BigInteger), nullable=False, server_default=_NO_IDS, comment="documents whose text the answer was made from"
    )
    error: Mapped[str | None] = mapped_column(Text, comment="why it could not be asked, or why no answer was written")
    ms: Mapped[float] = mapped_column(Double, nullable=False, comment="time for everything, in milliseconds")
    stage_ms: Mapped[dict[str, Any]] = mapped_column(
        JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="milliseconds by stage; embed: of that, the query's vector"
    )
    cost: Mapped[float | None] = mapped_column(Double, comment="of the models' calls, where prices are known")
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")


class EvalScore(Base):
    __tablename__ = "eval_score"
    __table_args__ = (
        ForeignKeyConstraint(
            ["eval_run_id", "eval_question_id"],
            ["ragdb.eval_result.eval_run_id", "ragdb.eval_result.eval_question_id"],
            ondelete="CASCADE",
        ),
        {"comment": "One metric of one result; ragdb.eval_summary has the means."},
    )
    eval_run_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, comment="the run")
    eval_question_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, comment="the question")
    metric: Mapped[str] = mapped_column(Text, primary_key=True, comment="ndcg@10, recall@20, contamination@5, faithfulness, ...")
    value: Mapped[float] = mapped_column(Double, nullable=False, comment="0 to 1; better is more, but for contamination")


class EvalVerdict(Base):
    __tablename__ = "eval_verdict"
    __table_args__ = (
        ForeignKeyConstraint(
            ["eval_run_id", "eval_question_id"],
            ["ragdb.eval_result.eval_run_id", "ragdb.eval_result.eval_question_id"],
            ondelete="CASCADE",
        ),
        Index("eval_verdict_result_idx", "eval_run_id", "eval_question_id"),
        {"comment": "What a judging language model said, word for word, and what could be made of it."},
    )
    eval_verdict_id: Mapped[int] = identity("key")
    eval_run_id: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="the run")
    eval_question_id: Mapped[int] = mapped_column(BigInteger, nullable=False, comment="the question")
    metric: Mapped[str] = mapped_column(
        Text, nullable=False, comment="what it was asked for: faithfulness, answer_relevance, ..."
    )
    step: Mapped[str] = mapped_column(Text, nullable=False, server_default="", comment="which call of several")
    judge: Mapped[str] = mapped_column(Text, nullable=False, comment="the judging model")
    prompt_hash: Mapped[str] = mapped_column(Text, nullable=False, comment="sha256 of the prompt's text without its values")
    temperature: Mapped[float] = mapped_column(Double, nullable=False, comment="of the call")
    raw: Mapped[str | None] = mapped_column(
        Text, comment="what it wrote; null: nothing came, or a document it speaks of was deleted"
    )
    value: Mapped[float | None] = mapped_column(
        Double, comment="the metric, on the row of its last call; null: broken, or a step"
    )
    broken: Mapped[str | None] = mapped_column(Text, comment="why nothing could be made of it; null: it could")
    usage: Mapped[dict[str, Any]] = mapped_column(
        JSONB, nullable=False, server_default=EMPTY_OBJECT, comment="tokens, milliseconds, cost"
    )
    created_at: Mapped[datetime] = mapped_column(TimestampTZ, nullable=False, server_default=NOW, comment="when")
