"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

_LINES_EVERY = 10.0  # seconds between plain lines of one stage


class Bar:
    """One stage: say how far it is and the figures that matter."""

    def __init__(self, name: str, total: int, console: Console, progress: Progress | None) -> None:
        self._name, self._total, self._console, self._progress = name, total, console, progress
        self._task = progress.add_task(name, total=total, figures="") if progress else None
        self._said = time.monotonic()

    def update(self, done: int, figures: str = "") -> None:
        """``done`` of the total; ``figures`` is a short text shown beside it."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, figures=figures)
        elif done >= self._total or time.monotonic() - self._said > _LINES_EVERY:
            self._said = time.monotonic()
            line = f"{self._name} {done}/{self._total} {figures}".rstrip()
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def stage(name: str, total: int, console: Console) -> Iterator[Bar]:
    """A bar for the time of one stage."""
    if not console.is_terminal:
        yield Bar(name, total, console, None)
        return
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        # On a narrow terminal the figures give way, not the bar.
        TextColumn(
            "{task.fields[figures]}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
    )
    with Progress(*columns, console=console, expand=True) as progress:
        yield Bar(name, total, console, progress)
