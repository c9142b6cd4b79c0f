"""Is the model behind a name still the one that made the vectors? A fixed text is embedded and compared with what was stored.

A provider may change a model and keep its name: the new vectors have the right length and mean nothing beside the old ones.
Once for each embedder of a process; the first writer stores the vector.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

from ragdb.db.caller import Caller, value
from ragdb.embedders import embed_checked
from ragdb.errors import EmbedderMismatch
from ragdb.protocols import Embedder

TEXT = "ragdb: Das Wetter in 東京 is 21.5 degrees; the library opens at nine."
# The same weights at another precision: float16 gives 0.99999, 8 bits 0.995 and more. Other weights, even another version
# of one model: 0.9 and far less.
SAME = 0.99

_known: weakref.WeakKeyDictionary[Embedder, set[str]] = weakref.WeakKeyDictionary()


def verify(db: Caller, embedder: Embedder, *, store: bool) -> None:
    """Raises EmbedderMismatch where the embedder's vector of the fixed text is not the stored one.

    `store`: the first one is kept; readers may not. Nothing is embedded where there is nothing to compare with.
    """
    names = _names(embedder)
    if embedder.name in names:
        return
    stored = value(db.call("model_probe", model=embedder.name))
    if stored is None and not store:
        return
    [vector] = embed_checked(embedder, [TEXT])
    if stored is None and not value(db.call("keep_probe", model=embedder.name, numbers=vector)):
        stored = value(db.call("model_probe", model=embedder.name))
    if stored is not None and (cosine := _cosine(stored, vector)) < SAME:
        raise EmbedderMismatch(
            f"the model behind {embedder.name!r} is another one than that which made the stored vectors: for the same text "
            f"it gives another vector (cosine {cosine:.3f}, at least {SAME} expected). Bring the old model back, or give the new "
            "one a name of its own and change to it: ragdb embedder add NAME, fill, activate"
        )
    names.add(embedder.name)


def _names(embedder: Embedder) -> set[str]:
    try:
        return _known.setdefault(embedder, set())
    except TypeError:
        return set()  # takes no weak reference, or has no hash: it is looked at each time


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b) or 1.0)
