"""The words that ragdb says: prompts and messages as text files, in Japanese and English, and how a passage is shown."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from string import Template

import regex

from ragdb.errors import ConfigError
from ragdb.types import Message, Passage

_FOLDER = Path(__file__).parent
_SAID = 6
_SAID_LENGTH = 2000
_JAPANESE = regex.compile(r"[\p{Hiragana}\p{Katakana}\p{Han}]")


def language_of(text: str) -> str:
    """`ja` where a text has kana or kanji, else `en`."""
    return "ja" if _JAPANESE.search(text) else "en"


class Prompts:
    """The texts, by language. `folder` holds those that replace ours: `en/answer.txt`, `ja/messages.toml`, any of them.

    What is to be filled in (`$question`, `$passages`, ...) has to stand in a replaced text as it does in ours.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        """Raises ConfigError for a folder that is none, or holds a text that cannot be used."""
        self._templates: dict[tuple[str, str], Template] = {}
        self._messages: dict[str, dict[str, str]] = {}
        self.folder = Path(folder).expanduser() if folder is not None else None
        if self.folder is not None:
            self._read_all(self.folder)

    def template(self, name: str, language: str) -> Template:
        """A prompt, with `$passages`, `$question` to be filled in."""
        return self._templates.get((name, language)) or _template(name, language)

    def message(self, name: str, language: str, **values: str) -> str:
        """A fixed sentence for the user, in the language of the question."""
        words = self._messages.get(language, {}).get(name) or _ours(language)[name]
        return Template(words).substitute(values)

    def digest(self) -> str:
        """A hash of every text, ours and those that replace them: other words, other answers."""
        found = sha256()
        for path in sorted(_FOLDER.glob("[a-z][a-z]/*")):
            language, name = path.parent.name, path.stem
            if path.suffix == ".toml":
                text = repr(sorted({**_ours(language), **self._messages.get(language, {})}.items()))
            else:
                text = self.template(name, language).template
            found.update(f"{language}/{name}\x1f{text}\x1e".encode())
        return found.hexdigest()[:16]

    def _read_all(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(f"RAGDB_PROMPTS is {str(folder)!r}, which is no folder; it holds en/answer.txt and the like")
        for path in sorted(folder.glob("*/*")):
            language, name = path.parent.name, path.name
            if not (_FOLDER / language / name).is_file():
                raise ConfigError(f"{path} replaces nothing; ragdb has {', '.join(_known())}")
            try:
                text = path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}") from error
            if path.suffix == ".toml":
                self._messages[language] = _messages_of(path, text, _ours(language))
            else:
                ours = _template(path.stem, language)
                self._templates[path.stem, language] = _same_places(str(path), text, ours.get_identifiers())


def _known() -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in _FOLDER.glob("[a-z][a-z]/*"))


def _messages_of(path: Path, text: str, ours: Mapping[str, str]) -> dict[str, str]:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    if unknown := sorted(found.keys() - ours.keys()):
        raise ConfigError(f"{path} has no use for {', '.join(unknown)}; it may hold {', '.join(ours)}")
    if wrong := [name for name, words in found.items() if not isinstance(words, str)]:
        raise ConfigError(f"{path}: {', '.join(wrong)} has to be a text in quotation marks")
    for name, words in found.items():
        _same_places(f"{path}, {name}", words, Template(ours[name]).get_identifiers())
    return found


def _same_places(where: str, text: str, wanted: list[str]) -> Template:
    made = Template(text)
    if not made.is_valid():
        raise ConfigError(f"{where}: a $ stands there that begins no word; write $$ for a dollar sign")
    found = made.get_identifiers()
    if set(found) != set(wanted):
        has, needs = (", ".join(f"${name}" for name in names) or "nothing" for names in (found, wanted))
        raise ConfigError(f"{where} has {has} to be filled in; it needs {needs}, and no other; write $$ for a dollar sign")
    return made


@cache
def _template(name: str, language: str) -> Template:
    return Template((_FOLDER / language / f"{name}.txt").read_text(encoding="utf-8"))


@cache
def _ours(language: str) -> dict[str, str]:
    return {
        name: str(text)
        for name, text in tomllib.loads((_FOLDER / language / "messages.toml").read_text(encoding="utf-8")).items()
    }


#: The texts as they come with ragdb.
OURS = Prompts()


def recent(history: Sequence[Message]) -> tuple[Message, ...]:
    """Of what was said before, the last six messages, a long one's beginning: what a follow-up is about."""
    return tuple(
        message if len(message.content) <= _SAID_LENGTH else replace(message, content=message.content[:_SAID_LENGTH] + " ...")
        for message in history[-_SAID:]
        if message.content.strip()
    )


def heading_line(passage: Passage) -> str:
    """`[n] title > heading > sub-heading`."""
    names = [passage.title or passage.uri, *passage.heading_path]
    if len(names) > 1 and names[0] == names[1]:
        del names[1]
    return f"[{passage.number}] {' > '.join(names)}"


def rendered(passage: Passage) -> str:
    """A passage as a language model reads it: its number and place, then its text."""
    return f"{heading_line(passage)}\n{passage.content.strip()}"
