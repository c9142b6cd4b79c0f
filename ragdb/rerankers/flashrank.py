"""FlashRank's cross-encoders (ONNX, on the CPU), from a folder or from ragdb's own cache of models. Never downloads.

FlashRank itself would fetch a missing model without a time limit, and set up the logging of the whole program: its
class is used here from behind its constructor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ragdb import models
from ragdb.adapters import require, sendable
from ragdb.errors import RerankerError
from ragdb.rerankers import JAPANESE, spells_japanese_in_words


class FlashRankReranker:
    """`flashrank:NAME` after `ragdb fetch-model NAME`, or `flashrank:/a/folder` with model.onnx and tokenizer.json in it.

    Scores are between 0 and 1. Safe across threads.
    """

    example: ClassVar[str] = f"flashrank:{models.DEFAULT_RERANKER}"
    # A quantised model's scores depend on what else is in the batch; two cores lose nothing by one at a time.
    batch_size = 1

    def __init__(self, folder: Path, ranker: Any, max_tokens: int) -> None:
        self.name = f"flashrank:{folder.name}"
        self.max_tokens = max_tokens
        self._ranker = ranker
        # The tokenizer's settings are state, and two calls would share the processors anyway.
        self._lock = threading.Lock()

    @classmethod
    def load(cls, model: str = "", *, max_tokens: int = 512, folder: Path | None = None) -> FlashRankReranker:
        """The model, ready; `folder` is that of fetched models. Raises RerankerError where it is not there or cannot be read."""
        require("flashrank", "rerank")
        place = models.reranker_folder(model or models.DEFAULT_RERANKER, folder)
        try:
            ranker = _opened(place, max_tokens)
        except Exception as error:
            raise RerankerError(f"{place} holds no model that FlashRank can read: {type(error).__name__}: {error}") from error
        return cls(place, ranker, max_tokens)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, without the marks around it."""
        return len(self._encoded(sendable(text)).ids)

    def knows_japanese(self) -> bool:
        """Does the vocabulary have Japanese words? One that has none spells kana one by one."""
        return spells_japanese_in_words(self._encoded(JAPANESE).tokens)

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        from flashrank import RerankRequest  # type: ignore[import-untyped,unused-ignore]

        request = RerankRequest(sendable(query), [{"id": n, "text": sendable(text)} for n, text in enumerate(passages)])
        with self._lock:
            ranked = self._ranker.rerank(request)
        by_place = {int(found["id"]): float(found["score"]) for found in ranked}
        return [by_place[n] for n in range(len(passages))]

    def _encoded(self, text: str) -> Any:
        with self._lock:
            return self._counting.encode(text, add_special_tokens=False)

    @property
    def _counting(self) -> Any:
        return self._ranker.counting


def _opened(folder: Path, max_tokens: int) -> Any:
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]
    from flashrank import Ranker
    from tokenizers import Tokenizer

    class Opened(Ranker):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            self.logger = logging.getLogger("ragdb.rerankers.flashrank")
            self.cache_dir, self.model_dir = folder.parent, folder
            self.llm_model = None
            self.session = onnxruntime.InferenceSession(str(_weights(folder)), providers=["CPUExecutionProvider"])
            self.tokenizer = self._get_tokenizer(max_tokens)
            self.counting = Tokenizer.from_file(str(folder / "tokenizer.json"))
            # a saved tokenizer may cut and fill up: what is counted is the text
            self.counting.no_truncation()
            self.counting.no_padding()

    return Opened()


def _weights(folder: Path) -> Path:
    found = sorted(folder.glob("*.onnx"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise FileNotFoundError(f"it should hold one .onnx file, and holds {names}")
    return found[0]


Adapter = FlashRankReranker
