"""Models on disk that ragdb fetches itself: rerankers, in `models/` of RAGDB_HOME. Fetched by command, never by a question.

`ragdb fetch-model` downloads to a folder beside, checks what came, and moves it into place in one step: a model is
there whole, or not at all.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from ragdb.adapters import require
from ragdb.errors import ConfigError, MissingExtra, RerankerError

#: About a hundred languages; what `auto` looks for.
DEFAULT_RERANKER = "ms-marco-MultiBERT-L-12"
#: FlashRank's own models.
RERANKERS = (
    "ms-marco-MultiBERT-L-12",
    "ms-marco-MiniLM-L-12-v2",
    "ms-marco-TinyBERT-L-2-v2",
    "ce-esci-MiniLM-L12-v2",
    "rank-T5-flan",
    "miniReranker_arabic_v1",
)
URL = "https://huggingface.co/prithivida/flashrank/resolve/main/{}.zip"
_NEEDED = ("tokenizer.json", "config.json", "tokenizer_config.json", "special_tokens_map.json")
_SECONDS = 30.0  # without a byte
_LARGEST = 4_000_000_000

Progress = Callable[[int, int | None], None]


def home(of: Path | None = None) -> Path:
    """The folder of fetched models in ragdb's home; without one, in the user's data folder."""
    if of is not None:
        return of.expanduser() / "models"
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise MissingExtra("the cache of models", "rerank") from error
    return user_data_path("ragdb", appauthor=False) / "models"


def reranker_folder(model: str, fetched_to: Path | None = None) -> Path:
    """Where a reranker lies: a folder given, or a model in `fetched_to`. Raises RerankerError where it is not there."""
    folder = Path(model).expanduser()
    if folder.is_absolute() or model.startswith((".", "~")) or os.sep in model:
        if not folder.is_dir():
            raise RerankerError(
                f"there is no folder {folder}; give one with model.onnx and tokenizer.json, or fetch a model by name"
            )
        return folder
    folder = fetched_to or home()
    if not (folder / model).is_dir():
        there = ", ".join(_fetched(folder)) or "none"
        known = f"run: ragdb fetch-model {model}" if model in RERANKERS else f"known: {', '.join(RERANKERS)}, or a folder"
        raise RerankerError(f"the reranker {model} is not in {folder} (there: {there}); {known}")
    return folder / model


def cached_reranker(fetched_to: Path | None = None) -> str | None:
    """A reranker that has been fetched: the multilingual one, else the one fetched last."""
    try:
        there = _fetched(fetched_to or home())
    except MissingExtra:
        return None
    return DEFAULT_RERANKER if DEFAULT_RERANKER in there else next(iter(there), None)


def _fetched(folder: Path) -> list[str]:
    """The models in a folder, the newest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def fetch(model: str, *, to: Path | None = None, url: str | None = None, progress: Progress | None = None) -> Path:
    """Fetches a model of FlashRank into the folder `to` and returns its own; nothing to do where it is there.

    `progress(bytes, of)` is called as it comes. Raises RerankerError, and leaves nothing behind, where it cannot be
    fetched or is not whole.
    """
    if not model.strip() or model.startswith(".") or len(model) > 200 or any(m in "/\\:" or not m.isprintable() for m in model):
        raise ConfigError(f"{model!r} is no name of a model; known: {', '.join(RERANKERS)}")
    if model not in RERANKERS and url is None:
        raise ConfigError(f"no model is called {model!r}; known: {', '.join(RERANKERS)}, or give --url to its .zip")
    if url is not None and urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"{url} is no web address; an archive on this machine you unpack yourself, to {(to or home()) / model}")
    place = (to or home()) / model
    if place.is_dir():
        return place
    made_now = [folder for folder in (place.parent, *place.parent.parents) if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RerankerError(f"{place.parent} cannot be made: {error}; see RAGDB_HOME") from error
    try:
        return _fetched_to(place, model, url, progress)
    except BaseException:
        for folder in made_now:  # an empty folder is left behind too
            with suppress(OSError):
                folder.rmdir()
        raise


def _fetched_to(place: Path, model: str, url: str | None, progress: Progress | None) -> Path:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=place.parent) as folder:
        beside = Path(folder)
        _download(url or URL.format(model), beside / "model.zip", place, progress)
        made = _unpacked(beside / "model.zip", beside / "model", model)
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    return place


def _download(url: str, file: Path, place: Path, progress: Progress | None) -> None:
    require("requests", "rerank")
    import requests

    try:
        with requests.get(url, stream=True, timeout=_SECONDS) as response, file.open("wb") as out:
            response.raise_for_status()
            length = response.headers.get("content-length", "")
            of = int(length) if length.isdecimal() else None
            came = 0
            for piece in response.iter_content(1 << 18):
                came += out.write(piece)
                if came > _LARGEST:
                    raise RerankerError(f"{url} is larger than {_LARGEST} bytes")
                if progress:
                    progress(came, of)
            if of is not None and came != of and "content-encoding" not in response.headers:
                raise RerankerError(f"{url} broke off after {came} of {of} bytes; run it again")
    except requests.RequestException as error:
        raise RerankerError(
            f"{place.name} could not be fetched from {url}: {error}; where this machine reaches no hub, fetch the .zip "
            f"elsewhere, unpack it to {place}, or name its folder: RAGDB_RERANKER=flashrank:/a/folder"
        ) from error


def _unpacked(file: Path, to: Path, model: str) -> Path:
    """The folder with the model's files, wherever in the archive they lay."""
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                target = (to / entry.filename).resolve()
                if not target.is_relative_to(to.resolve()) or stat.S_ISLNK(entry.external_attr >> 16):
                    raise RerankerError(f"the archive of {model} holds {entry.filename!r}, which leads out of its folder")
            if sum(entry.file_size for entry in archive.infolist()) > min(_LARGEST, shutil.disk_usage(to.parent).free):
                raise RerankerError(f"there is no room on the disk for the files of {model}")
            archive.extractall(to)
    except zipfile.BadZipFile as error:
        raise RerankerError(f"what came for {model} is no archive: {error}; run it again") from error
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way that Python does not know
        raise RerankerError(f"the archive of {model} cannot be unpacked: {error}; take another one, with --url") from error
    folders = [path.parent for path in to.rglob("tokenizer.json")]
    if len(folders) != 1:
        raise RerankerError(f"the archive of {model} holds {len(folders)} models; expected one")
    missing = [name for name in _NEEDED if not (folders[0] / name).is_file()]
    if missing or not list(folders[0].glob("*.onnx")):
        raise RerankerError(f"the archive of {model} lacks {', '.join(missing) or 'its .onnx file'}")
    return folders[0]
