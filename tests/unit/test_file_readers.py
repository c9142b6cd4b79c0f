"""Documents from any file: HTML, PDF, Office files, EPUB, JSON Lines, and what is fetched from the web."""

from __future__ import annotations

import importlib
import json
import logging
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragdb.errors import BadDocument, ConfigError, MissingExtra, UnreadableFile
from ragdb.ingest.folder import find
from ragdb.readers import SUFFIXES, read_documents, read_file
from ragdb.readers.html import read_html
from ragdb.readers.media import media_type
from ragdb.readers.paged import joined
from ragdb.readers.pdf import moment, page_text
from ragdb.readers.titles import telling
from ragdb.readers.url import read_url

JAPANESE = "緑茶の在庫は、髙橋が毎朝確認します。"


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def html(folder: Path, body: str | bytes, name: str = "a.html") -> str:
    return read_file(write(folder / name, body)).content


# --- files that the tests make ----------------------------------------------------------------------


def make_pdf(path: Path, pages: list[list[str]], *, title: str = "", password: str = "") -> Path:
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfgen.canvas import Canvas

    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3"))
    canvas = Canvas(str(path), encrypt=StandardEncryption(password) if password else None)
    canvas.setTitle(title)
    for lines in pages:
        canvas.rect(10, 10, 20, 20)
        for n, line in enumerate(lines):
            canvas.setFont("Helvetica" if line.isascii() else "HeiseiMin-W3", 12)
            canvas.drawString(72, 720 - 15 * n, line)
        canvas.showPage()
    canvas.save()
    return path


def make_docx(path: Path) -> Path:
    import docx

    made = docx.Document()
    made.core_properties.title = ""
    made.core_properties.modified = datetime(2024, 5, 1, 10)
    made.add_heading("在庫の手引き", 0)
    made.add_heading("確認", 1)
    made.add_paragraph(JAPANESE)
    made.add_paragraph("first", style="List Bullet")
    made.add_paragraph("second", style="List Bullet")
    table = made.add_table(rows=2, cols=2)
    for cell, text in zip((c for row in table.rows for c in row.cells), ("品|名", "数", "緑茶\nほうじ茶", "12"), strict=True):
        cell.text = text
    made.save(str(path))
    return path


def make_pptx(path: Path) -> Path:
    from pptx import Presentation
    from pptx.util import Inches

    made = Presentation()
    slide = made.slides.add_slide(made.slide_layouts[1])
    slide.shapes.title.text = "計画"
    slide.placeholders[1].text_frame.text = JAPANESE
    point = slide.placeholders[1].text_frame.add_paragraph()
    point.text, point.level = "second level", 1
    slide.notes_slide.notes_text_frame.text = "話すこと"
    slide = made.slides.add_slide(made.slide_layouts[6])
    table = slide.shapes.add_table(2, 2, 0, 0, Inches(4), Inches(1)).table
    for n, text in enumerate(("a|b", "c", "1", "2")):
        table.cell(n // 2, n % 2).text = text
    box = slide.shapes.add_group_shape().shapes.add_textbox(0, 0, Inches(1), Inches(1))
    box.text_frame.text = "in a group"
    made.save(str(path))
    return path


def make_xlsx(path: Path) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "在庫"
    for row in (
        [None, None, None],
        ["品名", "数", "日付", "比", None],
        [JAPANESE, 12, date(2024, 5, 1), 0.1 + 0.2],
        [None],
        ["a|b\nc", 3.0, datetime(2024, 5, 1, 9, 30), True],
    ):
        sheet.append(row)
    sheet.cell(30, 9).value = ""
    book.create_sheet("empty")
    hidden = book.create_sheet("secret")
    hidden.sheet_state = "hidden"
    hidden["A1"] = "must not be read"
    book.save(path)
    return path


def make_epub(path: Path, **more: str) -> Path:
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OPS/p.opf"/></rootfiles></container>'
    )
    opf = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>
