"""The sizes of a chunker: what they may be, and how they are written behind its name (`sliding:128/32`)."""

from __future__ import annotations

import re

from ragdb.errors import ConfigError

MAX_TOKENS = 256


def check_sizes(max_tokens: int, overlap: int = 0, min_tokens: int = 0) -> None:
    """Raises ConfigError for sizes that cannot work together."""
    if max_tokens < 1:
        raise ConfigError(f"max_tokens is {max_tokens}; give a number of tokens from 1 on, below the embedder's own limit")
    if not 0 <= overlap < max_tokens:
        raise ConfigError(f"overlap is {overlap}; it is 0 or more and below max_tokens ({max_tokens})")
    if not 0 <= min_tokens <= max_tokens:
        raise ConfigError(f"min_tokens is {min_tokens}; it is 0 or more and at most max_tokens ({max_tokens})")


def named_sizes(name: str, model: str, second: str) -> tuple[int | None, int | None]:
    """The two numbers of `MAX/SECOND`, None for one that is not given. `second` says what the second one is.

    Errors: ConfigError with the right form.
    """
    match = re.fullmatch(r"(?:([0-9]{1,9})(?:/([0-9]{1,9}))?)?", model)
    if match is None:
        raise ConfigError(
            f"chunker {name}:{model} is not of the form {name}, {name}:MAX or {name}:MAX/{second.upper()}; "
            f"MAX is a number of tokens and {second.upper()} {_MEANS[second]}: write {name}:128 or {name}:128/{_EXAMPLES[second]}"
        )
    largest, other = match.groups()
    return int(largest) if largest else None, int(other) if other else None


_MEANS = {
    "overlap": "the tokens that are repeated in the next chunk",
    "sentences": "the sentences of a chunk",
    "percentile": "the share of distances, in per cent, that are no cut",
}
_EXAMPLES = {"overlap": "16", "sentences": "3", "percentile": "90"}
