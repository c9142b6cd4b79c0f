"""CSV as a table: where its records end, by the rules of Python's csv module, and the first record as the header.

The csv module itself tells the fields and not where they stood, and refuses a field above 128 KB, which a lost quotation mark
makes; a pattern for one record has neither limit.
"""

from __future__ import annotations

import csv
import re
from array import array
from functools import cache

from ragdb.chunkers.blocks import Block

DELIMITERS = ",;\t|"
_SAMPLE = 65_536
_QUOTED = re.compile(r'"[^"]*+"')
_BLANK_LINES = re.compile(r"(?:[^\S\r\n]*+[\r\n])*+")


def table(content: str) -> Block:
    """A CSV text as one block, cut behind its records; the first one that is not blank is its header, whatever it holds.

    `content` is not blank. Linear in its length, eight bytes a record.
    """
    record = _record(delimiter(content[:_SAMPLE]))
    blank = _BLANK_LINES.match(content)
    start = blank.end() if blank else 0
    ends = array("q", (match.end() for match in record.finditer(content, start)))
    header = ends[0]
    # Behind the first row, so that the header is never alone.
    return Block(start, len(content), cuts=(ends[1:] or ends,), header=(start, header))


def delimiter(sample: str) -> str:
    """What stands between the fields, by csv.Sniffer; a comma where it cannot say."""
    # The sniffer's own patterns for quoted fields take a minute for 64 KB of `,"`; delimiters inside them count for nothing.
    bare = _QUOTED.sub("", sample).replace('"', "").replace("'", "")
    try:
        return csv.Sniffer().sniff(bare, DELIMITERS).delimiter
    except csv.Error:
        return ","


@cache
def _record(between: str) -> re.Pattern[str]:
    """One record with its line end. A quotation mark opens a field only at the field's start; a doubled one is a character."""
    between = re.escape(between)
    field = rf'(?:"[^"]*+(?:""[^"]*+)*+(?:"[^{between}\r\n]*+|\Z)|[^{between}\r\n]*+)'
    return re.compile(rf"(?!\Z){field}(?:{between}{field})*+(?:\r\n|[\r\n]|\Z)")
