"""What every chunker keeps: cases CHK-04, CHK-06, pages, CSV, names, and properties on arbitrary text."""

from __future__ import annotations

import csv
import io
import math
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from ragdb import adapters
from ragdb.chunkers import Chunking
from ragdb.chunkers.header import fit_header, index_header, index_text
from ragdb.chunkers.markdown import MarkdownChunker
from ragdb.chunkers.outline import parts
from ragdb.chunkers.records import delimiter, table
from ragdb.chunkers.recursive import RecursiveChunker
from ragdb.chunkers.semantic import SemanticChunker
from ragdb.chunkers.sentence import SentenceChunker
from ragdb.chunkers.sliding import SlidingChunker
from ragdb.context import Context
from ragdb.errors import ConfigError, EmbedderError, UnknownName
from ragdb.ingest.prepare import cut
from ragdb.protocols import Chunker, CountTokens
from ragdb.readers.markup import in_windows
from ragdb.testing import FakeEmbedder
from ragdb.types import Document, Span

EMBEDDER = FakeEmbedder()


def semantic(size: int) -> SemanticChunker:
    return SemanticChunker(EMBEDDER, size, min_tokens=size // 3)


def sliding(size: int) -> SlidingChunker:
    return SlidingChunker(size, 0)


# By size, and without overlap.
MAKERS: dict[str, Callable[[int], Chunker]] = {
    "markdown": MarkdownChunker,
    "recursive": RecursiveChunker,
    "sliding": sliding,
    "sentence": SentenceChunker,
    "three sentences": lambda size: SentenceChunker(size, 3),
    "semantic": semantic,
}
OVERLAPPING: dict[str, Callable[[int, int], Chunker]] = {
    "markdown": MarkdownChunker,
    "recursive": RecursiveChunker,
    "sliding": SlidingChunker,
}
every_chunker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def thirds(text: str) -> int:
    return len(text) // 3 + 2


def words(text: str) -> int:
    return len(text.split())


def texts(content: str, spans: Sequence[Span]) -> list[str]:
    return [content[span.start : span.end] for span in spans]


def indexed(document: Document, span: Span, max_tokens: int, count: CountTokens) -> str:
    header = fit_header(index_header(document.title, span.heading_path), max_tokens, count)
    return index_text(header, span.context, document.content[span.start : span.end])


def visible(content: str) -> set[int]:
    return {i for i, c in enumerate(content) if not c.isspace() and not regex.match(r"[\p{Cc}\p{Cf}]", c)}


def page_of(pages: Sequence[int], at: int) -> int:
    return max(1, bisect_right(pages, at))


def graphemes(content: str, pages: Sequence[int]) -> set[int]:
    """Where graphemes begin and end; a page begins one, whatever stands there."""
    bounds = sorted({0, len(content), *pages})
    return {a + m for a, b in pairwise(bounds) for m in (0, *(x.end() for x in regex.finditer(r"\X", content[a:b])))} | {0}


# --- properties -------------------------------------------------------------------------------------

MARKS = ["# h\n", "## g\n", "\n\n", "\n", "\r\n", "\r", "```\n", "---\n", "===\n", "- a\n", "  - b\n", "> ", "<!-- c -->\n\n"]
BLOCKS = [
    "| a | b |\n",
    "|---|---|\n",
    "<div>\n",
    "[a]: b\n",
    "    code\n",
    "\t",
    "\f",
    ",",
    ";",
    '"',
    '""',
    "a,b\n",
    '"x\ny",z\n',
]
PROSE = [" ", "\u3000", "。", "！」", ". ", "? ", "、", "漢字", "かな", "word", "ไทย"]
HARD = [
    "👩‍👩‍👧",
    "👋🏻",
    "🇯🇵",
    "\u0301",
    "\u200d",
    "\u0600",
    "\u0e33",
    "क्ष",
    "\x0b",
    "\x85",
    "\u2028",
    "\u200b",
    "\x1c",
    "\ud800",
]
PIECES = st.sampled_from([*MARKS, *BLOCKS, *PROSE, *HARD])
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    content = draw(TEXTS)
    pages = sorted(draw(st.lists(st.integers(0, len(content)), max_size=4))) or None
    return Document(
        draw(st.sampled_from(["a.md", "a.txt", "a.csv"])), content, title=draw(st.sampled_from([None, "T"])), pages=pages
    )


def check(document: Document, spans: Sequence[Span], size: int, count: CountTokens) -> set[int]:
    """What holds for any chunks; returns the characters that they hold."""
    content, pages = document.content, document.pages or ()
    cuts = graphemes(content, pages)
    for span in spans:
        text = content[span.start : span.end]
        assert 0 <= span.start < span.end <= len(content)
        assert text.strip()
        assert {span.start, span.end} <= cuts
        assert count(indexed(document, span, size, count)) <= size or regex.fullmatch(r"\s*\X\s*", text)
        assert not span.section or span.section.start <= span.start < span.end <= span.section.end
        assert span.page == (page_of(pages, span.start) if pages else None)
        if pages:
            assert page_of(pages, span.end - 1) == span.page
    return {offset for span in spans for offset in range(span.start, span.end)}


def must_be_held(document: Document) -> set[int]:
    """All that can be seen in the parts: front matter, comments and headings without text are in none."""
    held = {at for part in parts(document) for start, end in part.stretches for at in range(start, end)}
    if not document.uri.endswith(".md"):
        assert visible(document.content) <= held
    return held & visible(document.content)


@every_chunker
@settings(max_examples=100, deadline=None)
@given(document=documents(), size=st.integers(1, 60), count=st.sampled_from([thirds, words, len]))
def test_chunks_are_in_order_hold_all_text_once_and_respect_the_limit(
    make: Callable[[int], Chunker], document: Document, size: int, count: CountTokens
) -> None:
    spans = make(size).chunk(document, count)
    covered = check(document, spans, size, count)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert must_be_held(document) <= covered


@pytest.mark.parametrize("make", OVERLAPPING.values(), ids=OVERLAPPING)
@settings(max_examples=80, deadline=None)
@given(document=documents(), size=st.integers(2, 40), data=st.data())
def test_with_overlap_chunks_still_go_forward_and_lose_nothing(
    make: Callable[[int, int], Chunker], document: Document, size: int, data: st.DataObject
) -> None:
    spans = make(size, data.draw(st.integers(1, size - 1))).chunk(document, len)
    covered = check(document, spans, size, len)
    assert all(a.start < b.start and a.end < b.end for a, b in pairwise(spans))
    assert must_be_held(document) <= covered


@every_chunker
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("paragraphs", "\n\n".join(f"paragraph number {i}." for i in range(9000))),
        ("lines", "\n".join(f"line number {i}." for i in range(9000))),
        ("kanji", "漢" * 20_000),
        ("words", "word " * 60_000),
        ("csv", "a,b\n" + "x,12\n" * 20_000),
        ("exclamation", "!" * 100_000),
        ("spaces", "a" + " " * 1_000_000 + "b"),
        ("accents", "e" + "\u0301" * 200_000),
        ("flags", "🇯🇵" * 10_000),
        ("csv of quotation marks", ',"' * 50_000),
        ("csv of open quotes", "x ('a" * 20_000),
        ("table", "| a | b |\n|---|---|\n" + "| x | 12 |\n" * 10_000),
        ("headings", "".join(f"# h{i}\n\ntext {i}\n\n" for i in range(3000))),
    ],
    ids=lambda value: value if len(value) < 25 else "text",
)
def test_time_and_counting_are_in_proportion_to_the_length(make: Callable[[int], Chunker], name: str, content: str) -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return thirds(text)

    begin = time.perf_counter()
    spans = make(256).chunk(Document("a.csv" if name.startswith("csv") else "a.md", content), count)
    assert time.perf_counter() - begin < 20, name  # seconds here; far above what a slow machine needs
    # `semantic` counts sentences, sentences with their neighbours, and chunks.
    assert counted <= 16 * len(content) + 10_000
    assert len("".join("".join(texts(content, spans)).split())) == len("".join(content.split()))


