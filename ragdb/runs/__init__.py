"""Runs: what every question left behind, recorded, logged, explained, compared, and deleted again.

from ragdb.runs import diff, feedback, prune, why_not
"""

from ragdb.runs.explain import diff, feedback, why_not
from ragdb.runs.prune import prune

__all__ = ["diff", "feedback", "prune", "why_not"]
