"""Files to documents: encodings (ING-03, ING-04), file names (ING-02) and front matter (CHK-02)."""

from __future__ import annotations

import codecs
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragdb.errors import ConfigError, UnreadableFile
from ragdb.readers import SUFFIXES, read_file
from ragdb.readers.decode import decode
from ragdb.readers.markup import parse


def write(folder: Path, content: str | bytes, name: str = "a.md") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- encodings --------------------------------------------------------------------------------------


def test_japanese_far_behind_an_ascii_head_is_found() -> None:
    data = ("id,name,note\n" + "".join(f"{i},item{i},ok\n" for i in range(400)) + "401,緑茶,在庫あり\n").encode("cp932")
    text, encoding = decode(data)
    assert encoding == "cp932"
    assert "緑茶,在庫あり" in text
    assert "\ufffd" not in text


@pytest.mark.parametrize("text", ["商品名,価格\n高級髙橋①,1200円\n", "ｻｰﾊﾞｰ設定", "ﾃﾞｰﾀﾍﾞｰｽ ｱｸｾｽ ｴﾗｰ", "東京都,千代田区", "緑茶"])
def test_cp932_is_read_exactly(text: str) -> None:
    assert decode(text.encode("cp932")) == (text, "cp932")


@pytest.mark.parametrize("text", ["これはデータベースの説明です。", "ﾃﾞｰﾀﾍﾞｰｽ ｱｸｾｽ ｴﾗｰ", "設定は、管理者が行います。"])
def test_euc_jp_is_not_taken_for_cp932(text: str) -> None:
    assert decode(text.encode("euc_jp")) == (text, "euc_jp")


def test_iso_2022_jp_is_not_stored_as_its_escapes() -> None:
    assert decode("日本語 text".encode("iso2022_jp")) == ("日本語 text", "iso2022_jp")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"No. \x1b$B-!\x1b(B, \x1b$B-j%J%.%5\x1b(B\r\n", "No. ①, ㈱ナギサ\r\n"),
        (b"\x1b$B2q5D<<-!$N\x1b(B\r\n\x1b$BM=Ls\x1b(B", "会議室①の\r\n予約"),
        (b"\x1b$B-!\x1b(I6E\x1b(B", "①ｶﾅ"),
    ],
)
def test_iso_2022_jp_of_windows_has_characters_that_the_standard_has_not(data: bytes, text: str) -> None:
    assert decode(data) == (text, "iso2022_jp")


@pytest.mark.parametrize("data", [b"\x1b$B\x21", b"\x1b$B-!\x1b$(D!!\x1b(B", b"\x1b$(Q-!\x1b[31m", b"\x1b$B-!\r\nM=Ls\x1b(B"])
def test_escapes_of_iso_2022_jp_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableFile, match="encoding: it has the escapes of ISO-2022-JP"):
        decode(data)


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_decides_and_is_gone(mark: bytes, encoding: str) -> None:
    assert decode(mark + "# 手順書".encode(encoding)) == ("# 手順書", encoding)


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x20" * 200,
        "détail".encode("cp1252"),
        "Über größere Häuser und schöne Straßen".encode("cp1252"),
        "I don’t know. It’s fine".encode("cp1252"),
        "这是一个中文文档。我们在这里写一些内容，以便测试编码检测。".encode("gbk"),
        "이것은 한국어 문서입니다. 우리는 여기에 내용을 씁니다.".encode("euc_kr"),
        "Это русский документ.".encode("cp1251"),
        "Это русский документ.".encode("koi8_r"),
        "日本語の文章です。".encode()[:-1],
        codecs.BOM_UTF16_LE + b"a",
    ],
)
def test_what_would_become_mojibake_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableFile, match=r"^notes\.txt: encoding: .*UTF-8"):
        decode(data, "notes.txt")


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"%PDF-1.7 text", b"text\x00text", bytes(range(1, 32)) * 3, b"PK\x03\x04rest"],
)
def test_a_binary_file_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableFile, match=r"^a\.txt: binary: "):
        decode(data, "a.txt")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda t: t[0] not in "\ufeff"))
def test_utf8_is_always_read_as_utf8(text: str) -> None:
    assert decode(text.encode()) == (text, "utf-8")


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    try:
        text, _ = decode(data)
    except UnreadableFile:
        return
    assert ("\x00" not in text and "\ufffd" not in text) or b"\xef\xbf\xbd" in data or data[:2] in (b"\xff\xfe", b"\xfe\xff")


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mark", "encoding"), [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")])
def test_a_byte_order_mark_does_not_hide_the_front_matter(tmp_path: Path, mark: bytes, encoding: str) -> None:
    text = "---\r\ntitle: 手順書\r\n---\r\n# 第一章\r\n本文です。"
    document = read_file(write(tmp_path, mark + text.encode(encoding)))
    assert document.title == "手順書"
    assert document.content == "---\ntitle: 手順書\n---\n# 第一章\n本文です。"


