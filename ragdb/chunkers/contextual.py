"""Another chunker's chunks, each with a line by a language model that places it in its document.

"The limit for part-timers, from the remote work policy of 2025": a chunk that says "the limit is 5,000" is then found by
words that stand elsewhere in the document. Source: Anthropic, "Introducing Contextual Retrieval" (2024). The line goes into
the chunk's context, never into its span.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

import regex

from ragdb import adapters
from ragdb.adapters import sendable
from ragdb.chunkers.header import fit_header, index_header
from ragdb.chunkers.sizes import MAX_TOKENS
from ragdb.errors import ConfigError, LLMError
from ragdb.llms.calls import complete
from ragdb.llms.think import strip_think
from ragdb.prompts import OURS, Prompts, language_of
from ragdb.protocols import LLM, Chunker, CountTokens
from ragdb.types import Document, Message, Span
from ragdb.windows import first_window

logger = logging.getLogger("ragdb.ingest")

LINE_TOKENS = 64
# Of a long document the model sees so many of its own tokens: the beginning, and what stands around the chunk.
DOCUMENT_TOKENS = 4_000
_REPLY_TOKENS = 128
_AT_ONCE = 4
# A model on a laptop reads a document for a minute, and a call may wait behind others.
_TIMEOUT = 180.0
_RECENT = 64  # documents whose lines are kept for another try
_PREFACE = regex.compile(r"^(?:context|line|answer|文脈|位置づけ|回答)\s*[:：]\s*", regex.IGNORECASE)


class ContextualChunker:
    """The chunks of `chunker`, which leaves room for a line of at most `line_tokens` of the embedder's tokens.

    One call of `llm` a chunk; a chunk whose text and place did not change keeps its line. A call that fails fails the
    document, which is tried again: a line that is missing would not be noticed later. The lines of the last documents are
    kept in the process for that.
    """

    #: It calls a model: not to be run while a transaction is open.
    needs_model = True
    #: `chunk` takes the contexts that are stored, so that what did not change costs no call.
    takes_known = True

    def __init__(self, chunker: Chunker, llm: LLM, *, line_tokens: int = LINE_TOKENS, prompts: Prompts = OURS) -> None:
        if line_tokens < 8:
            raise ConfigError(f"line_tokens is {line_tokens}; a line that says something takes at least 8")
        self.chunker = chunker
        self.llm = llm
        self.line_tokens = line_tokens
        self.max_tokens = int(getattr(chunker, "max_tokens", MAX_TOKENS)) + line_tokens
        self._prompts = prompts
        self._written: dict[bytes, dict[bytes, str]] = {}  # by the document; the last ones that a model was asked about
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ContextualChunker({self.chunker!r}, {self.llm.name!r}, line_tokens={self.line_tokens})"

    @classmethod
    def load(
        cls, model: str = "", *, llm: LLM | None = None, max_tokens: int = MAX_TOKENS, prompts: Prompts = OURS
    ) -> ContextualChunker:
        """`contextual`, or `contextual:CHUNKER` such as `contextual:recursive:128/16`; together at most `max_tokens`."""
        if llm is None:
            raise ConfigError("the chunker contextual asks a language model, and none is named: set RAGDB_LLM, or llm=")
        inner: Chunker = adapters.load("chunkers", model or "markdown", defaults={"max_tokens": max(1, max_tokens - LINE_TOKENS)})
        return cls(inner, llm, prompts=prompts)

    def chunk(self, document: Document, count_tokens: CountTokens, *, known: Mapping[str, str] | None = None) -> Sequence[Span]:
        """Returns the chunker's spans with their lines. `known` maps the text of a chunk to its context as it is stored.

        Errors: LLMError, those of the chunker.
        """
        spans = self.chunker.chunk(document, count_tokens)
        places = [_digest(*span.heading_path, document.content[span.start : span.end]) for span in spans]
        digest = _digest(document.uri, document.title or "", document.content)
        with self._lock:
            before = dict(self._written.get(digest, {}))
        lines: dict[int, str] = {}
        for n, (span, place) in enumerate(zip(spans, places, strict=True)):
            if place in before:  # fitted once more: another collection may count by another tokenizer
                lines[n] = fit_line(before[place], self.line_tokens, count_tokens)
            elif line := self._kept(document, span, count_tokens, known or {}):
                lines[n] = line
        made: dict[bytes, str] = {}
        try:
            for n, line in self._lines(document, {n: span for n, span in enumerate(spans) if n not in lines}, count_tokens):
                lines[n] = made[places[n]] = line
        finally:
            # also where nothing failed here: what comes after it may
            if made:
                self._remember(digest, before | made)
        return tuple(
            replace(span, context="\n".join(part for part in (span.context, lines[n]) if part)) for n, span in enumerate(spans)
        )

    def _remember(self, digest: bytes, lines: dict[bytes, str]) -> None:
        with self._lock:
            self._written.pop(digest, None)
            self._written[digest] = lines
            while len(self._written) > _RECENT:
                del self._written[next(iter(self._written))]

    def _lines(self, document: Document, spans: Mapping[int, Span], count_tokens: CountTokens) -> Iterator[tuple[int, str]]:
        """The lines as they are written. Raises the first error when what had begun is done."""
        if not spans:
            return
        first, *others = spans
        # alone: servers keep what they read of a prompt, and the others begin with the same document
        yield first, self._line(document, spans[first], count_tokens)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ragdb-context") as threads:
            waiting = {threads.submit(self._line, document, spans[n], count_tokens): n for n in others}
            failed: BaseException | None = None
            try:
                for future in as_completed(waiting):
                    if future.cancelled():
                        continue
                    if error := future.exception():
                        failed = failed or error  # raised below: the lines of the others are worth keeping
                        for other in waiting:
                            other.cancel()
                    else:
                        yield waiting[future], future.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        if failed is not None:
            raise failed

    def _kept(self, document: Document, span: Span, count_tokens: CountTokens, known: Mapping[str, str]) -> str:
        """The line that the same text has under the same headings; what stands above it is no line."""
        stored = known.get(document.content[span.start : span.end], "")
        header = fit_header(index_header(document.title, span.heading_path), self.max_tokens, count_tokens)
        above = "\n".join(part for part in (header, span.context) if part)
        line = stored.removeprefix(f"{above}\n") if above and stored.startswith(f"{above}\n") else "" if above else stored
        return line if "\n" not in line else ""

    def _line(self, document: Document, span: Span, count_tokens: CountTokens) -> str:
        text = document.content[span.start : span.end]
        prompt = self._prompts.template("contextual", language_of(text)).substitute(
            # one beginning for all chunks, as far as the document is shown whole; what differs comes last
            title=sendable(document.title or document.uri),
            document=sendable(self._shown(document, span)),
            chunk=sendable(text),
        )
        reply = complete(self.llm, [Message("user", prompt)], temperature=0.0, max_tokens=_REPLY_TOKENS, deadline=_TIMEOUT)
        said = next((line.strip() for line in strip_think(reply.text or "").splitlines() if line.strip()), "")
        line = _PREFACE.sub("", " ".join(said.strip("\"'「」*# ").split()))
        if not line:
            raise LLMError(f"{self.llm.name} wrote no line for chunk {span.start}-{span.end} of {document.uri!r}", transient=True)
        return fit_line(line, self.line_tokens, count_tokens)

    def _shown(self, document: Document, span: Span) -> str:
        """The document, or of a long one its beginning and what stands around the chunk."""
        room = min(DOCUMENT_TOKENS, max(64, (self.llm.context_window - _REPLY_TOKENS) // 2))
        count = self.llm.count_tokens
        if len(document.content) <= room * 8 and count(document.content) <= room:
            return document.content
        head = first_window(document.content, room // 4, count)
        reach = len(first_window(document.content[span.start :] or head, room // 2, count))
        around = document.content[max(len(head), span.start - reach // 2) : span.end + reach // 2]
        headings = "\n".join(f"{'#' * level} {heading}" for level, heading in enumerate(span.heading_path, start=1))
        return "\n".join(part for part in (head, "...", headings, first_window(around, room * 3 // 4, count)) if part)


def _digest(*parts: str) -> bytes:
    """What lines are kept by: a document's texts, or a chunk's headings and text."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:".encode() + part.encode("utf-8", "surrogatepass"))
    return found.digest()


def fit_line(line: str, max_tokens: int, count_tokens: CountTokens) -> str:
    """The line, cut between words or graphemes where it has more than `max_tokens` (special tokens not counted)."""
    room = max_tokens - 1 + count_tokens("")  # one for the line break above it
    ends = [match.end() for match in regex.finditer(r"\X", line)]
    low, high = 0, len(ends)
    if count_tokens(line) <= room:
        return line
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_tokens(line[: ends[middle - 1]]) <= room else (low, middle - 1)
    cut = line[: ends[low - 1]] if low else ""
    return cut.rsplit(" ", 1)[0] if " " in cut[len(cut) * 3 // 4 :] else cut


Adapter = ContextualChunker
