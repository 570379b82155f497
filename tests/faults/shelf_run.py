"""A run directory in two seconds, without torch: the real loop, pool, seals and checkpoints on the shelf, and
in place of a policy one that plays a task's solution or leaves out its last call."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coevolve.building import assembled
from coevolve.config import Config
from coevolve.config_file import parse_config
from coevolve.environments.base import Environment
from coevolve.environments.registry import pooled
from coevolve.evaluation.heldout import HeldOut, save, unguided
from coevolve.evaluation.scores import Score
from coevolve.pool import Pool
from coevolve.rundir import RunDirectory
from coevolve.summary import summarise, write
from coevolve.training.checkpoint import publish
from coevolve.types import Group, Outcome, Rollout, Step, StopReason, Task
from small_run import PLAIN

STEPS = 6


def shelf_config(**changes: Any) -> Config:
    """The configuration of :func:`shelf_run`, with ``changes`` merged into its sections."""
    data = {
        **PLAIN,
        "steps": STEPS,
        "model": "tiny",
        "pool": {"initial": 12},
        "evolve": {"every": 2, "tasks": 6},
    }
    for key, value in changes.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    return parse_config(data, "here")


def shelf_run(folder: Path, finished: bool = True, **changes: Any) -> Path:
    """A run of six steps that grew its pool three times and has two checkpoints."""
    config, run = shelf_config(**changes), RunDirectory(folder)
    run.claim(config)
    with pooled(config.environment) as environment:
        test = unguided(environment, "test", config.evaluate.episodes, config.explore)
        save(test, run.heldout / "unguided.jsonl")
        run.finish_stage("sealed", {"unguided": test.seal})
        run.finish_stage("before", {"unguided": asdict(_score(test))})
        with Pool.open(run.pool) as pool:
            _train(config, run, environment, pool, test)
            if finished:
                after = {"unguided": _score(test)}
                write(summarise(config, environment, run, pool, [test], after, {"training": 1.0}), run)
    run.release()
    return folder


def _score(test: HeldOut) -> Score:
    return Score(
        mean=1.0, interval=(0.9, 1.0), n=len(test.tasks), invalid=0, solved=tuple(t.id for t in test.tasks)
    )


def _train(config: Config, run: RunDirectory, environment: Environment, pool: Pool, test: HeldOut) -> None:
    rng = random.Random("policy")
    with assembled(config, environment, pool, [test]) as loop:
        loop.populate(config.pool.initial)
        for step in range(1, config.steps + 1):
            loop.observe(step, [acted(environment, task, rng) for task in loop.draw(4)])
            counts = {
                name: int(loop.metrics()[f"rollouts/{name}"]) for name in ("solved", "failed", "invalid")
            }
            with run.metrics.open("a") as log:
                line = {"step": step, **counts, "zero_variance": 0.5, "source": loop.metrics()}
                log.write(json.dumps(line) + "\n")
            if step % 3 == 0:
                scratch = run.checkpoints / "unfinished"
                (scratch / "source").mkdir(parents=True)
                loop.save_state(scratch / "source")
                (scratch / "source.json").write_text(json.dumps(loop.state_dict()))
                (scratch / "model.safetensors").write_bytes(bytes(range(256)) * 8)
                facts = {"metrics_bytes": run.metrics.stat().st_size, "processes": 1}
                publish(scratch, run.checkpoints, step, facts, keep=3)


def acted(environment: Environment, task: Task, rng: random.Random, k: int = 4) -> Group:
    """K rollouts, each of which plays the solution, or leaves out its last call."""
    return Group(task, tuple(_rollout(environment, task, rng.random() < 0.5) for _ in range(k)))


def _rollout(environment: Environment, task: Task, whole: bool) -> Rollout:
    calls = [call for turn in task.solution for call in turn]
    with environment.open(task.world) as session:
        steps = tuple(
            Step(0, f"[{call.name}]", (call,), (session.call(call),))
            for call in (calls if whole else calls[:-1])
        )
    outcome = Outcome.SOLVED if whole else Outcome.FAILED
    return Rollout(task.id, steps, outcome, float(whole), StopReason.FINISHED)
