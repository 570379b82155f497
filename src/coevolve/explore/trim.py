"""Long texts lose their middle: how a task began and how it ended says most about why it failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Count = Callable[[str], int]
"""Tokens of a text."""


def estimate(text: str) -> int:
    """Tokens at four characters each, rounded up: an estimate, where no tokenizer is at hand."""
    return -(-len(text) // 4)


def sendable(text: str) -> str:
    """``text`` with half characters (lone surrogates) escaped, so that it can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def shorten(text: str, characters: int) -> str:
    """At most about ``characters`` of a text: its ends, and between them how much was left out."""
    text = sendable(text)
    if len(text) <= characters:
        return text
    head = (characters + 1) // 2
    tail = characters - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[len(text) - tail :]}"


def trim(text: str, tokens: int, count: Count = estimate) -> str:
    """The longest :func:`shorten`-ed text of at most ``tokens``; '' if not even the note of it fits."""
    if count(text) <= tokens:
        return sendable(text)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(shorten(text, middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    short = shorten(text, low)
    return short if count(short) <= tokens else ""


def shares(needs: Sequence[int], total: int) -> list[int]:
    """``total`` divided evenly; what one does not need goes to the others, smallest need first."""
    given = [0] * len(needs)
    order = sorted(range(len(needs)), key=lambda at: (needs[at], at))
    for done, at in enumerate(order):
        given[at] = min(needs[at], total // (len(needs) - done))
        total -= given[at]
    return given
