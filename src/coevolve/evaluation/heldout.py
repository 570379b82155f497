"""The two held-out tests of a run, sealed: made from dev or test ids, never seen by an explorer's memory
or the pool.

*Benchmark-shaped*: every user turn of the official tasks, its world replayed through the earlier
turns, its reference calls as the solution, worded by our own abstraction so that a tiny policy can
read it. *Unguided*: what unguided exploration finds in the same worlds. Only the first can tell whether
growing the data helps: fresh unguided tasks are training data from the second's own distribution.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.errors import RunError
from coevolve.rundir import write_atomic
from coevolve.synthesize.harvest import harvest
from coevolve.synthesize.wording import instruction
from coevolve.types import Observation, Origin, Split, Task, ToolCall, World, dump, fingerprint, load

TESTS = {"benchmark": "heldout", "unguided": "heldout_unguided"}
"""Name of each held-out test, and its key in ``summary.json``."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A sealed list of tasks."""

    name: str
    split: Split
    tasks: tuple[Task, ...]
    refused: int
    """Turns that make no test: no reference call, or a reference that fails on replay."""

    @property
    def seal(self) -> str:
        """Hash of every task's content; printed, and compared when a run goes on."""
        return fingerprint([task.id for task in self.tasks])


def benchmark_turns(environment: Environment, split: Split, seed: int = 0) -> HeldOut:
    """One task per user turn of the benchmark's own tasks of ``split``."""
    made: list[Task] = []
    refused = 0
    for official in environment.tasks(split):
        if official.extra.get("category", "base") != "base":
            continue  # the other categories repeat the same worlds and calls
        prefix: tuple[ToolCall, ...] = official.world.prefix
        tools = {tool.name: tool for tool in environment.offered(official.world)}
        for number, calls in enumerate(official.solution):
            world = World(official.world.environment, official.world.id, split, official.world.start, prefix)
            prefix += calls
            observations = _replay(environment, world, calls)
            if not calls or observations is None:
                refused += 1
                continue
            rng = random.Random(f"{seed}/heldout/{official.name}/{number}")
            made.append(
                Task(
                    environment=environment.name,
                    version=environment.version,
                    world=world,
                    turns=(instruction(calls, tools, observations, rng),),
                    solution=(calls,),
                    origin=Origin("official"),
                    name=f"{official.name}#{number}",
                )
            )
    return HeldOut("benchmark", split, tuple(made), refused)


def unguided(environment: Environment, split: Split, n: int, config: ExploreConfig, seed: int = 0) -> HeldOut:
    """Up to ``n`` tasks that unguided exploration finds in the worlds of ``split``.

    The explorer that makes them is a fresh one and is thrown away: what it learns of these worlds never
    reaches the one that feeds the pool (invariant 4).
    """
    tasks = harvest(environment, n, seed, config, lead=0.0, split=split) if n else []
    return HeldOut("unguided", split, tuple(tasks), 0)


def _replay(environment: Environment, world: World, calls: Sequence[ToolCall]) -> list[Observation] | None:
    with environment.open(world) as session:
        observations = [session.call(call) for call in calls]
    return None if any(o.error for o in observations) else observations


def save(heldout: HeldOut, path: Path) -> None:
    """One JSON line per task, after a line that names the list; all of it, or what was there before."""
    head = {"name": heldout.name, "split": heldout.split, "refused": heldout.refused}
    lines = [json.dumps(head), *(json.dumps(dump(task)) for task in heldout.tasks)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "\n".join(lines) + "\n")


def read(path: Path) -> HeldOut:
    """The inverse of :func:`save`."""
    head, *lines = path.read_text().splitlines()
    about = json.loads(head)
    return HeldOut(
        about["name"], about["split"], tuple(load(Task, json.loads(line)) for line in lines), about["refused"]
    )


def read_sealed(path: Path, seal: str, way_out: str = "remove it, and it is made again") -> HeldOut:
    """A stored test, if it is the one of this seal.

    Raises:
        RunError: it cannot be read, or is another; ``way_out`` says what to do then.
    """
    try:
        test = read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); {way_out}") from None
    if test.seal != seal:
        raise RunError(f"{path} is not the test that this run sealed ({test.seal}, not {seal}); {way_out}")
    return test


def sealed_tests(folder: Path) -> tuple[HeldOut, ...]:
    """Those that lie in a run's ``heldout/`` and hold a task; none where there is no such folder."""
    files: Sequence[Path] = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    return tuple(test for test in map(read, files) if test.tasks)
