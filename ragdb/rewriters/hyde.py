"""hyde: an answer made up, embedded as a passage: it lies nearer to passages than a question does (Gao et al. 2022)."""

from __future__ import annotations

from ragdb.rewriters._prompted import Prompted


class HyDE(Prompted):
    prompt = "hyde"
    longest = 2000
    legs = ("semantic",)
    max_tokens = 300


Adapter = HyDE
