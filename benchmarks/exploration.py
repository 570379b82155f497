"""Candidates per second, share admitted, refusals by reason, and which tools are reached.

One pass of unguided explorations and one that leads with each tool in turn, over BFCL's train
worlds, in one process; verification is the strict replay that guards the pool.

Run: python benchmarks/exploration.py [--explorations N] [--lead N] [--show N]
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from coevolve.config import EnvironmentConfig, ExploreConfig
from coevolve.environments.base import Environment
from coevolve.environments.registry import make
from coevolve.explore.judge import succeeded
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.synthesize.replay import Replayer
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Origin, Task, World


@dataclass
class Pass:
    """What one pass of explorations came to."""

    name: str
    calls: int = 0
    explored: float = 0.0
    abstracted: float = 0.0
    verified: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    worked: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    in_tasks: Counter[str] = field(default_factory=Counter)
    tasks: list[Task] = field(default_factory=list)

    @property
    def candidates(self) -> int:
        return sum(self.verdicts.values())

    @property
    def seconds(self) -> float:
        return self.explored + self.abstracted + self.verified


def explore(
    environment: Environment, name: str, errands: Iterator[tuple[World, tuple[str, ...]]], into: Pass
) -> Pass:
    """Run one pass; exploration, abstraction and verification are timed apart."""
    replayer = Replayer(environment)
    config = ExploreConfig()
    explorer = ScriptedExplorer(environment, config)
    abstractor = TemplateAbstractor(environment, config, replayer)
    verifier = ReplayVerifier(environment, replayer=replayer)
    _ = explorer.corpus
    for number, (world, lead) in enumerate(errands):
        rng = random.Random(f"bench/{name}/{number}")
        start = time.perf_counter()
        exploration = explorer.explore(world, rng, lead=lead)
        explored = time.perf_counter()
        candidates = abstractor.abstract(exploration, Origin("unguided"), rng)
        abstracted = time.perf_counter()
        for candidate in candidates:
            verdict = verifier.verify(candidate)
            into.verdicts[verdict.reason] += 1
            if verdict.admitted:
                into.tasks.append(candidate.task)
                into.in_tasks.update(call.name for turn in candidate.task.solution for call in turn)
        into.verified += time.perf_counter() - abstracted
        into.abstracted += abstracted - explored
        into.explored += explored - start
        into.calls += len(exploration.triplets)
        for triplet in exploration.triplets:
            (into.worked if succeeded(triplet) else into.failed)[triplet.action.name] += 1
            into.changed[triplet.action.name] += triplet.changed
    return into


def unguided(environment: Environment, count: int) -> Iterator[tuple[World, tuple[str, ...]]]:
    worlds = environment.worlds("train")
    for number in range(count):
        yield worlds[number % len(worlds)], ()


def leading(environment: Environment, times: int) -> Iterator[tuple[World, tuple[str, ...]]]:
    worlds = environment.worlds("train")
    homes: dict[str, list[World]] = defaultdict(list)
    for world in worlds:
        for spec in environment.offered(world):
            homes[spec.name].append(world)
    for turn in range(times):
        for name in sorted(homes):
            yield random.Random(f"bench/{name}/{turn}").choice(homes[name]), (name,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--explorations", type=int, default=400, help="unguided explorations")
    parser.add_argument("--lead", type=int, default=4, help="explorations that lead with each tool")
    parser.add_argument("--show", type=int, default=0, help="print so many admitted tasks, drawn at random")
    arguments = parser.parse_args()
    console = Console()
    environment = make(EnvironmentConfig(workers=0))
    passes = [
        explore(environment, "unguided", unguided(environment, arguments.explorations), Pass("unguided")),
        explore(environment, "lead", leading(environment, arguments.lead), Pass("lead with each tool")),
    ]
    console.print(_speed(passes))
    console.print(_reasons(passes))
    console.print(_reach(environment, passes))
    drawn = random.Random(0).sample(passes[1].tasks, k=min(arguments.show, len(passes[1].tasks)))
    for task in drawn:
        console.print(*(f"- {turn}" for turn in task.turns), markup=False, soft_wrap=True)


def _speed(passes: list[Pass]) -> Table:
    table = Table(title="speed, one process")
    for title in ("pass", "calls/s", "candidates", "candidates/s", "admitted", "admitted/s", "share"):
        table.add_column(title, justify="left" if title == "pass" else "right")
    for done in passes:
        admitted = done.verdicts["admitted"]
        table.add_row(
            done.name,
            f"{done.calls / done.explored:.0f}",
            str(done.candidates),
            f"{done.candidates / done.seconds:.0f}",
            str(admitted),
            f"{admitted / done.seconds:.0f}",
            f"{admitted / max(1, done.candidates):.1%}",
        )
    return table


def _reasons(passes: list[Pass]) -> Table:
    table = Table(title="refusals by reason")
    table.add_column("reason")
    for done in passes:
        table.add_column(done.name, justify="right")
    reasons = sorted({r for done in passes for r in done.verdicts} - {"admitted"})
    for reason in reasons:
        table.add_row(reason, *(str(done.verdicts[reason]) for done in passes))
    return table


def _reach(environment: Environment, passes: list[Pass]) -> Table:
    groups: dict[str, list[str]] = defaultdict(list)
    for world in environment.worlds("train"):
        for spec in environment.offered(world):
            if spec.name not in groups[spec.group]:
                groups[spec.group].append(spec.name)
    table = Table(title="tools reached")
    for title in ("class", "tools"):
        table.add_column(title)
    for done in passes:
        for title in ("worked", "in tasks", "without error", "changed state"):
            table.add_column(f"{done.name}: {title}", justify="right")
    table.add_column("never worked")
    for group, names in sorted(groups.items()):
        row = [group, str(len(names))]
        for done in passes:
            calls = sum(done.worked[n] + done.failed[n] for n in names)
            row += [
                str(sum(done.worked[n] > 0 for n in names)),
                str(sum(done.in_tasks[n] > 0 for n in names)),
                f"{sum(done.worked[n] for n in names) / max(1, calls):.0%}",
                f"{sum(done.changed[n] for n in names) / max(1, calls):.0%}",
            ]
        missing = [n for n in names if not any(done.worked[n] for done in passes)]
        table.add_row(*row, ", ".join(missing))
    return table


if __name__ == "__main__":
    main()
