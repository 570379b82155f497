"""When the pool grows: D_0, then every few steps, at once or beside training."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

from coevolve.background import Beside
from coevolve.config import EvolveConfig
from coevolve.errors import RunError
from coevolve.evolution import Evolution, Growth, Plan, Progress
from coevolve.explore.base import Explorer
from coevolve.guidance import learnable_shares
from coevolve.pool import Pool
from coevolve.types import OriginKind

_log = logging.getLogger(__name__)


class Grower:
    """Decides when an evolution begins and when what it found joins the pool.

    With ``evolve.lag`` the evolution of step s runs in a thread beside the next ``lag`` steps, and joins
    at the end of step s + ``lag``, no earlier and no later: so the pool depends on the configuration,
    the seed and the answers alone, not on who is faster.
    """

    def __init__(
        self,
        evolution: Evolution,
        pool: Pool,
        explorer: Explorer,
        evolve: EvolveConfig,
        progress: Progress | None = None,
    ) -> None:
        self.figures: dict[str, float] = {}
        """Of the evolution that joined at the last step, if one did."""
        self._evolution = evolution
        self._pool = pool
        self._explorer = explorer
        self._evolve = evolve
        self._progress = progress
        self._evolved = 0
        """The step up to which signals have been used."""
        self._beside: Beside | None = None
        self._waited = 0.0
        """Seconds that training has waited so far for the evolution beside it."""
        self._closed = False

    def after(self, step: int) -> None:
        """Whatever is due at the end of a training step."""
        self.figures = {}
        if self._beside is not None and step >= self._due(self._beside):
            self._join(self._beside)
        if self._evolve.every and step % self._evolve.every == 0:
            if self._evolve.lag:
                self._begin(step, self._shares())
            else:
                self.evolve(step)

    def _due(self, beside: Beside) -> int:
        return beside.step + self._evolve.lag

    def populate(
        self, n: int, step: int, kind: OriginKind = "unguided", progress: Progress | None = None
    ) -> None:
        """Fill the pool up to ``n`` tasks by unguided exploration of train worlds: D_0.

        It is bounded by ``evolve.attempts`` and the limits of each exploration; ``evolve.budget`` is
        what each evolution may spend.

        Raises:
            RunError: the explorations ran out, or the environment is down, before there were ``n``; or
                an evolution is in flight.
        """
        self.must_be_alone()
        missing = n - len(self._pool)
        attempts = missing * self._evolve.attempts
        begun = time.perf_counter()
        plan = self._evolution.unguided(missing, attempts, step, kind)
        growth = self._evolution.grow(plan, self._pool, progress or self._progress)
        self._pool.count("seconds.populate", time.perf_counter() - begun)
        if growth.admitted < missing:
            raise RunError(self._too_few(n, growth))

    def _too_few(self, n: int, growth: Growth) -> str:
        short = f"D_0 has {len(self._pool)} of {n} tasks after {growth.explorations} explorations"
        if growth.outage:
            return f"{short}, the environment or the explorer is down: {growth.outage}"
        if not growth.explorations:
            return f"{short}: the environment has no train worlds to explore"
        reasons = Counter(self._pool.refused()).most_common(3)
        told = ", ".join(f"{reason} {count}" for reason, count in reasons) or "no candidate at all"
        return f"{short}; refused: {told}. Ask for fewer tasks, or raise evolve.attempts"

    def evolve(self, step: int, progress: Progress | None = None) -> int:
        """Grow the pool now; returns how many tasks were admitted.

        Raises:
            RunError: another evolution is in flight.
        """
        self.must_be_alone()
        begun = time.perf_counter()
        growth = self._evolution.grow(
            self._plan(step, self._shares()), self._pool, progress or self._progress
        )
        self._settle(step, growth, growth.admitted, time.perf_counter() - begun)
        return growth.admitted

    def _shares(self) -> dict[str, float] | None:
        """How often each kind of signal has its turn in an evolution that begins now."""
        return learnable_shares(self._pool.counters()) if self._evolve.turns == "learnable" else None

    def _plan(self, step: int, shares: dict[str, float] | None, ahead: bool = False) -> Plan:
        """The evolution of ``step``; ``ahead`` reads all that it needs from the pool now."""
        wanted, budget = self._evolve.tasks, self._evolve.budget
        attempts = wanted * self._evolve.attempts
        if not self._evolve.guided:
            return self._evolution.unguided(wanted, attempts, step, budget=budget)
        records = [record for record in self._pool.signals_since(self._evolved) if record.step <= step]
        unguided = self._evolve.unguided
        return self._evolution.guided(wanted, attempts, step, records, budget, ahead, shares, unguided)

    def _begin(self, step: int, shares: dict[str, float] | None) -> None:
        """Start the evolution of ``step`` beside training."""
        self.must_be_alone()
        begun = time.perf_counter()
        evolution, plan, window = (
            self._evolution,
            self._plan(step, shares, ahead=True),
            self._evolution.window(),
        )
        self._beside = Beside(
            step,
            shares,
            self._explorer.state_dict(),
            window,
            lambda book: evolution.grow(plan, book, window=window),
        )
        self._waited = time.perf_counter() - begun

    def _join(self, beside: Beside) -> None:
        """Wait for the evolution in flight, and write down what it came to."""
        begun = time.perf_counter()
        growth = beside.wait()
        self._beside = None
        with self._pool.transaction():
            admitted = beside.write(self._pool)
            self._pool.count("seconds.evolve_beside", beside.seconds)
            self._settle(beside.step, growth, admitted, self._waited + time.perf_counter() - begun)

    def _settle(self, step: int, growth: Growth, admitted: int, waited: float) -> None:
        """Count an evolution that has been written down; ``waited`` seconds of training went into it."""
        with self._pool.transaction():
            self._pool.count("evolutions")
            self._pool.count("seconds.evolve", waited)
            if growth.outage:
                self._pool.count("evolutions.given_up")
                _log.warning(
                    "the evolution of step %d was given up (%s); training goes on without new tasks, and its "
                    "signals wait for the next one",
                    step,
                    growth.outage,
                )
            elif not growth.explorations and self._evolve.tasks:
                self._pool.count("evolutions.nothing_to_explore")
        if not growth.outage:
            self._evolved = step
        self.figures = {
            "evolve/admitted": float(admitted),
            "evolve/explorations": float(growth.explorations),
            "evolve/waited_seconds": waited,
        }

    def must_be_alone(self) -> None:
        """Raise RunError while an evolution is in flight, or after the end."""
        if self._closed:
            raise RunError("this loop has been closed: make another one to go on")
        if self._beside is not None:
            raise RunError(
                f"the evolution of step {self._beside.step} is in flight (evolve.lag): its tasks join at "
                f"the end of step {self._due(self._beside)}, nothing else may grow the pool"
            )

    def close(self) -> None:
        """End the evolution in flight, and count it and what it had asked of a model by then."""
        self._closed = True
        beside, self._beside = self._beside, None
        if beside is not None:
            used = beside.cancel()
            with self._pool.transaction():
                self._pool.count("evolutions.unused")
                for name, by in used:
                    self._pool.count(name, by)

    def state_dict(self) -> dict[str, Any]:
        """An evolution in flight is told by its step; the explorer's state is then that of its start."""
        beside = self._beside
        return {
            "evolved": self._evolved,
            "explorer": self._explorer.state_dict() if beside is None else beside.explorer,
            "in_flight": None if beside is None else {"step": beside.step, "shares": beside.shares},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse; an evolution that was in flight begins again."""
        self.abandon()
        self._evolved = state["evolved"]
        self._explorer.load_state_dict(state["explorer"])
        if state.get("in_flight"):
            self._begin(state["in_flight"]["step"], state["in_flight"].get("shares"))

    def abandon(self) -> None:
        """Before a state is restored: wait until nothing uses the explorer, and forget what it found."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.cancel(None)
