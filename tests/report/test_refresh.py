"""Promises of the report of a run under way: it costs training little, and can never end it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coevolve.report.refresh import SHARE, Refresher
from coevolve.rundir import RunDirectory


class Time:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(grown: Path, tmp_path: Path) -> RunDirectory:
    return RunDirectory(shutil.copytree(grown, tmp_path / "run"))


def test_it_is_refreshed_at_evolutions_once_the_time_for_it_is_earned(run: RunDirectory) -> None:
    said: list[str] = []
    time = Time()
    refresher = Refresher(run, 2, said.append, time)
    refresher.after(2, 6)  # at once: not yet
    assert not (run.path / "report.html").exists()
    time.now += 1 / SHARE + 1
    refresher.after(3, 6)  # no evolution
    assert not (run.path / "report.html").exists()
    refresher.after(4, 6)
    assert "so far" not in (run.path / "report.html").read_text()
    time.now += 1000
    refresher.after(6, 6)  # the last step: the end writes it
    refresher.finish()
    assert said == [f"report: {run.path / 'report.html'}"]
    noted = run.stages()["report"]
    assert (noted["written"], noted["put_off"], noted["failed"]) == (2, 1, 0)


def test_of_a_pool_that_is_too_large_to_be_held_in_memory_the_report_waits_for_the_end(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coevolve.report.refresh.LARGEST", run.pool.stat().st_size - 1)
    time = Time()
    refresher = Refresher(run, 2, lambda text: None, time)
    time.now += 1000
    refresher.after(2, 6)
    assert not (run.path / "report.html").exists()
    refresher.finish()
    assert (run.path / "report.html").exists()
    noted = run.stages()["report"]
    assert (noted["written"], noted["put_off"]) == (1, 1)


def test_a_run_that_goes_on_counts_what_was_before(run: RunDirectory) -> None:
    for _ in range(2):
        Refresher(run, 2, print).finish()
    assert run.stages()["report"]["written"] == 2


def test_a_report_that_cannot_be_written_is_counted_and_said_and_ends_nothing(run: RunDirectory) -> None:
    (run.path / "report.html").mkdir()
    said: list[str] = []
    Refresher(run, 2, said.append).finish()
    assert len(said) == 1 and "could not be written" in said[0] and "goes on without it" in said[0]
    assert run.stages()["report"]["failed"] == 1


def test_a_pool_that_cannot_be_read_ends_nothing_either(run: RunDirectory) -> None:
    run.pool.write_bytes(b"not a pool at all")
    said: list[str] = []
    Refresher(run, 2, said.append).finish()
    assert len(said) == 1 and "pool.db" in said[0]
