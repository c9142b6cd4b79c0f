"""Citation marks in an answer, resolved as it comes: `[1]`, `[1, 2]`, `[Source 1]`, `[citation: label]` become `[n]`.

`Resolver` takes an answer piece by piece and gives back text that is final, so that a stream and a whole answer are read
alike. A mark that names no passage goes out of the text. What looks like a mark and is none stays as it is: in code
(fences, backticks), behind a backslash, as the words of a link, a footnote, a number of four digits (a year).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import regex

from ragdb.sentences import sentences
from ragdb.types import Citation, Claim, Hit, Passage

_WORDS = "sources?|passages?|documents?|docs?|refs?|references?|citations?|出典|資料|文書|引用|パッセージ"
_FEWEST = 4  # characters of a sentence that say something
_LONGEST = 400  # characters that an open bracket or backtick holds back
_OPENING, _CLOSING = "[［【", "]］】"
_S = r"[^\S\n]*"
_NUMBERS = regex.compile(
    rf"[\[［【]{_S}(?:(?:{_WORDS}){_S}[:：]?{_S})?(?P<n>\d{{1,3}})(?:{_S}[,、，;]{_S}(?:(?:{_WORDS}){_S})?(?P<n>\d{{1,3}}))*{_S}[\]］】]",
    regex.IGNORECASE,
)
_LABELLED = regex.compile(rf"\[{_S}(?:{_WORDS}){_S}[:：]{_S}", regex.IGNORECASE)
_UNKNOWN = regex.compile(
    rf"\[{_S}(?:citations?|引用){_S}[:：](?=[^\[\]\n]*[^\[\]\n\d\s,、，;])[^\[\]\n]{{1,{_LONGEST // 2}}}\]", regex.IGNORECASE
)
_FENCE = regex.compile(r"[ \t>]*(?P<fence>`{3,}|~{3,})[^\n]*")
_PERHAPS_FENCE = regex.compile(r"[ \t>]*(?:`{0,2}|~{0,2})")
_PLAIN = regex.compile(rf"[^\n`\\{regex.escape(_OPENING, special_only=False)}]+")
_THOUSANDS = regex.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NOT_WORDS = regex.compile(r"(?:(?!(?<=\d)\.(?=\d)|(?<![\p{L}\d])-(?=\d))[\s\p{P}\p{S}])+")
_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}ー]"
_BESIDE_CJK = regex.compile(rf"(?<={_CJK}) | (?={_CJK})")
_LATIN = regex.compile(r"[\p{Latin}\d]")
_DECIMALS = regex.compile(r"\.\d")
_ENDED = regex.compile(r"[.!?。！？][)\]」』”\"]*$")
_QUOTATION = regex.compile(r"「([^「」\n]{6,})」|“([^“”\n]{12,})”|\"([^\"\n]{12,})\"")


@dataclass(frozen=True, slots=True)
class Piece:
    """Final text; `numbers` are the passages that its marks name, in order (a piece with a mark holds nothing else)."""

    text: str
    numbers: tuple[int, ...] = ()


@dataclass(slots=True)
class Resolver:
    """One answer. `false` gathers the marks that named nothing, as they were written."""

    passages: Sequence[Passage]
    false: list[str] = field(default_factory=list)
    _held: str = ""
    _at_line_start: bool = True
    _fence: str = ""
    _length: int = 0  # characters read by the last _next
    _by_label: Mapping[str, int] = field(init=False)
    _numbers: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        names: dict[str, int] = {}
        for passage in sorted(self.passages, key=lambda p: p.number):
            for name in (passage.label, *(hit.label for hit in passage.hits), passage.uri, passage.title or ""):
                names.setdefault(name, passage.number)
        # longest first: a label may begin as another one does
        known = sorted((name for name in names if 0 < len(name) < _LONGEST // 2), key=len, reverse=True)
        self._by_label = {name: names[name] for name in known}
        self._numbers = frozenset(passage.number for passage in self.passages)

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are final by now."""
        self._held += text
        return list(self._read(last=False))

    def end(self) -> list[Piece]:
        """What was held back, once nothing more comes."""
        return list(self._read(last=True))

    def _read(self, *, last: bool) -> Iterator[Piece]:
        text, at = self._held, 0
        while at < len(text):
            taken, numbers = self._next(text, at, last)
            if taken is None:
                break
            piece, at = taken, at + self._length
            if piece:
                yield Piece(piece, numbers)
        self._held = text[at:]

    def _take(self, text: str, length: int, written: str | None = None) -> str:
        self._length = length
        self._at_line_start = text.endswith("\n")
        return text if written is None else written

    def _next(self, text: str, at: int, last: bool) -> tuple[str | None, tuple[int, ...]]:
        """What stands at a place: its final text and its numbers; None where more has to come first."""
        if self._at_line_start:
            end = text.find("\n", at)
            line = text[at:] if end < 0 else text[at : end + 1]
            whole = end >= 0 or last
            if fence := _FENCE.match(line):
                if not whole:
                    return None, ()
                mark = fence["fence"]
                if not self._fence:
                    self._fence = mark
                    return self._take(line, len(line)), ()
                if mark.startswith(self._fence) and not line.strip().strip(mark[0]):
                    self._fence = ""
                    return self._take(line, len(line)), ()
            elif not whole and _PERHAPS_FENCE.fullmatch(line):
                return None, ()
        if self._fence:
            end = text.find("\n", at)
            piece = text[at:] if end < 0 else text[at : end + 1]
            return self._take(piece, len(piece)), ()
        if plain := _PLAIN.match(text, at):
            return self._take(plain[0], len(plain[0])), ()
        mark = text[at]
        if mark == "\n":
            return self._take("\n", 1), ()
        if mark == "\\":
            pair = text[at : at + 2]
            return (None, ()) if len(pair) < 2 and not last else (self._take(pair, len(pair)), ())
        return self._code(text, at, last) if mark == "`" else self._mark(text, at, last)

    def _code(self, text: str, at: int, last: bool) -> tuple[str | None, tuple[int, ...]]:
        ticks = len(text) - at - len(text[at:].lstrip("`"))
        if at + ticks == len(text) and not last:
            return None, ()
        paragraph = text.find("\n\n", at)
        stop = min(len(text) if paragraph < 0 else paragraph, at + _LONGEST)
        closing = regex.compile(rf"(?<!`)`{{{ticks}}}(?!`)").search(text, at + ticks, stop)
        if closing and (closing.end() < len(text) or last):
            return self._take(text[at : closing.end()], closing.end() - at), ()
        if paragraph < 0 and not last and len(text) - at < _LONGEST:
            return None, ()
        return self._take(text[at : at + ticks], ticks), ()  # never closed: no code

    def _mark(self, text: str, at: int, last: bool) -> tuple[str | None, tuple[int, ...]]:
        if not last and self._label_begins(text, at):
            return None, ()
        found = self._labelled(text, at) or _numbered(text, at)
        if found is not None:
            length, numbers = found
            after = text[at + length : at + length + 1]
            if not after and not last:
                return None, ()
            if after != "(":
                true = tuple(dict.fromkeys(n for n in numbers if n in self._numbers))
                if len(true) < len(numbers):
                    self.false.append(text[at : at + length])
                return self._take(text[at : at + length], length, "".join(f"[{n}]" for n in true)), true
        elif not last and not _closed(text, at) and len(text) - at < _LONGEST:
            return None, ()
        return self._take(text[at], 1), ()

    def _label_begins(self, text: str, at: int) -> bool:
        head = _LABELLED.match(text, at)
        rest = text[head.end() :] if head else ""
        return head is not None and any(
            name.startswith(rest) or (rest.startswith(name) and not rest[len(name) :].strip(" ")) for name in self._by_label
        )

    def _labelled(self, text: str, at: int) -> tuple[int, tuple[int, ...]] | None:
        """`[citation: label]`, by the labels that there are: they may hold brackets themselves."""
        head = _LABELLED.match(text, at)
        if head is None:
            return None
        for name, number in self._by_label.items():
            if text.startswith(name, head.end()):
                rest = text[head.end() + len(name) :]
                closing = len(rest) - len(rest.lstrip(" "))
                if rest[closing : closing + 1] == "]":
                    return head.end() + len(name) + closing + 1 - at, (number,)
        # a label that is none; with another word it may be a remark
        unknown = _UNKNOWN.match(text, at)
        return (len(unknown[0]), (-1,)) if unknown else None


