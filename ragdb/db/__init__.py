"""Everything that touches the server as a server: addresses, the schema, the pool, the embedded PostgreSQL."""

from ragdb.db.schema import downgrade, upgrade

__all__ = ["downgrade", "upgrade"]