# --- CHK-04: characters -----------------------------------------------------------------------------


@every_chunker
def test_japanese_never_exceeds_the_limit_and_is_never_cut_within_a_character(make: Callable[[int], Chunker]) -> None:
    def count(text: str) -> int:
        return len(text.encode()) // 2 + 2

    content = "猫の手も借りたい👋🏻。" * 200
    document = Document("a.md", content)
    check(document, make(10).chunk(document, count), 10, count)
    kanji = Document("a.md", "漢" * 20_000)
    pieces = texts(kanji.content, make(10).chunk(kanji, count))
    assert "".join(pieces) == kanji.content
    assert max(map(count, pieces)) <= 10


@pytest.mark.parametrize("name", ["markdown", "recursive", "sentence", "three sentences", "semantic"])
def test_sentences_end_chunks_where_they_fit(name: str) -> None:
    content = "猫が寝た。" * 100
    spans = MAKERS[name](30).chunk(Document("a.md", content), len)
    assert all(text.endswith("。") for text in texts(content, spans))


# --- CHK-06: tables ---------------------------------------------------------------------------------

HEAD = "| Item | Price |\n| --- | --- |"
ROWS = [f"| item{i} | {i * 10} yen |" for i in range(40)]


@pytest.mark.parametrize("name", ["markdown", "sentence", "three sentences", "semantic"])
def test_every_chunk_of_a_table_has_its_header_and_each_row_is_whole_and_once(name: str) -> None:
    content = "# Shop\n\nTable 1. Prices.\n\n" + "\n".join([HEAD, *ROWS]) + "\n"
    spans = MAKERS[name](80).chunk(Document("a.md", content), thirds)
    assert len(spans) >= 3
    for span, text in zip(spans, texts(content, spans), strict=True):
        assert HEAD in f"{span.context}\n{text}"
        assert "item" not in span.context
    found = [line for text in texts(content, spans) for line in text.splitlines() if line in ROWS]
    assert found == ROWS
    assert [span.context for span in spans] == ["", *[HEAD] * (len(spans) - 1)]


