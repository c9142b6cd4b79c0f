"""Rerankers: a score for each (question, passage). One file an adapter; the stage does windows, order, ties and fallbacks.

An adapter may say more than its scores: `max_tokens` (of question and passage together), `count_tokens(text)`,
`batch_size` (passages a call; between calls the time is looked at), and take `deadline` (seconds from now) in `score`.
"""

from __future__ import annotations

from collections.abc import Sequence

JAPANESE = "これはテストのための文章です"


def spells_japanese_in_words(tokens: Sequence[str]) -> bool:
    """Are these tokens of JAPANESE words? A vocabulary without Japanese spells kana one by one, or does not know them."""
    return not {"[UNK]", "<unk>"} & set(tokens) and len(tokens) < 0.8 * len(JAPANESE)
