"""Titles that a file's properties hold: many are the names of programs and of files, and name nothing."""

from __future__ import annotations

import re

_SAYS_NOTHING = re.compile(
    r"(untitled|no title|title|無題|タイトルなし|(word |microsoft word )?(document|文書|ドキュメント)\s*\d*"
    r"|(powerpoint |microsoft powerpoint )?(presentation|プレゼンテーション)\s*\d*|slide \d+|スライド \d+|book\s*\d+|workbook)",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"(microsoft|libreoffice|openoffice)( office)? (word|excel|powerpoint|writer|calc|impress) - ", re.IGNORECASE
)
_FILE = re.compile(
    r"\.(docx?|xlsx?|pptx?|pdf|odt|ods|odp|rtf|txt|tex|dvi|ps|indd|qxd|pages|key|numbers|jtd|html?|tmp)$", re.IGNORECASE
)


def telling(title: str | None) -> str | None:
    """The title on one line; None where it is blank, a program's default or a file's name."""
    text = " ".join((title or "").replace("\x00", " ").split())
    if not text or _SAYS_NOTHING.fullmatch(text) or _PROGRAM.match(text) or _FILE.search(text):
        return None
    return text
