"""What a page says about itself: its status, dates, owner and version, from front matter and from its head.

The rules are data (rules.toml); a file of the same form comes before them. `described` fills the fields of a document that
nothing else has given, and keeps with each which rule found it where.
"""

from ragdb.metadata.finding import described
from ragdb.metadata.rules import Rules

__all__ = ["Rules", "described"]
