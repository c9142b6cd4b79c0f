"""condense: a follow-up, with what was said before, as a question that stands alone. It is searched instead of the follow-up."""

from __future__ import annotations

from ragdb.rewriters._prompted import Prompted


class Condense(Prompted):
    prompt = "condense"


Adapter = Condense