@every_chunker
def test_a_row_longer_than_the_limit_is_split_without_losing_text(make: Callable[[int], Chunker]) -> None:
    content = "\n".join(["| a | b |", "|---|---|", "| r1 | x |", "| long | " + "value " * 100 + "|", "| r3 | y |", "", "after"])
    spans = make(40).chunk(Document("a.md", content), thirds)
    assert "".join("".join(texts(content, spans)).split()) == "".join(content.split())


# --- CSV --------------------------------------------------------------------------------------------


def sheet(rows: int, between: str = ",") -> tuple[str, list[str]]:
    """A CSV with line ends, delimiters and quotation marks inside its fields, and its records as they are written."""
    written = []
    for i in range(-1, rows):
        line = io.StringIO()
        row = ["id", "name", "note"] if i < 0 else [i, f"item{i}", f'line "one"{between}\n\nline two of {i}']
        csv.writer(line, delimiter=between, lineterminator="\n").writerow(row)
        written.append(line.getvalue())
    return "".join(written), written


@pytest.mark.parametrize("name", ["markdown", "sentence", "semantic"])
@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_records_with_line_ends_stay_whole_and_every_chunk_has_the_header(name: str, between: str) -> None:
    content, written = sheet(40, between)
    header, records = written[0].strip(), [record.rstrip("\n") for record in written[1:]]
    document = Document("a.tsv" if between == "\t" else "a.csv", content)
    spans = MAKERS[name](80).chunk(document, thirds)
    assert len(spans) >= 3
    assert [span.context for span in spans] == ["", *[header] * (len(spans) - 1)]
    for text in texts(content, spans)[1:]:
        found = [record for record in records if record in text]
        assert "\n".join(found) == text
    assert "".join("".join(texts(content, spans)).split()) == "".join(content.split())


def test_a_media_type_wins_over_the_suffix() -> None:
    content, written = sheet(20)
    spans = MarkdownChunker(40).chunk(Document("report", content, media_type="text/csv"), thirds)
    assert {span.context for span in spans[1:]} == {written[0].strip()}


