"""Embeddings from any server with OpenAI's interface: OpenAI, vLLM, llama.cpp, Ollama, text-embeddings-inference.

A vector belongs to the text that its `index` names, not to its place in the answer: servers that work in parallel mix them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ragdb.adapters import sendable
from ragdb.errors import ConfigError, EmbedderError
from ragdb.openai_api import Server, ServerFailure, connect, estimate_tokens, post


class OpenAIEmbedderError(ServerFailure, EmbedderError):
    """An EmbedderError that knows why the server failed."""


class OpenAIEmbedder:
    """`openai:MODEL`. Retries are the library's (429, 5xx, no connection); what is left is an EmbedderError."""

    example: ClassVar[str] = "openai:text-embedding-3-small"

    def __init__(
        self,
        server: Server,
        *,
        dimension: int | None,
        dimensions: int | None,
        max_tokens: int,
        query_prefix: str,
        passage_prefix: str,
        batch_texts: int,
        batch_tokens: int,
    ) -> None:
        self.name = f"openai:{server.model}"
        self.max_tokens = max_tokens
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix
        self._server = server
        self._dimensions = dimensions
        self._batch_texts = batch_texts
        self._batch_tokens = batch_tokens
        self.dimension = dimension or dimensions or 0
        if not self.dimension:
            self.dimension = len(self._request(["dimension"])[0])

    @classmethod
    def load(
        cls,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimension: int | None = None,
        dimensions: int | None = None,
        max_tokens: int | None = None,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        batch_texts: int = 128,
        batch_tokens: int = 200_000,
        timeout: float = 60.0,
        max_retries: int = 3,
    ) -> OpenAIEmbedder:
        """The embedder; asks the server once for its dimension unless it is given.

        `dimensions` is sent to the server (models that can shorten their vectors), `dimension` only says what will come.
        The servers add no prefix: an E5 model gets `query: ` and `passage: `, any other none, unless the options say it.
        """
        if not model:
            raise ConfigError(f"openai needs a model; write {cls.example}")
        e5 = bool(re.search(r"(^|[-_./])e5([-_.]|$)", model.lower())) and "instruct" not in model.lower()
        server = connect(
            model,
            base_url=base_url,
            api_key=api_key,
            setting="RAGDB_EMBEDDER",
            error=OpenAIEmbedderError,
            timeout=timeout,
            max_retries=max_retries,
        )
        return cls(
            server,
            dimension=dimension,
            dimensions=dimensions,
            max_tokens=max_tokens or (512 if e5 else 8191),
            query_prefix=query_prefix if query_prefix is not None else "query: " if e5 else "",
            passage_prefix=passage_prefix if passage_prefix is not None else "passage: " if e5 else "",
            batch_texts=batch_texts,
            batch_tokens=batch_tokens,  # OpenAI takes 300,000 a request; the count is an estimate
        )

    def count_tokens(self, text: str) -> int:
        """An estimate, on the high side (`ragdb.openai_api.estimate_tokens`), prefix and two end marks included."""
        return estimate_tokens(self.passage_prefix + text) + 2

    def embed_query(self, text: str) -> list[float]:
        return self._request([self.query_prefix + sendable(text)])[0]

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        prefixed = [self.passage_prefix + sendable(text) for text in texts]
        return [vector for batch in self._batches(prefixed) for vector in self._request(batch)]

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            size = estimate_tokens(text)
            if batch and (len(batch) == self._batch_texts or tokens + size > self._batch_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(text)
            tokens += size
        if batch:
            yield batch

    def _request(self, texts: list[str]) -> list[list[float]]:
        # float and not the library's base64: every compatible server knows it
        body: dict[str, Any] = {"model": self._server.model, "input": texts, "encoding_format": "float"}
        if self._dimensions:
            body["dimensions"] = self._dimensions
        create = self._server.client.embeddings.with_streaming_response.create
        answer = post(self._server, create, body, deadline=time.monotonic() + self._server.timeout)
        return self._placed(answer.get("data"), len(texts))

    def _placed(self, data: Any, expected: int) -> list[list[float]]:
        where = self._server.shown
        if not isinstance(data, list):
            raise self._server.fail(f"{where} answered without a list 'data'; is this an embedding model? see RAGDB_EMBEDDER")
        if len(data) != expected:
            raise self._server.fail(
                f"{where} returned {len(data)} vectors for {expected} texts; run it again, and see the server's log",
                transient=True,
            )
        placed: dict[int, list[float]] = {}
        for position, item in enumerate(data):
            if not isinstance(item, dict):
                raise self._server.fail(
                    f"{where} returned {type(item).__name__} instead of an object at position {position} of 'data'"
                )
            index = item.get("index", position)
            if not isinstance(index, int) or not 0 <= index < expected or index in placed:
                raise self._server.fail(
                    f"{where} returned the index {index!r} at position {position} for {expected} texts: no text or one used twice"
                )
            placed[index] = self._floats(item.get("embedding"), index)
        return [placed[index] for index in range(expected)]

    def _floats(self, vector: Any, index: int) -> list[float]:
        where = self._server.shown
        # NaN comes as null from servers with strict JSON
        if not isinstance(vector, list) or not all(isinstance(x, (int, float)) and math.isfinite(x) for x in vector):
            kind = "a vector with NaN, infinite or missing numbers" if isinstance(vector, list) else type(vector).__name__
            raise self._server.fail(
                f"{where} returned {kind} for text {index}; check the model's precision on the server (float16 overflows)"
            )
        if not vector or (self.dimension and len(vector) != self.dimension):
            raise self._server.fail(
                f"{where} returned {len(vector)} dimensions for text {index}, {self.dimension or 'at least 1'} were expected; "
                "name the model that made the stored vectors (RAGDB_EMBEDDER), or use another collection"
            )
        return [float(x) for x in vector]


Adapter = OpenAIEmbedder
