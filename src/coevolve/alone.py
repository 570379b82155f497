"""Stages 2 and 3 without training: ``coevolve explore``, with all that was done to be looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from coevolve.building import evolution_alone
from coevolve.checks import insist_on_worlds
from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.environments.registry import pooled
from coevolve.errands import Found
from coevolve.errors import RunError
from coevolve.evolution import Growth
from coevolve.explorers import check_staff
from coevolve.pool import Pool, SignalRecord
from coevolve.pool.listing import task_rows
from coevolve.progress import stage
from coevolve.rundir import RunDirectory
from coevolve.transcript import Chapter, row, tell, usage_in, usage_line

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Alone:
    """What exploring without training came to."""

    chapters: tuple[Chapter, ...]
    tasks: list[dict[str, Any]]
    """Rows of the admitted ones, as ``coevolve tasks`` lists them."""
    refused: dict[str, int]
    usage: dict[str, Any]
    growth: Growth

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "explorations": [row(chapter) for chapter in self.chapters],
            "tasks": self.tasks,
            "refused": self.refused,
            "usage": self.usage,
        }

    def tell(self, console: Console) -> None:
        """Every exploration, and what all of them used, for people."""
        for number, chapter in enumerate(self.chapters, 1):
            tell(chapter, number, console)
        if self.usage["calls"] or self.usage["faults"]:
            console.print(f"used: {usage_line(self.usage)}", highlight=False, soft_wrap=True)


def explore_alone(config: Config, n: int, console: Console, run: RunDirectory | None = None) -> Alone:
    """Explore until ``n`` tasks are admitted, or ``evolve.attempts`` explorations for each have been made.

    Args:
        run: its signals guide the explorations, newest first, and what its pool holds is no news; nothing
            is written there. Without it they are unguided.

    Raises:
        RunError: the run has no signals, or they are of another environment.
        ConfigError: an explorer that cannot be built.
    """
    check_staff(config)
    with pooled(config.environment) as environment, _pool(run) as pool:
        insist_on_worlds(environment, config.environment)
        records = [] if run is None else _records(run, pool, environment)
        known, before, counted = {task.id for task in pool}, pool.refused(), pool.counters()
        chapters: list[Chapter] = []
        with evolution_alone(
            config, environment, pool, run, watch=lambda f: chapters.append(_chapter(f))
        ) as evolution:
            attempts, budget = n * config.evolve.attempts, config.evolve.budget
            if run is None:
                plan = evolution.unguided(n, attempts, 0, budget=budget)
            else:
                newest = max(record.step for record in records)
                plan = evolution.guided(n, attempts, newest, records, budget)
            with stage("exploring", n, console) as bar:
                growth = evolution.grow(plan, pool, bar.update)
        rows = [task for task in task_rows(pool) if task["id"] not in known]
        refused = _more(pool.refused(), before)
        usage = usage_in(_more(pool.counters(), counted))
    return Alone(tuple(chapters), rows, refused, usage, growth)


@contextmanager
def _pool(run: RunDirectory | None) -> Iterator[Pool]:
    """An empty pool, or a copy of the run's, to be thrown away."""
    if run is None:
        with Pool.open(":memory:") as pool:
            yield pool
        return
    with tempfile.TemporaryDirectory(prefix="coevolve-") as folder:
        copy = Path(folder) / "pool.db"
        with Pool.read_only(run.pool) as theirs:
            theirs.backup(copy)
        with Pool.open(copy) as pool:
            yield pool


def _records(run: RunDirectory, pool: Pool, environment: Environment) -> list[SignalRecord]:
    records = pool.signals_since(0)
    if not records:
        raise RunError(
            f"{run.path} has no signals yet: they come with its training steps; "
            "explore without --signals, or let it train"
        )
    task = pool.signal(records[-1].id).task
    if task.environment != environment.name:
        raise RunError(
            f"{run.path} found its signals in {task.environment}, not in {environment.name}: "
            "explore the same environment"
        )
    return records


def _more(now: Mapping[str, N], before: Mapping[str, N]) -> dict[str, N]:
    """What has come to the counts."""
    return {name: value - before.get(name, 0) for name, value in now.items() if value != before.get(name, 0)}


def _chapter(found: Found) -> Chapter:
    candidates = [candidate for candidate, _ in found.candidates]
    pairs = tuple(zip_longest(candidates, found.verdicts))
    error = found.outage or ("the world could not be compared any more" if found.broken else "")
    if found.spent:
        error = "its share of the budget was used up"
    errand = found.errand
    return Chapter(errand.world, errand.signal, found.exploration, pairs, dict(found.ledger.counts), error)


def unfinished(alone: Alone, n: int) -> str:
    """Why there are fewer tasks than asked for, in a sentence; '' if there are not."""
    growth = alone.growth
    if growth.admitted >= n:
        return ""
    short = f"{growth.admitted} of {n} tasks after {growth.explorations} explorations"
    if growth.outage:
        return f"{short}, the environment or the explorer is down: {growth.outage}"
    return f"{short}: the attempts (evolve.attempts) or the budget (evolve.budget) are used up"
