"""A run directory in a second, without torch: the real loop on real worlds, a policy that forgets calls."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from coevolve.config import Config, EnvironmentConfig, EvolveConfig, ExploreConfig, SignalsConfig
from coevolve.config_file import parse_config
from coevolve.environments.base import Environment
from coevolve.environments.registry import make
from coevolve.evaluation.heldout import HeldOut, benchmark_turns, save
from coevolve.evaluation.scores import Score
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.rundir import RunDirectory
from coevolve.summary import summarise, write
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import (
    Candidate,
    Group,
    Outcome,
    Rollout,
    Signal,
    Step,
    StopReason,
    Task,
    ToolCall,
    Verdict,
)

STEPS, EVERY, INITIAL, GROWTH = 6, 2, 24, 12


def grown_run(folder: Path, seed: int = 0, finished: bool = True, **changes: Any) -> Path:
    """Six steps on BFCL, the pool grown after every second one.

    Args:
        changes: to the configuration that is written into the run.
    """
    folder.mkdir(parents=True)
    data = {
        "steps": STEPS,
        "seed": seed,
        "evolve": {"every": EVERY, "tasks": GROWTH},
        "pool": {"initial": INITIAL},
    }
    config = parse_config({**data, **changes}, "here")
    run = RunDirectory(folder)
    run.claim(config)
    environment = make(EnvironmentConfig(name="bfcl", workers=0))
    tests = [_test(environment)]
    save(tests[0], run.heldout / "benchmark.jsonl")
    run.finish_stage("sealed", {"benchmark": tests[0].seal})
    rng = random.Random(f"{seed}/policy")
    before, after = (_score(tests[0].tasks, rng, rate) for rate in (0.3, 0.6))
    run.finish_stage("before", {"benchmark": asdict(before)})
    run.finish_stage("seconds", {"load": 1.0, "D_0": 0.5, "training": 30.0})
    with Pool.open(run.pool) as pool:
        _train(environment, pool, run, tests[0], config, rng)
        if finished:
            seconds = run.stages()["seconds"]
            write(summarise(config, environment, run, pool, tests, {"benchmark": after}, seconds), run)
    run.release()
    return folder


def _test(environment: Environment) -> HeldOut:
    whole = benchmark_turns(environment, "test")
    return HeldOut("benchmark", "test", whole.tasks[:40], 0)


def _score(tasks: Sequence[Task], rng: random.Random, rate: float) -> Score:
    solved = tuple(task.id for task in tasks if rng.random() < rate)
    mean = len(solved) / len(tasks)
    return Score(mean=mean, interval=(mean - 0.1, mean + 0.1), n=len(tasks), invalid=0, solved=solved)


def _train(
    environment: Environment, pool: Pool, run: RunDirectory, test: HeldOut, config: Config, rng: random.Random
) -> None:
    loop = CoEvolution(
        environment,
        pool,
        SignalsConfig(),
        ScriptedExplorer(environment, ExploreConfig()),
        verifier=lambda p: ReplayVerifier(environment, screen=Screen(p, test.tasks)),
        evolve=EvolveConfig(every=EVERY, tasks=GROWTH),
        seed=config.seed,
    )
    loop.populate(INITIAL)
    for step in range(1, STEPS + 1):
        groups = [acted(environment, task, rng) for task in loop.draw(6)]
        loop.observe(step, groups)
        outcomes = [str(rollout.outcome) for group in groups for rollout in group.rollouts]
        counts = {name: outcomes.count(name) for name in ("solved", "failed", "invalid")}
        told = loop.metrics()
        figures = {"zero_variance": told["groups/zero_variance"], "source": told}
        line = {"step": step, **counts, **figures, "seconds": {"rollout": 2.0, "observe": 1.0}}
        with run.metrics.open("a") as log:
            log.write(json.dumps(line) + "\n")
    loop.close()


def acted(environment: Environment, task: Task, rng: random.Random, k: int = 4) -> Group:
    """K rollouts, each of which plays the solution, or leaves out its last call."""
    return Group(task, tuple(_rollout(environment, task, rng.random() < 0.5) for _ in range(k)))


def _rollout(environment: Environment, task: Task, whole: bool) -> Rollout:
    calls = [call for turn in task.solution for call in turn]
    calls = calls if whole else calls[:-1]
    with environment.open(task.world) as session:
        steps = tuple(Step(0, f"[{call.name}]", (call,), (session.call(call),)) for call in calls)
    outcome = Outcome.SOLVED if whole else Outcome.FAILED
    return Rollout(task.id, steps, outcome, float(whole), StopReason.FINISHED)


def many(folder: Path, model: Path, count: int) -> Path:
    """A run with ``count`` tasks more than ``model``, made of its own by the pool's API; with evidence."""
    folder.mkdir()
    with Pool.read_only(model / "pool.db") as pool:
        known = [one for one in pool.judgements() if one.verdict.admitted]
        shown = list(pool.signals())
        pool.backup(folder / "pool.db")
    with Pool.open(folder / "pool.db") as pool, pool.transaction():
        for n in range(count):
            one, signal = known[n % len(known)], shown[n % len(shown)]
            task = one.candidate.task
            origin = replace(
                task.origin, kind=signal.kind, signal=signal.id, parents=(signal.task.id,), step=n // 200
            )
            fresh = replace(task, turns=(f"{task.turns[0]} This is number {n}.",), origin=origin)
            pool.add(Candidate(fresh, one.candidate.triplets), one.verdict, n // 200)
            if n % 10 == 0:
                rollouts = tuple(replace(r, task=fresh.id) for r in signal.failed + signal.solved)
                pool.record_groups(n // 200, [Group(fresh, rollouts)])
                again = Signal(signal.kind, n // 200, fresh, signal.scores, signal.pattern, rollouts)
                pool.record_signals(n // 200, [again])
    return folder


EVIL = "<script>document.title = 'owned'</script></script><img src=x onerror=\"document.title='owned'\">"
"""What an environment or a model might write."""


def hostile(folder: Path, model: Path) -> tuple[Path, str, int]:
    """A run whose texts try to break out of the page; with the id of such a task and its rollout's number."""
    folder.mkdir()
    for name in ("metrics.jsonl", "stages.json"):
        (folder / name).write_bytes((model / name).read_bytes())
    (folder / "config.yaml").write_text(json.dumps({"model": EVIL, "steps": 6}))
    with Pool.read_only(model / "pool.db") as pool:
        pool.backup(folder / "pool.db")
    with Pool.open(folder / "pool.db") as pool:
        base = next(pool.tasks())
        call = ToolCall(EVIL, {EVIL: EVIL})
        task = replace(base, turns=(EVIL,), solution=((call,),), name=EVIL, extra={EVIL: EVIL}, version=EVIL)
        verdict = Verdict(True, "admitted", {"observations": [EVIL], EVIL: EVIL})
        pool.add(task, verdict, 6)
        pool.refuse(Candidate(replace(task, turns=(EVIL, EVIL))), Verdict(False, EVIL, {"of": EVIL}), 6)
        step = Step(0, EVIL, (call,), (), (EVIL,))
        failed = Rollout(task.id, (step,), Outcome.FAILED, 0.0, StopReason.FINISHED, error=EVIL)
        pool.record_groups(6, [Group(task, (failed,))])
        pool.record_signals(6, [Signal("rare", 6, task, (1, 2), (EVIL,), (failed,))])
        number = max(number for number, _ in pool.stored_rollouts())
    return folder, task.id, number
