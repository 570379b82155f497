"""Words in names and descriptions: enough English to tell what a parameter or an answer is about."""
# ruff: noqa: SIM905 - word lists read better as text

from __future__ import annotations

import re
from functools import lru_cache

STOP = frozenset(
    "a an the of to in on at for from with by and or is are be been was were it its this that these those "
    "as if when before after which who whose will would can cannot could should must need needs please "
    "not no any all each every other another one two user users current currently given specified specific "
    "here there into out up down only name names value values use used using obtained get got set".split()
)

_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=65536)
def split_name(name: str) -> tuple[str, ...]:
    """``snake_case``, ``camelCase`` and plain text as lower-case words, numbers apart."""
    return tuple(word.lower() for word in _CAMEL.findall(name))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A crude stem: ``locked`` and ``locks`` meet at ``lock``, ``activates`` at ``activat``."""
    for ending in (
        "ations",
        "ation",
        "ating",
        "ated",
        "ates",
        "ate",
        "ings",
        "ing",
        "ies",
        "ed",
        "es",
        "s",
        "y",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """``orders`` → ``order``, ``histories`` → ``history``; ``status`` and ``address`` stay."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


@lru_cache(maxsize=16384)
def content_words(text: str) -> tuple[str, ...]:
    """Stems of the words that carry meaning, in order, each once."""
    stems = (stem(w) for w in split_name(text) if w not in STOP and len(w) > 1 and not w.isdigit())
    return tuple(dict.fromkeys(stems))
