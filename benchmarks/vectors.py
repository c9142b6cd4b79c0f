"""Vectors of texts that a benchmark embedded before, in a SQLite file: a second run measures search, not embedding."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragdb.protocols import Embedder


class CachedEmbedder:
    """The wrapped embedder under its own name; texts seen before come from the file."""

    def __init__(self, embedder: Embedder, file: Path) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens
        for optional in ("query_prefix", "passage_prefix", "evidence_floor", "batch_size"):
            if hasattr(embedder, optional):
                setattr(self, optional, getattr(embedder, optional))
        self._file = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._file.execute("create table if not exists vector (key blob primary key, v blob not null)")

    def count_tokens(self, text: str) -> int:
        return self._embedder.count_tokens(text)

    def embed_query(self, text: str) -> list[float]:
        return self._cached("query", [text], lambda texts: [self._embedder.embed_query(texts[0])])[0]

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return self._cached("passage", list(texts), self._embedder.embed_passages)

    def _cached(self, kind: str, texts: list[str], embed) -> list[list[float]]:
        keys = [hashlib.sha256(f"{self.name}\x1f{kind}\x1f{text}".encode()).digest() for text in texts]
        found = {}
        for key in keys:
            row = self._file.execute("select v from vector where key = ?", [key]).fetchone()
            if row:
                found[key] = np.frombuffer(row[0], dtype=np.float32).tolist()
        missing = [(key, text) for key, text in zip(keys, texts, strict=True) if key not in found]
        if missing:
            for (key, _), vector in zip(missing, embed([text for _, text in missing]), strict=True):
                found[key] = [float(x) for x in vector]
                self._file.execute(
                    "insert or replace into vector values (?, ?)", [key, np.asarray(vector, dtype=np.float32).tobytes()]
                )
        return [found[key] for key in keys]