<dc:title>お茶の本</dc:title><dc:language>ja</dc:language></metadata><manifest>
<item id="b" href="text/second%20one.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="first.xhtml" media-type="application/xhtml+xml"/>
<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
</manifest><spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine></package>"""
    parts = {
        "META-INF/container.xml": container,
        "OPS/p.opf": opf,
        "OPS/nav.xhtml": "<html><body>contents</body></html>",
        "OPS/first.xhtml": f"<html><head><title/></head><body><h1>一章</h1><p>{JAPANESE}</p></body></html>",
        "OPS/text/second one.xhtml": "<html><head><title/></head><body><h1>二章</h1><p>end</p></body></html>",
        **more,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


# --- one of each, and ten that are broken -------------------------------------------------------------


def test_one_of_each_format_gives_its_japanese_text(tmp_path: Path) -> None:
    write(tmp_path / "a.html", f"<meta charset=utf-8><p>{JAPANESE}")
    write(tmp_path / "a.xhtml", f"<html xmlns='x'><head><title/></head><body><p>{JAPANESE}</p></body></html>")
    write(tmp_path / "a.csv", f"id,text\n1,{JAPANESE}\n")
    write(tmp_path / "a.tsv", f"id\ttext\n1\t{JAPANESE}\n")
    write(tmp_path / "a.md", f"# A\n\n{JAPANESE}")
    write(tmp_path / "a.txt", JAPANESE)
    write(tmp_path / "a.jsonl", json.dumps({"_id": "1", "text": JAPANESE}))
    make_pdf(tmp_path / "a.pdf", [[JAPANESE]])
    make_docx(tmp_path / "a.docx")
    make_pptx(tmp_path / "a.pptx")
    make_xlsx(tmp_path / "a.xlsx")
    make_xlsx(tmp_path / "a.xlsm")
    make_epub(tmp_path / "a.epub")
    selection = find([tmp_path])
    assert len(selection.files) == 13
    for file in selection.files:
        [document] = read_documents(file.path)
        assert JAPANESE in document.content, file.uri
    types = {file.uri: media_type(next(read_documents(file.path))) for file in selection.files}
    assert types["a.pdf"] == types["a.txt"] == "text/plain"
    assert types["a.csv"] == types["a.tsv"] == "text/csv"
    assert {types[name] for name in ("a.html", "a.docx", "a.pptx", "a.xlsx", "a.epub")} == {"text/markdown"}


def _png_named_md(folder: Path) -> Path:
    return write(folder / "a.md", b"\x89PNG\r\n\x1a\n\x00\x00")


def _truncated_pdf(folder: Path) -> Path:
    whole = make_pdf(folder / "whole.pdf", [["one"], ["two"]]).read_bytes()
    return write(folder / "a.pdf", whole[: len(whole) * 2 // 3])


def _pdf_without_text(folder: Path) -> Path:
    return make_pdf(folder / "a.pdf", [[], []])


def _encrypted_pdf(folder: Path) -> Path:
    return make_pdf(folder / "a.pdf", [["x"]], password="secret")


def _zip_named(folder: Path, name: str, *members: str) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member in members:
            archive.writestr(member, "x")
    return folder / name


def _ole(folder: Path, name: str, stream: str) -> Path:
    return write(folder / name, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000) + stream.encode("utf-16-le") + bytes(500))


def _bomb(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(60_000_000))
    return folder / "a.xlsx"


def _entities(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.docx", "w") as archive:
        archive.writestr("word/document.xml", '<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>')
    return folder / "a.docx"


def _damaged_member(folder: Path) -> Path:
    data = bytearray(make_docx(folder / "a.docx").read_bytes())
    at = data.index(b"word/document.xml") + 60
    data[at : at + 40] = bytes(40)
    return write(folder / "a.docx", bytes(data))


def _without_parts(folder: Path) -> Path:
    return _zip_named(folder, "a.pptx", "ppt/presentation.xml")


BROKEN: list[tuple[Callable[[Path], Path], str]] = [
    (_png_named_md, "binary: it is a PNG image; ragdb reads no images: run OCR"),
    (_truncated_pdf, r"a\.pdf is damaged: its end is missing after .* bytes"),
    (_pdf_without_text, r"a\.pdf: no text: 2 pages of images; run OCR first \(ocrmypdf"),
    (_encrypted_pdf, r"a\.pdf needs a password"),
    (lambda f: write(f / "a.docx", b""), r"a\.docx is empty \(0 bytes\), not a Word document"),
    (lambda f: write(f / "a.pdf", b""), r"a\.pdf is empty \(0 bytes\), not a PDF"),
    (lambda f: _zip_named(f, "a.docx", "b.txt"), r"is not a Word document: it is a ZIP archive; unpack it"),
    (lambda f: _zip_named(f, "a.pdf", "b.txt"), r"is not a PDF: it is a ZIP archive; unpack it"),
    (lambda f: make_xlsx(f / "x.xlsx").rename(f / "a.docx"), r"it is an Excel workbook; give it the suffix \.xlsx"),
    (lambda f: write(f / "a.docx", b"{\\rtf1 x}"), "it is an RTF document; open it and save it as .docx"),
    (lambda f: write(f / "a.docx", "just text"), "its bytes are no ZIP archive"),
    (lambda f: _ole(f, "a.xlsx", "EncryptedPackage"), "it is an Office document under a password; remove the password"),
    (lambda f: _ole(f, "a.xlsx", "Workbook"), r"it is an old Excel workbook \(\.xls\); open it and save it as \.xlsx"),
    (lambda f: _ole(f, "a.docx", "WordDocument"), r"it is an old Word document \(\.doc\)"),
    (lambda f: _ole(f, "a.pptx", "PowerPoint Document"), r"it is an old PowerPoint presentation \(\.ppt\)"),
    (lambda f: write(f / "a.html", b"<html>\x00\x01\x02\x00"), r"a\.html: binary: NUL bytes"),
    (lambda f: make_pdf(f / "x.pdf", [["x"]]).rename(f / "a.html"), r"it is a PDF; give it the suffix \.pdf"),
    (lambda f: make_pdf(f / "x.pdf", [["x"]]).rename(f / "a.md"), r"binary: it is a PDF; give it the suffix \.pdf"),
    (lambda f: write(f / "a.txt", "Это русский документ.".encode("koi8_r")), "encoding: it is neither UTF-8"),
    (lambda f: write(f / "a.jsonl", '{"uri": "a"}'), "line 1: has no content"),
    (lambda f: write(f / "a.jsonl", b"\xff\xfe{\x00"), "is UTF-16"),
    (lambda f: write(f / "a.jsonl", '{"uri": "a", "content": "緑茶"}'.encode("cp932")), "line 1: is not UTF-8"),
    (lambda f: make_pdf(f / "x.pdf", [["x"]]).rename(f / "a.jsonl"), "it is a PDF"),
    (_bomb, "would unpack from .* as only a ZIP bomb does"),
    (_entities, r"a\.docx: word/document\.xml declares entities"),
    (_damaged_member, r"a\.docx is damaged"),
    (_without_parts, r"a\.pptx is damaged: \w+: "),
    (lambda f: _zip_named(f, "a.xlsx", "xl/workbook.xml"), r"a\.xlsx is damaged: \w+: "),
    (lambda f: _zip_named(f, "a.epub", "b.txt"), "is not an EPUB book: it is a ZIP archive"),
    (lambda f: _zip_named(f, "a.epub", "META-INF/container.xml"), r"a\.epub is damaged: "),
    (lambda f: write(f / "a.gif", b"GIF89a"), r"no reader for \.gif; ragdb reads \.md.*\.epub"),
    (lambda f: f / "gone.pdf", r"gone\.pdf cannot be read: No such file"),
    (lambda f: f / "gone.docx", r"gone\.docx cannot be read: No such file"),
    (lambda f: f / "gone.jsonl", r"gone\.jsonl cannot be read: No such file"),
]


@pytest.mark.parametrize(("make", "told"), BROKEN)
def test_a_broken_file_says_what_it_is_and_what_to_do(tmp_path: Path, make: Callable[[Path], Path], told: str) -> None:
    path = make(tmp_path)
    with pytest.raises((UnreadableFile, BadDocument), match=told) as caught:
        list(read_documents(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".html", ".jsonl"])
def test_random_bytes_are_refused_and_no_library_speaks_for_itself(tmp_path: Path, suffix: str) -> None:
    for start in (b"", b"PK\x03\x04", b"%PDF-1.4\n%%EOF", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        path = write(tmp_path / f"a{suffix}", start + bytes(range(256)) * 8)
        with pytest.raises((UnreadableFile, BadDocument)):
            list(read_documents(path))


@pytest.mark.parametrize(
    ("suffix", "module"),
    [(".html", "lxml"), (".pdf", "pypdfium2"), (".docx", "mammoth"), (".pptx", "pptx"), (".xlsx", "openpyxl"), (".epub", "lxml")],
)
def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, module: str) -> None:
    real = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    path = make_epub(tmp_path / "a.epub") if suffix == ".epub" else write(tmp_path / f"a{suffix}", "<p>x")
    with pytest.raises(MissingExtra, match=r"pip install 'ragdb\[files\]'"):
        read_file(path)


def test_importing_the_readers_imports_no_parser() -> None:
    heavy = ("bs4", "lxml", "markdownify", "pypdfium2", "mammoth", "pptx", "openpyxl", "httpx", "pydantic", "yaml")
    code = f"import sys, ragdb.readers.url, ragdb.ingest.prepare; print([n for n in {heavy!r} if n in sys.modules])"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


# --- HTML -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "codec"),
    [("Shift_JIS", "cp932"), ("x-sjis", "cp932"), ("EUC-JP", "euc_jp"), ("iso-2022-jp", "iso2022_jp"), ("utf-8", "utf-8")],
)
def test_a_page_is_read_in_the_encoding_it_names(tmp_path: Path, label: str, codec: str) -> None:
    text = "緑茶の在庫は①です" if codec == "cp932" else "緑茶の在庫です"
    page = f'<html><head><meta http-equiv="Content-Type" content="text/html; charset={label}"></head><body>{text}</body></html>'
    assert html(tmp_path, page.encode(codec)) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<meta charset='iso-8859-1'>I don’t – “know”".encode("cp1252"), "I don’t – “know”"),
        ("<meta charset='iso-8859-1'>détail".encode(), "détail"),
        ("<meta charset='utf-8'>緑茶の在庫です".encode("cp932"), "緑茶の在庫です"),
        ("<meta charset='no-such'>緑茶".encode(), "緑茶"),
        ("<meta charset='undefined'>緑茶".encode(), "緑茶"),
        ("<meta charset='punycode'>緑茶".encode(), "緑茶"),
        (b"<meta charset='unicode_escape'>a \\u0041", "a \\u0041"),
        ("\ufeff<meta charset='shift_jis'>緑茶".encode(), "緑茶"),
        ("\ufeff<meta charset='utf-8'>緑茶".encode("utf-16-le"), "緑茶"),
        ("<meta charset='gb2312'>这是一个中文文档".encode("gbk"), "这是一个中文文档"),
    ],
)
def test_a_wrong_label_does_not_make_mojibake(tmp_path: Path, data: bytes, text: str) -> None:
    assert html(tmp_path, data) == text


def test_what_is_not_shown_is_left_out_and_the_rest_stays(tmp_path: Path) -> None:
    page = """<html lang=ja><head><title>Page &amp; title</title><style>s{}</style></head><body>
