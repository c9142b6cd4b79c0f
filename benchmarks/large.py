"""Large files: the memory and the time that adding one takes, each in a process of its own, with the fake embedder.

    python benchmarks/large.py [--only txt md csv pdf] [--json]     # needs the extras local and files, and reportlab

50 MB of plain text and of Markdown, a CSV of 200,000 rows, a PDF of 2,000 pages. `mb` is the highest resident memory of
the process that adds (not of the server), `base` before the file is read.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

WORDS = [f"{'aeiou'[i % 5]}{'bcdfgklmnprst'[i % 13]}{'aeiou'[i // 65 % 5]}{'klmnrst'[i // 7 % 7]}{i % 97}" for i in range(20_000)]


def _sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)) + "."


def _text(rng: random.Random) -> Iterator[str]:
    while True:
        yield " ".join(_sentence(rng, 12) for _ in range(rng.randint(3, 9))) + "\n\n"


def _markdown(rng: random.Random) -> Iterator[str]:
    for n, paragraph in enumerate(_text(rng)):
        yield f"## Heading {n}\n\n{paragraph}- {_sentence(rng, 5)}\n- {_sentence(rng, 5)}\n\n"


def _up_to(size: int, parts: Iterator[str], path: Path) -> None:
    with path.open("w") as file:
        written = 0
        while written < size:
            written += file.write(next(parts))


def _csv(rng: random.Random, path: Path) -> None:
    with path.open("w") as file:
        file.write("id,name,city,amount,note\n")
        for n in range(200_000):
            file.write(f'{n},{rng.choice(WORDS)},{rng.choice(WORDS)},{rng.randint(1, 99_999)},"{_sentence(rng, 10)}"\n')


def _pdf(rng: random.Random, path: Path) -> None:
    from reportlab.pdfgen import canvas

    made = canvas.Canvas(str(path))
    for n in range(2_000):
        page = made.beginText(50, 790)
        page.textLine(f"Page {n + 1} of the manual")
        for _ in range(40):
            page.textLine(_sentence(rng, 10))
        made.drawText(page)
        made.showPage()
    made.save()


FILES: dict[str, Callable[[random.Random, Path], None]] = {
    "txt": lambda rng, path: _up_to(50_000_000, _text(rng), path),
    "md": lambda rng, path: _up_to(50_000_000, _markdown(rng), path),
    "csv": _csv,
    "pdf": _pdf,
}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def add(path: Path, home: Path) -> None:
    """Adds one file, in this process; prints the figures as JSON."""
    from ragdb import RagDB
    from ragdb.ingest import folder
    from ragdb.testing import FakeEmbedder

    with RagDB.local(home, collection=path.stem, embedder=FakeEmbedder()) as rag:
        files = folder.settle(rag.context, folder.find([path])).files
        base, began = _peak(), time.monotonic()
        [result] = list(folder.add_files(rag.context, files))
        if isinstance(result, folder.Failed):
            raise SystemExit(result.error)
        print(
            json.dumps({"chunks": result.added.chunks, "seconds": round(time.monotonic() - began), "base": base, "mb": _peak()})
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=FILES, default=list(FILES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--add", nargs=2, type=Path, metavar=("FILE", "HOME"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.add:
        add(*given.add)
        return
    with tempfile.TemporaryDirectory(prefix="ragdb-large-") as scratch:
        for suffix in given.only:
            path = Path(scratch, f"large-{suffix}.{suffix}")
            FILES[suffix](random.Random(1), path)
            run = [sys.executable, __file__, "--add", str(path), str(Path(scratch, "home"))]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            figures = {"file": suffix, "bytes": path.stat().st_size, **json.loads(done.stdout.splitlines()[-1])}
            print(
                json.dumps(figures) if given.json else "  ".join(f"{name} {value}" for name, value in figures.items()), flush=True
            )


if __name__ == "__main__":
    main()
