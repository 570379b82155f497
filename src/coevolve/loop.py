"""The co-evolution loop: tasks out, rollouts in, and every few steps the pool grows (section 3).

It knows no training engine and no torch. Whoever trains asks for tasks with :meth:`CoEvolution.draw`
and hands the finished groups back with :meth:`CoEvolution.observe`; that is all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coevolve.admission import Admission, admit
from coevolve.config import EvolveConfig, SignalsConfig
from coevolve.environments.base import Environment
from coevolve.errors import RunError
from coevolve.evolution import Evolution, Progress
from coevolve.explore.base import Explorer
from coevolve.growing import Grower
from coevolve.llm.base import Limits
from coevolve.observed import check, figures, taught
from coevolve.pool import Pool, Sampler, Uniform
from coevolve.pool.portable import Incoming
from coevolve.signals import Detector
from coevolve.signals import build as build_signals
from coevolve.synthesize.base import Abstractor, Verifier
from coevolve.types import Group, OriginKind, Signal, Task


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
        progress: told about every exploration, except of those beside training.
        concurrency: explorations side by side; the explorer, the abstractor and the verifier's gates
            must bear it. With 1 they run one after the other, each learning from all before it.
        limits: what one exploration, with its abstraction and its gates, may ask of a model.
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
        concurrency: int = 1,
        limits: Limits | None = None,
    ) -> None:
        if abstractor is None:
            from coevolve.synthesize.abstract import TemplateAbstractor

            abstractor = TemplateAbstractor(environment)
        self.pool = pool
        self._environment = environment
        self._seed = seed
        self._sampler: Sampler = sampler or Uniform()
        self._judge = partial(_strict, environment) if verifier is None else verifier
        self._evolution = Evolution(
            environment, pool, explorer, abstractor, self._make_judge(), seed, concurrency, limits
        )
        self._grower = Grower(self._evolution, pool, explorer, evolve or EvolveConfig(), progress)
        if isinstance(signals, SignalsConfig):
            signals = build_signals(signals, self._evolution.offered, self._evolution.names, pool)
        self._signals: dict[str, Detector] = {detector.kind: detector for detector in signals}
        self._step = 0
        self._draws = 0
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

        With ``evolve.lag`` it grows that many steps later, at the end of the step: until then the
        evolution runs beside training.

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
            check(group)
        signals: list[Signal] = []
        with self.pool.transaction():
            self.pool.record_groups(step, groups)
            for name, by in taught(groups).items():
                self.pool.count(name, by)
            for detector in self._signals.values():
                signals += detector.observe(step, groups)
            self.pool.record_signals(step, signals)
            self._sampler.observe(self.pool, step, groups, signals)
        self._step = step
        self._metrics = figures(groups)
        self._grower.after(step)

    def populate(self, n: int, kind: OriginKind = "unguided", progress: Progress | None = None) -> None:
        """Fill the pool up to ``n`` tasks by unguided exploration of train worlds: D_0.

        Raises:
            RunError: the explorations ran out, or the environment is down, before there were ``n``; or
                an evolution is in flight.
        """
        self._grower.populate(n, self._step, kind, progress)

    def admit(
        self, rows: Iterable[Incoming], source: str = "", progress: Callable[[int], None] | None = None
    ) -> Admission:
        """Take in tasks that were made elsewhere, as far as they pass what every candidate has to pass.

        Args:
            rows: of a :class:`~coevolve.pool.portable.TaskFile`, or made by hand.
            source: a name for where they come from, kept with each.
            progress: told the number of rows judged.

        Raises:
            RunError: an evolution is in flight.
            InfrastructureError: the environment is down; what was judged before is in the pool.
        """
        self._grower.must_be_alone()
        verifier = self._evolution.verifier
        return admit(rows, self._environment, self.pool, verifier, self._step, source, progress)

    def evolve(self, step: int, progress: Progress | None = None) -> int:
        """Grow the pool now by up to ``evolve.tasks`` tasks, from the signals since the last evolution.

        An outage, a budget that is spent, or nothing to explore, is counted and training goes on; after
        an outage the signals are kept for the next time.

        Returns:
            How many tasks were admitted.

        Raises:
            RunError: another evolution is in flight.
        """
        return self._grower.evolve(step, progress)

    def close(self) -> None:
        """End the evolution in flight, if training ended before its tasks were due; idempotent.

        It is counted, and what it had asked of a model by then. Call this before the pool and the
        environment are closed.
        """
        self._grower.close()

    def metrics(self) -> dict[str, float]:
        """Figures of the last observed step, the pool's size, and all counters as totals."""
        told = self._metrics | self._grower.figures
        for detector in self._signals.values():
            told |= detector.metrics()
        told |= {"pool/tasks": float(len(self.pool)), "pool/active": float(self.pool.active)}
        return told | {f"total/{name}": value for name, value in self.pool.counters().items()}

    def state_dict(self) -> dict[str, Any]:
        """JSON data; complete only together with :meth:`save_state` at the same moment.

        An evolution in flight is told by its step, and the explorer's state is then the one that it
        began with: a run that is resumed begins it again, and gets the same answers from the cache.
        """
        return {
            "step": self._step,
            "draws": self._draws,
            "signals": {kind: detector.state_dict() for kind, detector in self._signals.items()},
            **self._grower.state_dict(),
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
        self._step, self._draws = state["step"], state["draws"]
        for kind, detector in self._signals.items():
            detector.load_state_dict(state["signals"][kind])
        self._grower.load_state_dict(state)

    def save_state(self, folder: Path) -> None:
        """Write a copy of the pool into ``folder``."""
        self.pool.backup(folder / "pool.db")

    def load_state(self, folder: Path) -> None:
        """Take the pool back from :meth:`save_state`; raises RunError if the copy is damaged."""
        self._grower.abandon()
        self.pool.restore(folder / "pool.db")
        self._evolution.verifier = self._make_judge()


def _strict(environment: Environment, pool: Pool) -> Verifier:
    from coevolve.synthesize.screen import Screen
    from coevolve.synthesize.verify import ReplayVerifier

    return ReplayVerifier(environment, screen=Screen(pool, names=environment.names))
