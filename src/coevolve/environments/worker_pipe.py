"""The parent's end of one worker: start, ask within its bounds, kill, start again."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, ClassVar

from coevolve.environments.base import Environment
from coevolve.errors import InfrastructureError

START_SECONDS = 60.0
STALLED_SECONDS = 60.0
"""For a message that has begun: one that stands still so long, in either direction, is given up."""
_BACKSTOP = 2.0
"""How many deadlines a worker lives on when its parent no longer watches."""
_ENDING_SECONDS = 5.0
"""For a process whose pipe is closed to be gone, and for its output to be read."""
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Exit statuses of a process that others have ended: a person, or a machine out of memory."""
_LAST_WORDS = 2000
"""Bytes kept of what a worker prints."""


class Overrun(Exception):
    """A request broke a bound and its worker is gone; the text is a predicate: 'timed out after 5 s'."""

    counted: ClassVar[str] = "workers/timeouts"
    """Where a session that fails by it is counted."""


class Exhausted(Overrun):
    """The worker's memory did not suffice. Whose fault that is, a worker with one session only tells."""

    counted = "workers/out_of_memory"


class Ended(Overrun):
    """The request has ended its worker, by an exit or a crash, and did so again in a fresh one."""

    counted = "workers/ended"


class Died(Exception):
    """The worker is gone.

    Attributes:
        itself: it ended by what it was doing (an exit, a crash); False where it was killed from outside.
    """

    def __init__(self, said: str = "", itself: bool = False) -> None:
        super().__init__(said)
        self.itself = itself


class Worker:
    """One worker process. Hold :attr:`lock` from the first look at :attr:`generation` to the answer.

    It leads a process group of its own, which ends with it: nothing that a tool has started stays behind.
    What it prints is read, counted and dropped, but for its last words.

    Args:
        factory: makes its environment.
        metrics: counts kills, deaths and printed bytes.
        memory_mb: what its worlds may take, all together; 0 is no limit.
    """

    def __init__(self, factory: Callable[[], Environment], metrics: Counter[str], memory_mb: int = 0) -> None:
        self.lock = threading.RLock()
        self.generation = 0
        """Counts processes started; a session opened in an earlier one is lost."""
        self.sessions = 0
        """Open sessions, for the choice of a worker."""
        self.memory_mb = memory_mb
        self._factory = factory
        self._metrics = metrics
        self._number = 0
        """Of the last request: an answer with another one is none."""
        self._said = bytearray()
        self._listener: threading.Thread | None = None
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
            Overrun: no answer in time, or out of memory (:class:`Exhausted`); the process is killed.
            Died: the process is gone.
            Exception: whatever the request raised in the worker.
        """
        if self._connection is None:
            raise Died("the worker is not running")
        self._number += 1
        backstop = max(seconds, later) * _BACKSTOP + 1
        try:
            self._connection.send_bytes(
                pickle.dumps((self._number, backstop, name, arguments), pickle.HIGHEST_PROTOCOL)
            )
        except OSError as error:
            raise self._gone(error) from None
        while True:
            kind, value = self._receive(seconds)
            if kind == "raise":
                raise value
            if kind != "part":
                return value
            seconds = later or seconds
            if on_part is not None:
                on_part(value)

    def stop(self) -> None:
        """Kill the process and all that it has started; idempotent."""
        if self._connection is not None:
            self._poll.unregister(self._connection.fileno())
            self._connection.close()
            self._connection = None
        if self._process is not None:
            with suppress(OSError):  # nobody is left in its group
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        ours, theirs = Pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "coevolve.environments.worker_process",
                    str(theirs.fileno()),
                    str(self.memory_mb),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "PYTHONHASHSEED": "0",  # the order of a set of texts must not tell workers apart
                },
            )
        finally:
            theirs.close()
        _give_up_after(ours, STALLED_SECONDS)
        self._connection = ours
        self._poll.register(ours.fileno(), select.POLLIN)
        self.generation += 1
        self._number = 0
        self._listen(self._process)
        try:
            ours.send_bytes(pickle.dumps(self._factory, pickle.HIGHEST_PROTOCOL))
            kind, value = self._receive(START_SECONDS)
        except Overrun:
            raise InfrastructureError(
                f"a worker process did not start within {START_SECONDS:g} s{self.last_words()}"
            ) from None
        except Died as error:
            raise Died(str(error)) from None  # whatever kept it from starting, no request was to blame
        except OSError as error:
            raise Died(str(self._gone(error))) from None
        if kind == "raise":
            self.stop()
            raise value

    def _receive(self, seconds: float) -> tuple[str, Any]:
        assert self._connection is not None
        if not self._poll.poll(seconds * 1000):
            self._metrics["workers/killed"] += 1
            self.stop()
            raise Overrun(f"timed out after {seconds:g} s")
        try:
            number, kind, value = pickle.loads(self._connection.recv_bytes())
        except Exception as error:  # no message at all, half of one, or one that is none
            raise self._gone(error) from None
        if number != self._number:
            raise self._gone(ValueError("it answered what it was not asked"))
        if kind == "memory":
            self._metrics["workers/killed"] += 1
            self.stop()
            raise Exhausted(f"ran out of memory ({self.memory_mb} MB)")
        return kind, value

    def _gone(self, error: Exception) -> Died:
        """The process is of no use any more: end what is left of it, and say how it went."""
        self._metrics["workers/died"] += 1
        status: int | None = None
        if self._process is not None and isinstance(error, (EOFError, OSError)):
            with suppress(subprocess.TimeoutExpired):  # it has closed its pipe and lives on
                status = self._process.wait(_ENDING_SECONDS)
        self.stop()
        how = _ending(status) or str(error) or type(error).__name__
        return Died(f"{how}{self.last_words()}", itself=status not in _FROM_OUTSIDE)

    def last_words(self) -> str:
        """The last line that the process has printed, to be put behind a reason; '' if there is none."""
        if self._listener is not None:
            self._listener.join(_ENDING_SECONDS)
        lines = bytes(self._said).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"; the last it printed was: {last[-200:]}" if last else ""

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Read what the process prints, so that it never waits for a reader and floods nobody."""
        stream, said = process.stdout, bytearray()
        assert stream is not None
        self._said = said

        def read() -> None:
            with stream, suppress(OSError, ValueError):
                while data := os.read(stream.fileno(), 1 << 16):
                    self._metrics["workers/printed_bytes"] += len(data)
                    said[:] = (said + data)[-_LAST_WORDS:]

        self._listener = threading.Thread(target=read, name="worker-output", daemon=True)
        self._listener.start()


def _give_up_after(connection: Connection, seconds: float) -> None:
    """A worker that is stopped in the middle of a message, or reads none, must not stop its parent."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _ending(status: int | None) -> str:
    if status is None:
        return ""
    return f"it ended with exit status {status}" if status >= 0 else f"signal {-status} ended it"
