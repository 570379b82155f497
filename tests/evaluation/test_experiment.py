"""Promises of ``coevolve experiment``: a grid that survives a kill, and differences that are paired."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.errors import ConfigError
from coevolve.evaluation.arms import load_experiment
from coevolve.evaluation.comparison import paired_difference
from coevolve.pool import Pool
from small_run import PLAIN, Shelf, coevolve, command, make_policy, surroundings

ARMS: dict[str, dict[str, Any]] = {"static": {"evolve.every": 0}, "CoEvolve": {}}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    make_policy(folder, ToolboxEnvironment(Shelf), taught=60)
    return folder


def written(folder: Path, policy: Path, **changes: Any) -> Path:
    (folder / "base.yaml").write_text(yaml.safe_dump({**PLAIN, "model": str(policy), "steps": 2}))
    data = {"title": "Stages", "base": "base.yaml", "seeds": [0, 1], "reference": "static", "arms": ARMS}
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({**data, **changes}))
    return path


def test_a_killed_grid_goes_on_and_compares_its_arms(policy: Path, tmp_path: Path) -> None:
    file, out = written(tmp_path, policy, pairs=[["static", "CoEvolve"]]), tmp_path / "out"
    first = subprocess.Popen(
        command("experiment", file, "--out", out, "--jobs", 1),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=surroundings(),
    )
    deadline = time.monotonic() + 120
    while not (out / "static" / "seed-0" / "summary.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    finished = (out / "static" / "seed-0" / "summary.json").stat().st_mtime_ns
    done = coevolve("experiment", file, "--out", out, "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert (out / "static" / "seed-0" / "summary.json").stat().st_mtime_ns == finished
    results = json.loads((out / "results.json").read_text())
    assert not results["missing"] and not results["failed"]
    static, grown = results["arms"]["static"], results["arms"]["CoEvolve"]
    assert (static["tasks_added"], static["rollouts"]) == (0, 8)
    assert grown["tasks_added"] > 0
    [pair] = results["pairs"]
    assert pair["differences"]["unguided"]["mean"] == -grown["differences"]["unguided"]["mean"]
    assert any(text.startswith("tasks added differ") for text in results["unlike"])
    difference = grown["differences"]["unguided"]
    assert (difference["seeds"], difference["tasks"]) == (2, static["tests"]["unguided"]["tasks"])
    means = [arm["tests"]["unguided"]["after"] for arm in (grown, static)]
    assert difference["mean"] == pytest.approx(means[0] - means[1])
    steps = [
        json.loads(line) for line in (out / "static" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    ]
    other = [
        json.loads(line) for line in (out / "static" / "seed-1" / "metrics.jsonl").read_text().splitlines()
    ]
    assert static["mixed"] == pytest.approx(
        1 - sum(s["zero_variance"] for s in steps + other) / len(steps + other)
    )
    assert "| static (reference) |" in (out / "results.md").read_text()
    assert "Not alike: tasks added differ" in done.stdout
    assert static["added"] is None and grown["added"]["tasks"] == 2 * grown["tasks_added"]
    assert sum(grown["added"]["share"].values()) == pytest.approx(1)
    reached = []
    for seed in (0, 1):
        with Pool.read_only(out / "coevolve" / f"seed-{seed}" / "pool.db") as pool:
            reached.append(len({call.name for task in pool for turn in task.solution for call in turn}))
    assert grown["added"]["tools_reached"] == sum(reached) / 2 > grown["added"]["tools"]
    assert "## What the data became" in done.stdout and "## Where the time went" in done.stdout


def test_a_run_that_breaks_is_named_and_leaves_the_others_alone(policy: Path, tmp_path: Path) -> None:
    arms = {"good": {}, "broken": {"model": "nowhere/at-all"}}
    file = written(tmp_path, policy, arms=arms, reference="good", seeds=[0])
    done = coevolve("experiment", file, "--out", tmp_path / "out", HF_HUB_OFFLINE="1")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "error: runs failed: broken, seed 0" in done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["arms"]["good"]["runs"] and results["missing"] == ["broken, seed 0"]
    assert "nowhere/at-all" in results["failed"]["broken, seed 0"]


def test_runs_of_another_configuration_are_not_taken_for_its_own(policy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    file = written(tmp_path, policy, seeds=[0], arms={"one": {}}, reference="one")
    assert coevolve("experiment", file, "--out", out).returncode == 0
    file = written(tmp_path, policy, seeds=[0], arms={"one": {"train.beta": 0.5}}, reference="one")
    done = coevolve("experiment", file, "--out", out)
    assert done.returncode == 2 and "another configuration" in done.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": {"static": {"evolve.evry": 0}}}, r"arm 'static': unknown key 'evolve.evry', did you mean"),
        ({"arms": {"static": {"steps.all": 0}}}, r"'steps' holds a value"),
        ({"reference": "none"}, r"there is no arm 'none' to compare"),
        ({"pairs": [["CoEvolve", "random"]]}, r"there is no arm 'random' to compare"),
        ({"seeds": [1, 1]}, r"none twice"),
        ({"arms": {"a b": {}, "a-b": {}}, "reference": "a b"}, r"makes no folder of its own"),
        ({"base": "nowhere.yaml"}, r"cannot read .*nowhere.yaml"),
        ({"sedes": [1]}, r"unknown key 'sedes', did you mean 'seeds'"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(
    policy: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_experiment(written(tmp_path, policy, **changes))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=4, max_size=4), min_size=2, max_size=4))
def test_the_interval_holds_the_difference_and_swaps_with_the_arms(rows: list[list[float]]) -> None:
    differences = np.array(rows)
    found, other = paired_difference(differences), paired_difference(-differences)
    low, high = found["interval"]
    assert low - 1e-9 <= found["mean"] <= high + 1e-9
    assert other["mean"] == -found["mean"]
    assert other["interval"] == pytest.approx([-high, -low], abs=0.05)


def test_equal_arms_differ_by_nothing() -> None:
    assert paired_difference(np.zeros((3, 5))) == {"mean": 0, "interval": [0, 0], "seeds": 3, "tasks": 5}
