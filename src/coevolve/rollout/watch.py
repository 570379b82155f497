"""A heartbeat for rollouts: whatever takes too long is named, with its task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Watch:
    """Reports jobs that run longer than ``seconds``, again and again until they end.

    It only speaks. Deadlines are the environment's (its workers kill what overruns).
    """

    def __init__(self, seconds: float, notify: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._notify = notify
        self._jobs: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rollout-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    @contextmanager
    def job(self, description: str) -> Iterator[None]:
        """Watch the body under this name."""
        with self._lock:
            self._number += 1
            number = self._number
            self._jobs[number] = (description, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._jobs[number]

    def _beat(self) -> None:
        while not self._done.wait(self._seconds):
            now = time.monotonic()
            with self._lock:
                late = [(what, now - since) for what, since in self._jobs.values()]
            for what, seconds in late:
                if seconds >= self._seconds:
                    self._notify(f"still waiting after {seconds:.0f} s: {what}")
