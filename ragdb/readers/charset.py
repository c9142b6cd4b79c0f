"""The text of a page that names its encoding: byte order mark, HTTP header, `<meta charset>`; else `decode` finds it."""

from __future__ import annotations

import codecs
import re

from ragdb.readers.decode import decode, refuse_binary

# Labels that browsers read as a larger encoding than the one they name. Source: WHATWG Encoding, section 4.2
_READ_AS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "utf-16": "utf-8",  # a <meta> that can be read as ASCII stands in no UTF-16
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
_ALIASES = {"x-sjis": "cp932", "windows-31j": "cp932", "ms_kanji": "cp932", "x-euc-jp": "euc_jp", "ks_c_5601-1987": "cp949"}
# Codecs of Python's that no page is written in.
_NO_TEXT = frozenset(["idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7"])
_HEAD = 4096  # browsers look at the first 1024 bytes; pages with long comments come later
_META = re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([A-Za-z0-9_:.-]+)[\"']", re.IGNORECASE)
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Every byte is a character in these, so that a strict decode proves nothing.
_ONE_BYTE = re.compile(r"cp125\d|cp874|cp866|iso8859|koi8|mac")


def page_text(data: bytes, name: str, charset: str | None = None) -> str:
    """The text of an HTML page; `charset` is the HTTP header's. Raises UnreadableFile as `decode` does."""
    return labelled(data, name, (charset, _written(_XML, data), _written(_META, data)))


def labelled(data: bytes, name: str, labels: tuple[str | None, ...]) -> str:
    """The text in the first of the encodings named that fits, else as `decode` finds it; lines end with LF."""
    text = None
    if not data.startswith(_MARKS):
        for encoding in filter(None, map(_encoding, labels)):
            text = _fitting(data, encoding)
            if text is not None:
                refuse_binary(data, name)
                break
    if text is None:
        text, _ = decode(data, name)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _written(pattern: re.Pattern[bytes], data: bytes) -> str | None:
    found = pattern.search(data[:_HEAD])
    return found[1].decode("ascii") if found else None


def _encoding(label: str | None) -> str | None:
    """Python's name for the encoding that a browser takes for the label; None for what neither knows."""
    if not label:
        return None
    label = label.strip().strip("\"'").lower()
    try:
        known = codecs.lookup(_ALIASES.get(label, label)).name
    except (LookupError, ValueError):
        return None
    if known in _NO_TEXT:
        return None
    return _READ_AS.get(known, known)


def _fitting(data: bytes, encoding: str) -> str | None:
    # A page in UTF-8 that a server calls iso-8859-1 would become mojibake without any error.
    for candidate in ("utf-8", encoding) if _ONE_BYTE.match(encoding) else (encoding,):
        try:
            return data.decode(candidate)
        except (UnicodeError, LookupError):  # LookupError: `base64` and the like are codecs, but of no text
            continue
    return None
