"""OpenTelemetry: a span for each run and each of its stages, where the program has the API installed and set up.

Names follow the stages, attributes the trace; nothing of the texts of people or documents goes out. Without the package, or
without a provider, nothing happens.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

_MS = 1_000_000  # nanoseconds


@cache
def _api() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        return None


def trace(run: Mapping[str, Any], began_ns: int) -> None:
    """Spans of a finished run, under the caller's current span. Stages that ran beside each other begin together."""
    api = _api()
    if api is None:
        return
    tracer = api.get_tracer("ragdb")
    attributes = {
        "ragdb.collection": run["collection"],
        "ragdb.pipeline": str(run["pipeline"].get("name", "")),
        "ragdb.k": run["k"],
        **({"ragdb.outcome": run["outcome"], "ragdb.mode": run["mode"]} if run["outcome"] else {}),
        **({"ragdb.cost": run["usage"]["cost"]} if "cost" in run["usage"] else {}),
    }
    whole = tracer.start_span(f"ragdb.{run['verb']}", start_time=began_ns, attributes=attributes)
    if run["outcome"] == "llm_failed":
        whole.set_status(api.Status(api.StatusCode.ERROR))
    context = api.set_span_in_context(whole)
    at = began_ns
    before, group_end = None, began_ns
    for stage in run["stages"]:
        if stage["stage"] != before:  # the lists of one stage run beside each other, stages one after the other
            at, before = group_end, stage["stage"]
        end = at + int(stage["ms"] * _MS)
        name = f"ragdb.{stage['stage']}" + (f" {stage['name']}" if stage["name"] else "")
        span = tracer.start_span(
            name,
            context=context,
            start_time=at,
            attributes={
                "ragdb.chunks": len(stage["chunk_ids"]),
                "ragdb.dropped": sum(len(ids) for ids in stage["dropped"].values()),
            },
        )
        span.end(end_time=end)
        group_end = max(group_end, end)
    whole.end(end_time=began_ns + int(run["ms"] * _MS))
