"""A run killed at any moment and started again ends as one that was never killed (invariant 8)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import small
import torch
import train_small

from coevolve.errors import RunError
from coevolve.rollout.chat import Chat
from coevolve.training.checkpoint import SCRATCH
from coevolve.training.trl import TrlEngine
from keyvalue import KeyValue

SCRIPT = Path(train_small.__file__)


def in_a_process(policy: Path, run_dir: Path, options: dict[str, Any], *launcher: str) -> int:
    """Exit status of one ``train_small.py``."""
    command = [sys.executable, *launcher, str(SCRIPT), str(policy), str(run_dir), json.dumps(options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent.parent)}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode > 0:
        print(said[-3000:])
    return process.returncode


def outcome(run_dir: Path, rank: int = 0) -> tuple[dict[str, torch.Tensor], Any]:
    return torch.load(run_dir / f"final-{rank}.pt"), json.loads((run_dir / "source.json").read_text())


def without_times(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def assert_same_end(one: Path, two: Path) -> None:
    (first, source), (second, other) = outcome(one), outcome(two)
    assert first.keys() == second.keys()
    assert source == other
    assert without_times(one) == without_times(two)
    assert all(torch.equal(first[name], second[name]) for name in first)


CONFIG = {
    "steps": 6,
    "checkpoint": {"every": 2, "keep": 2},
    "train": {"micro_batch": 8, "demonstrate": 0.1, "schedule": "linear"},
}


@pytest.fixture(scope="module")
def straight(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps that nobody killed."""
    run_dir = tmp_path_factory.mktemp("straight")
    train_small.run(policy, run_dir, {"config": CONFIG})
    return run_dir


def test_only_the_newest_checkpoints_are_kept_and_the_last_step_has_one(straight: Path) -> None:
    assert sorted(p.name for p in (straight / "checkpoints").iterdir()) == ["step-4", "step-6"]


def test_killed_in_a_step_the_run_goes_on_from_the_checkpoint_before(
    straight: Path, policy: Path, tmp_path: Path
) -> None:
    assert in_a_process(policy, tmp_path, {"config": CONFIG, "die": ["step", 5]}) == -9
    assert len(without_times(tmp_path)) == 5  # step 5 was done and reported, then lost
    train_small.run(policy, tmp_path, {"config": CONFIG})
    assert_same_end(straight, tmp_path)


def test_killed_while_a_checkpoint_is_written_the_run_goes_on_from_the_one_before(
    straight: Path, policy: Path, tmp_path: Path
) -> None:
    assert in_a_process(policy, tmp_path, {"config": CONFIG, "die": ["checkpoint", 4]}) == -9
    assert (tmp_path / "checkpoints" / SCRATCH / "checkpoint-4").is_dir()
    train_small.run(policy, tmp_path, {"config": CONFIG})
    assert_same_end(straight, tmp_path)


def test_a_truncated_checkpoint_is_passed_over_and_said(
    straight: Path, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_small.run(policy, tmp_path, {"config": CONFIG})
    weights = tmp_path / "checkpoints" / "step-6" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    train_small.run(policy, tmp_path, {"config": CONFIG})
    said = capsys.readouterr().err
    assert f"ignoring checkpoint {weights.parent}: model.safetensors has 100 bytes" in said
    assert_same_end(straight, tmp_path)


def test_a_finished_run_is_refused_and_can_be_restored(straight: Path, policy: Path) -> None:
    with pytest.raises(RunError, match="already has 6 of 6 steps"):
        train_small.run(policy, straight, {"config": CONFIG})
    config = small.config(**CONFIG)
    model, tokenizer = small.load(policy)
    engine = TrlEngine(
        model,
        tokenizer,
        Chat(tokenizer, config.rollout),
        KeyValue(),
        config,
        straight,
    )
    source = small.ListSource(small.tasks()[:14] + small.untaught())
    assert engine.restore(source).step == 6
    weights, state = outcome(straight)
    assert all(torch.equal(weights[name], w) for name, w in engine.model.state_dict().items())
    assert json.loads(json.dumps(source.state_dict())) == state


def test_an_adapter_resumes_too(policy: Path, tmp_path: Path) -> None:
    config = {**CONFIG, "steps": 4, "adapter": "lora", "lora": {"rank": 4}}
    train_small.run(policy, tmp_path / "one", {"config": config})
    config = {**config, "steps": 4}
    with pytest.raises(KeyboardInterrupt):
        interrupted(policy, tmp_path / "two", config, at=3)
    train_small.run(policy, tmp_path / "two", {"config": config})
    assert_same_end(tmp_path / "one", tmp_path / "two")


def interrupted(policy: Path, run_dir: Path, config: dict[str, Any], at: int) -> None:
    """Control-C in step ``at``."""

    def stop() -> None:
        raise KeyboardInterrupt

    before = train_small.kill
    train_small.kill = stop
    try:
        train_small.run(policy, run_dir, {"config": config, "die": ["step", at]})
    finally:
        train_small.kill = before


def test_two_processes_train_in_step_and_as_one_would_on_the_same_rollouts(
    policy: Path, tmp_path: Path
) -> None:
    one, two, rollouts = tmp_path / "one", tmp_path / "two", str(tmp_path / "rollouts")
    train = {"demonstrate": 0.5, "extra": {"optim": "sgd"}, "learning_rate": 0.05}
    config = {"steps": 3, "train": train}
    train_small.run(policy, one, {"config": config, "record": rollouts})
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert in_a_process(policy, two, {"config": config, "replay": rollouts}, *launcher) == 0
    (alone, source), (first, other), (second, _) = outcome(one), outcome(two), outcome(two, 1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert source == other
    for name in alone:
        torch.testing.assert_close(alone[name], first[name], atol=1e-5, rtol=1e-3)
    assert [line["demonstrations"] for line in without_times(one)] == [
        line["demonstrations"] for line in without_times(two)
    ]
