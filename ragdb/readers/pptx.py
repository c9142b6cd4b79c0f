"""PowerPoint: one section a slide, in their order, with tables and notes; a slide is a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ragdb.adapters import require
from ragdb.readers import office
from ragdb.readers.archive import opened
from ragdb.readers.decode import shown
from ragdb.readers.paged import joined
from ragdb.readers.tables import pipe_table
from ragdb.types import Document


class PptxReader:
    """Reads .pptx. The title is the properties', else that of the first slide, else the file's name."""

    def read(self, path: Path) -> Document:
        pptx = require("pptx", "files")
        name = shown(path)
        with opened(path, "a PowerPoint presentation", "ppt/") as archive:
            office.refuse_declarations(archive, name)
            title, modified = office.properties(archive, name)
        try:
            with path.open("rb") as file:
                slides = list(pptx.Presentation(file).slides)
                content, pages = joined(_slide(slide, n) for n, slide in enumerate(slides, start=1))
                title = title or (_title(slides[0]) if slides else "")
        except Exception as error:  # python-pptx passes on those of lxml, zipfile and its own
            raise office.damaged(path, error) from error
        return Document(
            uri=shown(path.name),
            content=content,
            title=title or shown(path.stem),
            metadata={},
            updated_at=modified,
            source=shown(path.absolute()),
            media_type="text/markdown",
            pages=pages or None,
        )


READER = PptxReader()


def _title(slide: Any) -> str:
    shape = slide.shapes.title
    return " ".join(shape.text_frame.text.split()) if shape is not None and shape.has_text_frame else ""


def _slide(slide: Any, number: int) -> str:
    title = _title(slide)
    blocks = [f"## {title or f'Slide {number}'}"]
    heading = slide.shapes.title
    for shape in _leaves(slide.shapes):
        if title and heading is not None and shape.shape_id == heading.shape_id:
            continue
        blocks += _shape(shape)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = _paragraphs(slide.notes_slide.notes_text_frame, bullets=False)
        blocks += ["### Notes", notes] if notes else []
    return "\n\n".join(blocks) if title or len(blocks) > 1 else ""


def _leaves(shapes: Iterable[Any]) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _leaves(shape.shapes)
        else:
            yield shape


def _shape(shape: Any) -> Iterator[str]:
    if getattr(shape, "has_table", False):
        table = pipe_table([[cell.text_frame.text for cell in row.cells] for row in shape.table.rows])
        if table:
            yield table
    elif getattr(shape, "has_chart", False):
        yield from _chart(shape.chart)
    elif shape.has_text_frame:
        text = _paragraphs(shape.text_frame, bullets=shape.is_placeholder)
        if text:
            yield text


def _chart(chart: Any) -> Iterator[str]:
    if chart.has_title and chart.chart_title.has_text_frame and (text := chart.chart_title.text_frame.text.strip()):
        yield text
    for plot in chart.plots:
        categories = [str(category) for category in plot.categories]
        series = list(plot.series)
        rows = [["", *(one.name or "" for one in series)]]
        for n, category in enumerate(categories):
            rows.append(
                [category, *("" if n >= len(one.values) or one.values[n] is None else str(one.values[n]) for one in series)]
            )
        if len(rows) > 1:
            yield pipe_table(rows)


def _paragraphs(frame: Any, *, bullets: bool) -> str:
    """One line a paragraph; those of a placeholder are the points of a list."""
    lines = []
    paragraphs = [(p.level, " ".join(p.text.split())) for p in frame.paragraphs]
    paragraphs = [(level, text) for level, text in paragraphs if text]
    listed = bullets and (len(paragraphs) > 1 or any(level for level, _ in paragraphs))
    for level, text in paragraphs:
        safe = f"\\{text}" if text.startswith(("#", "```", "~~~")) else text
        lines.append(f"{'  ' * level}- {text}" if listed else safe)
    return ("\n" if listed else "\n\n").join(lines)
