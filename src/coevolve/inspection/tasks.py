"""The tasks of a run: whether they still replay, and whether any is one that only tests may hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.errors import CoEvolveError
from coevolve.evaluation.heldout import HeldOut, read
from coevolve.evolution import PATIENCE
from coevolve.inspection.checked import Checked, readable, short
from coevolve.pool import Pool
from coevolve.progress import stage
from coevolve.rundir import RunDirectory
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Candidate, Task, World, load

_RUN = ("states", "observations")
"""What a verdict tells of a solution's run."""


def _tests(run: RunDirectory) -> tuple[list[HeldOut], list[str]]:
    """The sealed tests, and what is wrong with them."""
    tests, faults = [], []
    sealed = run.stages().get("sealed", {}) if run.begun else {}
    names = {path.stem for path in run.heldout.glob("*.jsonl")} | set(sealed)
    for name in sorted(names):
        path = run.heldout / f"{name}.jsonl"
        try:
            test = read(path)
        except (OSError, ValueError, KeyError, TypeError, CoEvolveError) as error:
            faults.append(f"heldout/{path.name} cannot be read: {short(error)}")
            continue
        tests.append(test)
        if test.seal != sealed.get(name):
            faults.append(f"heldout/{path.name} has seal {test.seal}, sealed was {sealed.get(name)}")
    return tests, faults


def held_out(run: RunDirectory, config: Config, environment: Environment) -> Checked:
    """Invariant 4: every task lies in a train world of the environment, and none is one of the tests."""
    checked = Checked("held-out material")
    try:
        tests, faults = _tests(run)
    except (OSError, ValueError, CoEvolveError) as error:
        tests, faults = [], [f"stages.json: {short(error)}"]
    checked.blame(faults)
    held = [task for test in tests for task in test.tasks] + list(environment.tasks(config.evaluate.split))
    screen = Screen(evaluation=held, names=environment.names)
    train = {world.key for world in environment.worlds("train")}
    seals = ", ".join(f"{test.name} {test.seal}" for test in tests)
    with Pool.read_only(run.pool, sealed=False) as pool:
        checked.blame(readable(_leaks(pool, screen, train)))
    checked.detail = f"none in the pool; {len(held)} tasks are held out{f', seals {seals}' if seals else ''}"
    return checked


def _leaks(pool: Pool, screen: Screen, train: set[str]) -> Iterator[str]:
    for task, _ in _admitted(pool):
        world = task.world
        if World(world.environment, world.id, world.split, world.start).key not in train:
            yield f"task {task.id}: world {world.id!r:.60} is no train world of the environment"
            continue
        refusal = screen.outright(task)
        if refusal is not None:
            reason, evidence = refusal
            yield f"task {task.id}: {reason} ({', '.join(f'{k} {v}' for k, v in evidence.items())})"


def replay(run: RunDirectory, config: Config, environment: Environment, console: Console) -> Checked:
    """Invariant 3: every task passes what it passed when it was admitted, to the same end."""
    checked = Checked("replay")
    if config.verify.rule == "none":
        checked.detail, checked.skipped = "verify.rule is none: no task had to replay", True
        return checked
    versions: Counter[str] = Counter()
    with Pool.read_only(run.pool, sealed=False) as pool:
        checked.blame(readable(_changed(pool, config, environment, versions, console)))
    done = versions.total()
    checked.detail = f"{done} tasks, in {environment.name} ({environment.version})"
    for version, count in sorted(versions.items()):
        if version != environment.version:
            checked.detail += f"; {count} of them were made in version {version}"
    return checked


def _changed(
    pool: Pool, config: Config, environment: Environment, versions: Counter[str], console: Console
) -> Iterator[str]:
    """The tasks that would not be admitted now, or whose solution runs otherwise than it did."""
    verifier = ReplayVerifier(environment, config.verify, Screen(names=environment.names))
    failures, size = 0, len(pool)
    with stage("replay", size, console) as bar:
        for done, (task, evidence) in enumerate(_admitted(pool), 1):
            versions[task.version] += 1
            bar.update(done)
            try:
                verdict = verifier.verify(Candidate(task))
                failures = 0
            except CoEvolveError as error:
                failures += 1
                yield f"task {task.id} could not be replayed: {short(error)}"
                if failures == PATIENCE:
                    yield f"no more than {done} of {size} tasks were replayed"
                    return
                continue
            if not verdict.admitted:
                yield f"task {task.id}: {verdict.reason}"
                continue
            other = [k for k in _RUN if k in evidence and verdict.evidence.get(k) != evidence[k]]
            if other:
                yield f"task {task.id}: other {' and '.join(other)} than when it was admitted"


def _admitted(pool: Pool) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Every task that can be read, with the evidence of its verdict; what cannot, has been told before.

    Raises :class:`sqlite3.Error` where the file is damaged.
    """
    for one in pool.stored_candidates():
        if not one.admitted:
            continue
        try:
            task = load(Task, json.loads(one.task))
            evidence = json.loads(one.evidence)
        except (ValueError, TypeError, RecursionError):
            continue
        yield task, evidence
