"""An answer as it is written, read part by part, and recorded when it ends, however it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from typing import Self

from ragdb.question import Question
from ragdb.stages import synthesize
from ragdb.types import Answer, AnswerPart


class AnswerStream:
    """An answer as it is written: iterates over AnswerPart; `answer` is the whole one, recorded, once it has ended.

    All is searched and packed when it is made. A reader who leaves before the end (`close`, `with`, the loop broken off and
    the object gone) ends the call of the model; the run is recorded with outcome `cancelled`.
    """

    def __init__(self, asked: Question) -> None:
        self.answer: Answer | None = None
        self._asked = asked
        self._reading = threading.RLock()  # who closes it from another thread waits for the part that is being written
        ready = asked.answer_or_writing()
        self._began = time.perf_counter()
        self._writing = ready if isinstance(ready, synthesize.Writing) else None
        if isinstance(ready, Answer):
            self.answer = asked.finished(ready)
            self._parts: Iterator[AnswerPart] = iter([AnswerPart(ready.text, ready.citations)])
        else:
            self._parts = ready.streamed()

    def __iter__(self) -> Iterator[AnswerPart]:
        return self

    def __next__(self) -> AnswerPart:
        with self._reading:
            try:
                return next(self._parts)
            except BaseException:  # its end, a failure, or Ctrl-C: the run is recorded
                self._end()
                raise

    def _end(self) -> None:
        if self._writing is None or self.answer is not None:
            return
        outcome = self._writing.outcome or self._writing.cancelled()
        ms = (time.perf_counter() - self._began) * 1000
        self._asked.recorder.took("synthesize", self._asked.mode, outcome, ms, calls=self._writing.calls)
        self.answer = self._asked.finished(outcome.value)

    def close(self) -> None:
        """Ends it where it is; nothing happens where it has ended."""
        with self._reading:
            if isinstance(self._parts, Generator):
                self._parts.close()
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_parts", None) is not None and self.answer is None:
            self.close()
