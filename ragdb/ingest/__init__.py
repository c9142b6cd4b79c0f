"""Documents in: `ragdb.ingest.sync(rag, folder)` and the modules beside it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragdb.ingest.syncing import sync

__all__ = ["sync"]

_MODULE = {"sync": "ragdb.ingest.syncing"}


def __getattr__(name: str) -> Any:
    """Imports a function at its first use: the modules in here import each other."""
    if name not in _MODULE:
        raise AttributeError(f"module 'ragdb.ingest' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)
