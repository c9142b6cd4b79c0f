"""multi: four variants, each a list of its own in every leg (RAG-Fusion, Rackauckas 2024). The original stays."""

from __future__ import annotations

from ragdb.rewriters._prompted import Prompted


class Multi(Prompted):
    """More specific, more general, with synonyms, and a sub-question."""

    prompt = "multi"
    most = 4
    temperature = 0.7


Adapter = Multi
