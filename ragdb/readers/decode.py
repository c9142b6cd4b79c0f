"""Bytes to text, or a refusal: mojibake is never stored.

Byte order marks first, then strict UTF-8, then the Japanese encodings, judged over the whole file. Almost any bytes
are valid in *some* legacy encoding, so a strict decode proves little: what it gives must also look like Japanese
(`oddities`). cp932, not shift_jis: files from Windows hold ① and 髙, which shift_jis has not.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from ragdb.errors import UnreadableFile
from ragdb.readers.sniff import identify

_BOMS = (  # UTF-32 LE starts with the mark of UTF-16 LE, so it comes first
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = re.compile("[\x00-\x07\x0e-\x19\x1c-\x1f\x7f]")  # without BS, white space, SUB (DOS end of file) and ESC
_ISO2022 = re.compile(rb"(\x1b\$\([@-Z]|\x1b[$(][@-Z])")
_ISO2022_JAPANESE = re.compile(rb"\x1b\$[@B(]")
_MULTIBYTE = re.compile("[^\x00-\x7f\ufffd]")
_WAY_OUT = "convert it to UTF-8 (iconv, or 'save as' in an editor) and add it again"


def read_text(path: Path) -> str:
    """The text of a file, decoded, lines ending with LF. Raises UnreadableFile with the reason."""
    text, _ = decode(read_bytes(path), shown(path))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file. Raises UnreadableFile with the reason."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{shown(path)} cannot be read: {error.strerror}; check the path and its permissions") from error


def shown(path: Path | str) -> str:
    """The path as text that can be stored: bytes of a file name that are not UTF-8 become U+FFFD."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def decode(data: bytes, name: str = "the file") -> tuple[str, str]:
    """Returns the text, without byte order mark, and the name of its encoding.

    Raises UnreadableFile: "binary" for what is no text, "encoding" where no encoding can be told; `name` is named in it.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _marked(data[len(mark) :], encoding, name), encoding
    refuse_binary(data, name)
    if _ISO2022_JAPANESE.search(data) and data.isascii():
        if (text := _strictly(data, "iso2022_jp")) is not None:
            return text, "iso2022_jp"
        if (text := _windows_iso2022(data)) is not None:
            return text, "iso2022_jp"
        raise UnreadableFile(f"{name}: encoding: it has the escapes of ISO-2022-JP but is not valid; {_WAY_OUT}")
    if (text := _strictly(data, "utf-8")) is not None:
        return text, "utf-8"
    _refuse_damaged_utf8(data, name)
    candidates = [(oddities(text, enc), text, enc) for enc in ("cp932", "euc_jp") if (text := _strictly(data, enc)) is not None]
    if candidates:
        odd, text, encoding = min(candidates, key=lambda c: c[0])
        if odd <= 0.2:
            return text, encoding
    raise UnreadableFile(f"{name}: encoding: it is neither UTF-8 nor plausible cp932 or EUC-JP; {_WAY_OUT}")


def _marked(data: bytes, encoding: str, name: str) -> str:
    text = _strictly(data, encoding)
    if text is None:
        raise UnreadableFile(
            f"{name}: encoding: it has the byte order mark of {encoding} but is not valid {encoding}; {_WAY_OUT}"
        )
    if "\x00" in text:
        raise UnreadableFile(f"{name}: binary: NUL characters in {encoding}; give a text file")
    return text


def _strictly(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _windows_iso2022(data: bytes) -> str | None:
    """ISO-2022-JP as mails from Windows have it (cp50221), with ① and 髙: the same rows and cells as cp932, moved."""
    parts = []
    pieces = [b"\x1b(B", *_ISO2022.split(data)]
    for escape, text in zip(pieces[::2], pieces[1::2], strict=True):
        if b"\x1b" in text:
            return None
        if escape in (b"\x1b$B", b"\x1b$@"):
            moved = _moved_to_cp932(text)
            parts.append(None if moved is None else _strictly(moved, "cp932"))
        elif escape == b"\x1b(I":
            parts.append(_strictly(bytes(code | 0x80 if code > 0x20 else code for code in text), "cp932"))
        elif escape in (b"\x1b(B", b"\x1b(J"):
            parts.append(text.decode("ascii"))
        else:
            return None
    return None if None in parts else "".join(part for part in parts if part is not None)


def _moved_to_cp932(text: bytes) -> bytes | None:
    """Pairs of row and cell of JIS X 0208 as Shift_JIS places them; None for other bytes, line ends too (RFC 1468)."""
    if len(text) % 2:
        return None
    moved = bytearray()
    for row, cell in zip(text[::2], text[1::2], strict=True):
        if not (0x21 <= row <= 0x7E and 0x21 <= cell <= 0x7E):
            return None
        lead = (row - 0x21) // 2 + 0x81
        moved.append(lead + 0x40 if lead > 0x9F else lead)
        moved.append(cell + (0x1F if cell < 0x60 else 0x20) if row % 2 else cell + 0x7E)
    return bytes(moved)


def refuse_binary(data: bytes, name: str) -> None:
    """Raises UnreadableFile, with what it is, where the bytes are no text of an encoding without NUL bytes."""
    if kind := identify(data):
        raise UnreadableFile(f"{name}: binary: it is {kind.what}; {kind.advice}")
    if b"\x00" in data:
        raise UnreadableFile(f"{name}: binary: NUL bytes; give a text file (UTF-16 needs its byte order mark)")
    controls = len(_CONTROLS.findall(data.decode("latin-1")))
    if controls * 100 > len(data):  # a stray form feed or bell in a log is still text
        raise UnreadableFile(f"{name}: binary: {controls} control characters in {len(data)} bytes; give a text file")


def _refuse_damaged_utf8(data: bytes, name: str) -> None:
    """UTF-8 with a broken byte often decodes as cp932, to nonsense; say what it is instead."""
    text = data.decode("utf-8", "replace")
    broken, whole = text.count("\ufffd"), len(_MULTIBYTE.findall(text))
    if whole >= 4 * broken:
        raise UnreadableFile(f"{name}: encoding: UTF-8 with {broken} damaged characters; repair it or {_WAY_OUT}")


_HALF = "\uff61-\uff9f"
_ODD_HALF = re.compile(
    "(?<![ｳｶ-ﾄﾊ-ﾎ])ﾞ|(?<![ﾊ-ﾎ])ﾟ"  # a voice mark on a kana that takes none
    f"|(?<![{_HALF}])[ｧ-ｯｰ]"  # a small kana or a length mark at the start of a word
    f"|(?<=[A-Za-z])[{_HALF}](?![{_HALF}])|(?<![{_HALF}])[{_HALF}](?=[A-Za-z])"  # one kana within a Latin word: Latin-1
    "|[｡､･｢｣](?=[｡､･｢｣])"
)
_RUN = re.compile("[^\x00-\x7f]+")
_KANA = re.compile(f"[ぁ-んァ-ヶー、。{_HALF}]")
_KNOWN_VARIANTS = frozenset("髙﨑濵德瀨桒彅橳渕凜煕熙")


def oddities(text: str, encoding: str) -> float:
    """The share of what is not ASCII that a Japanese writer would not have written, 0 to 1 (more: impossible).

    Source of the rules: what Latin-1, cp1252, GBK, EUC-KR, KOI8-R and EUC-JP look like when they are read as cp932 or EUC-JP.
    """
    wide = "".join(_RUN.findall(text))
    if not wide:
        return 2.0
    half = re.findall(f"[{_HALF}]", wide)
    odd = len(_ODD_HALF.findall(text)) + sum(map(_odd_character, wide)) + sum(_apostrophes(text))
    points = sum(c in "｡､･｢｣" for c in half)
    if points * 3 > len(half):  # EUC-JP's kana rows 0xA4 and 0xA5 read as cp932
        odd += len(half)
    if len(half) >= 10 and sum("ｱ" <= c <= "ｿ" for c in half) * 10 < len(half):  # half of the syllabary is missing: KOI8-R
        odd += len(half)
    # EUC-KR and GB2312 use the rows of EUC-JP's kanji, but hardly write kana
    if encoding == "euc_jp" and len(_KANA.findall(wide)) * 20 < len(wide):
        return 1.5
    if encoding == "cp932" and len(wide) >= 6 and all(c.encode("cp932", "ignore")[:1] == b"\x8e" for c in wide):
        return 1.0  # EUC-JP puts this byte before each half-width kana
    return odd / len(wide) + len(half) / len(wide) / 10  # between two that could be, the one with less half-width kana


def _odd_character(char: str) -> bool:
    """A kanji outside JIS level 1, a private-use or control character, a letter that is not in the sets."""
    if "一" <= char <= "鿿" or "豈" <= char <= "﫿":
        return char not in _KNOWN_VARIANTS and not _level_one(char)
    return "\ue000" <= char <= "\uf8ff" or "\x80" <= char <= "\xa0"


def _level_one(kanji: str) -> bool:
    try:
        code = kanji.encode("euc_jp")
    except UnicodeEncodeError:
        return False
    return len(code) == 2 and code[0] < 0xD0  # JIS X 0208: rows 16 to 47, the 2,965 common ones


def _apostrophes(text: str) -> Iterator[bool]:
    """`don't` with the apostrophe of cp1252 reads as `don稚` in cp932: one kanji, its second byte a Latin letter."""
    for run in _RUN.finditer(text):
        if len(run[0]) == 1 and "一" <= run[0] <= "鿿":
            before, after = text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
            code = run[0].encode("cp932", "ignore")
            touches = any(c.isascii() and c.isalpha() for c in (before, after))
            yield touches and len(code) == 2 and code[1] < 0x80 and chr(code[1]).isalpha()
