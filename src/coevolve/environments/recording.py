"""The bookkeeping that every session in this process shares: calls and answers, turn by turn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from coevolve.environments.base import Session, TurnRecord
from coevolve.environments.grading import snapshot
from coevolve.types import Observation, ToolCall


class RecordingSession(Session):
    """A session that only has to say how a call runs; the turns are recorded here."""

    def __init__(self, prefix: Iterable[ToolCall] = ()) -> None:
        """Last in a subclass's own ``__init__``: the prefix runs at once, and is in no turn's record."""
        self._calls: list[ToolCall] = []
        self._observations: list[Observation] = []
        self._turns: list[TurnRecord] = []
        for call in prefix:
            self._run(call)

    @abstractmethod
    def _run(self, call: ToolCall) -> Observation:
        """Run one call without recording it."""

    def call(self, call: ToolCall) -> Observation:
        observation = self._run(call)
        self._calls.append(call)
        self._observations.append(observation)
        return observation

    def end_turn(self) -> None:
        self._turns.append(TurnRecord(tuple(self._calls), tuple(self._observations), snapshot(self)))
        self._calls, self._observations = [], []

    def record(self) -> tuple[TurnRecord, ...]:
        return tuple(self._turns)
