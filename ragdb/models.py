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
from pathlib import Path

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


def home() -> Path:
    """The folder of fetched models."""
    named = os.environ.get("RAGDB_HOME", "").strip()
    if named:
        return Path(named).expanduser() / "models"
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise MissingExtra("the cache of models", "rerank") from error
    return user_data_path("ragdb", appauthor=False) / "models"


def reranker_folder(model: str) -> Path:
    """Where a reranker lies: a folder given, or a fetched model. Raises RerankerError where it is not there."""
    folder = Path(model).expanduser()
    if folder.is_absolute() or model.startswith((".", "~")) or os.sep in model:
        if not folder.is_dir():
            raise RerankerError(
                f"there is no folder {folder}; give one with model.onnx and tokenizer.json, or fetch a model by name"
            )
        return folder
    fetched = home() / model
    if not fetched.is_dir():
        raise RerankerError(f"the reranker {model} is not on this machine; run: ragdb fetch-model {model}")
    return fetched


def cached_reranker() -> str | None:
    """The multilingual reranker, where it has been fetched."""
    try:
        return DEFAULT_RERANKER if (home() / DEFAULT_RERANKER).is_dir() else None
    except MissingExtra:
        return None


def fetch(model: str, *, url: str | None = None, progress: Progress | None = None) -> Path:
    """Fetches a model of FlashRank and returns its folder; nothing to do where it is there.

    `progress(bytes, of)` is called as it comes. Raises RerankerError, and leaves nothing behind, where it cannot be
    fetched or is not whole.
    """
    if not model.strip() or model.startswith(".") or any(mark in model for mark in "/\\:"):
        raise ConfigError(f"{model!r} is no name of a model; known: {', '.join(RERANKERS)}")
    if model not in RERANKERS and url is None:
        raise ConfigError(f"no model is called {model!r}; known: {', '.join(RERANKERS)}, or give --url to its .zip")
    place = home() / model
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=place.parent) as folder:
        beside = Path(folder)
        _download(url or URL.format(model), beside / "model.zip", model, progress)
        made = _unpacked(beside / "model.zip", beside / "model", model)
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    return place


def _download(url: str, file: Path, model: str, progress: Progress | None) -> None:
    require("requests", "rerank")
    import requests

    try:
        with requests.get(url, stream=True, timeout=_SECONDS) as response, file.open("wb") as out:
            response.raise_for_status()
            of = int(response.headers.get("content-length", 0)) or None
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
            f"{model} could not be fetched from {url}: {error}; where this machine reaches no hub, fetch the .zip elsewhere, "
            f"unpack it to {home() / model}, or name its folder: RAGDB_RERANKER=flashrank:/a/folder"
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
    folders = [path.parent for path in to.rglob("tokenizer.json")]
    if len(folders) != 1:
        raise RerankerError(f"the archive of {model} holds {len(folders)} models; expected one")
    missing = [name for name in _NEEDED if not (folders[0] / name).is_file()]
    if missing or not list(folders[0].glob("*.onnx")):
        raise RerankerError(f"the archive of {model} lacks {', '.join(missing) or 'its .onnx file'}")
    return folders[0]
