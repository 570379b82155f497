"""Attack 1: SIGKILL at any moment of a run, and of its environment workers (invariants 7 and 8).

A run that is killed and started again with the same command ends with the pool, the weights, the logs and
the summary of one that nobody killed; a run whose workers are killed does so by itself. ``kill.py`` does the
same at fifty moments.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from kill import (
    STAGES,
    Moment,
    Nursery,
    Timeline,
    assert_same_end,
    kill_and_go_on,
    kill_workers,
    moments,
)

from small_run import coevolve


@pytest.mark.parametrize(
    ("stage", "number", "share"),
    [
        ("D_0", 1, 0.5),
        ("rollout", 5, 0.3),
        ("evolution", 2, 0.4),
        ("checkpoint", 2, 0.6),
        ("report", 1, 0.1),
        ("file", 0, 0.7),
    ],
)
def test_killed_in_any_stage_a_run_ends_as_if_nothing_had_been(
    nursery: Nursery,
    run_config: Path,
    straight: Path,
    timeline: Timeline,
    tmp_path: Path,
    stage: str,
    number: int,
    share: float,
) -> None:
    if stage == "file":
        kill = Moment("file", int(share * timeline.files)), 0.0
    else:
        kill = Moment(stage, number, share), timeline.stages[stage][number - 1]
    _, killed = kill_and_go_on(nursery, run_config, straight, tmp_path / "run", kill)
    assert killed


def test_workers_that_are_killed_cost_a_run_nothing(
    nursery: Nursery, run_config: Path, straight: Path, tmp_path: Path
) -> None:
    places = [("D_0", 1), ("scores", 1), ("rollout", 2), ("evolution", 1), ("scores", 3)]
    assert kill_workers(nursery, run_config, straight, tmp_path / "run", places, workers=2) >= 4


def test_a_second_run_on_the_same_directory_is_refused_and_the_first_notices_nothing(
    nursery: Nursery, run_config: Path, straight: Path, tmp_path: Path
) -> None:
    refused = []

    def second(process: int, stage: str, number: int) -> None:
        if (stage, number) == ("rollout", 3):
            os.kill(process, signal.SIGSTOP)
            refused.append((process, coevolve("run", run_config, "--out", tmp_path / "run")))
            os.kill(process, signal.SIGCONT)

    assert nursery.run("run", run_config, "--out", tmp_path / "run", on=second).status == 0
    [(first, done)] = refused
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"run is in use by another run (pid {first})" in done.stderr
    assert_same_end(straight, tmp_path / "run")


def test_fifty_moments_reach_every_stage_and_the_whole_of_the_files(
    straight: Path, timeline: Timeline
) -> None:
    assert straight.exists() and timeline.stages.keys() == set(STAGES)
    chosen = [moment for moment, _ in moments(timeline, 50)]
    assert len(chosen) == 50 == len(set(chosen))
    assert {moment.stage for moment in chosen} == {*STAGES, "file"}
    files = sorted(moment.number for moment in chosen if moment.stage == "file")
    assert files[0] <= timeline.files / 25 < timeline.files * 24 / 25 <= files[-1] <= timeline.files
