"""The boundary signal: one policy, one task, both outcomes (section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coevolve.config import BoundaryConfig
from coevolve.signals.base import by_task, evidence, failures, score, successes
from coevolve.types import Group, Signal, SignalKind


class Boundary:
    """Fires if the valid rollouts of one task, sampled from one policy, hold successes and failures.

    Remembers nothing from step to step. One success is kept beside the failures: where the two part
    is where re-exploration looks.
    """

    kind: SignalKind = "boundary"

    def __init__(self, config: BoundaryConfig) -> None:
        self._config = config
        self._fired = 0
        self._tasks = 0

    def observe(self, step: int, groups: Sequence[Group]) -> list[Signal]:
        signals: list[Signal] = []
        tasks = by_task(groups)
        for task, rollouts in tasks:
            solved, failed = successes(rollouts), failures(rollouts)
            if solved and failed:
                signals.append(
                    Signal(
                        self.kind,
                        step,
                        task,
                        scores=tuple(score(rollout) for rollout in rollouts),
                        failed=evidence(failed),
                        solved=evidence(solved, most=1),
                    )
                )
        self._fired, self._tasks = len(signals), len(tasks)
        return signals

    def metrics(self) -> dict[str, float]:
        return {
            "signals/boundary/fired": float(self._fired),
            "signals/boundary/share": self._fired / self._tasks if self._tasks else 0.0,
        }

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
