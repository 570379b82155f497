"""The inside of one worker: sessions by number, requests over one pipe, nothing else.

Started as ``python -m coevolve.environments.worker_process DESCRIPTOR``: a fresh interpreter, so no
torch, no locks and no half-initialised ``__main__`` come along, whatever the parent has loaded.

Its memory is bounded once its environment stands: a call that takes more raises MemoryError, which no
session may swallow, for the process is of no use then, and its parent ends it.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from coevolve.environments.base import Environment, Session
from coevolve.errors import InfrastructureError
from coevolve.types import Observation, Task, ToolCall, World

FLUSH_SECONDS = 0.01
"""Answers of a batch are sent at least this often, so that the parent can tell work from a hang."""

LONGEST_MESSAGE = 64 << 20
"""Bytes of one answer that leave this process; one that is longer counts as out of memory."""

LogEntry = tuple[ToolCall, int] | None
"""A call with its answer's check sum; None ends a turn."""


Plain = tuple[str, Any, str | None]
"""An :class:`Observation` on the pipe; a tuple costs a fifth of a dataclass there."""


Replayed = list[tuple[list[Plain], str]]
"""One replayed task: answers and fingerprint per turn."""


def plain(observation: Observation) -> Plain:
    return observation.text, observation.value, observation.error


def checksum(observation: Observation) -> int:
    """What a rebuilt session must answer again."""
    return zlib.crc32(observation.text.encode("utf-8", "surrogatepass"))


class Host:
    """Carries out requests on the sessions of one process."""

    def __init__(self, environment: Environment, send: Callable[[str, Any], None]) -> None:
        self.environment = environment
        self.sessions: dict[int, Session] = {}
        self.send = send

    def open(self, number: int, world: World) -> None:
        self.sessions[number] = self.environment.open(world)

    def close(self, number: int) -> None:
        session = self.sessions.pop(number, None)
        if session is not None:
            session.close()

    def call(self, number: int, call: ToolCall) -> Plain:
        return plain(self.sessions[number].call(call))

    def step(self, number: int, call: ToolCall) -> tuple[Plain, str | BaseException]:
        """As :meth:`Session.step`; the observation survives where the fingerprint fails."""
        session = self.sessions[number]
        observation = plain(session.call(call))
        try:
            return observation, session.fingerprint()
        except Exception as error:
            return observation, error

    def run(self, number: int, calls: tuple[ToolCall, ...]) -> list[Plain]:
        """All answers; those due for a flush are sent ahead as parts."""
        session, done, sent = self.sessions[number], [], time.monotonic()
        for call in calls:
            done.append(plain(session.call(call)))
            if time.monotonic() - sent > FLUSH_SECONDS:
                self.send("part", done)
                done, sent = [], time.monotonic()
        return done

    def end_turn(self, number: int) -> None:
        self.sessions[number].end_turn()

    def state(self, number: int) -> Any:
        return self.sessions[number].state()

    def fingerprint(self, number: int) -> str:
        return self.sessions[number].fingerprint()

    def record(self, number: int) -> Any:
        return self.sessions[number].record()

    def grade(self, number: int, task: Task) -> Any:
        return self.environment.grade(task, self.sessions[number])

    def replay(self, tasks: tuple[Task, ...]) -> list[Replayed]:
        """:meth:`Environment.replay` of each task; results and signs of life are sent ahead as parts."""
        done: list[Replayed] = []
        self.send("part", done)
        sent = time.monotonic()
        for task in tasks:
            turns = []
            with self.environment.open(task.world) as session:
                for turn in task.solution:
                    answers = []
                    for call in turn:
                        answers.append(plain(session.call(call)))
                        if time.monotonic() - sent > FLUSH_SECONDS:
                            self.send("part", done)
                            done, sent = [], time.monotonic()
                    session.end_turn()
                    turns.append((answers, session.fingerprint()))
            done.append(turns)
        return done

    def rebuild(self, number: int, world: World, log: list[LogEntry]) -> None:
        """A session that a killed worker held, by replaying its log.

        Raises:
            InfrastructureError: a call answers otherwise than the first time.
        """
        self.close(number)
        session = self.environment.open(world)
        for entry in log:
            if entry is None:
                session.end_turn()
            elif checksum(session.call(entry[0])) != entry[1]:
                raise InfrastructureError(
                    f"world {world.id!r} cannot be rebuilt: {entry[0].name} answers otherwise when replayed"
                )
        self.sessions[number] = session


def confine(megabytes: int) -> None:
    """Let this process take so much more memory than it has now; on Linux, elsewhere it stays free to."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        now = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = now + (megabytes << 20)
        if most == resource.RLIM_INFINITY or wanted < most:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def loosen() -> None:
    """Undo :func:`confine`, to be able to say that it was too little."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(descriptor: int, memory_mb: int = 0) -> None:
    """Serve until the parent closes the pipe; then end, with whatever was started from here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    connection, parent, own = Connection(descriptor), os.getppid(), os.getpid()
    backstop, number = 0.0, 0

    def send(kind: str, value: Any) -> None:
        # If the parent is gone by the time a call overruns, nobody would kill this process: the kernel
        # does, even while Python is inside one endless operation.
        signal.setitimer(signal.ITIMER_REAL, backstop if kind == "part" else 0)
        message = pickle.dumps((number, kind, value), pickle.HIGHEST_PROTOCOL)
        if len(message) > LONGEST_MESSAGE:
            raise MemoryError
        if os.getpid() != own:
            os._exit(1)  # a tool has forked and come back twice: only one of the two is asked anything
        connection.send_bytes(message)

    def attempt(work: Callable[[], Any]) -> None:
        try:
            _answer(work, send)
        except MemoryError:
            loosen()
            send("memory", None)

    hosts: list[Host] = []
    try:
        factory = connection.recv_bytes()
        attempt(lambda: hosts.append(Host(pickle.loads(factory)(), send)))
        if memory_mb:
            confine(memory_mb)
        while hosts:
            number, backstop, name, arguments = pickle.loads(connection.recv_bytes())
            work: Callable[..., Any] = getattr(hosts[0], name)
            signal.setitimer(signal.ITIMER_REAL, backstop)
            attempt(lambda work=work, arguments=arguments: work(*arguments))  # type: ignore[misc]
    except (EOFError, OSError):
        # A parent that lives ends this process's group itself; one that is gone leaves nobody to do so.
        if os.getppid() != parent and os.getpgrp() == own:
            os.killpg(own, signal.SIGKILL)


def _answer(work: Callable[[], Any], send: Callable[[str, Any], None]) -> None:
    """Send what ``work`` returns, or raises in a form that can be raised anywhere.

    Raises:
        MemoryError: there was not enough of it for the work or for its answer.
    """
    try:
        kind, value = "ok", work()
    except MemoryError:
        raise
    except Exception as error:
        error.add_note("in a worker process:\n" + traceback.format_exc())
        kind, value = "raise", error
    except BaseException as error:  # SystemExit and the like: not the caller's process to end
        kind, value = "raise", InfrastructureError(f"the environment raised {type(error).__name__}: {error}")
    try:
        if kind == "raise":
            pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        send(kind, value)
    except MemoryError:
        raise
    except Exception as error:
        what = f"{type(value).__name__} ({value})" if kind == "raise" else type(value).__name__
        send("raise", InfrastructureError(f"{what} cannot leave its worker: {error}"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
