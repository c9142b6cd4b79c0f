"""The settings of fuse that tuning tries, and which of two that measure the same is the simpler."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragdb.errors import ConfigError
from ragdb.pipeline import Pipeline
from ragdb.types import _Value

_DEFAULT = Pipeline()


@dataclass(frozen=True, slots=True)
class Setting(_Value):
    """One setting of fuse. `weights` by leg; {}: both legs weigh the same."""

    weights: Mapping[str, float] = field(default_factory=dict)
    rrf_k: int = _DEFAULT.rrf_k
    candidates: int = _DEFAULT.candidates

    @classmethod
    def of(cls, pipeline: Pipeline) -> Setting:
        return cls(dict(pipeline.weights), pipeline.rrf_k, pipeline.candidates)

    @property
    def lexical(self) -> float:
        """The lexical leg's share of the weights, 0 to 1."""
        lexical, semantic = (self.weights.get(leg, 1.0) for leg in ("lexical", "semantic"))
        return lexical / (lexical + semantic) if lexical + semantic else 0.5

    @property
    def distance(self) -> tuple[int, float]:
        """How far from the defaults: how many of the three differ, then by how much, each on its own scale."""
        steps = (
            2 * abs(self.lexical - 0.5),
            abs(math.log10((self.rrf_k + 1) / (_DEFAULT.rrf_k + 1))),
            abs(math.log10(self.candidates / _DEFAULT.candidates)),
        )
        return sum(step > 1e-9 for step in steps), sum(steps)

    def __str__(self) -> str:
        return f"lexical {self.lexical:.2g} : semantic {1 - self.lexical:.2g}, rrf_k {self.rrf_k}, candidates {self.candidates}"


@dataclass(frozen=True, slots=True)
class Grid(_Value):
    """What is tried: every combination. `lexical`: that leg's share of the weights, the semantic leg having the rest.

    With 0 or 1 one leg orders everything, whatever rrf_k and candidates are: these are tried once.
    """

    lexical: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    rrf_k: Sequence[int] = (10, 20, 40, 60, 100)
    candidates: Sequence[int] = (20, 50, 100)

    def __post_init__(self) -> None:
        for name, least, most in (("lexical", 0, 1), ("rrf_k", 0, 10_000), ("candidates", 1, 1000)):
            values: Any = getattr(self, name)
            wrong = [v for v in values if not least <= v <= most or (name != "lexical" and not isinstance(v, int))]
            if wrong or not values:
                raise ConfigError(f"the grid's {name} is {values!r}; it is a list of numbers from {least} to {most}")
            object.__setattr__(self, name, tuple(sorted({*values})))

    def cells(self, least: int) -> dict[tuple[int, int, int], Setting]:
        """The settings by their place on the three axes; lists shorter than `least`, which no search makes, are left out.

        Raises ConfigError where none is left.
        """
        lengths = [(place, n) for place, n in enumerate(self.candidates) if n >= least]
        if not lengths:
            raise ConfigError(
                f"the grid's candidates are {self.candidates}, all below the {least} documents that the metric looks at"
            )
        usual = min(lengths, key=lambda one: abs(math.log(one[1] / _DEFAULT.candidates)))
        k_usual = min(enumerate(self.rrf_k), key=lambda one: abs(one[1] - _DEFAULT.rrf_k))
        cells = {}
        for (i, share), (j, k), (n, length) in itertools.product(enumerate(self.lexical), enumerate(self.rrf_k), lengths):
            if share in (0, 1) and ((j, k) != k_usual or (n, length) != usual):
                continue
            cells[i, j, n] = Setting(_weights(share), k, length)
        return cells


def neighbours(place: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The places one step away on one axis."""
    return [
        (*place[:axis], place[axis] + step, *place[axis + 1 :])  # type: ignore[misc]
        for axis in range(3)
        for step in (-1, 1)
    ]


def _weights(lexical: float) -> dict[str, float]:
    return {} if lexical == 0.5 else {"lexical": round(lexical, 6), "semantic": round(1 - lexical, 6)}
