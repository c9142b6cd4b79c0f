"""What calls cost, by a table of your own: prices change, and ragdb knows none.

    ["openai:gpt-5-mini"]
    prompt = 0.25          # for a million tokens
    completion = 2.00

    ["http:https://api.cohere.com/v2/rerank#rerank-v3.5"]
    call = 0.002           # for a call: a search of a reranker

In one currency, whichever it is. A model that is not in the table has no cost, and the run says so by having none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragdb.errors import ConfigError

_NAMES = ("prompt", "completion", "call")
_MILLION = 1_000_000


class Prices:
    """Costs by model. `table` is a file in TOML, or the same as a mapping. Raises ConfigError where it is wrong."""

    def __init__(self, table: str | Path | Mapping[str, Mapping[str, float]] | None = None) -> None:
        read = table if isinstance(table, Mapping) else _read(Path(table)) if table is not None else {}
        for model, prices in read.items():
            if not isinstance(prices, Mapping) or not prices or not all(_is_price(*item) for item in prices.items()):
                raise ConfigError(
                    f"the prices of {model!r} are {prices!r}; write {', '.join(_NAMES)} as numbers of at least 0, "
                    "prompt and completion for a million tokens"
                )
        self._table = {model: dict(prices) for model, prices in read.items()}

    def of(self, usage: Mapping[str, Any]) -> float | None:
        """What one row of `usage["models"]` cost; None where its model has no price."""
        prices = self._table.get(usage["model"])
        if prices is None:
            return None
        tokens = sum(prices.get(name, 0.0) * usage[f"{name}_tokens"] for name in ("prompt", "completion")) / _MILLION
        cost: float = tokens + prices.get("call", 0.0) * (usage["calls"] - usage["failed"])
        return round(cost, 9)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"RAGDB_PRICES names {path}, which cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f'{path} is no TOML: {error}; a model\'s name stands in quotation marks: ["openai:gpt-5-mini"]'
        ) from error


def _is_price(name: str, price: object) -> bool:
    return name in _NAMES and isinstance(price, (int, float)) and not isinstance(price, bool) and 0 <= price < _MILLION
