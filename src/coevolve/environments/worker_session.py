"""A session that lives in a worker: every method is a request, and a log can rebuild the world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from coevolve.environments.base import Session, TurnRecord
from coevolve.environments.worker_pipe import Died, Ended, Exhausted, Overrun, Worker
from coevolve.environments.worker_process import LogEntry, Plain, checksum
from coevolve.errors import BrokenWorldError, InfrastructureError
from coevolve.types import Grade, Json, Observation, Task, ToolCall, World

OPEN_SECONDS = 20.0
"""On top of the calls' own deadlines: a process's first world may import and read a lot."""


class WorkerSession(Session):
    """The caller's end of one session; opened when constructed.

    Args:
        worker: the process that holds it.
        number: its name there, unique among all sessions of the environment.
        world: the initial state.
        call_seconds: deadline of one call.
        counts: metrics to count in.
        release: called once when the session is closed.

    Raises:
        InfrastructureError: the world does not open.
    """

    def __init__(
        self,
        worker: Worker,
        number: int,
        world: World,
        call_seconds: float,
        counts: Counter[str],
        release: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._number = number
        self._world = world
        self._seconds = call_seconds
        self._counts = counts
        self._release = release
        self._log: list[LogEntry] = []
        self._generation = 0
        self._failure = ""
        self._closed = False
        self._request(None)

    def call(self, call: ToolCall) -> Observation:
        if self._failure:
            return self._refusal()
        try:
            observation = Observation(*self._request("call", call))
        except Overrun as error:
            return self._fail(call, error)
        self._log.append((call, checksum(observation)))
        return observation

    def step(self, call: ToolCall) -> tuple[Observation, str]:
        if self._failure:
            raise BrokenWorldError(self._failure)
        try:
            plain, after = self._request("step", call)
        except Overrun as error:
            self._fail(call, error)
            raise BrokenWorldError(self._failure) from None
        observation = Observation(*plain)
        self._log.append((call, checksum(observation)))
        if isinstance(after, BaseException):
            raise after
        return observation, after

    def run(self, calls: Sequence[ToolCall]) -> tuple[Observation, ...]:
        """All calls in one request; after an overrun they go one by one, to find the one to blame."""
        if self._failure or len(calls) < 2:
            return tuple(self.call(call) for call in calls)
        parts: list[Plain] = []
        try:
            rest = self._request("run", tuple(calls), on_part=parts.extend, on_retry=parts.clear)
        except Overrun:
            return tuple(self.call(call) for call in calls)
        done = tuple(Observation(*plain) for plain in (*parts, *rest))
        self._log += [(call, checksum(observation)) for call, observation in zip(calls, done)]
        return done

    def end_turn(self) -> None:
        if not self._failure:
            self._bounded("end_turn")
            if not self._failure:
                self._log.append(None)

    def state(self) -> Json:
        state: Json = self._comparable("state")
        return state

    def fingerprint(self) -> str:
        return str(self._comparable("fingerprint"))

    def record(self) -> tuple[TurnRecord, ...]:
        """The finished turns; of a failed session, those finished before it failed."""
        return tuple(self._request("record"))

    def grade(self, task: Task) -> Grade:
        """The environment's grade; 0 in everything, with the reason as a finding, if a call broke a bound.

        Raises:
            InfrastructureError: grading itself did, or its worker was killed twice.
        """
        calls = len(task.world.prefix) + sum(map(len, task.solution))
        seconds = OPEN_SECONDS + calls * self._seconds
        try:
            grade: Grade = self._request("grade", task, seconds=seconds)
        except Overrun as error:
            raise InfrastructureError(f"grading task {task.name or task.id} {error}") from None
        if not self._failure:
            return grade
        findings = list(grade.findings) or [""]
        findings[min(self._log.count(None), len(findings) - 1)] = self._failure
        return Grade(0.0, dict.fromkeys(grade.scores, 0.0), tuple(findings))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._release()
        with self._worker.lock:
            if self._generation != self._worker.generation:
                return
            # Waited for, so that the next session's call is not blamed for a world that will not close.
            with suppress(Died, Overrun):  # then the session is gone, too
                self._worker.ask(self._seconds, "close", self._number)

    def _request(
        self,
        name: str | None,
        *arguments: Any,
        seconds: float | None = None,
        on_part: Callable[[Any], None] | None = None,
        on_retry: Callable[[], None] | None = None,
    ) -> Any:
        """Ask the worker, rebuilding the session first where its process is a new one.

        A request that ends its worker, or takes all its memory, is tried again in a fresh process, in which
        this session is the only one: what happens there is its own doing.
        """
        if self._closed:
            raise RuntimeError("the session is closed")
        ended = Died()
        with self._worker.lock:
            for alone in (False, True):
                try:
                    self._settle(alone)
                    if name is None:
                        return None
                    return self._worker.ask(
                        seconds or self._seconds, name, self._number, *arguments, on_part=on_part
                    )
                except Exhausted:
                    if alone:
                        raise
                except Died as error:
                    ended = error
                    if alone and error.itself and name is not None:
                        raise Ended("ended its process") from None
                if on_retry is not None:
                    on_retry()
        raise InfrastructureError(
            f"a worker process died twice in a session of world {self._world.id!r}: {ended}"
        )

    def _settle(self, alone: bool) -> None:
        generation = self._worker.ensure()
        if generation == self._generation:
            return
        calls = len(self._world.prefix) + len(self._log)
        try:
            self._worker.ask(
                OPEN_SECONDS + calls * self._seconds, "rebuild", self._number, self._world, self._log
            )
        except Died as error:
            raise Died(str(error)) from None  # no call's doing: they all have run before
        except Overrun as error:
            if isinstance(error, Exhausted) and not alone:
                raise
            raise InfrastructureError(f"world {self._world.id!r} does not open: it {error}") from None
        if self._generation:
            self._counts["workers/rebuilt"] += 1
        self._generation = generation

    def _fail(self, call: ToolCall | None, error: Overrun) -> Observation:
        """After a broken bound: only the finished turns are kept, for the record."""
        what = call.name if call is not None else "the world's state"
        self._failure = f"{what} {error}"
        self._counts[error.counted] += 1
        while self._log and self._log[-1] is not None:
            self._log.pop()
        return self._refusal()

    def _refusal(self) -> Observation:
        text = f"Error during execution: {self._failure}"
        return Observation(text, None, text)

    def _bounded(self, name: str) -> Any:
        try:
            return self._request(name)
        except Overrun as error:
            self._fail(None, error)
            return None

    def _comparable(self, name: str) -> Any:
        if not self._failure:
            value = self._bounded(name)
            if not self._failure:
                return value
        raise BrokenWorldError(self._failure)
