"""Small environments of one class, as a user would write them, and some that misbehave."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from typing import Any


class TodoList:
    """A list of things to do."""

    worlds = {"empty": [], "shopping": ["milk", "bread"], "work": ["mail"], "house": ["dishes"]}  # noqa: RUF012

    def __init__(self, start: list[str]) -> None:
        self.items = list(start)

    def add(self, text: str) -> str:
        """Add one thing to do.

        Args:
            text: What to do,
                in a few words.
        """
        self.items.append(text)
        return f"{len(self.items)} things to do"

    def count(self) -> dict[str, int]:
        """How many things there are to do."""
        return {"count": len(self.items)}

    def done(self, text: str) -> None:
        """Take one thing off the list."""
        self.items.remove(text)

    def state(self) -> list[str]:
        return self.items


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Device:
    """A device without a state() of its own."""

    name = "device"
    version = "7"
    worlds = {"train": {"a": {"level": "low"}}, "test": {"b": {"level": "high"}}}  # noqa: RUF012

    def __init__(self, start: dict[str, str]) -> None:
        self.level = Level(start["level"])
        self.marks: list[Any] = []
        self._hidden = 0

    def set_level(self, level: Level, marks: tuple[int, ...] = ()) -> Level:
        """Set the level."""
        self.level = level
        self.marks += marks
        self._hidden += 1
        return level

    def tangle(self) -> None:
        """Make the state contain itself."""
        self.marks.append(self.marks)


class Rogue:
    """Does to its process what a tool should not."""

    worlds = {"train": {"a": 0, "b": 0}}  # noqa: RUF012

    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, number: int) -> int:
        """Add a number."""
        self.value += number
        return self.value

    def hang(self) -> None:
        """Never come back."""
        time.sleep(3600)

    def die(self) -> None:
        """Take the process along."""
        os._exit(1)

    def who(self) -> int:
        """The process: another answer after every rebuild."""
        return os.getpid()