def test_the_first_record_is_the_header_whatever_it_holds() -> None:
    content = "\n\n" + "".join(f"{i},{i * i}\n" for i in range(60))
    spans = MarkdownChunker(20).chunk(Document("a.csv", content), thirds)
    assert texts(content, spans)[0].startswith("0,0\n1,1")
    assert {span.context for span in spans[1:]} == {"0,0"}


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(["a", "b c", ",", '"', '""', "\n", "\r\n", "\r", " ", "é"]), max_size=40).map("".join))
def test_records_end_where_the_csv_module_ends_them(content: str) -> None:
    if not content.strip() or delimiter(content) != ",":
        return
    block = table(content)
    lines, at = io.StringIO(content[block.start :], newline=""), 0
    ends: list[int] = []

    def fed() -> Any:
        nonlocal at
        for line in lines:
            at += len(line)
            yield line

    for _ in csv.reader(fed()):
        ends.append(block.start + at)
    assert block.header == (block.start, ends[0])
    assert list(block.cuts[0]) == (ends[1:] or ends)


def test_a_lost_quotation_mark_loses_no_text() -> None:
    content = 'a,b\n1,"open\n' + "2,x\n" * 50_000
    spans = MarkdownChunker().chunk(Document("a.csv", content), thirds)
    assert len("".join("".join(texts(content, spans)).split())) == len("".join(content.split()))


# --- pages and sections -----------------------------------------------------------------------------


@every_chunker
def test_a_chunk_ends_with_its_page(make: Callable[[int], Chunker]) -> None:
    pages = ["One is here. It goes", "on here.\n\nTwo.", "", "Four.\n"]
    content = "".join(pages)
    starts = [0, len(pages[0]), len(pages[0] + pages[1]), len(pages[0] + pages[1])]
    spans = make(60).chunk(Document("a.pdf", content, pages=starts), thirds)
    assert {span.page for span in spans} == {1, 2, 4}
    assert texts(content, [span for span in spans if span.page == 4]) == ["Four."]


def test_a_table_over_two_pages_keeps_its_header() -> None:
    content = "\n".join([HEAD, *ROWS])
    begins = content.index("| item20 ")
    spans = MarkdownChunker(2000).chunk(Document("a.md", content, pages=[0, begins]), thirds)
    assert [(span.page, span.context) for span in spans] == [(1, ""), (2, HEAD)]
    assert texts(content, spans)[1].startswith("| item20 ")


def labels(document: Document, chunker: Chunker) -> dict[str, str]:
    spans = chunker.chunk(document, thirds)
    made = cut(document, spans, Chunking(chunker, thirds, 40, "thirds"))["chunks"]
    return {chunk["label"]: chunk["content"] for chunk in made}


# A percentile of the whole document decides for `semantic`.
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "semantic"])
def test_a_change_in_one_section_moves_no_chunk_or_label_of_another(name: str) -> None:
    def wiki(inserted: str) -> Document:
        body = "".join(f"Sentence {i} is here, with some words. " for i in range(12))
        return Document("a.md", f"Intro.\n\n# One\n\n{inserted}{body}\n\n# Two\n\n{body}\n\n## Three\n\n{body}\n")

    before, after = labels(wiki(""), MAKERS[name](40)), labels(wiki("New words here. " * 9), MAKERS[name](40))
    others = {label: text for label, text in before.items() if "#one#" not in label}
    assert len(others) >= 5
    assert others.items() <= after.items()
    assert len(after) > len(before)


def test_sections_of_one_name_are_counted_each_by_itself() -> None:
    def rules(japan: str) -> Document:
        parts = f"## Japan\n\n### Limits\n\n{japan}\n\n## USA\n\n### Limits\n\nBeta words here.\n\n## Limits-2\n\nGamma.\n"
        return Document("d.md", f"# Rules\n\n{parts}\n## C\n\nPlain.\n\n## C#\n\nSharp.\n")

    before, after = labels(rules("Alpha."), MAKERS["markdown"](40)), labels(rules("Alpha words. " * 60), MAKERS["markdown"](40))
    assert before == {
        "d#limits#00": "### Limits\n\nAlpha.",
        "d#limits-2#00": "### Limits\n\nBeta words here.",
        "d#limits-2-2#00": "## Limits-2\n\nGamma.",
        "d#c#00": "## C\n\nPlain.",
        "d#c-2#00": "## C#\n\nSharp.",
    }
    assert {label: text for label, text in before.items() if "#limits#" not in label}.items() <= after.items()
    assert len(after) > len(before)