def test_a_file_name_that_is_not_utf8_can_be_read(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    with open(path, "wb") as file:
        file.write(b"text")
    document = read_file(os.fsdecode(path))
    assert (document.uri, document.title, document.content) == ("caf\ufffd.txt", "caf\ufffd", "text")
    assert document.source is not None
    assert document.source.encode()


def test_the_uri_is_the_path_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    path = write(tmp_path / "a" / "b", "x", "c.TXT")
    assert read_file(path, root=tmp_path).uri == "a/b/c.TXT"
    assert read_file(path).uri == "c.TXT"
    assert read_file(path).source == str(path)
    with pytest.raises(ConfigError, match="not below"):
        read_file(path, root=tmp_path / "other")


def test_a_suffix_without_reader_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"no reader for \.png.*\.md.*\.pdf"):
        read_file(write(tmp_path, "x", "a.png"))


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"gone\.md cannot be read: No such file"):
        read_file(tmp_path / "gone.md")


@pytest.mark.parametrize("suffix", [suffix for suffix, reader in SUFFIXES.items() if reader in ("markdown", "text", "html")])
def test_an_empty_file_of_every_text_suffix_is_a_document(tmp_path: Path, suffix: str) -> None:
    document = read_file(write(tmp_path, "", f"empty{suffix}"))
    assert (document.content, document.title, document.metadata) == ("", "empty", {})


# --- front matter -----------------------------------------------------------------------------------


def test_title_and_owner_are_fields_and_metadata(tmp_path: Path) -> None:
    text = "---\ntitle: Ops\nowner: team-a\n---\n\nRunbook\n=======\n\ntext1\n\nStep one\n--------\n\ntext2\n\n---\n\ntail"
    document = read_file(write(tmp_path, text))
    assert (document.title, document.owner) == ("Ops", "team-a")
    assert document.metadata == {"title": "Ops", "owner": "team-a"}
    assert document.content == text


def test_own_keys_become_fields_and_others_metadata(tmp_path: Path) -> None:
    head = "status: Draft\nlang: ja\nversion: 1.10\ndate: 2024-05-01\n"
    head += "review_after: 2025-01-01T10:00:00+09:00\ntags: [a, b]\nn: 3\nno: no\n"
    document = read_file(write(tmp_path, f"---\n{head}---\n# *Head* `line`\n"))
    assert (document.status, document.language, document.version, document.title) == ("draft", "ja", "1.10", "Head line")
    assert document.updated_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert document.review_after == datetime(2025, 1, 1, 1, tzinfo=UTC)
    assert document.metadata == {"tags": ["a", "b"], "n": 3, "False": False}


@pytest.mark.parametrize(
    ("line", "metadata"),
    [
        ("status: shipped", {"status": "shipped"}),
        ("date: 2024-13-45", {"date": "2024-13-45"}),
        ("updated: soon", {"updated": "soon"}),
        ("owner: [a, {b: c}]", {"owner": ["a", {"b": "c"}]}),
    ],
)
def test_a_value_that_cannot_be_used_stays_in_metadata_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, metadata: dict[str, object]
) -> None:
    with caplog.at_level(logging.WARNING, "ragdb.ingest"):
        document = read_file(write(tmp_path, f"---\n{line}\n---\ntext"))
    assert document.metadata == metadata
    assert (document.status, document.updated_at, document.owner) == (None, None, None)
    assert "a.md: front matter" in caplog.text


@pytest.mark.parametrize(
    "head",
    ["a: [", "a: b: c", "a: !!python/object:os.system x", "a: !!timestamp x", "a: !!bool x", "x: " + "[" * 5000, "{a: 1}: 2"],
)
def test_malformed_yaml_stays_in_the_text_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, head: str) -> None:
    with caplog.at_level(logging.WARNING, "ragdb.ingest"):
        document = read_file(write(tmp_path, f"---\n{head}\n---\n# Real\n\ntext"))
    assert (document.title, document.metadata) == ("Real", {})
    assert head in document.content
    assert "stays in the text" in caplog.text


@pytest.mark.parametrize(
    "text", ["---\ntitle: x\n\n# Real\n\ntext", "---\n\n# Real\n\nkey: value: x\n\n---\n\ntail", "text\n\n# Real\n"]
)
def test_what_only_looks_like_front_matter_is_text(tmp_path: Path, text: str) -> None:
    document = read_file(write(tmp_path, text))
    assert (document.title, document.metadata, document.content) == ("Real", {}, text)


@pytest.mark.parametrize("text", ["> # quoted\n", "```\n# code\n```\n", "## second\n", ""])
def test_without_a_level_one_heading_the_title_is_the_file_name(tmp_path: Path, text: str) -> None:
    assert read_file(write(tmp_path, text, "My notes.md")).title == "My notes"


@given(st.text(st.sampled_from("-.\n a:#[]{}\r\"'&*!|>%@`\t\x0b\x85\u2028"), max_size=60))
def test_any_text_behind_dashes_can_be_parsed(text: str) -> None:
    parse("---" + text)
    parse("---\n" + text + "\n---\n")
