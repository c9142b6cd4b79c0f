"""Pages and files on the web: fetched with bounds on time and size, then read as a file of their type would be."""

from __future__ import annotations

import dataclasses
import re
import tempfile
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ragdb.adapters import require
from ragdb.errors import UnreadableFile
from ragdb.readers import SUFFIXES, reader
from ragdb.readers.charset import labelled
from ragdb.readers.html import read_html
from ragdb.readers.media import of_suffix
from ragdb.readers.sniff import identify
from ragdb.types import Document

if TYPE_CHECKING:
    from ragdb.metadata import Rules

_REDIRECTS = 10
_PATIENCE = 15  # times the timeout: how long a server that sends little by little is listened to
_BY_TYPE = {
    "text/html": ".html",
    "application/xhtml+xml": ".xhtml",
    "application/pdf": ".pdf",
    "application/x-pdf": ".pdf",
    "text/markdown": ".md",
    "text/x-markdown": ".md",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/epub+zip": ".epub",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.ms-excel.sheet.macroenabled.12": ".xlsm",
}
# Types that servers give to whatever they do not know: the address or the bytes say more.
_VAGUE = ("", "text/plain", "application/octet-stream", "binary/octet-stream", "application/zip", "application/download")
_PAGE = re.compile(rb"^\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TEXTS = (".md", ".markdown", ".txt", ".text", ".log", ".csv", ".tsv")


class _Fetched(NamedTuple):
    data: bytes
    address: str  # after redirects
    type: str
    charset: str | None
    modified: datetime | None


def is_url(given: object) -> bool:
    """Whether it is an address that `read_url` takes, and no path."""
    return isinstance(given, str) and re.match(r"https?://", given, re.IGNORECASE) is not None


def bare(url: str) -> str:
    """The address without its fragment, which names a place in the document."""
    return url.partition("#")[0]


def read_url(url: str, *, timeout: float = 20.0, max_bytes: int = 100_000_000, rules: Rules | None = None) -> Document:
    """Returns what the address brings as a document; `uri` and `source` are the address without its fragment.

    What the page says about itself is read by `rules`, as `read_file` does it. `timeout` is in seconds, for the connection
    and for each wait. Raises UnreadableFile: no http(s) address, not reached, an HTTP error, more than `max_bytes`, or nothing
    that can be read; MissingExtra.
    """
    if not is_url(url):
        raise UnreadableFile(f"{url}: only http:// and https:// addresses can be read; save the file and add it")
    fetched = _fetch(url, timeout, max_bytes)
    suffix = _suffix(fetched, url)
    document = _read(fetched, suffix, url)
    if not document.content.strip():
        raise UnreadableFile(
            f"{url}: it has no text (a login form, or a page that scripts fill); save the page in a browser and add the file"
        )
    address = bare(url)
    document = dataclasses.replace(
        document,
        uri=address,
        source=address,
        updated_at=document.updated_at or fetched.modified,
        media_type=document.media_type or of_suffix(suffix),
    )
    from ragdb.metadata import described  # which needs YAML and Markdown

    return described(document, rules)


def _fetch(url: str, timeout: float, max_bytes: int) -> _Fetched:
    httpx = require("httpx", "files")
    try:
        with (
            httpx.Client(follow_redirects=True, max_redirects=_REDIRECTS, timeout=timeout) as client,
            client.stream("GET", bare(url), headers={"User-Agent": "ragdb", "Accept": "text/html, */*;q=0.9"}) as response,
        ):
            if response.is_error:
                raise UnreadableFile(f"{url}: HTTP {response.status_code} {response.reason_phrase}; {_advice(response)}")
            data = _body(response, url, max_bytes, time.monotonic() + _PATIENCE * timeout)
            kind, _, _ = response.headers.get("content-type", "").partition(";")
            return _Fetched(
                data,
                str(response.url),
                kind.strip().lower(),
                response.charset_encoding,
                _moment(response.headers.get("last-modified")),
            )
    except httpx.TimeoutException as error:
        raise UnreadableFile(
            f"{url}: no answer within {timeout:g} s ({type(error).__name__}); try again later, or with a longer timeout"
        ) from error
    except httpx.TooManyRedirects as error:
        raise UnreadableFile(f"{url}: more than {_REDIRECTS} redirects; open it in a browser and add the last address") from error
    except httpx.ConnectError as error:
        raise UnreadableFile(f"{url}: cannot be reached: {error}; check the name of the host and the network") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
        raise UnreadableFile(f"{url}: {type(error).__name__}: {error}; check the address, or save the file and add it") from error


def _body(response: Any, url: str, max_bytes: int, until: float) -> bytes:
    too_large = f"{url}: more than {max_bytes:,} bytes; save the file and add it, or read_url(url, max_bytes=...)"
    announced = response.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise UnreadableFile(f"{too_large} (it has {int(announced):,})")
    data = bytearray()
    for piece in response.iter_bytes():  # unpacked: a small answer can be a large text
        data += piece
        if len(data) > max_bytes:
            raise UnreadableFile(too_large)
        if time.monotonic() > until:
            raise UnreadableFile(f"{url}: too slow: {len(data):,} bytes so far; save the file and add it")
    return bytes(data)


def _advice(response: Any) -> str:
    status = response.status_code
    if status in (401, 403, 407):
        return "it needs a login, or refuses programs: save the page in a browser and add the file"
    if status in (404, 410):
        return "nothing is there: check the address"
    if status == 429 or status >= 500:
        return "the server cannot answer now: try again later"
    return "check the address in a browser"


def _moment(header: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(header or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _suffix(fetched: _Fetched, url: str) -> str:
    """What picks the reader: the type, else the suffix of the address, else the first bytes."""
    if known := _BY_TYPE.get(fetched.type):
        return known
    named = [PurePosixPath(unquote(urlsplit(address).path)).suffix.lower() for address in (url, fetched.address)]
    if fetched.type == "text/plain":  # the source of a page, shown as such, is no page
        return next((suffix for suffix in named if suffix in _TEXTS), ".txt")
    if fetched.type in _VAGUE and (suffix := next((suffix for suffix in named if suffix in SUFFIXES), "")):
        return suffix
    kind = identify(fetched.data)
    if kind and kind.suffix:
        return kind.suffix
    if kind:
        raise UnreadableFile(f"{url}: it is {kind.what}; {kind.advice}")
    if _PAGE.match(fetched.data):
        return ".html"
    if fetched.type in _VAGUE or fetched.type.startswith("text/"):
        return ".txt"
    raise UnreadableFile(f"{url}: no reader for {fetched.type}; ragdb reads {', '.join(SUFFIXES)}: convert it, and add the file")


def _read(fetched: _Fetched, suffix: str, url: str) -> Document:
    """The document of what was fetched, under a name made of the address."""
    parts = urlsplit(fetched.address)
    last = unquote(PurePosixPath(parts.path).name) or parts.hostname or "page"
    stem = re.sub(r"[/\\\x00-\x1f]", "-", last.removesuffix(PurePosixPath(last).suffix) or last)[
        :60
    ]  # a file name may have 255 bytes, a kanji has three
    data = fetched.data
    if suffix in (".html", ".htm", ".xhtml"):
        return read_html(data, Path(f"{stem}{suffix}"), charset=fetched.charset, name=url)
    if suffix in _TEXTS:
        data = labelled(data, url, (fetched.charset,)).encode()
    with tempfile.TemporaryDirectory(prefix="ragdb-") as scratch:
        path = Path(scratch, f"{stem}{suffix}")
        path.write_bytes(data)
        try:
            return reader(SUFFIXES[suffix]).read(path)
        except UnreadableFile as error:
            raise UnreadableFile(str(error).replace(str(path), url)) from error
