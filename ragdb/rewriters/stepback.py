"""stepback: the more general question behind a very particular one (Zheng et al. 2023)."""

from __future__ import annotations

from ragdb.rewriters._prompted import Prompted


class Stepback(Prompted):
    prompt = "stepback"


Adapter = Stepback
