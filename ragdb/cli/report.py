"""What an `add` did: told as it happens where something failed, and summed up in one line at its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ragdb.cli.output import counted, cut, json_line, note, say

if TYPE_CHECKING:
    from ragdb.cli.state import State
    from ragdb.ingest.folder import Failed, Result, Selection

_SHOWN_FAILURES = 20
_SHOWN_HIDDEN = 10


class Report:
    """What one `add` did, for the summary and for `--json`."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.done: dict[str, list[dict[str, Any]]] = {"added": [], "updated": [], "unchanged": [], "queued": [], "processing": []}
        self.failed: list[dict[str, str]] = []
        self.found: Selection | None = None
        self.interrupted = False
        self.hidden = 0  # documents that say of themselves that they are drafts or archived
        self.chunks = self.reused = self.embedded = 0

    def take(self, result: Result | Failed) -> None:
        from ragdb.ingest.folder import Failed

        if isinstance(result, Failed):
            self.failed.append({"path": result.path, "error": result.error})
            if len(self.failed) <= _SHOWN_FAILURES:
                note(f"failed: {result.path}: {result.error}")
            return
        if result.became in ("added", "updated", "queued"):
            self._tell_status(result)
        for warning in result.added.warnings:
            note(f"{result.added.uri}: {warning}")
        self.done[result.became].append({"path": str(result.file.path), **result.added.to_dict()})
        self.embedded += result.embedded
        if result.became in ("added", "queued"):
            self.chunks += result.added.chunks
            self.reused += result.added.reused

    def _tell_status(self, result: Result) -> None:
        """A page that takes itself out of the searches is worth a word."""
        said = result.found.get("status")
        if said and said["value"] != "active" and not said.get("overruled"):
            self.hidden += 1
            if self.hidden <= _SHOWN_HIDDEN:
                where = f"line {said['line']}: " if said.get("line") else ""
                note(f"{result.added.uri} says it is {said['value']} ({where}{cut(str(said.get('text', '')), 60)})")

    def print(self, state: State) -> None:
        seconds = round(time.monotonic() - self.began, 1)
        skipped = dict(self.found.skipped) if self.found else {}
        evaluation = self.found.evaluation if self.found else ()
        twice = self.found.twice if self.found else ()
        if (hidden := len(self.failed) - _SHOWN_FAILURES) > 0:
            note(f"failed: {hidden} more (--json lists all)")
        if (more := self.hidden - _SHOWN_HIDDEN) > 0:
            note(
                f"{counted(more, 'more document')} say of themselves that they are drafts or archived: ragdb ls --status archived"
            )
        if skipped:
            listed = ", ".join(f"{suffix} {count}" for suffix, count in skipped.items())
            note(f"skipped {counted(sum(skipped.values()), 'file')} that ragdb has no reader for: {listed}")
        if evaluation:
            listed = ", ".join(evaluation[:3]) + (", ..." if len(evaluation) > 3 else "")
            note(f"skipped {counted(len(evaluation), 'file')} of questions and judgements beside corpus.jsonl: {listed}")
        if twice:
            old, new = twice[0]
            note(
                f"note: {counted(len(twice), 'file')} came in before under another uri and now count twice ({old} and {new}); "
                f"name the same folder each time, or remove one: ragdb rm {old}"
            )
        if self.interrupted:
            note("stopped. What was added so far is kept; the same command goes on from here.")
        if state.json:
            skipped |= {"evaluation": len(evaluation)} if evaluation else {}
            figures = {"chunks": self.chunks, "reused": self.reused, "embedded": self.embedded, "seconds": seconds}
            json_line({**self.done, "failed": self.failed, "skipped": skipped, "interrupted": self.interrupted, **figures})
            return
        words = {
            "updated": "updated (text unchanged)",
            "queued": f"waiting ({state.command('worker --once')} embeds them)",
            "processing": "being embedded by another process",
        }
        parts = [f"{len(self.done['added'])} added", f"{len(self.done['unchanged'])} unchanged", f"{len(self.failed)} failed"]
        parts += [f"{len(self.done[name])} {word}" for name, word in words.items() if self.done[name]]
        say(f"{', '.join(parts)}; {counted(self.chunks, 'chunk')}, {self.embedded} embedded, {seconds} s")