def test_thousands_of_sections_of_one_name_are_named_in_time_that_grows_with_them() -> None:
    content = "## Example\n\nText.\n\n" * 20_000
    began = time.monotonic()
    made = labels(Document("d.md", content), MarkdownChunker(40))
    assert len(made) == 20_000 and "d#example-20000#00" in made
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("name", ["sliding", "recursive", "markdown"])
def test_an_overlap_of_a_run_that_is_one_token_comes_to_an_end(name: str) -> None:
    def words(text: str) -> int:
        return len(text.split())

    chunker = {"sliding": SlidingChunker, "recursive": RecursiveChunker, "markdown": MarkdownChunker}[name](256, 32)
    content = "a" * 100_000
    spans = chunker.chunk(Document("a.txt", content), words)
    assert spans[0].start == 0 and spans[-1].end == len(content)
    assert len(spans) < 40


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "semantic"])
def test_a_change_on_one_page_moves_no_label_of_another(name: str) -> None:
    def paged(first: str) -> Document:
        rest = "Sentence of a page, with some words. " * 8
        return Document("a.pdf", first + rest + rest, pages=[0, len(first), len(first) + len(rest)])

    before, after = labels(paged("Short. "), MAKERS[name](40)), labels(paged("Long text. " * 60), MAKERS[name](40))
    others = {label: text for label, text in before.items() if "#page-1#" not in label}
    assert {label.split("#")[1] for label in others} == {"page-2", "page-3"}
    assert others.items() <= after.items()


@every_chunker
def test_front_matter_and_comments_are_in_no_chunk(make: Callable[[int], Chunker]) -> None:
    content = "---\nowner: team-a\n---\n<!-- License -->\n\n# One\n\nText here.\n\n# Two\n\nMore text.\n"
    found = texts(content, make(100).chunk(Document("a.md", content), thirds))
    assert found == ["# One\n\nText here.", "# Two\n\nMore text."]


# --- each by itself ---------------------------------------------------------------------------------


def test_recursive_takes_whole_paragraphs_then_sentences_then_clauses() -> None:
    content = "First paragraph.\n\nSecond paragraph.\n\n" + "これは長い文で、読点があって、続いて、終わる。次の文です。" * 3
    spans = RecursiveChunker(16).chunk(Document("a.md", content), thirds)
    assert texts(content, spans)[0] == "First paragraph.\n\nSecond paragraph."
    assert all(text.endswith(("。", "、")) for text in texts(content, spans)[1:])
    table_text = "| a | b |\n|---|---|\n" + "| x | 1 |\n" * 40
    assert {span.context for span in RecursiveChunker(40).chunk(Document("a.md", table_text), thirds)} == {""}


def test_sliding_windows_are_full_and_begin_one_step_after_the_last() -> None:
    content = " ".join(f"w{i}." if i % 7 else f"w{i}.\n\n" for i in range(500))
    spans = SlidingChunker(20, 5).chunk(Document("a.txt", content), words)
    windows = [text.split() for text in texts(content, spans)]
    assert all(len(window) == 20 for window in windows[:-1])
    assert all(b[:5] == a[-5:] for a, b in pairwise(windows))


def test_sliding_windows_of_japanese_are_full_between_spaces_too() -> None:
    content = "今日は よい天気です。\n\n散歩に行く。 " * 50
    spans = SlidingChunker(30, 10).chunk(Document("a.txt", content), len)
    assert all(28 <= span.end - span.start <= 30 for span in spans[:-1])
    assert all(8 <= a.end - b.start <= 10 for a, b in pairwise(spans))


