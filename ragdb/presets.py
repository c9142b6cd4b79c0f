"""The pipelines that have a name: plain values of `Pipeline`, to be used as they are or changed with `dataclasses.replace`."""

from __future__ import annotations

import json
from pathlib import Path

from ragdb.errors import ConfigError
from ragdb.pipeline import Pipeline

#: Vector search alone, no neighbours: what most first projects do. For comparison.
naive = Pipeline(name="naive", legs=("semantic",), window=0, rerank=False)

#: Both legs, fused, with a neighbour on either side. The default.
hybrid = Pipeline(name="hybrid", route=True)

#: `hybrid` with the question reworded beside it and the best chunks reranked. Needs a language model and a reranker; without
#: either it does without, and the trace says so.
advanced = Pipeline(name="advanced", route=True, rewrite=("condense", "reword"), rerank=True)

#: `advanced` with four variants of the question, each a list of its own in both legs: RAG-Fusion.
rag_fusion = Pipeline(name="rag_fusion", route=True, rewrite=("condense", "reword", "multi"), rerank=True)

PRESETS = {pipeline.name: pipeline for pipeline in (naive, hybrid, advanced, rag_fusion)}


def named(name: str) -> Pipeline:
    """The preset of this name, or the pipeline in a file NAME.json that holds what `to_dict` gives. Raises ConfigError."""
    if name in PRESETS:
        return PRESETS[name]
    if not name.endswith(".json"):
        raise ConfigError(f"no pipeline is called {name!r}; there are {', '.join(PRESETS)}, or a file NAME.json")
    try:
        given = json.loads(Path(name).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the pipeline {name} cannot be read: {error}") from error
    return Pipeline.from_dict(given)
