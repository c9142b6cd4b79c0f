"""Work that may hang: on a thread of its own, left behind when its time is over.

A server that sends a byte now and then, or a model of the caller's that never returns, keeps its thread; neither the
question nor the end of the program waits for it.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Started(Generic[T]):
    """Work that has begun. Runs in the caller's context, so that what it counts is counted there."""

    def __init__(self, work: Callable[[], T], name: str = "ragdb-model") -> None:
        self._done = threading.Event()
        self._failed: BaseException | None = None
        self._result: T | None = None
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run, work), name=name, daemon=True).start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._result = work()
        except BaseException as error:  # noqa: BLE001  it belongs to who waits for the result
            self._failed = error
        finally:
            self._done.set()

    def result(self, seconds: float | None = None) -> T:
        """What the work returned, or its error. Raises TimeoutError after `seconds`; None waits for ever."""
        if not self._done.wait(None if seconds is None else max(0.0, seconds)):
            raise TimeoutError(f"not done in {seconds:g} s")
        if self._failed is not None:
            if isinstance(self._failed, Exception):
                raise self._failed
            raise RuntimeError(f"it ended with {type(self._failed).__name__}") from self._failed
        return self._result  # type: ignore[return-value]


def within(seconds: float | None, work: Callable[[], T]) -> T:
    """The result of work that has `seconds`. Raises TimeoutError when they are over, and does not wait for it."""
    return Started(work).result(seconds)
