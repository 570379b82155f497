"""One run from a configuration: build the parts, seal the tests, populate, train, score, sum up.

Every stage is either done and noted in the run directory, or done again from the same seed; training itself
goes on from the last complete checkpoint (invariant 8).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.environments.registry import make
from coevolve.errors import RunError
from coevolve.evaluation import heldout
from coevolve.evaluation.heldout import HeldOut
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.progress import Bar, stage
from coevolve.rundir import RunDirectory
from coevolve.signals import build as build_signals
from coevolve.summary import show, summarise, write
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier

if TYPE_CHECKING:
    from coevolve.training.trl import TrlEngine


def execute(config: Config, out: Path, console: Console) -> dict[str, Any]:
    """Run to the end, from wherever the directory stands; returns the summary.

    Raises:
        RunError: the directory is finished, in use, or belongs to another configuration.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and int(os.environ.get("RANK", "0")) > 0:
        return _follow(config, out, console)
    run = RunDirectory(out)
    run.claim(config)
    if run.summary.exists():
        raise RunError(
            f"{out} is finished (it has summary.json); look at it with 'coevolve tasks {out}', or choose another --out"
        )
    environment = make(config.environment)
    try:
        return _lead(config, run, environment, console)
    finally:
        environment.close()
        run.release()


def _lead(config: Config, run: RunDirectory, environment: Environment, console: Console) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    tests = _timed(seconds, "heldout", lambda: seal(config, run, environment, console))
    engine = _timed(seconds, "load", lambda: _engine(config, run, environment))
    resumed = engine.resume_point(console)
    if resumed is None:
        run.pool.unlink(missing_ok=True)
    with Pool.open(run.pool) as pool:
        loop = assemble(config, environment, pool, tests)
        if resumed is None:
            with stage("D_0", config.pool.initial, console) as bar:
                _timed(seconds, "populate", lambda: loop.populate(config.pool.initial, progress=bar.update))
        if "before" not in run.stages():
            before = {t.name: _score(config, engine, environment, t, console, "before") for t in tests}
            run.finish_stage("before", before)
        with stage("training", config.steps, console) as bar:
            _timed(seconds, "train", lambda: engine.train(loop, config.steps, progress=bar.update))
        after = {t.name: _score(config, engine, environment, t, console, "after") for t in tests}
        summary = summarise(config, run, pool, loop, tests, after, seconds)
    write(summary, run)
    show(summary, console)
    return summary
