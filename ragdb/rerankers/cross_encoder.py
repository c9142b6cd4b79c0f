"""Any cross-encoder of the sentence-transformers library, from a folder or the Hugging Face cache. Never downloads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ragdb.adapters import require, sendable
from ragdb.errors import ConfigError, RerankerError
from ragdb.rerankers import JAPANESE, spells_japanese_in_words


class CrossEncoderReranker:
    """`cross-encoder:NAME`, NAME as on the hub (fetched before with `hf download NAME`) or a folder.

    Scores are the model's, for one with a single output between 0 and 1. Safe across threads.
    """

    example: ClassVar[str] = "cross-encoder:BAAI/bge-reranker-v2-m3"
    batch_size = 8

    def __init__(self, name: str, model: Any) -> None:
        self.name = f"cross-encoder:{name}"
        self._model = model
        # some models say 10**30 where they mean "no limit"
        self.max_tokens = min(int(getattr(model, "max_seq_length", None) or getattr(model, "max_length", None) or 512), 8192)
        # fast tokenizers raise "Already borrowed" when two threads use one
        self._lock = threading.Lock()

    @classmethod
    def load(cls, model: str, *, device: str | None = None) -> CrossEncoderReranker:
        """The model, ready. Raises RerankerError where it is not on this machine or cannot be read."""
        if not model:
            raise ConfigError(f"cross-encoder needs a model; write {cls.example}, or a folder after the colon")
        require("sentence_transformers", "sentence-transformers")
        from sentence_transformers import CrossEncoder  # type: ignore[import-not-found,unused-ignore]

        folder = Path(model).expanduser()
        if not folder.is_dir() and (folder.is_absolute() or model.startswith((".", "~"))):
            raise RerankerError(f"there is no folder {folder}; give the folder of a saved model, or its name on huggingface.co")
        try:
            loaded = CrossEncoder(str(folder) if folder.is_dir() else model, device=device, local_files_only=True)
        except Exception as error:
            advice = "look what is in the folder" if folder.is_dir() else f"run 'hf download {model}' once"
            raise RerankerError(f"the model {model} cannot be read from this machine; {advice} ({error})") from error
        return cls(model, loaded)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, without the marks around it."""
        with self._lock:
            found = self._model.tokenizer(sendable(text), add_special_tokens=False, truncation=False, verbose=False)
        return len(found["input_ids"])

    def knows_japanese(self) -> bool:
        """Does the vocabulary have Japanese words? One that has none spells kana one by one."""
        with self._lock:
            return spells_japanese_in_words(self._model.tokenizer.tokenize(JAPANESE))

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        pairs = [(sendable(query), sendable(text)) for text in passages]
        with self._lock:
            scores = self._model.predict(pairs, batch_size=self.batch_size, show_progress_bar=False)
        return [float(score) for score in scores]


Adapter = CrossEncoderReranker
