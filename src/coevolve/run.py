"""One run from a configuration: build the parts, seal the tests, populate, train, score, sum up.

Every stage is either done and noted in the run directory, or done again from the same seed; training
itself goes on from the last complete checkpoint (invariant 8).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from coevolve.building import assembled, gather_policy, load_engine, quiet
from coevolve.checks import insist_on_worlds
from coevolve.config import Config
from coevolve.disk import insist_on_disk
from coevolve.environments.base import Environment
from coevolve.environments.registry import pooled
from coevolve.errors import RunError
from coevolve.evaluation.between import Between, dev_tests
from coevolve.evaluation.heldout import HeldOut, benchmark_turns, read_sealed, save, unguided
from coevolve.pool import Pool
from coevolve.pool.portable import TaskFile
from coevolve.progress import stage
from coevolve.report.refresh import Refresher
from coevolve.rundir import RunDirectory
from coevolve.summary import show, summarise, write
from coevolve.transfer import begin_with
from coevolve.types import Task

if TYPE_CHECKING:
    from coevolve.evaluation.scores import Score
    from coevolve.training.trl import TrlEngine


class Clock:
    """Seconds by stage, noted in the run directory: a run that goes on counts what was spent before."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.seconds: dict[str, float] = dict(run.stages().get("seconds", {}))

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
        self._run.finish_stage("seconds", self.seconds)


def execute(config: Config, out: Path, console: Console) -> dict[str, Any]:
    """Run to the end, from wherever the directory stands; returns the summary.

    Raises:
        RunError: the directory is finished, in use, or belongs to another configuration.
        ConfigError: nothing to explore, or a model that cannot be used.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and int(os.environ.get("RANK", "0")) > 0:
        return _follow(config, out)
    with pooled(config.environment) as environment, _tested(config, environment) as held:
        insist_on_worlds(environment, config.environment)
        run = RunDirectory(out)
        with insist_on_disk(out):
            run.claim(config)
        try:
            if run.summary.exists():
                return _finished(config, run, console)
            if run.pool.exists() and not run.begun:
                raise RunError(
                    f"{out} holds a pool that no run made, and a run would begin it anew: choose another "
                    f"--out; to start from its tasks, 'coevolve tasks {out} --export tasks.jsonl', then "
                    "--set pool.tasks=tasks.jsonl"
                )
            with insist_on_disk(out):
                return _lead(config, run, environment, held, console)
        finally:
            run.release()


def _finished(config: Config, run: RunDirectory, console: Console) -> dict[str, Any]:
    """Killed between its summary and its report, a run only lacks the report."""
    report = _refresher(config, run, console)
    if report.complete:
        raise RunError(
            f"{run.path} is finished (it has summary.json): look at it with 'coevolve tasks {run.path}', "
            "or choose another --out"
        )
    summary = run.finished()
    show(summary, console)
    report.finish()
    return summary


def _refresher(config: Config, run: RunDirectory, console: Console) -> Refresher:
    return Refresher(run, config.evolve.every, partial(console.print, highlight=False, soft_wrap=True))


@contextmanager
def _tested(config: Config, environment: Environment) -> Iterator[Environment]:
    """Where the held-out tests are made and taken: in the run's environment, or in other classes of it."""
    if config.evaluate.classes is None:
        yield environment
        return
    with pooled(config.environment.model_copy(update={"classes": config.evaluate.classes})) as other:
        yield other


