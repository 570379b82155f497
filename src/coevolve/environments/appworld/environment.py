"""AppWorld as an :class:`Environment`: an agent that writes code, in a world of apps and people."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from coevolve.environments.appworld import grading, package
from coevolve.environments.appworld.code import COMPLETE, PYTHON, TOOL, as_block, called
from coevolve.environments.appworld.data import ALL_DATASETS, DATASETS, Data, Entry
from coevolve.environments.appworld.link import MEMORY_BYTES, Nursery
from coevolve.environments.appworld.pool import Pool, room
from coevolve.environments.appworld.session import AppWorldSession
from coevolve.environments.base import Environment, Session
from coevolve.environments.grading import References
from coevolve.errors import InfrastructureError, UnknownEnvironmentError
from coevolve.prompting import render
from coevolve.types import Grade, Json, Origin, Split, Task, ToolCall, ToolSpec, World

_ERRAND = ("api_docs", "supervisor.show_active_task")
"""What tells the agent what to do and how, and nothing of the world: no use to explore with."""


class AppWorldEnvironment(Environment):
    """AppWorld, its worlds in processes of AppWorld's own.

    The agent has one tool, ``python``, which takes a block of code. Sessions also take calls of single APIs
    by name, ``app.api``: explorers, reference solutions and replay work on those. Thread-safe: as many
    sessions may be open as one likes; those without a live world are built again when they are used.

    Args:
        classes: use only the APIs of these apps to explore with; 'all' takes every app.
        root: AppWorld's root folder, which has ``data`` in it; None takes ``APPWORLD_ROOT``, or what
            ``coevolve env add appworld --data`` has fetched.
        workers: live worlds at a time, at least; each is a process.
        worlds: live worlds at a time, exactly; None keeps more than ``workers`` where memory allows
            (:func:`~coevolve.environments.appworld.pool.room`).
        call_seconds: AppWorld's deadline for one block of code.
        memory_mb: address space of a world's process; 0 is no limit.

    Raises:
        UnknownEnvironmentError: no data, data of another version, or an app that it does not have.
    """

    name = "appworld"
    datasets: ClassVar[dict[Split, str]] = DATASETS

    def __init__(
        self,
        classes: Literal["all"] | Sequence[str] = "all",
        root: str | Path | None = None,
        workers: int = 2,
        call_seconds: float = 100.0,
        worlds: int | None = None,
        memory_mb: int = MEMORY_BYTES >> 20,
    ) -> None:
        self.data = Data(Path(root) if root else package.data_root())
        self.version = self.data.version
        apps = {spec.group for spec in self.data.specs.values()}
        self.apps = sorted(apps) if classes == "all" else list(classes)
        for app in self.apps:
            if app not in apps:
                raise UnknownEnvironmentError(
                    f"AppWorld has no app {app!r}; it has {', '.join(sorted(apps))}"
                )
        self.call_seconds = call_seconds
        self._limit = (workers, worlds)
        self._memory = memory_mb << 20
        self._references = References()
        self._links: dict[str, dict[str, str]] | None = None
        self._starting = threading.Lock()
        self._pool: Pool | None = None

    def worlds(self, split: Split) -> Sequence[World]:
        """One world for each state that tasks of the split begin in, without those that another split has.

        They do not show the benchmark's instruction: what is asked there is up to whoever explores.
        """
        others = {
            self.data.state(name)
            for dataset in ALL_DATASETS
            if dataset != self.datasets[split]
            for name in self.data.names(dataset)
        }
        found: dict[str, World] = {}
        for name in self.data.names(self.datasets[split]):
            state = self.data.state(name)
            if state not in others and state not in found:
                found[state] = self._world(name, split, neutral=True)
        return list(found.values())

    def tasks(self, split: Split) -> Sequence[Task]:
        """The benchmark's tasks, in its order; their solutions are AppWorld's own and stay in its data."""
        return [self._task(self.data.entry(name), split) for name in self.data.names(self.datasets[split])]

    def offered(self, world: World) -> Sequence[ToolSpec]:
        """The apps' APIs, without the documents and the benchmark's own instruction."""
        return [
            spec
            for spec in self.data.specs.values()
            if spec.group in self.apps and spec.group not in _ERRAND and spec.name not in _ERRAND
        ]

    def acting(self, world: World) -> Sequence[ToolSpec]:
        return (TOOL,)

    def tools(self, task: Task, turn: int) -> Sequence[ToolSpec]:
        return (TOOL,)

    def names(self, call: ToolCall) -> tuple[str, ...]:
        """The APIs that a block calls, found in its syntax tree; ``python`` for a block that calls none."""
        if call.name != PYTHON:
            return (call.name,)
        code = call.arguments.get("code")
        return called(code, self.data.specs) if isinstance(code, str) else (PYTHON,)

    def written(self, call: ToolCall) -> ToolCall:
        return as_block(call)

    def closing(self, answer: Json = None) -> ToolCall:
        return ToolCall(COMPLETE, {} if answer is None else {"answer": answer})

    def briefing(self, task: Task) -> str:
        """Who asks, and how to look up what the apps can do: the words of AppWorld's own minimal agent."""
        entry = self.data.entry(self._start(task.world)[0])
        return render(__package__, "briefing", **entry.supervisor)

    def open(self, world: World) -> AppWorldSession:
        name, neutral = self._start(world)
        state = self.data.state(name)
        return AppWorldSession(
            self._ready(), name, neutral, self.data.specs, self.call_seconds, state, world.prefix
        )

    def grade(self, task: Task, session: Session) -> Grade:
        """The benchmark's tasks by AppWorld's evaluation, all others by the reference's changes and answer.

        The reward is ``official``, 1 if every requirement is met, for the benchmark's tasks, which also
        have the share of ``requirements`` met; ``strict`` for the others.
        """
        if not isinstance(session, AppWorldSession):
            raise InfrastructureError(f"a session of {type(session).__name__} is none of AppWorld's")
        if task.origin.kind == "official":
            return self._official(session)
        reference = self._references.of(self, task)
        findings = grading.judge(session.record(), reference.turns, reference.start, self._columns(session))
        strict = float(not any(findings))
        return Grade(strict, {"strict": strict}, findings)

    def warm(self) -> None:
        """Begin to start AppWorld, without waiting for it: the first world then opens at once."""
        self._ready()

    def metrics(self) -> dict[str, float]:
        """Counts since the start: worlds killed, died, rebuilt, evicted to make room, and calls timed out."""
        counts = self._pool.counts if self._pool is not None else {}
        return {key: float(value) for key, value in sorted(counts.items())}

    def close(self) -> None:
        """End AppWorld's processes; idempotent. They also end with this process."""
        with self._starting:
            if self._pool is not None:
                self._pool.close()

    def __enter__(self) -> Self:
        self.warm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> Pool:
        with self._starting:
            if self._pool is None:
                names = (name for dataset in ALL_DATASETS for name in self.data.names(dataset))
                nursery = Nursery(self.data.folder, next(names), self.call_seconds, self._memory)
                least, exactly = self._limit
                self._pool = Pool(nursery, room(least) if exactly is None else exactly)
            self._pool.nursery.start()
            return self._pool

    def _official(self, session: AppWorldSession) -> Grade:
        if session.failure:
            return Grade(0.0, {"official": 0.0, "requirements": 0.0}, (session.failure,))
        found = session.evaluate()
        official = float(bool(found["success"]))
        share = len(found["passes"]) / max(1, found["tests"])
        finding = "; ".join(text.strip() for text in found["failures"])
        return Grade(
            official,
            {"official": official, "requirements": share},
            (finding or ("" if official else "not every requirement was tested"),),
        )

    def _columns(self, session: AppWorldSession) -> dict[str, dict[str, str]]:
        if self._links is None:
            self._links = session.references()
        return self._links

    def _world(self, name: str, split: Split, neutral: bool) -> World:
        start: dict[str, Json] = {"task": name}
        if neutral:
            start["neutral"] = True
        return World(self.name, name, split, start)

    def _start(self, world: World) -> tuple[str, bool]:
        start = world.start
        if (
            world.environment != self.name
            or not isinstance(start, dict)
            or not isinstance(start.get("task"), str)
        ):
            raise InfrastructureError(f"world {world.id!r} is not a world of AppWorld")
        name: Any = start["task"]
        self.data.entry(name)
        return name, bool(start.get("neutral"))

    def _task(self, entry: Entry, split: Split) -> Task:
        return Task(
            environment=self.name,
            version=self.version,
            world=self._world(entry.name, split, neutral=False),
            turns=(entry.instruction,),
            solution=((),),
            origin=Origin("official"),
            name=entry.name,
            extra={"category": entry.difficulty, "scenario": entry.scenario},
        )


class AppWorldChallenge(AppWorldEnvironment):
    """The same with AppWorld's second test set, whose tasks need apps that no other task needs."""

    datasets: ClassVar[dict[Split, str]] = {**DATASETS, "test": "test_challenge"}
