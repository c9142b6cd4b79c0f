"""Takes a reasoning model's thoughts off its answer, and nothing else: an answer may talk about the tags."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)think>", re.IGNORECASE)
_OPENING_QUOTES, _CLOSING_QUOTES = "`\"'「『“‘(（", "`\"'」』”’)）"
# "the closing tag </think>", "a </think> tag", "</think>タグを": narrow, for an answer may begin with any word
_TALK_BEFORE = re.compile(r"\b(tag|element) $|(タグ|要素)$", re.IGNORECASE)
_TALK_AFTER = re.compile(r" (tags?|element)\b|タグ|要素|を")


def strip_think(text: str) -> str:
    """The text without a leading `<think>` block, or without what stands before a lone `</think>`.

    A block that is never closed leaves "". Some chat templates open the block themselves, so that only the closing tag
    is in the text: then all before it goes, unless an opening tag is in the text or it talks about the tag.
    """
    tags = list(_TAG.finditer(text))
    if not tags:
        return text
    if text[: tags[0].start()].strip() == "" and not tags[0][1]:
        end = _end_of_block(tags)
        return "" if end is None else text[end:].lstrip()
    if len(tags) == 1 and tags[0][1] and not _talks_about(text, tags[0]):
        return text[tags[0].end() :].lstrip()
    return text


def _end_of_block(tags: list[re.Match[str]]) -> int | None:
    depth = 0
    for tag in tags:  # thoughts may name the tags: the block ends where as many are closed as were opened
        depth += -1 if tag[1] else 1
        if depth == 0:
            return tag.end()
    closing = [tag for tag in tags if tag[1]]
    return closing[-1].end() if closing else None


def _talks_about(text: str, tag: re.Match[str]) -> bool:
    before, after = text[: tag.start()], text[tag.end() :]
    quoted = before[-1:] in tuple(_OPENING_QUOTES) and after[:1] in tuple(_CLOSING_QUOTES)
    return quoted or bool(_TALK_BEFORE.search(before) or _TALK_AFTER.match(after))
