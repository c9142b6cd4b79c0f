"""A trial: a share of the questions goes to another pipeline, and what became of both is compared (view ragdb.run_trial)."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from typing import Literal

from ragdb.errors import ConfigError
from ragdb.pipeline import Pipeline

Arm = Literal["control", "treatment"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A live A/B: `share` (0 to 1) of the questions to `ask` and `stream` goes to `pipeline`, the others to the RagDB's own.

    Questions with a `pipeline=` of their own are no part of it, nor is `search`, which has no answer to judge. Both arms are
    recorded under `name`: give it a new one whenever either pipeline changes, or two things are measured as one.
    """

    name: str
    pipeline: Pipeline
    share: float = 0.1

    def __post_init__(self) -> None:
        # the name stands in an index
        if not isinstance(self.name, str) or not self.name.strip() or len(self.name) > 200 or not self.name.isprintable():
            raise ConfigError(f"the trial's name is {str(self.name)[:80]!r}; it is one line of 1 to 200 characters")
        if not isinstance(self.pipeline, Pipeline):
            raise ConfigError(
                f"the trial's pipeline is a {type(self.pipeline).__name__}; it is a Pipeline, such as presets.advanced"
            )
        share = self.share
        if not isinstance(share, (int, float)) or isinstance(share, bool) or math.isnan(share) or not 0 <= share <= 1:
            raise ConfigError(f"the trial's share is {share!r}; it is a number from 0 (all as before) to 1 (all to its pipeline)")

    def arm(self, conversation: str | None = None) -> Arm:
        """Which side a question is on. A conversation stays on one, in every process, and where `share` grows, in treatment."""
        if conversation is None:
            place = random.random()  # noqa: S311  a sample, no secret
        else:
            digest = hashlib.sha256(f"{self.name}\x1f{conversation}".encode("utf-8", "surrogatepass")).digest()
            place = int.from_bytes(digest[:8], "big") / 2**64
        return "treatment" if place < self.share else "control"
