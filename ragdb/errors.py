"""Every error that ragdb raises: the fact, with its values, and the next step.

`RagDBError` catches them all. Those that mean "a wrong value was given" are also `ValueError`.
"""

from __future__ import annotations


class RagDBError(Exception):
    """The root of ragdb's errors."""


# --- what the caller gave -------------------------------------------------------------------------


class ConfigError(RagDBError, ValueError):
    """A setting or an argument has a value that cannot work."""


class EmptyQuery(RagDBError, ValueError):
    """The question is empty or blank."""


class BadFilter(RagDBError, ValueError):
    """`where` has an unknown operator or a wrong shape."""


class BadDocument(RagDBError, ValueError):
    """A document cannot be taken as it is; nothing was written."""


class SyncRefused(RagDBError):
    """A folder is not made the measure of its documents: it is not there, or too much would go."""


class SyncRunning(SyncRefused):
    """Another sync of the same folder is at work."""


class UnreadableFile(RagDBError):
    """A file is binary, or in no encoding that can be told."""


class UnknownName(ConfigError):
    """No adapter goes by this name."""


class UnknownCollection(RagDBError):
    """No collection goes by this name."""


class MissingExtra(RagDBError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, needs: str, extra: str) -> None:
        super().__init__(f"{needs} is not installed; run: pip install 'ragdb[{extra}]'")


# --- the database ---------------------------------------------------------------------------------


class DatabaseError(RagDBError):
    """The database is not as ragdb needs it."""


class DatabaseUnreachable(DatabaseError):
    """No connection to the server."""


class ExtensionMissing(DatabaseError):
    """pgvector is not there, or older than ragdb needs."""


class SchemaMissing(DatabaseError):
    """The database has no ragdb schema yet."""


class SchemaBehind(DatabaseError):
    """The database is at an older revision than this version needs."""


class SchemaAhead(DatabaseError):
    """The database is at a revision that this version does not know."""


class AccessDenied(DatabaseError):
    """The database role may not do this."""


class StaleLease(DatabaseError):
    """The job's lease ran out or a newer text replaced it; the work is dropped, nothing is lost."""


class StaleModel(DatabaseError):
    """Another vector set became active while vectors were made; they are made again, nothing is lost."""


class NotCut(DatabaseError):
    """A text was to be made ready whose chunks are not there: the server lost them when it crashed. They are cut again."""


class UnknownRun(RagDBError):
    """No recorded run has this id."""


# --- models ---------------------------------------------------------------------------------------


class NoEmbedder(ConfigError):
    """No embedding model is named, and the collection has none recorded."""


class EmbedderMismatch(ConfigError):
    """Another embedding model (or dimension) than the collection's."""


class ModelError(RagDBError):
    """A model did not do its work. `transient`: the same call may pass later."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class EmbedderError(ModelError):
    """The embedder failed, or returned something that cannot be stored."""


class RerankerError(ModelError):
    """The reranker failed, or is not on this machine."""


class LLMError(ModelError):
    """The language model failed."""


class ContextTooSmall(ConfigError):
    """The context window leaves no room for the prompt and the answer."""
