"""What every weakness signal has in common: the contract, the threshold, the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from coevolve.types import Group, Rollout, Signal, SignalKind, Task, Tokens

SUCCESS = 0.5
"""A score of at least this is a success (section 3.1)."""

EVIDENCE = 3
"""Failed rollouts kept with a signal, at most: enough to reflect on, small enough to store."""


class Detector(Protocol):
    """Watches the rollouts of training and says where the policy is weak (stage 1).

    Invalid rollouts are not seen at all (invariant 1); a task without a valid rollout is as if it
    had not been drawn.
    """

    @property
    def kind(self) -> SignalKind:
        """The kind of the signals that it fires."""

    def observe(self, step: int, groups: Sequence[Group]) -> list[Signal]:
        """Take in the finished groups of one step; at most one signal per task (rare: per pattern)."""

    def metrics(self) -> dict[str, float]:
        """Figures of the last observed step, under ``signals/<kind>/...``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as JSON data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""


class Scores(Protocol):
    """Where the scores of every task that was ever drawn are kept: in the pool, memory does not grow."""

    def scores(self, task: str) -> list[float]:
        """Of the task of this id, oldest first; empty if there are none."""

    def keep_scores(self, task: str, scores: Sequence[float]) -> None:
        """Remember these instead."""


class ScoresInMemory:
    """The same without a pool."""

    def __init__(self) -> None:
        self.kept: dict[str, list[float]] = {}

    def scores(self, task: str) -> list[float]:
        return list(self.kept.get(task, ()))

    def keep_scores(self, task: str, scores: Sequence[float]) -> None:
        self.kept[task] = list(scores)


def score(rollout: Rollout) -> float:
    """R(τ) in [0, 1]: the rollout's reward."""
    return rollout.reward


def by_task(groups: Sequence[Group]) -> list[tuple[Task, tuple[Rollout, ...]]]:
    """The valid rollouts of each task, in order of appearance.

    A task that was drawn twice in one step (a pool smaller than the batch) was sampled twice from
    the same policy, so its groups count as one.
    """
    tasks: dict[str, tuple[Task, list[Rollout]]] = {}
    for group in groups:
        tasks.setdefault(group.task.id, (group.task, []))[1].extend(group.valid)
    return [(task, tuple(rollouts)) for task, rollouts in tasks.values() if rollouts]


def failures(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """The rollouts that scored below :data:`SUCCESS`."""
    return [rollout for rollout in rollouts if score(rollout) < SUCCESS]


def successes(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """The rollouts that scored :data:`SUCCESS` or more."""
    return [rollout for rollout in rollouts if score(rollout) >= SUCCESS]


def evidence(rollouts: Iterable[Rollout], most: int = EVIDENCE) -> tuple[Rollout, ...]:
    """The first ``most`` rollouts that differ in their calls, without their token records."""
    told: list[Rollout] = []
    for rollout in rollouts:
        if len(told) == most:
            break
        if not any(rollout.task == other.task and rollout.calls == other.calls for other in told):
            told.append(replace(rollout, tokens=Tokens()))
    return tuple(told)