def test_a_sentence_is_a_chunk_and_a_heading_stays_with_the_first() -> None:
    content = "# On call\n\nOne is here. Two goes\nover a line. 三つ目。「四つ目。」\n\n---\n\n- Five\n- Six\n\n```\ncode one\ncode two\n```\n"
    spans = SentenceChunker().chunk(Document("a.md", content), thirds)
    assert texts(content, spans) == [
        "# On call\n\nOne is here.",
        "Two goes\nover a line.",
        "三つ目。",
        "「四つ目。」",
        "---\n\n- Five",
        "- Six",
        "```\ncode one",
        "code two\n```",
    ]
    assert len(SentenceChunker(sentences=3).chunk(Document("a.md", content), thirds)) == 3


class Topics(FakeEmbedder):
    """One direction for cats, one for databases."""

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls += 1
        self.texts += texts
        return [[1.0 + text.count("cat"), 1.0 + text.count("index"), *[0.0] * 6] for text in texts]


def test_semantic_cuts_where_the_subject_changes() -> None:
    cats = [f"The cat number {i} sleeps." for i in range(6)]
    tables = [f"An index of table {i} is built." for i in range(6)]
    content = " ".join([*cats, *tables])
    spans = SemanticChunker(Topics(), 400, percentile=90).chunk(Document("a.md", content), thirds)
    assert texts(content, spans) == [" ".join(cats), " ".join(tables)]


def test_semantic_joins_small_chunks_to_the_nearer_neighbour_and_never_above_the_limit() -> None:
    noise = random.Random(5)  # noqa: S311
    content = " ".join(" ".join(noise.choices(["cat", "index", "sun", "sea"], k=4)) + "." for _ in range(80))
    document = Document("a.md", content)
    small = SemanticChunker(EMBEDDER, 60, percentile=40).chunk(document, thirds)
    joined = SemanticChunker(EMBEDDER, 60, percentile=40, min_tokens=20).chunk(document, thirds)
    assert min(thirds(text) for text in texts(content, small)) < 20
    assert len(joined) < len(small)
    assert sum(thirds(text) < 20 for text in texts(content, joined)) <= 1
    check(document, joined, 60, thirds)


def test_semantic_embeds_in_batches_and_texts_that_the_model_reads_whole() -> None:
    embedder = FakeEmbedder()
    embedder.max_tokens = 64  # type: ignore[misc]
    seen: list[int] = []
    embedder.fail = lambda batch: seen.append(len(batch))  # type: ignore[func-returns-value]
    content = "One two three. " * 1000 + "word " * 1000 + "漢" * 1000
    SemanticChunker(embedder, 64).chunk(Document("a.md", content), embedder.count_tokens)
    assert max(seen) <= 32
    assert max(map(embedder.count_tokens, embedder.texts)) <= 64
    assert sum(seen) == len(embedder.texts) > 1000


def test_an_embedder_that_fails_is_not_hidden() -> None:
    with pytest.raises(EmbedderError, match="no model"):
        SemanticChunker(FakeEmbedder(fail=EmbedderError("no model"))).chunk(Document("a.md", "One. Two."), thirds)


