"""reword: the question as a document would put it: abbreviations written out, everyday words as the usual terms."""

from __future__ import annotations

from ragdb.rewriters._prompted import Prompted


class Reword(Prompted):
    prompt = "reword"


Adapter = Reword