def _lead(
    config: Config, run: RunDirectory, environment: Environment, held: Environment, console: Console
) -> dict[str, Any]:
    """Train in ``environment``, take the scores in ``held``."""
    clock = Clock(run)
    given = None if config.pool.tasks is None else TaskFile(Path(config.pool.tasks))
    with clock("load"):  # first, since most mistakes show here
        engine = load_engine(config, run, environment, console)
    with clock("held-out tests"):
        tests = seal(config, run, held, console)
    found = engine.resume_point()
    if found.path is not None:
        console.print(f"going on from step {found.step} of {config.steps}", highlight=False)
    # Afresh: the checkpoint has the copy of the pool that counts; without one D_0 is made again.
    with Pool.open(run.pool, fresh=True) as pool:
        dev = dev_tests(held, config.evaluate.episodes, config.explore) if config.evaluate.every else []
        with assembled(config, environment, pool, [*tests, *dev], engine, run.path / "llm.db") as loop:
            if found.path is None:
                with clock("D_0"):
                    if given is not None:
                        begin_with(given, loop, console)
                    with stage("D_0", config.pool.initial, console) as bar:
                        loop.populate(config.pool.initial, progress=bar.update)
            if "before" not in run.stages():
                with clock("scores"):
                    before = {t.name: _score(config, engine, held, t, console, "before") for t in tests}
                    run.finish_stage("before", {name: asdict(score) for name, score in before.items()})
            silent = Console(quiet=True)
            between = Between(
                dev,
                config.evaluate.every,
                run.evaluations,
                found.step,
                lambda test: _score(config, engine, held, test, silent, "between"),
            )
            if lost := between.lost():
                console.print(
                    f"{run.evaluations} lacks the scores after step {', '.join(map(str, lost))}, which "
                    "cannot be taken again",
                    style="bold yellow",
                    soft_wrap=True,
                )
            report = _refresher(config, run, console)
            report.reopen()
            with clock("training"), quiet(), stage("training", config.steps, console) as bar:

                def progress(step: int, figures: str) -> None:
                    bar.update(step, figures)
                    between.after(step)
                    report.after(step, config.steps)

                if found.step < config.steps:
                    engine.train(loop, config.steps, progress=progress)
                else:  # killed after the last checkpoint, before the scores
                    engine.restore(loop)
        if engine.processes.count > 1:
            gather_policy(config, engine)
            engine.processes.end()
        with clock("scores"):
            after = {t.name: _score(config, engine, held, t, console, "after") for t in tests}
        summary = summarise(config, environment, run, pool, tests, after, clock.seconds)
    write(summary, run)
    show(summary, console)
    report.finish()
    return summary


def _follow(config: Config, out: Path) -> dict[str, Any]:
    """A process other than the first: acts and trains, owns nothing."""
    if RunDirectory(out).summary.exists():  # nothing is left to train
        return {}
    with pooled(config.environment) as environment:
        engine = load_engine(config, RunDirectory(out), environment, Console(quiet=True))
        engine.train(None, config.steps)
        engine.processes.end()
    return {}


def seal(config: Config, run: RunDirectory, environment: Environment, console: Console) -> list[HeldOut]:
    """The run's held-out tests: made once, sealed, and the seal compared when the run goes on.

    Raises:
        RunError: a stored test is not the one that was sealed.
    """
    split = config.evaluate.split
    makers: dict[str, Callable[[], HeldOut]] = {
        "benchmark": lambda: benchmark_turns(environment, split),
        "unguided": lambda: unguided(environment, split, config.evaluate.episodes, config.explore),
    }
    sealed = run.stages().get("sealed", {})
    tests = []
    for name, made in makers.items():
        path = run.heldout / f"{name}.jsonl"
        if name not in sealed or not path.exists():
            test = made() if environment.worlds(split) else HeldOut(name, split, (), 0)
            save(test, path)
            sealed[name] = sealed.get(name, test.seal)
            run.finish_stage("sealed", sealed)
        test = read_sealed(path, sealed[name])
        if test.tasks:
            tests.append(test)
            said = f"{len(test.tasks)} tasks of the {split} split, seal {test.seal}"
        else:
            said = f"none: {environment.name} has nothing in its {split} split to make it of"
        console.print(f"held-out test {name}: {said}", highlight=False, soft_wrap=True)
    return tests


def _score(
    config: Config, engine: TrlEngine, environment: Environment, test: HeldOut, console: Console, when: str
) -> Score:
    from coevolve.evaluation.scores import evaluate

    tasks: Sequence[Task] = test.tasks
    with stage(f"{test.name} test {when}", len(tasks), console) as bar:
        return evaluate(
            tasks,
            environment,
            engine.chat,
            engine.sampler(),
            config.rollout,
            config.evaluate.batch,
            progress=bar.update,
        )
