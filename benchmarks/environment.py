"""Calls per second of BFCL's reference answers: this package against the benchmark's own executor.

Both sides run all 4,625 reference calls of the 800 official tasks, each task in fresh worlds, side
by side in one run. The official executor answers with text only; ours also records every turn's
state, and `replay` its fingerprint.

Run: python benchmarks/environment.py [--repeat N] [--workers N]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

from coevolve.environments.base import Environment
from coevolve.environments.bfcl import BfclEnvironment, package
from coevolve.environments.bfcl.data import CATEGORIES, load
from coevolve.environments.workers import WorkerEnvironment
from coevolve.types import Task

_runs = itertools.count()


def official() -> None:
    """The package's executor; a new model name every time, since it never forgets an instance."""
    execute = package.import_module(
        "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"
    ).execute_multi_turn_func_call
    model = f"run{next(_runs)}"
    for category in CATEGORIES:
        for entry in load(category).values():
            config = entry.loaded_config()
            for turn in entry.answers:
                execute(
                    list(turn), config, list(entry.classes), model, entry.name, category == "long_context"
                )


def sessions(environment: Environment, tasks: Sequence[Task]) -> None:
    """Ours in one process: open, call by call, a recorded state per turn."""
    for task in tasks:
        with environment.open(task.world) as session:
            for turn in task.solution:
                for call in turn:
                    session.call(call)
                session.end_turn()


def replays(environment: Environment, tasks: Sequence[Task]) -> None:
    """Ours, whole tasks, with a fingerprint per turn."""
    if isinstance(environment, WorkerEnvironment):
        environment.replay_all(tasks)
    else:
        for task in tasks:
            environment.replay(task)


def best(work: Callable[[], None], repeat: int) -> float:
    """Seconds of the fastest of ``repeat`` runs, after one to warm up."""
    work()
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="timed runs of each row; the fastest counts")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of the last row")
    options = parser.parse_args()
    # First, before anything of ours has touched the back ends' modules.
    official_seconds = best(official, options.repeat)
    inner = BfclEnvironment()
    tasks = [task for split in ("train", "dev", "test") for task in inner.tasks(split)]
    calls = sum(len(turn) for task in tasks for turn in task.solution)
    with WorkerEnvironment(BfclEnvironment, options.workers, call_seconds=30) as workers:
        rows: list[tuple[str, Callable[[], None]]] = [
            ("ours, 1 process, states recorded", partial(sessions, inner, tasks)),
            ("ours, 1 process, replay", partial(replays, inner, tasks)),
            (
                f"ours, {options.workers} workers, replay",
                partial(replays, workers, tasks),
            ),
        ]
        rates = [calls / best(work, options.repeat) for _, work in rows]
    official_rate = calls / official_seconds
    table = Table(title=f"{calls:,} reference calls of {len(tasks)} tasks, best of {options.repeat}")
    table.add_column("executor")
    table.add_column("calls/s", justify="right")
    table.add_column("× official", justify="right")
    table.add_row("official executor, 1 process", f"{official_rate:,.0f}", "1.00")
    for (name, _), rate in zip(rows, rates):
        table.add_row(name, f"{rate:,.0f}", f"{rate / official_rate:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
