"""Again after what passes by itself (429, 5xx, a lost connection), not after a timeout, and only while the deadline allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import tenacity

from ragdb.openai_api import ServerFailure

T = TypeVar("T")
_ATTEMPTS = 3


def retried(call: Callable[[], T], until: float | None) -> T:
    """The result of `call`, tried three times in all; `until` is a moment of `time.monotonic()`. Raises its last error."""

    def passes_later(error: BaseException) -> bool:
        return isinstance(error, ServerFailure) and error.transient and error.reason != "timeout"

    stop: Any = tenacity.stop_after_attempt(_ATTEMPTS)
    if until is not None:
        stop = stop | tenacity.stop_before_delay(max(0.0, until - time.monotonic()))
    wait = tenacity.wait_random_exponential(multiplier=0.5, max=8)
    return tenacity.Retrying(stop=stop, wait=wait, retry=tenacity.retry_if_exception(passes_later), reraise=True)(call)
