"""Getting documents in and keeping them searchable: functions that take a RagDB."""

from ragdb.ingest.vector_sets import activate

__all__ = ["activate"]
