"""The table of rules: rules.toml of this package, and before it the rules of the user's own file."""

from __future__ import annotations

import dataclasses
import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import regex
from pydantic import BaseModel, ConfigDict, ValidationError

from ragdb.errors import ConfigError
from ragdb.types import STATUSES

FIELDS = ("status", "updated_at", "review_after", "owner", "version", "language")
#: Seconds that a pattern may take on a line of at most 400 characters; a user's own may be a slow one.
TIMEOUT = 0.5


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    field: str
    keys: list[str] = []
    labels: list[str] = []
    aside: str | None = None
    words: dict[str, list[str]] = {}
    value: str | None = None
    patterns: list[str] = []
    notice: list[str] = []
    quoted: list[str] = []
    title: list[str] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    builtin: bool = True
    macros: dict[str, str] = {}
    rule: list[_Rule] = []


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, its patterns compiled. `words` maps a word in lower case to the status it means."""

    name: str
    field: str
    keys: tuple[str, ...]
    label: regex.Pattern[str] | None
    aside: str | None
    words: dict[str, str]
    value: str | None
    patterns: tuple[regex.Pattern[str], ...]
    notice: tuple[regex.Pattern[str], ...]
    quoted: tuple[regex.Pattern[str], ...]
    title: tuple[regex.Pattern[str], ...]

    @property
    def labels_win(self) -> bool:
        """Whether a line of the head may know better than front matter."""
        return self.field == "updated_at" and self.label is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules in the order in which they are asked; `source` says where they come from."""

    rules: tuple[Rule, ...]
    source: str

    @property
    def digest(self) -> str:
        """Tells these rules from others: 16 hexadecimal digits over all that they say."""
        said = [_said(getattr(rule, field.name)) for rule in self.rules for field in dataclasses.fields(rule)]
        return hashlib.sha256(repr(said).encode("utf-8", "replace")).hexdigest()[:16]

    @classmethod
    def builtin(cls) -> Rules:
        return _builtin()

    @classmethod
    def none(cls) -> Rules:
        """No rule at all, not even for front matter."""
        return cls((), "none")

    @classmethod
    def load(cls, path: str | Path | None) -> Rules:
        """The rules of a TOML file, then the built-in ones unless it says `builtin = false`; None: the built-in ones.

        Raises ConfigError with the place and what is wrong.
        """
        return _builtin() if path is None else cls.none() if str(path) == "none" else _loaded(str(path))


def _said(value: Any) -> Any:
    """A part of a rule, its patterns as they are written."""
    if isinstance(value, tuple):
        return [_said(part) for part in value]
    return getattr(value, "pattern", value)


@cache
def _builtin() -> Rules:
    text = resources.files("ragdb.metadata").joinpath("rules.toml").read_text(encoding="utf-8")
    return Rules(tuple(_compiled(_parsed(text, "rules.toml"), {}, "rules.toml")), "built in")


@lru_cache(maxsize=8)
def _loaded(path: str) -> Rules:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the metadata rules {path} cannot be read: {error}; give the path of a TOML file in UTF-8") from error
    file = _parsed(text, path)
    macros = _parsed(resources.files("ragdb.metadata").joinpath("rules.toml").read_text(encoding="utf-8"), "rules.toml").macros
    own = tuple(_compiled(file, macros, path))
    return Rules(own + (_builtin().rules if file.builtin else ()), path)


def _parsed(text: str, source: str) -> _File:
    try:
        return _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the metadata rules {source} are not TOML: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise ConfigError(f"the metadata rules {source}: {wrong}; docs/ingest.md shows their form") from error


def _compiled(file: _File, macros: dict[str, str], source: str) -> list[Rule]:
    macros = {**macros, **file.macros}
    return [_rule(rule, macros, f"the metadata rules {source}: rule {rule.name!r}") for rule in file.rule]


def _rule(rule: _Rule, macros: dict[str, str], where: str) -> Rule:
    for name in filter(None, (rule.field, rule.aside)):
        if name not in FIELDS and not (name.startswith("metadata.") and len(name) > len("metadata.")):
            raise ConfigError(f"{where} has the field {name!r}; it is one of {', '.join(FIELDS)}, or metadata.NAME")
    words = {word.casefold(): status for status, some in rule.words.items() for word in some}
    for status in filter(None, (*rule.words, rule.value if rule.field == "status" else None)):
        if status not in STATUSES:
            raise ConfigError(f"{where} names the status {status!r}; it is one of {', '.join(STATUSES)}")
    if words and rule.field != "status":
        raise ConfigError(f"{where} has words, which only a rule for status has")
    if not (rule.keys or rule.labels or rule.patterns or rule.notice or rule.quoted or rule.title):
        raise ConfigError(f"{where} looks for nothing; give it keys, labels, patterns, notice, quoted or title")

    def compiled(pattern: str) -> regex.Pattern[str]:
        for name, body in macros.items():
            pattern = pattern.replace("{" + name + "}", body)
        try:
            made = regex.compile(pattern, regex.IGNORECASE)
        except regex.error as error:
            raise ConfigError(f"{where}: the pattern {pattern!r} is no regular expression: {error}") from error
        if rule.value is None and made.groups < 1:
            raise ConfigError(
                f"{where}: the pattern {pattern!r} has no group, and the rule no value; one of them says what is found"
            )
        return made

    return Rule(
        rule.name,
        rule.field,
        tuple(map(plain_key, rule.keys)),
        _label(rule.labels),
        rule.aside,
        words,
        rule.value,
        tuple(map(compiled, rule.patterns)),
        tuple(map(compiled, rule.notice)),
        tuple(map(compiled, rule.quoted)),
        tuple(map(compiled, rule.title)),
    )


def plain_key(key: str) -> str:
    """`Last-Updated` and `last updated` are `last_updated`."""
    return key.strip().casefold().replace("-", "_").replace(" ", "_")


def _label(labels: list[str]) -> regex.Pattern[str] | None:
    if not labels:
        return None
    longest_first = sorted(labels, key=len, reverse=True)
    some = "|".join(r"\s+".join(map(regex.escape, label.split())) for label in longest_first)
    return regex.compile(rf"\s*(?:{some})\s*[:=]\s*(?=\S)", regex.IGNORECASE)


def timed(pattern: regex.Pattern[str], text: str) -> Any:
    """The first match of a pattern in a line, or None; one that takes too long is an error that names it."""
    try:
        return pattern.search(text, timeout=TIMEOUT)
    except TimeoutError as error:
        raise ConfigError(
            f"the pattern {pattern.pattern[:200]!r} of the metadata rules took over {TIMEOUT} s on {text[:80]!r}...; simplify it"
        ) from error
