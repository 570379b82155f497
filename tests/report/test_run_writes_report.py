"""Promises of ``coevolve run``: it ends with a report, and trackers hear what ``metrics.jsonl`` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.errors import ConfigError
from coevolve.rundir import RunDirectory
from coevolve.training.trackers import Trackers, flat, insist_on_trackers
from small_run import Shelf, coevolve, lines, make_policy, write_config


def test_a_run_ends_with_its_report_and_trackers_get_the_names_of_the_log(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    make_policy(tmp_path / "policy", ToolboxEnvironment(Shelf))
    config = write_config(tmp_path / "c.yaml", tmp_path / "policy", train={"report_to": ["tensorboard"]})
    out = tmp_path / "out"
    done = coevolve("run", config, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"report: {out / 'report.html'}" in done.stdout
    assert "In 4 steps the policy acted in 16 rollouts" in (out / "report.html").read_text()
    noted = RunDirectory(out).stages()["report"]
    assert noted["written"] >= 1 and noted["failed"] == 0

    told = accumulator.EventAccumulator(str(out / "tensorboard"))
    told.Reload()
    log = lines(out / "metrics.jsonl")
    names = {f"train/{name}" for line in log for name in flat(line) if name != "step"}
    assert set(told.Tags()["scalars"]) == names
    sizes = [(event.step, event.value) for event in told.Scalars("train/source/pool/tasks")]
    assert sizes == [(line["step"], line["source"]["pool/tasks"]) for line in log]


def test_steps_that_a_killed_run_told_of_are_told_once(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    arguments, control = TrainingArguments(output_dir=str(tmp_path), report_to=[]), TrainerControl()
    for first, last in ((0, 4), (2, 5)):  # killed after step 4, gone on with from the checkpoint of step 2
        state = TrainerState(global_step=first)
        trackers = Trackers(["tensorboard"], tmp_path)
        trackers.on_train_begin(arguments, state, control)
        for step in range(first + 1, last + 1):
            state.global_step = step
            trackers.tell(arguments, state, control, {"step": step, "loss": float(10 * first + step)})
    told = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    told.Reload()
    assert [(event.step, event.value) for event in told.Scalars("train/loss")] == [
        (1, 1.0),
        (2, 2.0),
        (3, 23.0),
        (4, 24.0),
        (5, 25.0),
    ]


def test_a_line_of_the_log_is_flattened_under_its_own_names() -> None:
    line = {
        "loss": 0.5,
        "kl": None,
        "stops": {"finished": 3},
        "group_std": [0.0, 0.5],
        "odd": "text",
        "none": [],
    }
    assert flat(line) == {"loss": 0.5, "stops/finished": 3.0, "group_std": 0.25}


def test_a_tracker_that_is_not_installed_is_named_before_anything_is_spent() -> None:
    with pytest.raises(ConfigError, match=r"train\.report_to: no_such_tracker is not installed"):
        insist_on_trackers(["no_such_tracker"])
    assert Trackers([], Path())._inner == []