<header>Site name</header><nav>menu</nav><script>code()</script><noscript>no js</noscript><template>tmpl</template>
<div hidden>hidden one</div><p style="display: none">hidden two</p><input value=typed><button>Go</button><!-- comment -->
<article><header><h1>Head</h1></header><p>one <b>bold</b>ly</p></article><section><footer>section foot</footer></section>
<details><summary>sum</summary>more</details>bare<aside>related</aside><footer>copyright</footer></body></html>"""
    document = read_file(write(tmp_path / "a.html", page.replace("<article>", "<article><p>x</article><article>")))
    assert (document.title, document.language, document.media_type) == ("Page & title", "ja", "text/markdown")
    assert document.content == "x\n\n# Head\n\none boldly\n\nsection foot\n\nsum\n\nmore\n\nbare"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>around</p><main><p>in</p></main>", "in"),
        ("<p>around</p><div role=main><p>in</p></div>", "in"),
        ("<p>around</p><article>in</article>", "in"),
        ("<p>around</p><article>a</article><article>b</article>", "around\n\na\n\nb"),
        ("<p>around</p><main></main>", "around"),
        ("<header><h1>Name</h1>site</header><p>in</p>", "# Name\n\nin"),
        ("<header>all there is</header>", "all there is"),
    ],
)
def test_the_main_part_of_a_page_is_taken_where_there_is_one(tmp_path: Path, body: str, text: str) -> None:
    assert html(tmp_path, f"<html><body>{body}</body></html>") == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<h2>A <i>b</i></h2><p>c<br>d", "## A b\n\nc\nd"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul><ol start=3><li>x<li>y</ol>", "- a\n- b\n  - c\n\n3. x\n4. y"),
        ("<p>see <a href='http://x/y'>the page</a>, snake_case *x*", "see the page, snake_case *x*"),
        ("<pre><code class='language-py'>a\n  b `c`\n</code></pre>", "```py\na\n  b `c`\n```"),
        ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
        ("<p>これは日本\n  語です。\nfoo\nbar", "これは日本語です。 foo bar"),
        ("<ruby>漢字<rt>かんじ</rt></ruby><ruby>東<rp>(</rp><rt>ひがし</rt><rp>)</rp></ruby>", "漢字(かんじ)東(ひがし)"),
        ("<p># no heading<p>```", "\\# no heading\n\n\\```"),
        ("<blockquote><p>a<p>b</blockquote>", "> a\n>\n> b"),
        ("<p>Donau&shy;dampf&nbsp;schiff", "Donaudampf schiff"),
        ("<img src=x alt='a map'>", "a map"),
    ],
)
def test_blocks_become_markdown(tmp_path: Path, body: str, text: str) -> None:
    assert html(tmp_path, body) == text


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><th>a|b<th>c<tr><td>1<br>2<td><p>x</p><p>y</p>", ["| a\\|b | c |", "| --- | --- |", "| 1 2 | x y |"]),
        ("<tr><td>a<td>b<tr><td>1<td>2", ["| a | b |", "| --- | --- |", "| 1 | 2 |"]),
        (
            "<thead><tr><th>a<th>b<tbody><tr><td rowspan=2>1<td>2<tr><td>3",
            ["| a | b |", "| --- | --- |", "| 1 | 2 |", "| 1 | 3 |"],
        ),
        ("<tr><th colspan=2>a<th>b<tr><td>1<td>2<td>3", ["| a |  | b |", "| --- | --- | --- |", "| 1 | 2 | 3 |"]),
        ("<tr><th>a<th>b<tr><td><table><tr><td>i<td>j</table><td>k", ["| a | b |", "| --- | --- |", "| i j | k |"]),
        ("<caption>Cap</caption><tr><th>a<th>b<tr><td>1<td>2", ["Cap", "", "| a | b |", "| --- | --- |", "| 1 | 2 |"]),
        ("<tr><td><h1>T</h1><p>x</p></td><td>y", ["# T", "", "x", "", "y"]),
        ("<tr><td>only", ["only"]),
    ],
)
def test_a_table_is_one_line_a_row(tmp_path: Path, rows: str, lines: list[str]) -> None:
    assert html(tmp_path, f"<table>{rows}</table>").split("\n") == lines


@pytest.mark.parametrize("tag", ["div", "b", "li", "table><tr><td", "blockquote", "span"])
def test_text_in_a_thousand_elements_is_not_lost(tmp_path: Path, tag: str) -> None:
    assert "the end" in html(tmp_path, f"<{tag}>x" * 1000 + "the end")


def test_a_page_without_body_tags_is_read(tmp_path: Path) -> None:
    assert html(tmp_path, "<title>T</title><main><h1>H</h1><p>in</main>") == "# H\n\nin"
    assert html(tmp_path, "<head><title>T</title><section>in</section>") == "in"


_TAGS = [
    "p",
    "div",
    "b",
    "li",
    "ul",
    "ol",
    "table",
    "tr",
    "td",
    "th",
    "h2",
    "pre",
    "code",
    "section",
    "dl",
    "dt",
    "dd",
    "blockquote",
    "a",
    "span",
    "details",
    "label",
    "form",
]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(_TAGS), st.booleans()), max_size=30))
def test_every_word_of_any_markup_is_there(tags: list[tuple[str, bool]]) -> None:
    page = "".join(f"<{'/' if closes else ''}{tag}>word{n}." for n, (tag, closes) in enumerate(tags))
    content = read_html(page.encode(), Path("a.html")).content
    assert [n for n in range(len(tags)) if f"word{n}." not in content] == []


def test_spans_without_bounds_are_bounded(tmp_path: Path) -> None:
    page = "<table><tr><td colspan=999999999 rowspan=99999999>a<td colspan=x>b<tr><td>c</table>"
    assert len(html(tmp_path, page)) < 2000


# --- PDF --------------------------------------------------------------------------------------------


def test_the_pages_of_a_pdf_are_where_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_pdf(tmp_path / "a.pdf", [["one"], [], ["three", "hyphen-", "ated"], [JAPANESE], []], title="手引き")
    with caplog.at_level(logging.WARNING, "ragdb.ingest"):
        document = read_file(path)
    assert document.pages is not None
    bounds = [*document.pages, len(document.content)]
    texts = [document.content[a:b].strip() for a, b in pairwise(bounds)]
    assert texts == ["one", "", "three\nhyphenated", JAPANESE, ""]
    assert document.pages[1] == document.pages[2]
    assert "one\n\nthree" in document.content
    assert "2 of 5 pages have no text" in caplog.text
    assert (document.title, document.media_type) == ("手引き", "text/plain")
    assert document.updated_at is not None
    assert abs((document.updated_at - datetime.now(UTC)).total_seconds()) < 3600


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("hyphen\ufffeated", "hyphenated"),
        ("hyphen\x02\r\nated", "hyphenated"),
        ("COVID\ufffe19", "COVID-19"),
        ("a\x00b\x01c\r\nd  \r\n\r\n\r\n\r\ne", "a bc\nd\n\ne"),
        (
            "これは行の終わりで折り返された日本\r\n語の文です。\r\n次の行",
            "これは行の終わりで折り返された日本語の文です。\n次の行",
        ),
        ("見出し\r\nこれは行の終わりで折り返された日本", "見出し\nこれは行の終わりで折り返された日本"),
    ],
)
def test_words_on_two_lines_are_one(raw: str, text: str) -> None:
    assert page_text(raw) == text


@pytest.mark.parametrize(
    ("pages", "text", "offsets"),
    [
        (["a", "b"], "a\n\nb", [0, 3]),
        (["", "a", "", "", "b", ""], "a\n\nb", [0, 0, 3, 3, 3, 4]),
        (["", ""], "", [0, 0]),
        ([], "", []),
    ],
)
def test_empty_pages_keep_their_number(pages: list[str], text: str, offsets: list[int]) -> None:
    assert joined(pages) == (text, offsets)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D:20240501103000+09'00'", datetime(2024, 5, 1, 1, 30, tzinfo=UTC)),
        ("D:20240501103000Z", datetime(2024, 5, 1, 10, 30, tzinfo=UTC)),
        ("D:2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("D:20241301", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_the_date_of_a_pdf_is_read_or_left_out(text: str, expected: datetime | None) -> None:
    assert moment(text) == expected


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        ("Microsoft Word - report.doc", None),
        ("report.pdf", None),
        ("untitled", None),
        ("無題", None),
        ("PowerPoint Presentation", None),
        ("  ", None),
        (None, None),
        ("Version 2.0 of the  plan", "Version 2.0 of the plan"),
    ],
)
def test_a_title_that_tells_nothing_is_none(title: str | None, kept: str | None) -> None:
    assert telling(title) == kept


def test_pdfs_are_read_by_many_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = make_pdf(tmp_path / "a.pdf", [[f"page {n}"] for n in range(30)])
    with ThreadPoolExecutor(4) as pool:
        texts = {document.content for document in pool.map(read_file, [path] * 16)}
    assert len(texts) == 1


# --- Office files, EPUB -----------------------------------------------------------------------------


def test_a_word_document_keeps_its_form(tmp_path: Path) -> None:
    document = read_file(make_docx(tmp_path / "a.docx"))
    assert document.content == (
        f"# 在庫の手引き\n\n# 確認\n\n{JAPANESE}\n\n- first\n- second\n\n| 品\\|名 | 数 |\n| --- | --- |\n| 緑茶 ほうじ茶 | 12 |"
    )
    assert (document.title, document.updated_at) == ("在庫の手引き", datetime(2024, 5, 1, 10, tzinfo=UTC))


def test_the_footnotes_of_a_word_document_are_kept(tmp_path: Path) -> None:
    plain = make_docx(tmp_path / "plain.docx")
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    note = f'<w:footnotes {space}><w:footnote w:id="7"><w:p><w:r><w:t>脚注の文</w:t></w:r></w:p></w:footnote></w:footnotes>'
    relation = (
        '<Relationship Id="rId77" Target="footnotes.xml" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"/></Relationships>'
    )
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(tmp_path / "a.docx", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "word/document.xml":
                text = text.replace(b"</w:p>", b'<w:r><w:footnoteReference w:id="7"/></w:r></w:p>', 1)
            if name == "word/_rels/document.xml.rels":
                text = text.replace(b"</Relationships>", relation.encode())
            new.writestr(name, text)
        new.writestr("word/footnotes.xml", note)
    content = read_file(tmp_path / "a.docx").content
    assert "手引き[1]" in content
    assert content.endswith("1. 脚注の文")


def test_a_slide_is_a_page(tmp_path: Path) -> None:
    document = read_file(make_pptx(tmp_path / "a.pptx"))
    assert document.title == "計画"
    assert document.pages is not None
    first, second = document.content[: document.pages[1]], document.content[document.pages[1] :]
    assert first == f"## 計画\n\n- {JAPANESE}\n  - second level\n\n### Notes\n\n話すこと\n\n"
    assert second == "## Slide 2\n\n| a\\|b | c |\n| --- | --- |\n| 1 | 2 |\n\nin a group"


def test_the_numbers_of_a_chart_are_a_table(tmp_path: Path) -> None:
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData, XyChartData
    from pptx.enum.chart import XL_CHART_TYPE

    made = Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    data = CategoryChartData()
    data.categories = ["春", "夏"]
    data.add_series("緑茶", (1.5, None))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 999999, 999999, data)
    points = XyChartData()
    points.add_series("s").add_data_point(1, 2)
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, 0, 0, 999999, 999999, points)
    made.save(str(tmp_path / "a.pptx"))
    assert "|  | 緑茶 |\n| --- | --- |\n| 春 | 1.5 |\n| 夏 |" in read_file(tmp_path / "a.pptx").content


def test_the_text_boxes_of_a_word_document_are_kept(tmp_path: Path) -> None:
    box = (
        '<w:p><w:r><w:pict xmlns:v="urn:schemas-microsoft-com:vml"><v:shape><v:textbox><w:txbxContent><w:p><w:r><w:t>in a box'
        "</w:t></w:r></w:p></w:txbxContent></v:textbox></v:shape></w:pict></w:r></w:p><w:sectPr"
    )
    plain = make_docx(tmp_path / "plain.docx")
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(tmp_path / "a.docx", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, text.replace(b"<w:sectPr", box.encode(), 1) if name == "word/document.xml" else text)
    assert "in a box" in read_file(tmp_path / "a.docx").content


def test_a_sheet_is_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ragdb.ingest"):
        document = read_file(make_xlsx(tmp_path / "Stock.xlsx"))
    assert document.content.split("\n") == [
        "## 在庫",
        "",
        "| 品名 | 数 | 日付 | 比 |",
        "| --- | --- | --- | --- |",
        f"| {JAPANESE} | 12 | 2024-05-01 | 0.3 |",
        "| a\\|b c | 3 | 2024-05-01T09:30:00 | TRUE |",
    ]
    assert document.title == "Stock"
    assert "the sheet 'secret' is hidden" in caplog.text


def test_a_workbook_without_cells_is_empty(tmp_path: Path) -> None:
    import openpyxl

    openpyxl.Workbook().save(tmp_path / "a.xlsx")
    assert read_file(tmp_path / "a.xlsx").content == ""


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    document = read_file(make_epub(tmp_path / "a.epub"))
    assert document.content == f"# 一章\n\n{JAPANESE}\n\n# 二章\n\nend"
    assert (document.title, document.language) == ("お茶の本", "ja")


def test_a_book_reads_no_file_of_the_machine(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", "the secret")
    entity = f'<!DOCTYPE x [<!ENTITY e SYSTEM "{secret.as_uri()}">]>'
    chapter = f"{entity}<html><body><p>text &e;</p></body></html>"
    opf = zipfile.ZipFile(make_epub(tmp_path / "x.epub")).read("OPS/p.opf").decode()
    made = make_epub(
        tmp_path / "a.epub",
        **{"OPS/first.xhtml": chapter, "OPS/p.opf": entity + opf.replace("お茶の本", "T&e;")},
    )
    document = read_file(made)
    assert "the secret" not in f"{document.title} {document.content}"
    assert "text" in document.content


def test_a_locked_book_says_so(tmp_path: Path) -> None:
    lock = '<encryption><x:CipherReference xmlns:x="y" URI="OPS/first.xhtml"/></encryption>'
    with pytest.raises(UnreadableFile, match=r"OPS/first\.xhtml is encrypted \(DRM\)"):
        read_file(make_epub(tmp_path / "a.epub", **{"META-INF/encryption.xml": lock}))


# --- JSON Lines -------------------------------------------------------------------------------------


def test_the_lines_before_a_bad_one_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", '\ufeff{"uri": "a", "content": "x"}\n\n{"uri": "b"}\n{"uri": "c", "content": "y"}\n')
    documents = read_documents(path)
    first = next(documents)
    assert (first.uri, first.content, first.source) == ("a", "x", str(path))
    with pytest.raises(BadDocument, match=r"c\.jsonl: line 3: has no content"):
        next(documents)


def test_read_documents_gives_one_document_of_any_other_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md", "# A")
    assert list(read_documents(path, root=tmp_path)) == [read_file(path, root=tmp_path)]
    with pytest.raises(ConfigError, match="not below"):
        list(read_documents(path, root=tmp_path / "other"))


def test_read_file_of_json_lines_names_the_way(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="read_documents"):
        read_file(write(tmp_path / "c.jsonl", ""))


def test_the_questions_of_an_evaluation_set_are_no_documents(tmp_path: Path) -> None:
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv", "qrels/test.tsv", "notes.md"):
        write(tmp_path / "set" / name, "x")
    write(tmp_path / "queries.jsonl", "x")
    for folder, below in ((tmp_path, "set/"), (tmp_path / "set", "")):
        found = find([folder])
        expected = {f"{below}corpus.jsonl", f"{below}notes.md"} | ({"queries.jsonl"} if below else set())
        assert {file.uri for file in found.files} == expected
        assert set(found.evaluation) == {f"{below}{name}" for name in ("queries.jsonl", "qrels.tsv", "qrels/test.tsv")}


def test_an_address_keeps_its_slashes() -> None:
    [file] = find(["https://example.org/a//b?c=d#e"], prefix="web/").files
    assert (file.uri, file.source) == ("web/https://example.org/a//b?c=d", "https://example.org/a//b?c=d")
    assert find(["no/such/https://x"]).failed


# --- the web ----------------------------------------------------------------------------------------


class Pages(BaseHTTPRequestHandler):
    """What each path answers: status, headers, body; a body that is a number is slept away."""

    answers: dict[str, tuple[int, dict[str, str], bytes | float]] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        status, headers, body = self.answers[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if isinstance(body, float):
            time.sleep(body)
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[tuple[str, dict[str, tuple[int, dict[str, str], bytes | float]]]]:
    answers: dict[str, tuple[int, dict[str, str], bytes | float]] = {}
    handler = type("Handler", (Pages,), {"answers": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


Site = tuple[str, dict[str, tuple[int, dict[str, str], bytes | float]]]


def test_a_page_is_read_with_the_charset_of_its_header(site: Site) -> None:
    url, answers = site
    headers = {"Content-Type": "text/html; charset=Shift_JIS", "Last-Modified": "Wed, 01 May 2024 10:00:00 GMT"}
    answers["/a"] = (200, headers, f"<title>茶</title><meta charset=utf-8><p>{JAPANESE}".encode("cp932"))
    document = read_url(f"{url}/a#part")
    assert (document.content, document.title) == (JAPANESE, "茶")
    assert document.uri == document.source == f"{url}/a"
    assert document.updated_at == datetime(2024, 5, 1, 10, tzinfo=UTC)


def test_the_type_picks_the_reader(site: Site, tmp_path: Path) -> None:
    url, answers = site
    pdf = make_pdf(tmp_path / "a.pdf", [["in a pdf"]]).read_bytes()
    docx = make_docx(tmp_path / "a.docx").read_bytes()
    answers |= {
        "/get?id=1": (200, {"Content-Type": "application/pdf"}, pdf),
        "/raw": (200, {"Content-Type": "application/octet-stream"}, docx),
        "/b.docx": (200, {"Content-Type": "application/zip"}, docx),
        "/none": (200, {}, b"<!DOCTYPE html><h1>page</h1>"),
        "/notes.md": (200, {"Content-Type": "text/plain; charset=utf-8"}, b"---\ntitle: T\n---\n# A"),
        "/notes": (200, {"Content-Type": "text/plain; charset=windows-1251"}, "Это русский документ.".encode("cp1251")),
        "/t.csv": (200, {"Content-Type": "text/csv"}, b"a,b\n1,2\n"),
        "/s.html": (200, {"Content-Type": "text/plain"}, b"<p>source"),
    }
    made = {path: read_url(url + path) for path in answers}
    assert made["/get?id=1"].content == "in a pdf"
    assert made["/get?id=1"].pages == [0]
    assert JAPANESE in made["/raw"].content
    assert JAPANESE in made["/b.docx"].content
    assert made["/none"].content == "# page"
    assert made["/notes.md"].title == "T"
    assert (made["/notes"].content, made["/notes"].media_type) == ("Это русский документ.", "text/plain")
    assert (made["/t.csv"].content, made["/t.csv"].media_type) == ("a,b\n1,2\n", "text/csv")
    assert made["/s.html"].content == "<p>source"
    assert {path: document.uri for path, document in made.items()} == {path: url + path for path in answers}


def test_a_redirect_is_followed_and_the_address_stays(site: Site) -> None:
    url, answers = site
    answers["/old"] = (302, {"Location": "/new.md"}, b"")
    answers["/new.md"] = (200, {"Content-Type": "text/markdown"}, b"# New")
    assert (read_url(f"{url}/old").uri, read_url(f"{url}/old").title) == (f"{url}/old", "New")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((404, {}, b"no"), "HTTP 404 Not Found; nothing is there: check the address"),
        ((403, {}, b"no"), "HTTP 403 Forbidden; it needs a login"),
        ((503, {}, b"no"), "HTTP 503 Service Unavailable; the server cannot answer now"),
        ((302, {"Location": "/a"}, b""), "more than 10 redirects"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "UnsupportedProtocol"),
        ((200, {}, 2.0), r"no answer within 0\.5 s"),
        ((200, {"Content-Length": "5000"}, b"x" * 5000), r"more than 1,000 bytes.*it has 5,000"),
        ((200, {}, b"x" * 5000), "more than 1,000 bytes"),
        ((200, {"Content-Type": "image/png"}, b"\x89PNG\r\n\x1a\n"), "it is a PNG image"),
        ((200, {"Content-Type": "application/json"}, b"{}"), "no reader for application/json"),
        ((200, {"Content-Type": "application/pdf"}, b"<html>login"), "is not a PDF"),
        ((200, {"Content-Type": "text/html"}, b"\x00\x01"), "binary: NUL bytes"),
    ],
)
def test_what_cannot_be_fetched_says_why(site: Site, answer: Any, told: str) -> None:
    url, answers = site
    answers["/a"] = answer
    with pytest.raises(UnreadableFile, match=told) as caught:
        read_url(f"{url}/a", timeout=0.5, max_bytes=1000)
    assert str(caught.value).startswith(f"{url}/a")
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ftp://x/a", "only http:// and https://"),
        ("file:///etc/passwd", "only http:// and https://"),
        ("http://no-such-host.invalid/a", "cannot be reached"),
        ("http://127.0.0.1:1/a", "cannot be reached"),
        ("http://[x/a#b", "cannot be reached|check the address"),
        ("http:///a", "check the address|cannot be reached"),
    ],
)
def test_an_address_that_leads_nowhere_says_so(url: str, told: str) -> None:
    with pytest.raises(UnreadableFile, match=told):
        read_url(url, timeout=5)


def test_every_suffix_has_a_reader() -> None:
    for name in set(SUFFIXES.values()):
        assert importlib.import_module(f"ragdb.readers.{name}").READER


def test_a_row_behind_the_last_one_of_excel_is_refused(tmp_path: Path) -> None:
    path = make_xlsx(tmp_path / "a.xlsx")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = re.sub(rb'<row r="2"(.*?)>', rb'<row r="999999999">', parts["xl/worksheets/sheet1.xml"], count=1)
    assert sheet != parts["xl/worksheets/sheet1.xml"]
    sheet = re.sub(rb' r="[A-Z]+2"', b"", sheet)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**parts, "xl/worksheets/sheet1.xml": sheet}.items():
            archive.writestr(name, data)
    with pytest.raises(UnreadableFile, match="row behind number 1,048,576"):
        read_file(path)


def test_a_chapter_stands_once_in_a_book_however_often_its_order_names_it(tmp_path: Path) -> None:
    plain = read_file(make_epub(tmp_path / "a.epub")).content
    with zipfile.ZipFile(tmp_path / "a.epub") as archive:
        order = archive.read("OPS/p.opf").decode().replace('<itemref idref="a"/>', '<itemref idref="a"/>' * 2000)
    assert read_file(make_epub(tmp_path / "b.epub", **{"OPS/p.opf": order})).content == plain
