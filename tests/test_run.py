"""Promises of a whole run: what it leaves behind, and that no kill changes how it ends (invariant 8)."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from brain import Brain
from brain_abstract import Abstraction
from rich.console import Console
from server import serve, too_many

from coevolve import cli
from coevolve.config import ExploreConfig
from coevolve.config_file import load_config
from coevolve.environments.base import Session
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.errors import ConfigError, RunError
from coevolve.evaluation.between import Between
from coevolve.evaluation.heldout import read
from coevolve.pool import Pool
from coevolve.run import execute
from coevolve.types import World
from small_run import (
    Shelf,
    assert_same_pool_and_weights,
    coevolve,
    command,
    lines,
    make_policy,
    steps_of,
    surroundings,
    without_times,
    write_config,
)

STEPS = 8
LONGER = {"steps": STEPS, "evaluate": {"every": 4, "episodes": 24, "batch": 2}}
"""Long enough to be killed in the middle of its training and of its final scores."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small policy that solves some of the shelf's tasks."""
    folder = tmp_path_factory.mktemp("policy")
    make_policy(folder, ToolboxEnvironment(Shelf), taught=100)
    return folder


@pytest.fixture(scope="module")
def config(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("config") / "shelf.yaml", policy, **LONGER)


@pytest.fixture(scope="module")
def straight(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody killed."""
    out = tmp_path_factory.mktemp("straight") / "run"
    execute(load_config(config), out, Console(quiet=True))
    return out


def summary_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def assert_same_end(one: Path, two: Path) -> None:
    assert_same_pool_and_weights(one, two, STEPS)
    assert without_times(summary_of(one)) == without_times(summary_of(two))
    assert steps_of(one) == steps_of(two)


def kill_when(ready: Callable[[], bool], config: Path, out: Path, *more: str) -> str:
    """Start a run in a process of its own and end it with SIGKILL as soon as ``ready``."""
    process = subprocess.Popen(
        command("run", config, "--out", out, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=surroundings(),
    )
    try:
        deadline = time.monotonic() + 240
        while not ready() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
    finally:
        process.kill()
        said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    return said


def test_a_run_leaves_everything_that_it_came_to(straight: Path) -> None:
    summary = summary_of(straight)
    assert {
        "heldout",
        "heldout_unguided",
        "pool",
        "admitted",
        "refused",
        "rollouts",
        "seconds",
    } <= summary.keys()
    assert summary["heldout"] is None  # the shelf has no official tasks to make that test of
    test = summary["heldout_unguided"]
    assert 0 <= test["before"] <= 1 and test["n"] == 24 and test["invalid"] == 0
    low, high = test["interval_after"]
    assert low <= test["after"] <= high
    assert summary["pool"]["initial"] == 8
    assert summary["pool"]["final"] == 8 + sum(
        summary["admitted"][kind] for kind in ("forgetting", "boundary", "rare")
    )
    assert summary["pool"]["final"] > 8
    assert summary["admitted"]["unguided"] == 8
    assert all(isinstance(number, int) for number in summary["refused"].values())
    assert summary["rollouts"]["invalid"] == 0
    assert summary["rollouts"]["solved"] + summary["rollouts"]["failed"] == STEPS * 2 * 2
    assert {"held-out tests", "D_0", "training", "scores"} <= summary["seconds"].keys()
    assert (straight / "summary.md").read_text().count("| unguided tasks") == 1
    assert yaml.safe_load((straight / "config.yaml").read_text())["steps"] == STEPS
    assert [line["step"] for line in lines(straight / "metrics.jsonl")] == list(range(1, STEPS + 1))
    sealed = json.loads((straight / "stages.json").read_text())["sealed"]
    assert {name: read(straight / "heldout" / f"{name}.jsonl").seal for name in sealed} == sealed


def test_scores_in_between_are_of_the_dev_split(straight: Path) -> None:
    between = lines(straight / "evaluations.jsonl")
    assert [(line["step"], line["split"]) for line in between] == [(4, "dev"), (8, "dev")]
    assert all(0 <= line["success"] <= 1 and line["n"] > 0 for line in between)
    assert summary_of(straight)["evaluations"] == between


def test_tasks_are_listed_with_lineage_and_verdict(
    straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.app(["tasks", str(straight), "--json"], standalone_mode=False)
    tasks = json.loads(capsys.readouterr().out)
    cli.app(["signals", str(straight), "--json"], standalone_mode=False)
    signals = {signal["id"]: signal for signal in json.loads(capsys.readouterr().out)}
    summary = summary_of(straight)
    assert len(tasks) == summary["pool"]["final"]
    kinds = Counter(task["origin"]["kind"] for task in tasks)
    assert kinds == {kind: n for kind, n in summary["admitted"].items() if n}
    known = {task["id"] for task in tasks}
    for task in tasks:
        assert task["turns"] and task["solution"] and task["verdict"]["admitted"]
        origin = task["origin"]
        if origin["kind"] == "unguided":
            assert (origin["parents"], origin["signal"], origin["step"]) == ([], None, 0)
        else:
            signal = signals[origin["signal"]]
            assert signal["kind"] == origin["kind"] and signal["failed"]
            assert set(origin["parents"]) <= known and signal["task"] in origin["parents"]
            assert origin["step"] in (2, 4, 6, 8)


@pytest.mark.parametrize("listing", ["tasks", "signals"])
def test_people_get_a_table(straight: Path, capsys: pytest.CaptureFixture[str], listing: str) -> None:
    cli.app([listing, str(straight)], standalone_mode=False)
    assert "box" in capsys.readouterr().out


def test_killed_in_training_the_run_ends_as_if_nothing_had_been(
    straight: Path, config: Path, tmp_path: Path
) -> None:
    out, log = tmp_path / "run", tmp_path / "run" / "metrics.jsonl"
    # Workers or none makes no difference to what comes out, so it may change as well.
    kill_when(lambda: steps_in(log) >= 5, config, out, "--set", "environment.workers=1")
    assert 5 <= steps_in(log) < STEPS
    assert "going on from step" in run_here(config, out)
    assert_same_end(straight, out)


def test_killed_in_the_final_scores_only_the_scores_are_taken_again(
    straight: Path, config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    kill_when((out / "checkpoints" / f"step-{STEPS}").exists, config, out)
    assert not (out / "summary.json").exists()
    before = (out / "metrics.jsonl").read_bytes()
    assert "training 8/8" not in run_here(config, out)
    assert (out / "metrics.jsonl").read_bytes() == before
    assert_same_end(straight, out)


def test_killed_before_the_first_checkpoint_the_run_begins_again_with_the_same_tests(
    straight: Path, config: Path, tmp_path: Path
) -> None:
    out = copy_of(straight, tmp_path)
    (out / "summary.json").unlink()
    shutil.rmtree(out / "checkpoints")
    (out / "pool.db").write_bytes((out / "pool.db").read_bytes()[:4096])
    assert "unguided test before" not in run_here(config, out)  # the scores before training are known already
    assert_same_end(straight, out)


def test_a_broken_checkpoint_is_passed_over_and_said(straight: Path, config: Path, tmp_path: Path) -> None:
    out = copy_of(straight, tmp_path)
    (out / "summary.json").unlink()
    pool = out / "checkpoints" / f"step-{STEPS}" / "source" / "pool.db"
    pool.write_bytes(pool.read_bytes()[:1000])
    said = run_here(config, out)
    assert f"ignoring checkpoint {pool.parent.parent}: source/pool.db has 1000 bytes" in said
    assert f"going on from step {STEPS - 2} of {STEPS}" in said
    assert_same_end(straight, out)


def test_control_c_says_how_to_go_on_and_loses_nothing(
    straight: Path,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr("sys.argv", ["coevolve", "run", str(config), "--out", str(out)])
    taken = Between.after

    def press(between: Between, step: int) -> None:
        """Between two steps, and not from a thread: on a busy machine that would come too late."""
        taken(between, step)
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Between, "after", press)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130
    assert f"stopped; the same command goes on from the last checkpoint in {out}" in capsys.readouterr().err
    monkeypatch.setattr(Between, "after", taken)
    run_here(config, out)
    assert_same_end(straight, out)


def test_a_run_of_a_local_model_talks_to_nobody(config: Path, tmp_path: Path) -> None:
    """Neither a hub that it does not need, nor anybody who counts the users of a library."""
    heard = tmp_path / "heard"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def hear(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        f"        print(event, args[-1], file=open({str(heard)!r}, 'a'))\n"
        "sys.addaudithook(hear)\n"
    )
    ours = surroundings()["PYTHONPATH"]
    told = coevolve(
        *("run", config, "--out", tmp_path / "run", "--set", "steps=2"),
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ours}",
    )
    assert told.returncode == 0, told.stderr
    assert not heard.exists(), heard.read_text()


def test_a_finished_run_is_refused_and_stays_as_it_is(straight: Path, config: Path) -> None:
    before = contents(straight)
    with pytest.raises(RunError, match=r"is finished .*choose another --out"):
        run_here(config, straight)
    assert contents(straight) == before


def test_a_run_of_another_configuration_is_refused_and_stays_as_it_is(straight: Path, config: Path) -> None:
    before = contents(straight)
    with pytest.raises(RunError, match=r"train\.beta: 0\.01 there, 0\.5 here"):
        run_here(config, straight, "train.beta=0.5")
    assert contents(straight) == before


def test_a_pool_that_another_run_writes_to_is_left_alone(
    straight: Path, config: Path, tmp_path: Path
) -> None:
    out = copy_of(straight, tmp_path)
    (out / "summary.json").unlink()
    with Pool.open(out / "pool.db") as pool:
        with pytest.raises(RunError, match=r"pool\.db is in use"):
            run_here(config, out)
        assert len(pool) == summary_of(straight)["pool"]["final"]


def test_a_held_out_test_that_was_changed_is_refused(straight: Path, config: Path, tmp_path: Path) -> None:
    out = copy_of(straight, tmp_path)
    (out / "summary.json").unlink()
    test = out / "heldout" / "unguided.jsonl"
    whole = test.read_text().splitlines(keepends=True)
    test.write_text("".join(whole[:-1]))
    with pytest.raises(RunError, match=r"not the test that this run sealed"):
        run_here(config, out)
    test.write_text("".join(whole)[:-20])
    with pytest.raises(RunError, match=r"unguided\.jsonl cannot be read"):
        run_here(config, out)
    test.unlink()
    run_here(config, out)
    assert_same_end(straight, out)


def test_a_policy_that_explores_for_itself_goes_on_as_if_never_stopped(config: Path, tmp_path: Path) -> None:
    run_here(config, tmp_path / "straight", "explore.kind=policy")
    summary = summary_of(tmp_path / "straight")
    assert summary["pool"]["final"] > summary["pool"]["initial"] == 8
    with Pool.read_only(tmp_path / "straight" / "pool.db") as pool:
        assert {task.origin.explorer for task in pool.tasks()} == {"policy"}
    shutil.copytree(tmp_path / "straight", tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{STEPS}")
    said = run_here(config, tmp_path / "run", "explore.kind=policy")
    assert f"going on from step {STEPS - 2} of {STEPS}" in said
    assert_same_end(tmp_path / "straight", tmp_path / "run")


def test_a_language_model_explores_in_a_run_and_is_paid_once(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brain = Brain(
        ToolboxEnvironment(Shelf),
        ExploreConfig(calls=4, calls_per_task=2),
        on_abstract=Abstraction(candidates=2, calls=2),
    )
    opening = ToolboxEnvironment.open

    def watched(environment: ToolboxEnvironment, world: World) -> Session:
        brain.register([world])  # also those where rollouts broke
        return opening(environment, world)

    monkeypatch.setattr(ToolboxEnvironment, "open", watched)
    straight, again = tmp_path / "straight", tmp_path / "again"
    with serve(brain.answer, [too_many("0")]) as server:
        asked = ["explore.kind=llm", f"llm.base_url={server.base_url}", "llm.model=test", "llm.concurrency=2"]
        said = run_here(config, straight, *asked)
        assert "asked test: " in said and "faults: rate_limited 1" in said
        paid = len(server.received)
        shutil.copytree(straight, again)
        (again / "summary.json").unlink()
        shutil.rmtree(again / "checkpoints")  # so that all is done again, D_0 too
        run_here(config, again, *asked)
        assert len(server.received) == paid
    summary, other = summary_of(straight)["llm"], summary_of(again)["llm"]
    assert summary["calls"] > 0 and summary["tokens"] > 0 and summary["faults"] == {"rate_limited": 1}
    assert set(summary["stages"]) == {"act", "abstract", "reflect"}
    assert summary["paid"]["calls"] > 0 == other["paid"]["calls"] and other["cached"] == other["calls"]
    assert (other["calls"], other["tokens"]) == (summary["calls"], summary["tokens"])
    with Pool.read_only(straight / "pool.db") as one, Pool.read_only(again / "pool.db") as two:
        assert one.digest() == two.digest()
        assert {task.origin.explorer for task in one.tasks()} == {f"llm:test@{server.base_url}"}
        assert {task.origin.kind for task in one.tasks()} > {"unguided"}


def test_official_tasks_make_the_benchmark_shaped_test(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "environment": {"name": "bfcl", "classes": ["GorillaFileSystem"]},
        "steps": 1,
        "pool": {"initial": 2},
        "evolve": {"every": 0},
    }
    make_policy(tmp_path / "policy", BfclEnvironment(classes=("GorillaFileSystem",)))
    config = write_config(tmp_path / "files.yaml", tmp_path / "policy", **settings)
    said = run_here(config, tmp_path / "run")
    test = read(tmp_path / "run" / "heldout" / "benchmark.jsonl")
    assert f"held-out test benchmark: {len(test.tasks)} tasks of the test split, seal {test.seal}" in said
    assert {task.world.split for task in test.tasks} == {"test"}
    summary = summary_of(tmp_path / "run")
    assert summary["environment_version"].startswith("bfcl-eval")
    assert summary["heldout"]["n"] == len(test.tasks) and summary["heldout"]["seal"] == test.seal
    assert summary["heldout_unguided"]["n"] == 4


def test_nothing_to_explore_is_said_before_anything_is_made(config: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"environment\.classes MathAPI has no train worlds"):
        run_here(config, tmp_path / "run", "environment.name=bfcl", "environment.classes=[MathAPI]")
    assert not (tmp_path / "run").exists()


# Helpers


def run_here(config: Path, out: Path, *overrides: str) -> str:
    """Run to the end in this process; what it printed."""
    said = io.StringIO()
    execute(load_config(config, overrides), out, Console(file=said, width=200))
    return said.getvalue()


def steps_in(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def copy_of(run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run, tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its locks."""
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"}
