"""ZIP containers (Office files, EPUB): opened only when what is inside has a size that can be unpacked."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragdb.errors import UnreadableFile
from ragdb.readers.decode import shown
from ragdb.readers.sniff import identify_file

MAX_UNPACKED = 1_000_000_000  # bytes, by the archive's own directory; zipfile reads no more than that says
_MAX_RATIO = 300  # a long sheet of equal rows has 100; deflate can do 1,032, which only bombs come near
_RATIO_FROM = 50_000_000
_MAX_MEMBERS = 100_000


@contextmanager
def opened(path: Path, what: str, folder: str) -> Iterator[zipfile.ZipFile]:
    """The archive, looked over: it has a part below `folder`, and unpacks to a bounded size.

    Raises UnreadableFile where it is something else than `what` ("a Word document"), damaged or too large.
    """
    name = shown(path)
    try:
        size = path.stat().st_size
        if size == 0:
            raise UnreadableFile(f"{name} is empty (0 bytes), not {what}; get it again from where it came from")
        if not zipfile.is_zipfile(path):
            raise UnreadableFile(f"{name} is not {what}: {_instead(path)}")
        with zipfile.ZipFile(path) as archive:
            _check(archive, size, name)
            if not any(member.startswith(folder) for member in archive.namelist()):
                raise UnreadableFile(f"{name} is not {what}: {_instead(path)}")
            yield archive
    except OSError as error:
        raise UnreadableFile(f"{name} cannot be read: {error.strerror or error}; check the path and its permissions") from error
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableFile(f"{name} is damaged: {error}; get it again from where it came from") from error


def _instead(path: Path) -> str:
    kind = identify_file(path)
    if kind is None:
        return "its bytes are no ZIP archive; save it again with the program that made it, or get it again"
    return f"it is {kind.what}; {kind.advice}"


def _check(archive: zipfile.ZipFile, size: int, name: str) -> None:
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    if total > MAX_UNPACKED or len(members) > _MAX_MEMBERS:
        raise UnreadableFile(
            f"{name} would unpack to {total:,} bytes in {len(members):,} parts; ragdb unpacks at most {MAX_UNPACKED:,} "
            f"in {_MAX_MEMBERS:,}: split it, or take its images out"
        )
    if total > _RATIO_FROM and total > _MAX_RATIO * size:
        raise UnreadableFile(
            f"{name} would unpack from {size:,} to {total:,} bytes, as only a ZIP bomb does; save it again with the "
            "program that made it, or leave it out"
        )
    if any(member.flag_bits & 1 for member in members):
        raise UnreadableFile(f"{name} is encrypted; remove the password and add it again")