def _numbered(text: str, at: int) -> tuple[int, tuple[int, ...]] | None:
    match = _NUMBERS.match(text, at)
    return None if match is None else (len(match[0]), tuple(int(n) for n in match.captures("n")))


def _closed(text: str, at: int) -> bool:
    """Whether what was opened cannot become a mark any more: closed, or another one or a line begins."""
    return any(mark in text[at + 1 :] for mark in (*_OPENING, *_CLOSING, "\n"))


def resolved(text: str, passages: Sequence[Passage]) -> tuple[str, tuple[int, ...], list[str]]:
    """A whole answer: its text with `[n]`, the numbers it cites in order, and the marks that named nothing."""
    resolver = Resolver(passages)
    pieces = [*resolver.feed(text), *resolver.end()]
    numbers = dict.fromkeys(number for piece in pieces for number in piece.numbers)
    return "".join(piece.text for piece in pieces), tuple(numbers), resolver.false


def claims(text: str, passages: Sequence[Passage]) -> tuple[Claim, ...]:
    """The sentences of an answer whose marks are resolved, with what each cites and what it quotes wrongly."""
    by_number = {passage.number: passage for passage in passages}
    found = []
    for start, end in sentences(text):
        pieces = resolved(text[start:end], passages)[1]
        wrong = misquoted(text[start:end], [by_number[n] for n in pieces]) if pieces else ()
        found.append(Claim(start, end, pieces, wrong))
    return tuple(found)


