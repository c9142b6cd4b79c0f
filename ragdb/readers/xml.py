"""XML of foreign files: no entity, no DTD and no network is followed."""

from __future__ import annotations

from typing import Any

from ragdb.adapters import require
from ragdb.errors import UnreadableFile


def parsed(data: bytes, name: str) -> Any:
    """The root element (lxml). Raises UnreadableFile."""
    etree = require("lxml.etree", "files")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnreadableFile(f"{name} is damaged: {error}; get it again from where it came from") from error
    if root is None:
        raise UnreadableFile(f"{name} is damaged: it holds no XML; get it again from where it came from")
    return root


def text_of(root: Any, tag: str) -> str | None:
    """The text of the first element of this name, in any namespace; None where it is blank or missing."""
    for element in root.iter(f"{{*}}{tag}"):
        if text := "".join(element.itertext()).strip():
            return text
    return None
