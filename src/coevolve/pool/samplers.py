"""Which tasks of the pool the next step trains on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from coevolve.config import PoolConfig
from coevolve.errors import RunError
from coevolve.pool.pool import Pool
from coevolve.types import Group, Signal, Task


class Sampler(Protocol):
    """Draws tasks. Keeps nothing itself: what it must remember is in the pool file."""

    def draw(self, pool: Pool, n: int, rng: random.Random, step: int) -> list[Task]:
        """``n`` tasks, each at most once as long as the pool has enough; O(n) whatever its size.

        Raises:
            RunError: the pool is empty.
        """

    def observe(self, pool: Pool, step: int, groups: Sequence[Group], signals: Sequence[Signal]) -> None:
        """Called after the groups and signals of a step have been recorded."""


class Uniform:
    """Every task alike, as the paper has it."""

    def draw(self, pool: Pool, n: int, rng: random.Random, step: int) -> list[Task]:
        return _uniform(pool, n, rng)

    def observe(self, pool: Pool, step: int, groups: Sequence[Group], signals: Sequence[Signal]) -> None:
        pass


class Retire:
    """Uniform over the tasks that are not mastered.

    A task solved by every valid rollout of its last W groups rests. It comes back when a signal
    fires on it or names it: as the task of one of its failed rollouts, or as the parent of a task
    that fails. If fewer tasks are awake than a step needs, those that rested longest come back.
    """

    def __init__(self, after: int) -> None:
        self._after = after

    def draw(self, pool: Pool, n: int, rng: random.Random, step: int) -> list[Task]:
        for task in pool.resting(max(0, n - pool.active)):
            pool.wake(task)
            pool.count("retire.woken_for_want_of_tasks")
        return _uniform(pool, n, rng)

    def observe(self, pool: Pool, step: int, groups: Sequence[Group], signals: Sequence[Signal]) -> None:
        named = {name: None for signal in signals for name in _named(signal)}
        for name in named:
            if pool.wake(name):
                pool.count("retire.woken_by_signal")
        for task in {group.task.id: None for group in groups if group.valid}:
            if task not in named and pool.streak(task) >= self._after and pool.rest(task, step):
                pool.count("retire.rested")


def build_sampler(config: PoolConfig) -> Sampler:
    """The sampler that the configuration names."""
    return Retire(config.retire_after) if config.sampler == "retire" else Uniform()


def _uniform(pool: Pool, n: int, rng: random.Random) -> list[Task]:
    active = pool.active
    if not active:
        raise RunError(
            f"the pool {pool.path} is empty: build D_0 with populate() or add verified tasks first"
        )
    ranks: list[int] = []
    while len(ranks) < n:
        ranks += rng.sample(range(active), min(active, n - len(ranks)))
    return pool.at_ranks(ranks)


def _named(signal: Signal) -> list[str]:
    return [signal.task.id, *(rollout.task for rollout in signal.failed), *signal.task.origin.parents]
