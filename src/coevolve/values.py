"""Values inside arguments, and whether a text shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from coevolve.types import Json


def leaves(value: Json) -> Iterator[str | float]:
    """Strings and numbers of an argument, however deep; flags and blanks carry no information."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def occurs(value: str | float, text: str) -> bool:
    """As a whole word or number: 5 does not occur in 15."""
    written = re.escape(str(value))
    return re.search(rf"(?<![\w.]){written}(?![\w]|\.\d)", text) is not None


def taken(answer: str, known: str, later: Iterable[Json]) -> bool:
    """Whether arguments of later calls hold a value that ``answer`` shows and ``known`` does not.

    Args:
        known: all that was read before the answer.
        later: the arguments of later calls.
    """
    return any(occurs(v, answer) and not occurs(v, known) for given in later for v in leaves(given))
