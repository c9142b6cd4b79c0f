"""What every table is declared with: the schema, the names of constraints, and the columns that many have."""

from __future__ import annotations

from sqlalchemy import BigInteger, Identity, MetaData, text
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA = "ragdb"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    },
)

TimestampTZ = TIMESTAMP(timezone=True)
NOW = text("now()")
EMPTY_OBJECT = text("'{}'::jsonb")


class Base(DeclarativeBase):
    metadata = metadata


def identity(comment: str) -> Mapped[int]:
    """A key that counts up."""
    # `by default`: a bulk load that takes ids with nextval() may write them itself.
    return mapped_column(BigInteger, Identity(always=False), primary_key=True, comment=comment)
