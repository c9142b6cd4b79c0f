"""Plain text: the file's text is the content, its name the title."""

from __future__ import annotations

from pathlib import Path

from ragdb.readers.decode import read_text, shown
from ragdb.types import Document


class TextReader:
    """Reads .txt, .log, .csv and the like; nothing in the text is taken as structure."""

    def read(self, path: Path) -> Document:
        return Document(
            uri=shown(path.name), content=read_text(path), title=shown(path.stem), metadata={}, source=shown(path.absolute())
        )


READER = TextReader()
