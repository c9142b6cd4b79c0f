"""The words that ragdb says: prompts and messages as text files, in Japanese and English, and how a passage is shown."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from string import Template

import regex

from ragdb.types import Passage

_FOLDER = Path(__file__).parent
_JAPANESE = regex.compile(r"[\p{Hiragana}\p{Katakana}\p{Han}]")


def language_of(text: str) -> str:
    """`ja` where a text has kana or kanji, else `en`."""
    return "ja" if _JAPANESE.search(text) else "en"


@cache
def template(name: str, language: str) -> Template:
    """A prompt file, with `$passages`, `$question` to be filled in."""
    return Template((_FOLDER / language / f"{name}.txt").read_text(encoding="utf-8"))


@cache
def _messages(language: str) -> dict[str, str]:
    return {
        name: str(text)
        for name, text in tomllib.loads((_FOLDER / language / "messages.toml").read_text(encoding="utf-8")).items()
    }


def message(name: str, language: str, **values: str) -> str:
    """A fixed sentence for the user, in the language of the question."""
    return Template(_messages(language)[name]).substitute(values)


def heading_line(passage: Passage) -> str:
    """`[n] title > heading > sub-heading`."""
    names = [passage.title or passage.uri, *passage.heading_path]
    if len(names) > 1 and names[0] == names[1]:
        del names[1]
    return f"[{passage.number}] {' > '.join(names)}"


def rendered(passage: Passage) -> str:
    """A passage as a language model reads it: its number and place, then its text."""
    return f"{heading_line(passage)}\n{passage.content.strip()}"