def standing(text: str, passages: Sequence[Passage]) -> tuple[int, ...]:
    """For an answer without a mark: the passages in which its sentences stand, word for word; none where one stands nowhere.

    Small models copy the answer and forget the mark. A whole sentence has to be one there too ("it is not true that ..." says
    something else), a few words without a full stop may stand anywhere. Of several passages the first by number counts.
    """
    found: dict[int, None] = {}
    ranked = [
        (p.number, _bare(p.content), {_bare(p.content[start:end]) for start, end in sentences(p.content)})
        for p in sorted(passages, key=lambda p: p.number)
    ]
    for start, end in sentences(text):
        words, whole = _bare(text[start:end]), _ENDED.search(text[start:end])
        number = next((n for n, inside, own in ranked if (words in own if whole else _inside(words, inside))), None)
        number = number if len(words) >= _FEWEST else None
        if number is None:
            return ()
        found.setdefault(number)
    return tuple(found)


def misquoted(sentence: str, cited: Sequence[Passage]) -> tuple[str, ...]:
    """Quotations in a sentence that stand in none of the passages it cites, spaces, marks and case aside."""
    said = [match[1] or match[2] or match[3] for match in _QUOTATION.finditer(sentence)]
    texts = [
        _bare(" ".join([p.title or "", *p.heading_path, p.context, p.content, *(hit.content for hit in p.hits)])) for p in cited
    ]
    return tuple(words for words in said if not any(_inside(_bare(words), text) for text in texts))


def _bare(text: str) -> str:
    """The words of a text, as they are compared: case, spaces and marks aside, numbers whole (1,000 is 1000, 1.5 is not 15)."""
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold().replace("−", "-"))
    words = _NOT_WORDS.sub(" ", plain)
    return _BESIDE_CJK.sub("", words).strip()


def _inside(words: str, text: str) -> bool:
    """Does the text hold these words, and not as a part of a longer number or word?"""
    at = text.find(words) if words else -1
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(words) : at + len(words) + 2]
        cut = (_LATIN.fullmatch(before) and _LATIN.fullmatch(words[0])) or (before in ("-", ".") and words[0].isdigit())
        if not cut and not (_LATIN.fullmatch(after[:1]) and _LATIN.fullmatch(words[-1])) and not _DECIMALS.match(after):
            return True
        at = text.find(words, at + 1)
    return False


def citation(number: int, hit: Hit, start: int, end: int, words: str) -> Citation:
    """Where `[number]` points: `words`, from `start` to `end` of the hit's document."""
    return Citation(
        number=number,
        chunk_id=hit.chunk_id,
        label=hit.label,
        uri=hit.uri,
        heading_path=hit.heading_path,
        start=start,
        end=end,
        page=hit.page,
        quote=words,
        document_id=hit.document_id,
        title=hit.title,
    )
