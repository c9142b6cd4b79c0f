"""Which models and settings each collection of the queue is worked with; a model is loaded once for all of them."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from ragdb.context import Context
from ragdb.db import probe
from ragdb.errors import ModelError, NoEmbedder
from ragdb.ingest.outage import is_outage
from ragdb.protocols import Embedder

logger = logging.getLogger("ragdb.ingest")

_LOOK_AGAIN = 300.0  # seconds until a collection that could not be worked for is looked at again


@dataclass
class _Left:
    until: float
    reason: str


class Contexts:
    """A context for each collection, by its recorded model. Shared by the loops of a process."""

    def __init__(self, root: Context) -> None:
        self._root = root
        self._known: dict[int, tuple[str, Context]] = {}
        self._embedders: dict[str, Embedder] = {}
        self._left: dict[int, _Left] = {}
        self._lock = threading.Lock()

    def of(self, collection_id: int, collection: str) -> Context | None:
        """The collection's context with its embedder loaded; None, with a line in the log, where this process has it not."""
        try:
            with self._lock:
                context = self._found(collection_id, collection)
            self._same_model(context)
        except Exception as error:
            if is_outage(error):
                raise
            with self._lock:
                self._leave(collection_id, collection, f"{error}")
            return None
        return context

    def _same_model(self, context: Context) -> None:
        """Refuses a model that is another one by now than its name's vectors are of. It embeds, so no lock is held."""
        embedder = context.embedder(context.database)
        try:
            probe.verify(context.database, embedder, store=True)
        except ModelError as error:
            if not error.transient:
                raise
            logger.info("%s could not be compared with its stored vectors now: %s", embedder.name, error)

    def _found(self, collection_id: int, collection: str) -> Context:
        rows = self._root.database.call("collection_info", collection=collection)
        info = rows[0] if rows else None
        model = info and info["model"]
        if info is None or not model:
            raise NoEmbedder("it has no embedding model recorded; make it with: ragdb collection create")
        known = self._known.get(collection_id)
        if known is not None and known[0] == model:
            self._left.pop(collection_id, None)
            return known[1]
        context = self._root.sibling(
            collection, embedder=self._embedders.get(model, model), analyzer=info["analyzer"] == "external"
        )
        context.check_analyzer(info)
        self._embedders[model] = context.embedder(context.database)
        context.chunking(context.database)
        self._known[collection_id] = (model, context)
        self._left.pop(collection_id, None)
        return context

    def _leave(self, collection_id: int, collection: str, reason: str) -> None:
        before = self._left.get(collection_id)
        if before is None or before.reason != reason:
            logger.warning("collection %r is left to other workers: %s", collection, reason)
        self._left[collection_id] = _Left(time.monotonic() + _LOOK_AGAIN, reason)

    def pause(self, model: str, seconds: float) -> None:
        """Leaves the collections of a model alone for a while."""
        with self._lock:
            until = time.monotonic() + seconds
            for collection_id, (name, _context) in self._known.items():
                if name == model:
                    self._left[collection_id] = _Left(until, f"{model} pauses")

    def left_alone(self) -> list[int]:
        """The collections that are not to be claimed from now."""
        with self._lock:
            now = time.monotonic()
            return [i for i, left in self._left.items() if left.until > now]

    def offer(self, embedder: Embedder) -> None:
        """An embedder that is at hand: collections with its name recorded use it, instead of loading one."""
        self._embedders[embedder.name] = embedder

    @property
    def unserved(self) -> dict[int, str]:
        """Collections that this process could not work for, with the reason."""
        with self._lock:
            return {i: left.reason for i, left in self._left.items()}
