"""The contract between the loop and any executable environment.

An :class:`Environment` is stateless: it hands out worlds, tasks and tools, opens sessions and
grades them. A :class:`Session` is one fresh world, used once by one rollout, one exploration or
one replay (invariant 5).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from coevolve.environments.harness import Harness
from coevolve.types import Grade, Json, Observation, Split, Task, ToolCall, ToolSpec, World, fingerprint


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What happened in one user turn: the calls, their answers, the state they left."""

    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]
    state: Json


class Session(ABC):
    """One live world. Not thread-safe; single use.

    :meth:`call` never raises for what the agent did wrong: an unknown tool, bad arguments or a
    failing call is an :class:`Observation` with ``error`` set. It raises
    :class:`~coevolve.errors.InfrastructureError` if the world itself is lost.
    """

    @abstractmethod
    def call(self, call: ToolCall) -> Observation:
        """Run one call in the world."""

    @abstractmethod
    def end_turn(self) -> None:
        """The agent has finished answering one user turn; the turn's record is closed."""

    @abstractmethod
    def state(self) -> Json:
        """The whole state, canonical and comparable. Terminates on cyclic worlds (a marker).

        Raises :class:`~coevolve.errors.BrokenWorldError` where the state cannot be compared.
        """

    def fingerprint(self) -> str:
        """Short content address of :meth:`state`; equal states, equal fingerprints."""
        return fingerprint(self.state())

    def step(self, call: ToolCall) -> tuple[Observation, str]:
        """:meth:`call`, then :meth:`fingerprint`: one round trip where the world lives elsewhere.

        Raises :class:`~coevolve.errors.BrokenWorldError` if the call left a state that cannot be compared.
        """
        observation = self.call(call)
        return observation, self.fingerprint()

    def run(self, calls: Sequence[ToolCall]) -> tuple[Observation, ...]:
        """Several calls, in order: one round trip where the world lives elsewhere."""
        return tuple(self.call(call) for call in calls)

    @property
    def done(self) -> bool:
        """The agent has handed its task in (:meth:`Environment.closing`): this turn runs nothing more."""
        return False

    @abstractmethod
    def record(self) -> tuple[TurnRecord, ...]:
        """The finished turns so far, which is all that grading may look at."""

    @abstractmethod
    def close(self) -> None:
        """Free the world; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Environment(ABC):
    """One benchmark or one user's environment; stateless and cheap to construct in a worker."""

    name: str
    version: str
    """Recorded with every task and every score."""

    @abstractmethod
    def worlds(self, split: Split) -> Sequence[World]:
        """Initial states to explore or act in."""

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """The benchmark's own tasks; may be empty."""

    def scored(self, split: Split) -> Sequence[Task]:
        """What the benchmark's own score is over: :meth:`tasks`, and those with a reference that is wrong."""
        return self.tasks(split)

    @abstractmethod
    def offered(self, world: World) -> Sequence[ToolSpec]:
        """Every tool that the world has, to explore it with."""

    def acting(self, world: World) -> Sequence[ToolSpec]:
        """The tools that a language model or the policy acts with when it explores this world.

        They differ from :meth:`offered` where an agent writes code: there it has the one tool that takes
        code, and ``offered`` holds the functions that such code may call.
        """
        return self.offered(world)

    def briefing(self, task: Task) -> str:
        """What the agent is told before the task's first message, as its system message; '' for nothing."""
        return ""

    def names(self, call: ToolCall) -> tuple[str, ...]:
        """The actions within one call, as the rare signal counts them, by names of :meth:`offered`.

        Never raises, whatever the call holds: the agent wrote it.
        """
        return (call.name,)

    def written(self, call: ToolCall) -> ToolCall:
        """A call of :meth:`offered` as an agent with the tools of :meth:`acting` makes it; the same where
        the tools are.

        A session takes both and answers both alike.
        """
        return call

    def closing(self, answer: Json = None) -> ToolCall | None:
        """The call of :meth:`offered` that hands a task in, with ``answer`` where it asks a question.

        None where a task ends with the agent's last words. Its name is ``group.function``; tools of the same
        group serve to know who asks. Where there is one, the agent is on its own: what
        tasks are made of says what is wanted, and log-ins, look-ups and ids are the agent's to find.
        """
        return None

    def tools(self, task: Task, turn: int) -> Sequence[ToolSpec]:
        """The tools that the agent may use in this turn of this task."""
        return self.offered(task.world)

    def harness(self) -> Harness | None:
        """The benchmark's own way to talk with an agent, for evaluation; None where our loop is used."""
        return None

    @abstractmethod
    def open(self, world: World) -> Session:
        """Always a fresh world, its prefix already replayed.

        Raises :class:`~coevolve.errors.InfrastructureError` if the prefix no longer replays.
        """

    @abstractmethod
    def grade(self, task: Task, session: Session) -> Grade:
        """Judge the session's finished turns against the task's reference solution."""

    def metrics(self) -> dict[str, float]:
        """Counts since the start of what happened to its processes, where it has any."""
        return {}

    def replay(self, task: Task) -> tuple[TurnRecord, ...]:
        """The task's solution in a fresh world, with no hint; one round trip where worlds live elsewhere.

        Each turn's ``state`` is the state's fingerprint: small, and equal where states are.

        Raises:
            BrokenWorldError: the solution leaves a state that cannot be compared.
            InfrastructureError: a call overran its deadline, or the world was lost.
        """
        states = []
        with self.open(task.world) as session:
            for turn in task.solution:
                session.run(turn)
                session.end_turn()
                states.append(session.fingerprint())
            turns = session.record()
        return tuple(replace(turn, state=state) for turn, state in zip(turns, states))
