"""The parent's end of one worker: start, ask within a deadline, kill, start again."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from coevolve.environments.base import Environment
from coevolve.errors import InfrastructureError

START_SECONDS = 60.0
_BACKSTOP = 2.0
"""How many deadlines a worker lives on when its parent no longer watches."""


class Overrun(Exception):
    """The worker did not answer in time and has been killed."""


class Died(Exception):
    """The worker ended for reasons of its own."""


class Worker:
    """One worker process. Hold :attr:`lock` from the first look at :attr:`generation` to the answer."""

    def __init__(self, factory: Callable[[], Environment], metrics: Counter[str]) -> None:
        self.lock = threading.RLock()
        self.generation = 0
        """Counts processes started; a session opened in an earlier one is lost."""
        self.sessions = 0
        """Open sessions, for the choice of a worker."""
        self._factory = factory
        self._metrics = metrics
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._poll = select.poll()

    def ensure(self) -> int:
        """A running process; returns its generation.

        Raises:
            Died: it ended while starting.
            InfrastructureError: it did not start in time, or its environment could not be made.
        """
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._start()
        return self.generation

    def ask(
        self,
        seconds: float,
        name: str,
        *arguments: Any,
        later: float = 0.0,
        on_part: Callable[[Any], None] | None = None,
    ) -> Any:
        """Have the worker carry out one request.

        Args:
            seconds: deadline for the answer, or for its first part.
            later: deadline for each message after the first part; 0 takes ``seconds``.
            on_part: receives parts of the answer that come ahead of its end.

        Raises:
            Overrun: no answer in time; the process is killed.
            Died: the process is gone.
            Exception: whatever the request raised in the worker.
        """
        self.tell(max(seconds, later), name, *arguments)
        while True:
            kind, value = self._receive(seconds)
            if kind == "raise":
                raise value
            if kind != "part":
                return value
            seconds = later or seconds
            if on_part is not None:
                on_part(value)

    def tell(self, seconds: float, name: str, *arguments: Any) -> None:
        """Send a request without waiting for an answer."""
        if self._connection is None:
            raise Died("the worker is not running")
        try:
            message = pickle.dumps((seconds * _BACKSTOP + 1, name, arguments), pickle.HIGHEST_PROTOCOL)
            self._connection.send_bytes(message)
        except OSError as error:
            self._gone()
            raise Died(str(error)) from None

    def stop(self) -> None:
        """Kill the process; idempotent."""
        if self._connection is not None:
            self._poll.unregister(self._connection.fileno())
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        ours, theirs = Pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "coevolve.environments.worker_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        finally:
            theirs.close()
        self._connection = ours
        self._poll.register(ours.fileno(), select.POLLIN)
        self.generation += 1
        try:
            ours.send_bytes(pickle.dumps(self._factory, pickle.HIGHEST_PROTOCOL))
            kind, value = self._receive(START_SECONDS)
        except Overrun:
            raise InfrastructureError(f"a worker process did not start within {START_SECONDS:g} s") from None
        except OSError as error:
            self._gone()
            raise Died(str(error)) from None
        if kind == "raise":
            self.stop()
            raise value

    def _receive(self, seconds: float) -> tuple[str, Any]:
        assert self._connection is not None
        if not self._poll.poll(seconds * 1000):
            self._metrics["workers/killed"] += 1
            self.stop()
            raise Overrun
        try:
            kind, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            self._gone()
            raise Died(str(error)) from None
        return kind, value

    def _gone(self) -> None:
        self._metrics["workers/died"] += 1
        self.stop()
