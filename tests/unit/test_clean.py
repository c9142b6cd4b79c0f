"""Cleaning at the door: cases ING-01 and ING-02, metadata, and the offsets of given chunks."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragdb.errors import BadDocument
from ragdb.ingest.clean import clean_document, clean_json, clean_text
from ragdb.types import Document, Section, Span

ANY_TEXT = st.text(
    st.one_of(st.characters(), st.sampled_from("\x00\r\n\ufeff\ud83d\ude00\udc00 ab"), st.characters(categories=["Cs"]))
)


def test_nul_becomes_a_space_so_that_words_do_not_fuse() -> None:
    assert clean_text("Alpha\x00Beta") == ("Alpha Beta", {"nul": 1})


def test_a_lone_surrogate_becomes_the_replacement_character_and_an_emoji_stays() -> None:
    text, counts = clean_text("ok \ud83d end 👩‍👩‍👧 done")
    assert text == "ok \ufffd end 👩‍👩‍👧 done"
    assert counts == {"surrogate": 1}


def test_a_surrogate_pair_is_one_character() -> None:
    assert clean_text("\ud83d\ude00") == ("😀", {"pair": 1})


def test_every_line_end_becomes_lf() -> None:
    assert clean_text("a\r\nb\rc\nd\r\r\n")[0] == "a\nb\nc\nd\n\n"


def test_a_byte_order_mark_goes_at_the_start_only() -> None:
    assert clean_text("\ufeffa\ufeffb") == ("a\ufeffb", {"bom": 1})


@given(ANY_TEXT)
def test_cleaned_text_can_be_stored_and_is_clean_for_good(text: str) -> None:
    cleaned, _ = clean_text(text)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert "\r" not in cleaned
    assert not cleaned.startswith("\ufeff")
    assert clean_text(cleaned) == (cleaned, {})


def test_metadata_is_cleaned_in_keys_and_values_at_any_depth() -> None:
    value, counts = clean_json({"k\x00": "v\x00", "deep": [{"a\ud800": ("\x00",)}]})
    assert value == {"k ": "v ", "deep": [{"a\ufffd": [" "]}]}
    assert counts == {"nul": 3, "surrogate": 1}


def test_metadata_values_become_what_json_holds() -> None:
    tokyo = timezone(timedelta(hours=9))
    value, counts = clean_json(
        {
            "nan": math.nan,
            "inf": [math.inf, -math.inf],
            "naive": datetime(2024, 5, 1, 12),
            "aware": datetime(2024, 5, 1, 12, tzinfo=tokyo),
            "date": date(2024, 5, 1),
            "whole": Decimal("12"),
            "part": Decimal("1.5"),
            "vast": Decimal("1E+999999"),
            "set": {"b", "a"},
            "other": 1j,
            1: True,
            None: None,
        }
    )
    assert value == {
        "nan": None,
        "inf": [None, None],
        "naive": "2024-05-01T12:00:00+00:00",
        "aware": "2024-05-01T12:00:00+09:00",
        "date": "2024-05-01",
        "whole": 12,
        "part": 1.5,
        "vast": None,
        "set": ["a", "b"],
        "other": "1j",
        "1": True,
        "null": None,
    }
    assert counts == {"number": 4}
    json.dumps(value, allow_nan=False)


def test_two_keys_that_become_one_are_counted() -> None:
    assert clean_json({"a\x00": 1, "a ": 2}) == ({"a ": 2}, {"nul": 1, "key": 1})


def test_metadata_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(BadDocument, match="holds itself"):
        clean_json(loop)


def test_metadata_that_unfolds_into_millions_is_refused() -> None:
    value: list[Any] = ["lol"]
    for _ in range(20):
        value = [value] * 10
    with pytest.raises(BadDocument, match="more than"):
        clean_json(value)


def test_every_field_of_a_document_is_cleaned_and_the_changes_are_told() -> None:
    document = Document(
        "u\x00ri",
        "Alpha\x00Beta",
        title="T\x00x",
        owner="o\ud800",
        version="v\x00",
        language="ja\x00",
        source="s\x00",
        metadata={"k\x00": "v\x00"},
        updated_at=datetime(2024, 5, 1),
    )
    cleaned, warnings = clean_document(document)
    assert (cleaned.uri, cleaned.content, cleaned.title) == ("u ri", "Alpha Beta", "T x")
    assert (cleaned.owner, cleaned.version, cleaned.language, cleaned.source) == ("o\ufffd", "v ", "ja ", "s ")
    assert cleaned.metadata == {"k ": "v "}
    assert cleaned.updated_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert warnings == ("8 NUL characters became spaces", "1 lone surrogate became U+FFFD")


def test_a_clean_document_stays_as_it_is_without_warnings() -> None:
    document = Document("a.md", "line\nline", metadata={"a": [1, "x", None]})
    assert clean_document(document) == (document, ())


def test_windows_line_ends_are_no_warning() -> None:
    assert clean_document(Document("a", "x\r\ny"))[1] == ()


def test_offsets_of_given_chunks_move_with_the_text() -> None:
    content = "\ufeff# A\r\none\r\n\r\ntwo \ud83d\ude00\x00end"
    section = Section("A", 1, content.index("#"), len(content))
    first, second = content.index("one"), content.index("two")
    chunks = (Span(first, first + 3, section=section), Span(second, len(content), context="c\x00", section=section))
    cleaned, _ = clean_document(Document("a", content, chunks=chunks))
    assert cleaned.chunks is not None
    assert [cleaned.content[s.start : s.end] for s in cleaned.chunks] == ["one", "two 😀 end"]
    assert cleaned.chunks[1].context == "c "
    moved = cleaned.chunks[0].section
    assert moved is not None
    assert cleaned.content[moved.start : moved.end] == cleaned.content
    assert cleaned.chunks[1].section is moved


@given(ANY_TEXT.filter(lambda t: len(t) >= 2), st.data())
def test_a_given_chunk_holds_the_same_text_cleaned(text: str, data: st.DataObject) -> None:
    text = "x" + text + "x"
    cut = data.draw(st.integers(1, len(text) - 1))
    cleaned, _ = clean_document(Document("a", text, chunks=(Span(0, cut), Span(cut, len(text)))))
    assert cleaned.chunks is not None
    first, second = cleaned.chunks
    assert (first.start, first.end, second.end) == (0, second.start, len(cleaned.content))


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([(0, 9)], "outside"),
        ([(-1, 2)], "outside"),
        ([(2, 2)], "empty"),
        ([(3, 1)], "empty"),
        ([(2, 4), (0, 2)], "order"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused(spans: list[tuple[int, int]], reason: str) -> None:
    with pytest.raises(BadDocument, match=reason):
        clean_document(Document("a", "12345", chunks=[Span(*span) for span in spans]))
