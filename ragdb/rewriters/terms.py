"""terms: the words that a document with the answer would hold, for the lexical leg."""

from __future__ import annotations

from collections.abc import Sequence

from ragdb.rewriters._prompted import Prompted
from ragdb.types import Message, Query


class Terms(Prompted):
    prompt = "terms"
    most = 12
    legs = ("lexical",)

    def rewrite(self, question: Query, history: Sequence[Message], *, deadline: float | None = None) -> list[Query]:
        found = super().rewrite(question, history, deadline=deadline)
        return [Query(" ".join(query.text for query in found), origin=self.prompt, legs=self.legs)] if found else []

    def _no_query(self, text: str) -> bool:
        return False  # a number, and one character, are words


Adapter = Terms
