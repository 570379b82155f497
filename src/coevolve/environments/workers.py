"""Sessions in worker processes, so that no call can stall or crash the caller (invariant 7).

A call that overruns its deadline kills its worker. The session that made it has failed: the call,
and every later one, answers with an error, and its grade is 0. The worker's other sessions are
rebuilt by replaying their logs when they are next used, and notice nothing.

A call for which the worker's memory does not suffice, or that ends its process, is tried again in a fresh
one that has no other session: if the same happens, it is the call's doing, and its session has failed in the
same way. A worker that is killed from outside costs one rebuild; if that happens twice over one request, the
session raises :class:`~coevolve.errors.InfrastructureError` (its rollout is invalid, not failed).
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self

from coevolve.environments.base import Environment, Session, TurnRecord
from coevolve.environments.harness import Harness
from coevolve.environments.worker_pipe import Died, Ended, Exhausted, Overrun, Worker
from coevolve.environments.worker_process import Replayed
from coevolve.environments.worker_session import OPEN_SECONDS, WorkerSession
from coevolve.errors import CoEvolveError, InfrastructureError
from coevolve.types import Grade, Json, Observation, Split, Task, ToolCall, ToolSpec, World

CALL_SECONDS = 5.0
"""Deadline of one tool call, where none is given."""
MEMORY_MB = 2048
"""What the worlds of one worker may take, where nothing else is said."""
_METRICS = (
    "workers/killed",
    "workers/died",
    "workers/rebuilt",
    *(kind.counted for kind in (Overrun, Exhausted, Ended)),
    "workers/printed_bytes",
)


class WorkerEnvironment(Environment):
    """Any environment, its sessions spread over ``workers`` processes.

    Sessions may be used from several threads, one thread a session. Results do not depend on the
    number of workers; with 0, sessions live in this process and have no deadline.

    Args:
        factory: makes the environment; importable from a fresh interpreter (a class, a function or
            a :func:`functools.partial` of one).
        workers: number of processes, started when first used.
        call_seconds: deadline of one tool call.
        memory_mb: what the worlds of one worker may take, beyond what its environment has when it stands;
            0 is no limit. It is kept on Linux only.
    """

    def __init__(
        self,
        factory: Callable[[], Environment],
        workers: int = 2,
        call_seconds: float = CALL_SECONDS,
        memory_mb: int = MEMORY_MB,
    ) -> None:
        self.inner = factory()
        """The same environment in this process: worlds, tasks and tools come from it."""
        self.name, self.version = self.inner.name, self.inner.version
        self.call_seconds = call_seconds
        self._counts: Counter[str] = Counter(dict.fromkeys(_METRICS, 0))
        self._workers = [Worker(factory, self._counts, memory_mb) for _ in range(workers)]
        self._numbers = itertools.count()
        self._turn = itertools.count()
        self._choice = threading.Lock()
        self._owner = os.getpid()

    def worlds(self, split: Split) -> Sequence[World]:
        return self.inner.worlds(split)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.inner.tasks(split)

    def scored(self, split: Split) -> Sequence[Task]:
        return self.inner.scored(split)

    def offered(self, world: World) -> Sequence[ToolSpec]:
        return self.inner.offered(world)

    def acting(self, world: World) -> Sequence[ToolSpec]:
        return self.inner.acting(world)

    def briefing(self, task: Task) -> str:
        return self.inner.briefing(task)

    def names(self, call: ToolCall) -> tuple[str, ...]:
        return self.inner.names(call)

    def written(self, call: ToolCall) -> ToolCall:
        return self.inner.written(call)

    def closing(self, answer: Json = None) -> ToolCall | None:
        return self.inner.closing(answer)

    def tools(self, task: Task, turn: int) -> Sequence[ToolSpec]:
        return self.inner.tools(task, turn)

    def harness(self) -> Harness | None:
        return self.inner.harness()

    def open(self, world: World) -> Session:
        """A fresh world in the worker with the fewest open sessions.

        Raises:
            InfrastructureError: the world does not open, in time or at all.
        """
        if not self._workers:
            return self.inner.open(world)
        worker = self._pick()
        try:
            return WorkerSession(
                worker,
                next(self._numbers),
                world,
                self.call_seconds,
                self._counts,
                lambda: self._release(worker),
            )
        except BaseException:
            self._release(worker)
            raise

    def grade(self, task: Task, session: Session) -> Grade:
        if isinstance(session, WorkerSession):
            return session.grade(task)
        return self.inner.grade(task, session)

    def replay(self, task: Task) -> tuple[TurnRecord, ...]:
        if not self._workers:
            return self.inner.replay(task)
        done: list[Replayed] = []
        worker = self._pick()
        what = f"the solution of task {task.name or task.id}"
        try:
            with worker.lock:  # the second time, its worker has no other session
                for alone in (False, True):
                    try:
                        self._replay_on(worker, (task,), done)
                        return _records(task, done[0])
                    except Exhausted:
                        if alone:
                            raise
                    except Died:
                        pass
                    done.clear()
        except Overrun as error:
            raise InfrastructureError(f"{what} {error}") from None
        finally:
            self._release(worker)
        raise InfrastructureError(f"a worker died twice over {what}")

    def replay_all(self, tasks: Sequence[Task]) -> list[tuple[TurnRecord, ...] | CoEvolveError]:
        """:meth:`replay` of many tasks, all workers at once; in place of a failed one, its error."""
        if not self._workers:
            return [self._replay_or_error(task) for task in tasks]
        results: list[tuple[TurnRecord, ...] | CoEvolveError] = [InfrastructureError("not replayed")] * len(
            tasks
        )

        def share(first: int) -> None:
            mine = tasks[first :: len(self._workers)]
            done: list[Replayed] = []
            with suppress(Overrun, Died, CoEvolveError):  # the task at fault is found one by one below
                self._replay_on(self._workers[first], tuple(mine), done)
            for index, task in enumerate(mine):
                results[first + index * len(self._workers)] = (
                    _records(task, done[index]) if index < len(done) else self._replay_or_error(task)
                )

        with ThreadPoolExecutor(len(self._workers)) as threads:
            list(threads.map(share, range(len(self._workers))))
        return results

    def _replay_on(self, worker: Worker, tasks: tuple[Task, ...], done: list[Replayed]) -> None:
        longest = max((len(task.world.prefix) for task in tasks), default=0)
        seconds = (longest + 1) * self.call_seconds
        with worker.lock:
            worker.ensure()
            done += worker.ask(OPEN_SECONDS + seconds, "replay", tasks, later=seconds, on_part=done.extend)

    def _replay_or_error(self, task: Task) -> tuple[TurnRecord, ...] | CoEvolveError:
        try:
            return self.replay(task)
        except CoEvolveError as error:
            return error

    def metrics(self) -> dict[str, float]:
        """Counts since the start: workers killed and died, sessions rebuilt, sessions that failed by a call
        that timed out, took all memory or ended its process, and bytes that tools have printed."""
        if not self._workers:
            return self.inner.metrics()
        return {key: float(value) for key, value in sorted(self._counts.items())}

    def close(self) -> None:
        """End the worker processes; idempotent. They also end with this process."""
        for worker in self._workers:
            with worker.lock:
                worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pick(self) -> Worker:
        if os.getpid() != self._owner:
            raise InfrastructureError(
                "a WorkerEnvironment cannot be used in a forked process; make one there"
            )
        with self._choice:
            # In turn: so two replays of a task run in different processes, and must agree all the same.
            first = next(self._turn) % len(self._workers)
            turns = self._workers[first:] + self._workers[:first]
            worker = min(turns, key=lambda candidate: candidate.sessions)
            worker.sessions += 1
        return worker

    def _release(self, worker: Worker) -> None:
        with self._choice:
            worker.sessions -= 1


def _records(task: Task, turns: Replayed) -> tuple[TurnRecord, ...]:
    return tuple(
        TurnRecord(calls, tuple(Observation(*answer) for answer in answers), state)
        for calls, (answers, state) in zip(task.solution, turns)
    )
