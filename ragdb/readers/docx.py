"""Word: mammoth makes HTML of it, which becomes Markdown as any other."""

from __future__ import annotations

from pathlib import Path

from ragdb.adapters import require
from ragdb.errors import UnreadableFile
from ragdb.readers import html, office
from ragdb.readers.archive import opened
from ragdb.readers.decode import shown
from ragdb.readers.html_markdown import to_markdown
from ragdb.types import Document

_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='表題'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='見出し 1'] => h1:fresh
p[style-name='見出し 2'] => h2:fresh
p[style-name='見出し 3'] => h3:fresh
"""
_MAX_TEXT = 100_000_000  # bytes of one XML part; as a tree it takes some thirty times as much


class DocxReader:
    """Reads .docx: headings, lists, tables and notes. The title is the properties', else the first h1, else the file's name."""

    def read(self, path: Path) -> Document:
        mammoth = require("mammoth", "files")
        name = shown(path)
        with opened(path, "a Word document", "word/") as archive:
            office.refuse_declarations(archive, name)
            for member in archive.infolist():
                if member.filename.endswith(".xml") and member.file_size > _MAX_TEXT:
                    raise UnreadableFile(
                        f"{name}: {member.filename} has {member.file_size:,} bytes; at most {_MAX_TEXT:,}: split the document"
                    )
            title, modified = office.properties(archive, name)
        try:
            with path.open("rb") as file:
                made = mammoth.convert_to_html(
                    file, style_map=_STYLES, convert_image=mammoth.images.img_element(lambda image: {}), id_prefix=""
                )
        except Exception as error:  # mammoth has no error of its own: a part that is missing is a KeyError
            raise office.damaged(path, error) from error
        soup = html.parse(made.value, name)
        title = title or html.page_title(soup)
        content = to_markdown(soup.body or soup)
        return Document(
            uri=shown(path.name),
            content=content,
            title=title or shown(path.stem),
            metadata={},
            updated_at=modified,
            source=shown(path.absolute()),
            media_type="text/markdown",
        )


READER = DocxReader()
