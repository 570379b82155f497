"""What a look at one thing came to: a line for people, and the number of faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coevolve.errors import RunError

NAMED = 3
"""Culprits that a line names."""


@dataclass(slots=True)
class Checked:
    """One thing that was looked at."""

    what: str
    detail: str = ""
    """What was looked at, or why nothing was."""
    faults: list[str] = field(default_factory=list)
    """The first :data:`NAMED` of them."""
    count: int = 0
    """All of them."""
    skipped: bool = False

    def blame(self, faults: Iterable[str]) -> None:
        """Take down what is wrong."""
        for one in faults:
            self.count += 1
            if len(self.faults) < NAMED:
                self.faults.append(one)

    def __str__(self) -> str:
        if self.count:
            more = f"; and {self.count - NAMED} more" if self.count > NAMED else ""
            return f"FAULT   {self.what}: {'; '.join(self.faults)}{more}"
        return f"{'skipped ' if self.skipped else 'ok      '}{self.what}: {self.detail}"


def readable(faults: Iterable[str]) -> Iterator[str]:
    """The findings, and one more where a damaged file ends the search for them."""
    try:
        yield from faults
    except (sqlite3.Error, UnicodeDecodeError, RunError) as error:
        yield f"the file cannot be read to its end ({error})"


def short(error: Exception) -> str:
    """An error's text on one line."""
    return " ".join(str(error).split())[:200]
