"""From settings to a RagDB: which database they mean, and with which models. Where the command line and the server start.

A database of the user's is taken as it is. The embedded one is ragdb's own: it is started where it does not run, and
its schema is brought to this version.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragdb import models
from ragdb.errors import MissingExtra

if TYPE_CHECKING:
    from ragdb.settings import Settings
    from ragdb.trial import Trial


@dataclass(frozen=True, slots=True)
class Place:
    """Where the database is. `home`: the embedded server's folder, None for a server of the user's; `started`: just now."""

    url: str
    home: Path | None = None
    started: bool = False


def embedded_home(settings: Settings) -> Path:
    """The folder of the embedded server. Raises MissingExtra where there can be none."""
    from ragdb.db import embedded

    try:
        return settings.home or embedded.default_home()
    except MissingExtra as error:
        raise _no_database() from error


def place(settings: Settings, *, migrate: bool = True) -> Place:
    """The database that the settings mean, ready for use where it is the embedded one (`migrate` False: as it is)."""
    if settings.database_url:
        return Place(settings.database_url)
    from ragdb.db import embedded, schema

    home = embedded_home(settings)
    try:
        started = not embedded.running(home)
        url = embedded.start(home)
    except MissingExtra as error:
        raise _no_database() from error
    if migrate:
        schema.upgrade_if_behind(url)
    return Place(url, home, started)


def _no_database() -> MissingExtra:
    return MissingExtra("RAGDB_DATABASE_URL names no database, and the embedded PostgreSQL", "local")


def rag_arguments(settings: Settings) -> tuple[str, dict[str, Any]]:
    """What RagDB takes: the database, and the keywords of which something is set."""
    return place(settings).url, arguments(settings)


def arguments(settings: Settings) -> dict[str, Any]:
    """The keywords of RagDB. `options` go to adapters that take them: an address suits one model and means nothing to another."""
    llm = {
        "base_url": settings.llm_base_url,
        "api_key": settings.llm_api_key and settings.llm_api_key.get_secret_value(),
        "context_window": settings.llm_context_window,
        "max_output_tokens": settings.llm_max_tokens,
    }
    embedder = {
        "base_url": settings.embedder_base_url,
        "api_key": settings.embedder_api_key and settings.embedder_api_key.get_secret_value(),
    }
    reranker = {
        "api_key": settings.reranker_api_key and settings.reranker_api_key.get_secret_value(),
        "folder": models.home(settings.home) if settings.home else None,
    }
    options = {
        family: {name: value for name, value in given.items() if value is not None}
        for family, given in (("llm", llm), ("embedder", embedder), ("reranker", reranker))
    }
    made = {
        "collection": settings.collection,
        "embedder": settings.embedder,
        "chunker": settings.chunker,
        "reranker": settings.reranker,
        "llm": settings.llm,
        "prompts": settings.prompts,
        "prices": settings.prices,
        "rules": settings.metadata_rules,
        "trial": _trial(settings),
        "options": {family: given for family, given in options.items() if given},
    }
    return {name: value for name, value in made.items() if value}


def _trial(settings: Settings) -> Trial | None:
    """The trial that the settings mean, named after its pipeline where they name none. Raises ConfigError."""
    if settings.trial_pipeline is None:
        return None
    from ragdb import presets
    from ragdb.trial import Trial

    pipeline = presets.named(settings.trial_pipeline)
    given = {} if settings.trial_share is None else {"share": settings.trial_share}
    return Trial(settings.trial_name or pipeline.name, pipeline, **given)
