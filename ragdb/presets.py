"""The pipelines that have a name: plain values of `Pipeline`, to be used as they are or changed with `dataclasses.replace`."""

from __future__ import annotations

from ragdb.pipeline import Pipeline

#: Vector search alone, no neighbours: what most first projects do. For comparison.
naive = Pipeline(name="naive", legs=("semantic",), window=0)

#: Both legs, fused, with a neighbour on either side. The default.
hybrid = Pipeline(name="hybrid")

PRESETS = {pipeline.name: pipeline for pipeline in (naive, hybrid)}
