"""The progress bar of long work, on stderr and only on a terminal.

How many chunks a file gives is known when it is cut, so the bar counts bytes: those of finished files, and within a
file the chunks embedded so far at the average length of a chunk.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ragdb.cli.output import counted, cut, on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_CHUNK_BYTES = 600.0  # until there is an average: about what 256 tokens of mixed text take
_NAME = 40


class Bar:
    """`with Bar(n, bytes) as bar:` then `begin` and `embedded` as the work goes; without a terminal it only counts."""

    def __init__(self, documents: int, size: int) -> None:
        self.chunks = 0
        self._documents = documents
        self._size = max(1, size)
        self._begun = 0
        self._done = 0  # bytes of finished files
        self._current = 0
        self._name = ""
        self._in_current = 0
        self._average = _CHUNK_BYTES
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._documents and on_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            # speed over ten minutes: a model's batches come far apart
            self._progress = Progress(
                TextColumn("{task.fields[count]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                transient=True,
                speed_estimate_period=600,
            )
            self._task = self._progress.add_task("", total=self._size, count="")
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress:
            self._progress.stop()

    def begin(self, name: str, size: int) -> None:
        """The next document begins; the one before is done."""
        self._done += self._current
        if self._in_current:
            self._average = (self._average + self._current / self._in_current) / 2
        self._begun += 1
        self._current, self._in_current = size, 0
        self._name = name
        self._show(cut(name, _NAME))

    def embedded(self, n: int) -> None:
        """n more chunks of the current document are embedded."""
        self.chunks += n
        self._in_current += n
        self._show(cut(self._name, _NAME))

    def cutting(self, done: int, of: int) -> None:
        """Of the current document, a large one, so many chunks are cut and written; embedding comes after."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=f"{cut(self._name, _NAME)}: {done} of {of} chunks cut")

    def _show(self, name: str | None = None) -> None:
        if self._progress is None or self._task is None:
            return
        inside = min(self._current, self._in_current * self._average)
        count = f"{self._begun}/{self._documents} documents, {counted(self.chunks, 'chunk')} embedded"
        self._progress.update(self._task, completed=self._done + inside, count=count)
        if name is not None:
            self._progress.update(self._task, description=name)


class Counting:
    """A count that grows towards a total, on stderr and only on a terminal; 0: how far it goes is not known."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress = _counts()
        if self._progress:
            self._task = self._progress.add_task(self._what, total=self._total or None)
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress:
            self._progress.stop()

    def more(self, n: int) -> None:
        if self._progress and self._task is not None:
            self._progress.advance(self._task, n)


class Several:
    """A count for each of several things that go on, by name, on stderr and only on a terminal."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress = _counts()
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress:
            self._progress.stop()

    def told(self, name: str, done: int, of: int) -> None:
        """So much of what has this name is done."""
        if self._progress:
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=of)
            self._progress.update(self._tasks[name], completed=done, total=of)


def _counts() -> Progress | None:
    """Bars with `3/20`; None where nobody watches."""
    if not on_terminal(sys.stderr):
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
