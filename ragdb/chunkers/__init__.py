"""Documents to chunks: one file a chunker; `split` cuts to size and `header` says what is indexed above a chunk."""

from __future__ import annotations

from dataclasses import dataclass

from ragdb.protocols import Chunker, CountTokens


@dataclass(frozen=True, slots=True)
class Chunking:
    """A chunker with what counts tokens; `recipe` names both, so that another size cuts the documents again."""

    chunker: Chunker
    count_tokens: CountTokens
    max_tokens: int

    @property
    def recipe(self) -> str:
        return repr(self.chunker)
