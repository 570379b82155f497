"""The co-evolution loop: tasks out, rollouts in, and every few steps the pool grows (section 3).

It knows no training engine and no torch. Whoever trains asks for tasks with :meth:`CoEvolution.draw`
and hands the finished groups back with :meth:`CoEvolution.observe`; that is all.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coevolve.config import EvolveConfig, SignalsConfig
from coevolve.environments.base import Environment
from coevolve.errors import HeldOutError, RunError
from coevolve.evolution import Evolution, Growth, Progress
from coevolve.explore.base import Explorer
from coevolve.pool import Pool, Sampler, Uniform
from coevolve.signals import Detector
from coevolve.signals import build as build_signals
from coevolve.synthesize.base import Abstractor, Verifier
from coevolve.types import Group, OriginKind, Outcome, Signal, Task


class CoEvolution:
    """A pool of verified tasks that grows where the agent is weak.

    What a training engine calls a task source: :meth:`draw`, :meth:`observe`, :meth:`metrics`, and
    for the checkpoint :meth:`state_dict` with :meth:`save_state`.

    Equal arguments and equal rollouts give an equal pool; every random choice comes from a
    generator seeded by ``seed``, what it is for, and its number.

    Args:
        environment: where tasks live and are explored.
        pool: D_t, open for writing.
        signals: detectors, or the configuration to build them from.
        explorer: goes back into the environment (stage 2).
        abstractor: turns explorations into candidates; templates by default.
        verifier: judges candidates; strict replay by default. One that remembers what the pool holds
            is given as a function that makes it from the pool, called again after a restore.
        evolve: how often the pool grows, and by how much.
        seed: of every draw and exploration.
        sampler: which tasks are drawn; uniform by default.
        progress: told about every exploration.
    """

    def __init__(
        self,
        environment: Environment,
        pool: Pool,
        signals: SignalsConfig | Sequence[Detector],
        explorer: Explorer,
        abstractor: Abstractor | None = None,
        verifier: Verifier | Callable[[Pool], Verifier] | None = None,
        *,
        evolve: EvolveConfig | None = None,
        seed: int = 0,
        sampler: Sampler | None = None,
        progress: Progress | None = None,
    ) -> None:
        if abstractor is None:
            from coevolve.synthesize.abstract import TemplateAbstractor

            abstractor = TemplateAbstractor(environment)
        self.pool = pool
        self._explorer = explorer
        self._evolve = evolve or EvolveConfig()
        self._seed = seed
        self._sampler: Sampler = sampler or Uniform()
        self._progress = progress
        self._judge = partial(_strict, environment) if verifier is None else verifier
        self._evolution = Evolution(environment, pool, explorer, abstractor, self._make_judge(), seed)
        if isinstance(signals, SignalsConfig):
            signals = build_signals(signals, self._evolution.offered)
        self._signals: dict[str, Detector] = {detector.kind: detector for detector in signals}
        self._step = 0
        self._draws = 0
        self._evolved = 0
        self._metrics: dict[str, float] = {}

    def _make_judge(self) -> Verifier:
        return self._judge(self.pool) if callable(self._judge) else self._judge

    def draw(self, n: int) -> list[Task]:
        """``n`` tasks to sample K rollouts of each; distinct as long as the pool has enough.

        Raises:
            RunError: the pool is empty.
        """
        tasks = self._sampler.draw(
            self.pool, n, random.Random(f"{self._seed}/draw/{self._draws}"), self._step
        )
        self._draws += 1
        return tasks

    def observe(self, step: int, groups: Sequence[Group]) -> None:
        """Take in the finished groups of one step; every ``evolve.every`` steps the pool then grows.

        Args:
            step: the number of the training step, rising.
            groups: all of the step, at once; invalid rollouts included, to be counted.

        Raises:
            RunError: the step was observed before, or a group is of a task that was not drawn here.
            HeldOutError: a group is of a task outside the train split.
        """
        if step <= self._step:
            raise RunError(
                f"step {step} was handed in after step {self._step}: observe every step once, in order"
            )
        for group in groups:
            _check(group)
        signals: list[Signal] = []
        with self.pool.transaction():
            self.pool.record_groups(step, groups)
            for detector in self._signals.values():
                signals += detector.observe(step, groups)
            self.pool.record_signals(step, signals)
            self._sampler.observe(self.pool, step, groups, signals)
        self._step = step
        self._metrics = _figures(groups)
        if self._evolve.every and step % self._evolve.every == 0:
            self.evolve(step)

    def populate(self, n: int, kind: OriginKind = "unguided", progress: Progress | None = None) -> None:
        """Fill the pool up to ``n`` tasks by unguided exploration of train worlds: D_0.

        Raises:
            RunError: the explorations ran out, or the environment is down, before there were ``n``.
        """
        missing = n - len(self.pool)
        budget = missing * self._evolve.attempts
        begun = time.perf_counter()
        growth = self._evolution.unguided(missing, budget, self._step, kind, progress or self._progress)
        self.pool.count("seconds.populate", time.perf_counter() - begun)
        if growth.admitted < missing:
            raise RunError(self._too_few(n, growth))

    def _too_few(self, n: int, growth: Growth) -> str:
        short = f"D_0 has {len(self.pool)} of {n} tasks after {growth.explorations} explorations"
        if growth.outage:
            return f"{short}, the environment or the explorer is down: {growth.outage}"
        if not growth.explorations:
            return f"{short}: the environment has no train worlds to explore"
        reasons = Counter(self.pool.refused()).most_common(3)
        told = ", ".join(f"{reason} {count}" for reason, count in reasons) or "no candidate at all"
        return f"{short}; refused: {told}. Ask for fewer tasks, or raise evolve.attempts"

    def evolve(self, step: int, progress: Progress | None = None) -> int:
        """Grow the pool by up to ``evolve.tasks`` tasks, from the signals since the last evolution.

        An outage, or nothing to explore, is counted and training goes on; after an outage the
        signals are kept for the next time.

        Returns:
            How many tasks were admitted.
        """
        wanted, budget = self._evolve.tasks, self._evolve.tasks * self._evolve.attempts
        progress = progress or self._progress
        begun = time.perf_counter()
        if self._evolve.guided:
            records = self.pool.signals_since(self._evolved)
            growth = self._evolution.guided(wanted, budget, step, records, progress)
        else:
            growth = self._evolution.unguided(wanted, budget, step, "unguided", progress)
        with self.pool.transaction():
            self.pool.count("evolutions")
            self.pool.count("seconds.evolve", time.perf_counter() - begun)
            if growth.outage:
                self.pool.count("evolutions.given_up")
            elif not growth.explorations and wanted:
                self.pool.count("evolutions.nothing_to_explore")
        if not growth.outage:
            self._evolved = step
        self._metrics |= {
            "evolve/admitted": float(growth.admitted),
            "evolve/explorations": float(growth.explorations),
        }
        return growth.admitted

    def metrics(self) -> dict[str, float]:
        """Figures of the last observed step, the pool's size, and all counters as totals."""
        figures = dict(self._metrics)
        for detector in self._signals.values():
            figures |= detector.metrics()
        figures |= {"pool/tasks": float(len(self.pool)), "pool/active": float(self.pool.active)}
        return figures | {f"total/{name}": value for name, value in self.pool.counters().items()}

    def state_dict(self) -> dict[str, Any]:
        """JSON data; complete only together with :meth:`save_state` at the same moment."""
        return {
            "step": self._step,
            "draws": self._draws,
            "evolved": self._evolved,
            "signals": {kind: detector.state_dict() for kind, detector in self._signals.items()},
            "explorer": self._explorer.state_dict(),
            "pool": self.pool.sizes(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state_dict`; :meth:`load_state` comes first.

        Raises:
            RunError: the pool or the signals are not those of the state.
        """
        if state["pool"] != self.pool.sizes():
            raise RunError(
                f"pool {self.pool.path} is not the one of this checkpoint "
                f"({self.pool.sizes()}, not {state['pool']}): restore the copy that was saved with it"
            )
        if list(state["signals"]) != list(self._signals):
            raise RunError(
                f"the checkpoint holds the signals {list(state['signals'])}, "
                f"this run has {list(self._signals)}: use the configuration that it was made with"
            )
        self._step, self._draws, self._evolved = state["step"], state["draws"], state["evolved"]
        for kind, detector in self._signals.items():
            detector.load_state_dict(state["signals"][kind])
        self._explorer.load_state_dict(state["explorer"])

    def save_state(self, folder: Path) -> None:
        """Write a copy of the pool into ``folder``."""
        self.pool.backup(folder / "pool.db")

    def load_state(self, folder: Path) -> None:
        """Take the pool back from :meth:`save_state`; raises RunError if the copy is damaged."""
        self.pool.restore(folder / "pool.db")
        self._evolution.verifier = self._make_judge()


def _strict(environment: Environment, pool: Pool) -> Verifier:
    from coevolve.synthesize.screen import Screen
    from coevolve.synthesize.verify import ReplayVerifier

    return ReplayVerifier(environment, screen=Screen(pool))


def _check(group: Group) -> None:
    task = group.task
    if task.world.split != "train":
        raise HeldOutError(
            f"task {task.name or task.id} is of the {task.world.split} split: "
            "only train tasks may be observed"
        )
    for rollout in group.rollouts:
        if rollout.task != task.id:
            raise RunError(f"a rollout of task {rollout.task} was handed in as one of task {task.id}")
        if not 0 <= rollout.reward <= 1:
            raise RunError(f"a rollout of task {task.id} has reward {rollout.reward}: it must lie in [0, 1]")


def _figures(groups: Sequence[Group]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    rewards = [rollout.reward for group in groups for rollout in group.valid]
    spreads = [{rollout.reward for rollout in group.valid} for group in groups if group.valid]
    figures = {f"rollouts/{outcome}": float(outcomes[outcome]) for outcome in Outcome}
    return figures | {
        "rollouts/reward": sum(rewards) / len(rewards) if rewards else 0.0,
        "groups/zero_variance": sum(len(spread) == 1 for spread in spreads) / len(spreads)
        if spreads
        else 0.0,
        "groups/without_valid_rollout": float(len(groups) - len(spreads)),
    }
