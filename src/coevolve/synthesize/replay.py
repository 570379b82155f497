"""Runs of a few calls in a fresh world, remembered so that stage 3 never pays twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.environments.base import Environment
from coevolve.errors import BrokenWorldError
from coevolve.types import Observation, ToolCall, World, canonical


@dataclass(frozen=True, slots=True)
class Run:
    """One replay: what each call answered and the fingerprints of the states between."""

    observations: tuple[Observation, ...]
    marks: tuple[str, ...]
    """Before the first call, then after each: one more than there are calls."""
    broken: str = ""
    """Why the world could no longer be compared."""

    @property
    def clean(self) -> bool:
        return not self.broken and all(o.error is None for o in self.observations)


class Replayer:
    """Replays in this environment; keeps the last ``size`` runs by content."""

    def __init__(self, environment: Environment, size: int = 4096) -> None:
        self._environment = environment
        self._size = size
        self._kept: OrderedDict[str, Run] = OrderedDict()

    def run(self, world: World, calls: Sequence[ToolCall]) -> Run:
        """The calls' run from ``world``; equal requests are answered from memory."""
        key = world.key + canonical([[c.name, c.arguments] for c in calls])
        run = self._kept.get(key)
        if run is None:
            run = self.fresh(world, calls)
            self._kept[key] = run
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return run

    def fresh(self, world: World, calls: Sequence[ToolCall]) -> Run:
        """The same, always in a world of its own (invariant 5)."""
        observations: list[Observation] = []
        marks: list[str] = []
        with self._environment.open(world) as session:
            try:
                marks.append(session.fingerprint())
                for call in calls:
                    observations.append(session.call(call))
                    marks.append(session.fingerprint())
            except BrokenWorldError as error:
                return Run(tuple(observations), tuple(marks), str(error))
        return Run(tuple(observations), tuple(marks))
