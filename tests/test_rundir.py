"""Promises of the run directory: one writer, one configuration, nothing half-written."""

import subprocess
import sys
from pathlib import Path

import pytest

from coevolve.config import Config
from coevolve.config_file import parse_config
from coevolve.errors import RunError
from coevolve.rundir import RunDirectory


def _config(**keys: object) -> Config:
    return parse_config(keys, "test")


def test_a_second_run_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.claim(_config())
    program = (
        "import sys; from pathlib import Path; from coevolve.config import Config; "
        "from coevolve.rundir import RunDirectory; RunDirectory(Path(sys.argv[1])).claim(Config())"
    )
    second = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert second.returncode != 0
    assert "in use" in second.stderr
    run.release()
    RunDirectory(tmp_path / "run").claim(_config())


def test_another_configuration_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.claim(_config(train={"beta": 0.5}))
    run.finish_stage("sealed", {})
    run.release()
    with pytest.raises(RunError, match=r"train\.beta: 0\.5 there, 0\.25 here"):
        RunDirectory(tmp_path).claim(_config(train={"beta": 0.25}))


def test_where_nothing_was_made_yet_the_configuration_may_still_change(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.claim(_config(train={"beta": 0.5}))
    run.release()
    RunDirectory(tmp_path).claim(_config(train={"beta": 0.25}))
    assert run.config().train.beta == 0.25


def test_what_shapes_no_result_may_change(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.claim(_config())
    run.finish_stage("sealed", {})
    run.release()
    RunDirectory(tmp_path).claim(_config(environment={"workers": 0}))


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.existing(tmp_path)


def test_finished_stages_are_remembered(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.finish_stage("before", {"benchmark": 0.5})
    run.finish_stage("other", 1)
    assert RunDirectory(tmp_path).stages() == {"before": {"benchmark": 0.5}, "other": 1}


def test_what_binds_a_run_to_its_configuration_is_missed(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.claim(_config(train={"beta": 0.5}))
    (run.checkpoints / "step-2").mkdir(parents=True)
    run.release()
    file = tmp_path / "config.yaml"
    for broken in (file.read_bytes()[:-30] + b"\n\t{", b"\xff\xfe"):
        file.write_bytes(broken)
        with pytest.raises(RunError, match=r"config\.yaml cannot be read .* choose another --out"):
            RunDirectory(tmp_path).claim(_config(train={"beta": 0.5}))
    file.unlink()
    with pytest.raises(RunError, match=r"config\.yaml is missing, .* choose another --out"):
        RunDirectory(tmp_path).claim(_config(train={"beta": 0.5}))


def test_stages_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.finish_stage("before", {"benchmark": 0.5})
    for broken in (b'{"before": ', b"[1]", b"\xff"):
        (tmp_path / "stages.json").write_bytes(broken)
        with pytest.raises(RunError, match=r"stages\.json cannot be read .* remove it"):
            run.stages()
