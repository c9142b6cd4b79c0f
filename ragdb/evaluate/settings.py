"""Pipelines written as text, for the command line and for sweeps: `hybrid:rerank=true,candidates=100,weights=0.3/0.7`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ragdb.errors import ConfigError
from ragdb.pipeline import FUSION, Pipeline
from ragdb.presets import PRESETS
from ragdb.types import LEGS

#: Written `markdown:128`: another chunking, and so another collection.
CHUNK_SETTINGS = ("chunk_size", "chunker")
_FIELDS = {field.name for field in dataclasses.fields(Pipeline)} - {"name"}
_LISTS = ("legs", "rewrite")


def pipeline_of(text: str) -> Pipeline:
    """A preset, or a preset with settings: NAME or NAME:key=value,key=value. Its name is the text.

    Lists have `+` between (`legs=lexical`, `rewrite=hyde+multi`), weights are lexical/semantic or by leg (`lexical=0.3` is not
    needed). Raises ConfigError with what there is.
    """
    name, _, given = text.partition(":")
    if name not in PRESETS:
        raise ConfigError(f"no pipeline is called {name!r}; there are {', '.join(PRESETS)}")
    settings = {}
    for part in given.split(",") if given else ():
        key, eq, value = part.partition("=")
        if not eq:
            raise ConfigError(f"{part!r} in {text!r} is no setting; write it like {name}:rerank=true,candidates=100")
        settings[key.strip()] = value_of(key.strip(), value.strip())
    return _with(PRESETS[name], settings, text)


def _with(base: Pipeline, settings: Mapping[str, Any], name: str) -> Pipeline:
    """The base with these settings. Where one of fuse is named, none are the collection's: `candidates=50` means 50."""
    own = {"tuned": False} if settings.keys() & FUSION.keys() else {}
    return dataclasses.replace(base, **{**own, **settings, "name": name})


def value_of(key: str, text: str) -> Any:
    """The value of one setting of a pipeline, as a text says it."""
    if key not in _FIELDS:
        raise ConfigError(f"a pipeline has no setting {key!r}; it has {', '.join(sorted(_FIELDS))}")
    if key == "weights":
        return weights_of(text)
    if key in _LISTS:
        return tuple(part for part in text.split("+") if part and part != "none")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{key}={text} cannot be read: {error}") from error


def weights_of(text: str) -> dict[str, float]:
    """`0.3/0.7` as weights of the legs, in the order of ragdb.types.LEGS."""
    parts = text.split("/")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != len(LEGS) or not any(numbers):
        raise ConfigError(f"weights is {text!r}; it is a number for each of {'/'.join(LEGS)}, not all 0, such as 0.3/0.7")
    return dict(zip(LEGS, numbers, strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep: a pipeline, and the chunker where it is another than the collection's."""

    pipeline: Pipeline
    chunk_size: int | None = None
    chunker: str | None = None


def grid_of(base: Pipeline, given: Mapping[str, Sequence[str]]) -> list[Point]:
    """Every combination of the values of each setting, the base pipeline with them. Raises ConfigError for what is no setting."""
    if not given:
        raise ConfigError("nothing to sweep over; say it like candidates=20,50,100 weights=0.3/0.7,0.7/0.3 chunk_size=64,128")
    points = []
    for combination in itertools.product(*given.values()):
        told = dict(zip(given, combination, strict=True))
        name = ",".join(f"{key}={value}" for key, value in told.items())
        settings = {key: value_of(key, text) for key, text in told.items() if key not in CHUNK_SETTINGS}
        size = told.get("chunk_size")
        if size is not None and not (size.isascii() and size.isdigit() and int(size)):
            raise ConfigError(f"chunk_size is {size!r}; it is a whole number of tokens, from 1")
        pipeline = _with(base, settings, f"{base.name}:{name}")
        points.append(Point(pipeline, int(size) if size else None, told.get("chunker")))
    return points
