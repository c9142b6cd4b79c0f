"""How many tokens a server's model reads: asked of the server, for each kind tells it in a place of its own.

vLLM and SGLang in their list of models, llama.cpp at /props, Ollama and LM Studio in interfaces of their own. OpenAI
does not tell. What cannot be asked in two seconds is not known.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from ragdb.errors import ModelError
from ragdb.openai_api import Server, failures_of, in_time

_SECONDS = 2.0
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)
# Ollama reads so many where neither the model nor the server was told otherwise, however many the model was made for.
_OLLAMA = 4096


def asked(server: Server) -> int | None:
    """Tokens of prompt and answer together; None where the server does not say."""
    until = time.monotonic() + _SECONDS
    root = urlunsplit(urlsplit(server.base_url)._replace(path="", query="", fragment=""))
    listed = _get(server, f"{server.base_url}/models", until)
    row = _of_model(listed.get("data"), "id", server.model)
    for name in ("max_model_len", "loaded_context_length", "context_length", "max_context_length"):
        if (found := _whole(row.get(name))) is not None:
            return found
    props = _get(server, f"{root}/props", until).get("default_generation_settings")
    if isinstance(props, Mapping) and (found := _whole(props.get("n_ctx"))) is not None:
        return found
    if (
        found := _whole(_get(server, f"{root}/api/v0/models/{quote(server.model)}", until).get("loaded_context_length"))
    ) is not None:
        return found
    return _ollama(server, root, until)


def _ollama(server: Server, root: str, until: float) -> int | None:
    running = _get(server, f"{root}/api/ps", until).get("models")
    if not isinstance(running, list):
        return None
    loaded = _whole(_of_model(running, "name", server.model).get("context_length"))
    if loaded is not None:
        return loaded
    said = _NUM_CTX.search(str(_get(server, f"{root}/api/show", until, {"model": server.model}).get("parameters") or ""))
    return int(said[1]) if said else _OLLAMA


def _get(server: Server, url: str, until: float, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The JSON object behind an address, {} where there is none."""

    def work() -> Any:
        with failures_of(server):
            client = server.client.with_options(timeout=max(0.1, until - time.monotonic()), max_retries=0)
            return client.get(url, cast_to=object) if body is None else client.post(url, body=body, cast_to=object)

    try:
        found = in_time(server, until, work)
    except ModelError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _of_model(rows: Any, key: str, model: str) -> Mapping[str, Any]:
    found = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    named = [row for row in found if row.get(key) in (model, f"{model}:latest")]
    return next(iter(named), {})


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
