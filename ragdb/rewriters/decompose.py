"""decompose: a question of several parts as questions of one."""

from __future__ import annotations

from ragdb.rewriters._prompted import Prompted


class Decompose(Prompted):
    prompt = "decompose"
    most = 4


Adapter = Decompose
