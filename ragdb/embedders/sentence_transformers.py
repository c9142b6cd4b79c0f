"""Any model of the sentence-transformers library, from a folder, from the Hugging Face cache, or downloaded once.

Local files come first. Only when the model is not there, and `download` is true, the hub is asked, by one short request:
the library alone repeats each of its requests for 23 seconds where the hub cannot be reached.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ragdb.adapters import require, sendable
from ragdb.errors import ConfigError, EmbedderError

_HUB_SECONDS = 5.0


class SentenceTransformerEmbedder:
    """`sentence-transformers:NAME`, NAME as on the hub or a folder. Prefixes: the model's own, else E5's, else none."""

    example: ClassVar[str] = "sentence-transformers:intfloat/multilingual-e5-small"

    def __init__(self, name: str, model: Any, query_prefix: str, passage_prefix: str) -> None:
        self.name = name
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix
        self._model = model
        # the library renamed the method in version 5
        measure = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        self.dimension = int(measure())
        self.max_tokens = int(model.get_max_seq_length() or 512)
        # fast tokenizers raise "Already borrowed" when two threads use one
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls,
        model: str,
        *,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        device: str | None = None,
        download: bool = True,
    ) -> SentenceTransformerEmbedder:
        """The model, ready. Raises EmbedderError within seconds when it is not here and cannot be fetched."""
        if not model:
            raise ConfigError(f"sentence-transformers needs a model; write {cls.example}, or a folder after the colon")
        require("sentence_transformers", "sentence-transformers")
        loaded = _open(model, device, download)
        own_query, own_passage = _prefixes(model, loaded.prompts or {})
        return cls(
            f"sentence-transformers:{model}",
            loaded,
            own_query if query_prefix is None else query_prefix,
            own_passage if passage_prefix is None else passage_prefix,
        )

    def count_tokens(self, text: str) -> int:
        """Tokens of the passage as the model reads it: its prefix and the end marks included."""
        with self._lock:
            return len(self._model.tokenizer(self.passage_prefix + sendable(text), truncation=False, verbose=False)["input_ids"])

    def embed_query(self, text: str) -> list[float]:
        return self._embed([text], self.query_prefix)[0]

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return self._embed(texts, self.passage_prefix) if texts else []

    def _embed(self, texts: Sequence[str], prefix: str) -> list[list[float]]:
        with self._lock:
            # prompt="" and not None: None would let the model's default prompt in
            vectors: list[list[float]] = self._model.encode(
                [sendable(text) for text in texts], prompt=prefix, convert_to_numpy=True, show_progress_bar=False
            ).tolist()
        return vectors


def _open(model: str, device: str | None, download: bool) -> Any:
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found,unused-ignore]

    folder = Path(model).expanduser()
    if folder.is_dir():
        try:
            return SentenceTransformer(str(folder), device=device, local_files_only=True)
        except Exception as error:
            raise EmbedderError(
                f"the folder {folder} holds no model that can be read: {type(error).__name__}: {error}"
            ) from error
    if folder.is_absolute() or model.startswith((".", "~")):
        raise EmbedderError(f"there is no folder {folder}; give the folder of a saved model, or its name on huggingface.co")
    try:
        return SentenceTransformer(model, device=device, local_files_only=True)
    except Exception as error:  # noqa: BLE001  not cached, as a rule; it is the cause if the model cannot be fetched either
        not_here = error
    fetch = f"run 'hf download {model}' once (or name a folder: sentence-transformers:/path/to/model)"
    if not download or _truthy("HF_HUB_OFFLINE"):
        why = "HF_HUB_OFFLINE is set" if download else "nothing is downloaded while a question waits"
        raise EmbedderError(f"the model {model} is not on this machine and {why}; {fetch}") from not_here
    _ask_hub(model, fetch)
    try:
        return SentenceTransformer(model, device=device)
    except Exception as error:
        raise EmbedderError(
            f"the model {model} could not be fetched: {type(error).__name__}: {error}; {fetch}", transient=True
        ) from error


def _ask_hub(model: str, fetch: str) -> None:
    from huggingface_hub import HfApi  # type: ignore[import-not-found,unused-ignore]
    from huggingface_hub.errors import RepositoryNotFoundError  # type: ignore[import-not-found,unused-ignore]

    repository = model if "/" in model else f"sentence-transformers/{model}"  # as the library does
    try:
        HfApi().model_info(repository, timeout=_HUB_SECONDS)
    except RepositoryNotFoundError as error:
        raise EmbedderError(
            f"huggingface.co has no model {model} that you may read; check the name, or log in with 'hf auth login'"
        ) from error
    except Exception as error:
        raise EmbedderError(
            f"the model {model} is not on this machine and huggingface.co cannot be reached ({type(error).__name__}: {error}); "
            f"{fetch} where the network allows it, and copy ~/.cache/huggingface/hub here",
            transient=True,
        ) from error


def _prefixes(model: str, prompts: Mapping[str, str]) -> tuple[str, str]:
    query = prompts.get("query", "")
    passage = prompts.get("passage", "") or prompts.get("document", "")
    if query or passage:
        return query, passage
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    if not re.search(r"(^|[-_.])e5([-_.]|$)", name):
        return "", ""
    if "instruct" in name:  # the model card of multilingual-e5-large-instruct: passages go without
        return "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ", ""
    return "query: ", "passage: "  # Wang et al. 2022 (E5), section 3: trained with these words before each text


def _truthy(variable: str) -> bool:
    return os.environ.get(variable, "").strip().upper() in {"1", "ON", "YES", "TRUE"}


Adapter = SentenceTransformerEmbedder
