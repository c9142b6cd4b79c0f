"""Getting documents in and keeping them searchable: functions that take a RagDB, and the modules beside them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragdb.ingest.syncing import sync
    from ragdb.ingest.vector_sets import activate

__all__ = ["activate", "sync"]

_MODULE = {"activate": "ragdb.ingest.vector_sets", "sync": "ragdb.ingest.syncing"}


def __getattr__(name: str) -> Any:
    """Imports a function at its first use: the modules in here import each other."""
    if name not in _MODULE:
        raise AttributeError(f"module 'ragdb.ingest' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)
