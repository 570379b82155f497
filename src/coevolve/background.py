"""An evolution beside training: it runs in a thread, and is written down when its tasks are due."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from coevolve.errands import Window
from coevolve.evolution import Book, Growth
from coevolve.pool import Pool
from coevolve.types import Candidate, Verdict

GRACE = 1.0
"""Seconds that a cancelled evolution gets to end by itself before it is left alone."""


class Draft:
    """What an evolution will write into the pool: it may not touch the file from its own thread."""

    def __init__(self) -> None:
        self._lines: list[Callable[[Pool], bool | None]] = []
        self._counts: list[tuple[str, float]] = []
        self._added: set[str] = set()

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def count(self, name: str, by: float = 1) -> None:
        self._counts.append((name, by))

    def serve(self, signal: str) -> None:
        self._lines.append(lambda pool: pool.serve(signal))

    def add(self, candidate: Candidate, verdict: Verdict, step: int) -> bool:
        """Whether the task is new in this draft; whether it is new in the pool shows in :meth:`write`."""
        new = candidate.task.id not in self._added
        self._added.add(candidate.task.id)
        self._lines.append(lambda pool: pool.add(candidate, verdict, step))
        return new

    def refuse(self, candidate: Candidate, verdict: Verdict, step: int) -> None:
        self._lines.append(lambda pool: pool.refuse(candidate, verdict, step))

    def write(self, pool: Pool) -> int:
        """Write all of it, in order; returns how many tasks were admitted."""
        with pool.transaction():
            for name, by in self._counts:
                pool.count(name, by)
            return sum(bool(line(pool)) for line in self._lines)

    def usage(self) -> Iterator[tuple[str, float]]:
        """What the model was asked for, so far."""
        return ((name, by) for name, by in list(self._counts) if name.startswith("llm."))


class Beside:
    """One evolution in a thread of its own, which ends no later than the program does.

    Args:
        step: the training step after which it began.
        shares: how often each kind of signal had its turn, where that depends on what had been learned.
        explorer: the explorer's state then: what a run that is resumed begins this evolution again with.
        window: holds its explorations in flight.
        work: carries it out, writing into the book that it is given.
    """

    def __init__(
        self,
        step: int,
        shares: dict[str, float] | None,
        explorer: dict[str, Any],
        window: Window,
        work: Callable[[Book], Growth],
    ) -> None:
        self.step = step
        self.shares = shares
        self.seconds = 0.0
        """How long it took, once it has ended."""
        self._explorer = json.dumps(explorer)
        self._window = window
        self._draft = Draft()
        self._growth: Future[Growth] = Future()

        def run() -> None:
            begun = time.perf_counter()
            try:
                growth = work(self._draft)
            except BaseException as error:
                self._growth.set_exception(error)
            else:
                self.seconds = time.perf_counter() - begun
                self._growth.set_result(growth)

        self._thread = threading.Thread(target=run, name=f"evolution-{step}", daemon=True)
        self._thread.start()

    @property
    def explorer(self) -> dict[str, Any]:
        """The explorer's state when the evolution began; the explorer itself is in use."""
        state: dict[str, Any] = json.loads(self._explorer)
        return state

    def wait(self) -> Growth:
        """Until it has ended; raises what it raised."""
        return self._growth.result()

    def write(self, pool: Pool) -> int:
        """After :meth:`wait`: write all that it came to; returns how many tasks were admitted."""
        return self._draft.write(pool)

    def cancel(self, seconds: float | None = GRACE) -> list[tuple[str, float]]:
        """Let it end; no later than after ``seconds`` it is left alone. None waits.

        Returns:
            What the model was asked for until then, as counters: that was paid for, used or not.
        """
        self._window.cancel()
        self._thread.join(seconds)
        used = list(self._draft.usage())
        if self._thread.is_alive():
            for ledger in self._window.ledgers:
                used += [(f"llm.{name}", value) for name, value in dict(ledger.counts).items()]
        return used