# --- names and settings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("markdown", "MarkdownChunker(max_tokens=200, overlap=0, min_tokens=0)"),
        ("markdown:128/16", "MarkdownChunker(max_tokens=128, overlap=16, min_tokens=0)"),
        ("recursive:128", "RecursiveChunker(max_tokens=128, overlap=0, min_tokens=0)"),
        ("sliding", "SlidingChunker(max_tokens=200, overlap=25)"),
        ("sliding:128/32", "SlidingChunker(max_tokens=128, overlap=32)"),
        ("sliding:128/0", "SlidingChunker(max_tokens=128, overlap=0)"),
        ("sentence:128/3", "SentenceChunker(max_tokens=128, sentences=3)"),
        ("semantic:128/95", f"SemanticChunker({EMBEDDER.name!r}, max_tokens=128, percentile=95, min_tokens=0)"),
        ("semantic", f"SemanticChunker({EMBEDDER.name!r}, max_tokens=200, percentile=90, min_tokens=0)"),
    ],
)
def test_a_name_may_carry_sizes_and_the_recipe_names_them_all(name: str, made: str) -> None:
    chunker = adapters.load("chunkers", name, defaults={"max_tokens": 200, "embedder": EMBEDDER})
    assert isinstance(chunker, Chunker)
    assert repr(chunker) == made
    assert getattr(chunker, "needs_model", False) is name.startswith("semantic")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sliding:wide", "sliding:wide.*sliding:128/16"),
        ("recursive:1/2/3", "recursive:128/16"),
        ("sentence:/3", "sentence:128/3"),
        ("semantic:0.5", "semantic:128/90"),
        ("markdown:-1", "markdown:128/16"),
        ("sliding:0", "max_tokens is 0"),
        ("sliding:64/64", "overlap is 64; .*64"),
        ("sentence:64/0", "sentences is 0"),
        ("semantic:64/101", "percentile is 101"),
        ("semantic:513", "513.*512"),
    ],
)
def test_a_name_of_the_wrong_form_is_refused_with_the_right_one(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adapters.load("chunkers", name, defaults={"max_tokens": 200, "embedder": EMBEDDER})


def test_semantic_without_an_embedder_says_so() -> None:
    with pytest.raises(ConfigError, match="embedder"):
        adapters.load("chunkers", "semantic")


def context(chunker: Any, embedder: FakeEmbedder = EMBEDDER) -> Context:
    made = Context("postgresql://nobody@127.0.0.1:1/none", "c", embedder=embedder, reranker=None, llm=None, chunker=chunker)
    # as a program that has looked at its collection a moment ago
    made._active = {"model": embedder.name, "dims": embedder.dimension, "chunker": None}
    made._seen_at = math.inf
    return made


def test_a_context_makes_the_chunker_of_its_name_with_its_embedder() -> None:
    assert repr(context(None).chunking().chunker) == "MarkdownChunker(max_tokens=256, overlap=0, min_tokens=0)"
    small = FakeEmbedder()
    small.max_tokens = 100  # type: ignore[misc]
    chunking = context("semantic", small).chunking()
    assert isinstance(chunking.chunker, SemanticChunker)
    assert chunking.chunker.embedder is small
    assert chunking.max_tokens == 100
    own = RecursiveChunker(50)
    assert context(own).chunking().chunker is own


def test_chunks_that_the_embedder_cannot_read_whole_are_refused_with_both_numbers() -> None:
    for chunker in ("sliding:600", MarkdownChunker(600)):
        with pytest.raises(ConfigError, match=r"600.*512"):
            context(chunker).chunking()


def test_a_chunker_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownName, match="did you mean sliding"):
        context("slidding:64").chunking()
    with pytest.raises(ConfigError, match="chunk"):
        context(object())


@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    "# a",
                    "## b #",
                    "Title",
                    "=====",
                    "---",
                    "text",
                    "",
                    "",
                    "    code",
                    "```",
                    "~~~",
                    "``` py",
                    "> quote",
                    "> - item",
                    "- item",
                ),
                *(
                    "  more",
                    "  ```",
                    "1. one",
                    "   # inner",
                    "| a | b |",
                    "|---|---|",
                    "| 1 | 2 |",
                    "<!-- x",
                    "-->",
                    "<div>",
                    "</div>",
                    "<pre>",
                    "</pre>",
                ),
                *(
                    "[a]: http://x",
                    "\tcode",
                    "* * *",
                    "2) two",
                    "      deep",
                    "- - nested",
                    "\\\\",
                    "<!-- whole -->",
                    "a\r",
                    "***",
                ),
            ]
        ),
        max_size=40,
    ),
    st.integers(1, 60),
)
def test_a_text_parsed_in_windows_has_the_same_blocks(lines: list[str], size: int) -> None:
    text = "\n".join(["text", *lines])  # front matter is shorter than a window

    def blocks(window: int) -> list[tuple[str, int, int, str]]:
        found = []
        for group, line, _ in in_windows(text, window):
            first, last = group[0].map or (0, 0)
            found.append((group[0].type, line + first, line + last, "".join(token.content for token in group)))
        return found

    assert blocks(size) == blocks(10_000)
