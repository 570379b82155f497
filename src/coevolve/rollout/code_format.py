"""Code as the call: the last fenced block of Python in a message, as in AppWorld's own agents."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from coevolve.rollout.formats import Format, FormatName, Piece
from coevolve.types import ToolCall

TOOL = "python"
"""Name of the one tool that takes code."""
ARGUMENT = "code"
_OPEN = re.compile(r"^[ \t]*(?P<fence>`{3,})(?:python3?|py)[ \t]*\n", re.MULTILINE | re.IGNORECASE)
_TICKS = re.compile(r"`{3,}")
_LINE = re.compile(r"^[ \t]*(?P<fence>`{3,})[ \t]*$", re.MULTILINE)


class CodeFormat(Format):
    """The call is the last block fenced as Python; the words and blocks before it are no calls.

    A block ends at a line of as many backticks as it began with, or more (so code may hold shorter
    fences), at such backticks anywhere if there is no such line, or with the message: models are often
    cut off, or stop, right before the closing fence. A message without a block ends the turn.
    """

    name: ClassVar[FormatName] = "code"
    calls_per_message: ClassVar[int | None] = 1
    answered_by_user: ClassVar[bool] = True

    def scan(self, text: str) -> tuple[str, list[Piece]]:
        at, last = 0, None
        closing = _Closing(text)
        while opened := _OPEN.search(text, at):
            end, at = closing.end(opened.end(), opened["fence"])
            last = (opened.start(), text[opened.end() : end], at)
        if last is None:
            return text, []
        start, code, after = last
        return text[:start] + text[after:], [Piece(code, TOOL, keyword={ARGUMENT: code})]

    def spans(self, calls: Sequence[ToolCall]) -> list[tuple[str, bool]]:
        """One block; of several calls the code is joined, since a message has one call."""
        if not calls:
            return []
        code = "\n".join(str(call.arguments.get(ARGUMENT, "")) for call in calls)
        fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(code))])
        return [(f"{fence}python\n{code}\n{fence}", False)]

    def manual(self, documents: Sequence[str]) -> str:
        """What its tool is for, in the environment's words, and how a block is written."""
        known = [json.loads(document) for document in documents]
        about = [str(tool.get("description", "")) for tool in known if tool.get("name") == TOOL]
        return "\n\n".join([*about, self.instructions()])

    def instructions(self) -> str:
        return (
            "To act, write one block of Python code:\n"
            "```python\nprint('what you want to see')\n```\n"
            "Only the last block of your message is run, and you are shown what it prints. "
            "Answer in words, without a block, once the request is done."
        )


class _Closing:
    """The lines of a text that can end a block. Looked for once: a text may open any number of blocks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [(line.start(), line.end(), len(line["fence"])) for line in _LINE.finditer(text)]
        self._by_length: dict[int, list[tuple[int, int]]] = {}

    def end(self, start: int, fence: str) -> tuple[int, int]:
        """Where the code that begins at ``start`` ends, and where the text goes on after its fence."""
        length = len(fence)
        if length not in self._by_length:
            self._by_length[length] = [(begin, end) for begin, end, ticks in self._lines if ticks >= length]
        lines = self._by_length[length]
        at = bisect_left(lines, (start, 0))
        if at < len(lines):
            begin, end = lines[at]
            return max(start, begin - 1), end
        inside = self._text.find(fence, start)
        if inside < 0:
            return len(self._text), len(self._text)
        return inside, inside + length
