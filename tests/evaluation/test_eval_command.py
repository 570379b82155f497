"""Promises of ``coevolve eval`` as a command: one sentence and exit code 2, JSON, and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from errands import Errands
from oracle import Oracle
from server import Body, Fault, refusing, serve, silent, status

from coevolve import cli

HERE = str(Path(__file__).parent)
ERRANDS = ("eval", "--env", "errands:Errands", "--set", "environment.workers=0", "--set", "llm.attempts=1")


def called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    monkeypatch.setattr("sys.argv", ["coevolve", *map(str, words)])
    capsys.readouterr()
    code = 0
    try:
        cli.main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    """The sentence that a command is refused with."""
    code, out, err = called(capsys, monkeypatch, *words)
    last = err.splitlines()[-1]
    assert (code, out) == (2, "") and last.startswith("error: "), (code, out, err)
    return last


def test_json_is_all_that_stands_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serve(Oracle(Errands().tasks("test"))) as server:
        words = (*ERRANDS, "--llm", server.base_url, "--model", "m", "--out", tmp_path / "out", "--json")
        code, out, err = called(capsys, monkeypatch, *words)
    result = json.loads(out)
    assert (
        code == 0 and result["scores"]["success"]["solved"] == 8 and result["folder"] == str(tmp_path / "out")
    )
    assert "errands m 8/8 success 100.0%" in err


def test_the_table_is_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serve(Oracle(Errands().tasks("test"))) as server:
        words = (*ERRANDS, "--llm", server.base_url, "--model", "m", "--out", tmp_path / "out")
        code, out, _ = called(capsys, monkeypatch, *words, "--category", "hard", "--limit", 1)
    assert code == 0 and "100.0%" in out and "scenarios with every task solved" in out


def test_by_default_the_folder_names_what_is_in_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve(Oracle(Errands().tasks("test"))) as server:
        words = (
            *ERRANDS,
            "--llm",
            server.base_url,
            "--model",
            "org/m-7b",
            "--category",
            "easy,hard",
            "--json",
        )
        code, out, _ = called(capsys, monkeypatch, *words)
    assert code == 0
    assert json.loads(out)["folder"] == "evaluations/errands-test-easy-hard-native-org_m-7b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "bfc"], "unknown environment 'bfc', did you mean 'bfcl'?"),
        (["--split", "tests"], "there is no split 'tests', did you mean 'test'?"),
        (
            ["--category", "easier"],
            "no category 'easier' in split 'test', did you mean 'easy'? Known: easy, hard",
        ),
        (["--model", "./absent"], "there is no folder ./absent"),
        (["--mode", "tools"], "there is no mode 'tools'"),
        (["--llm", "nowhere", "--model", "m"], "'nowhere' is no address"),
        (["--llm", "http://me:secret@127.0.0.1:9/v1"], "--model: say which model http://127.0.0.1:9/v1"),
        (["--set", "rollout.stepz=1"], "unknown key 'rollout.stepz'"),
        (
            ["--llm", "http://127.0.0.1:9/v1", "--model", "m", "--step", "3"],
            "--step chooses a checkpoint of a run",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    said: str,
) -> None:
    assert said in refused(capsys, monkeypatch, *ERRANDS, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out" / "episodes.jsonl").exists()


def test_an_endpoint_without_tools_says_which_mode_it_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    faults = refusing("tools", "this model does not support tools")
    with serve(Oracle(Errands().tasks("test")), faults=faults) as server:
        words = (*ERRANDS, "--llm", server.base_url, "--model", "m", "--out")
        said = refused(capsys, monkeypatch, *words, tmp_path / "native")
        assert "takes no native tools" in said and "--mode prompt" in said
        code, out, _ = called(capsys, monkeypatch, *words, tmp_path / "prompt", "--mode", "prompt", "--json")
    assert code == 0 and json.loads(out)["scores"]["success"]["success"] == 1.0


def test_a_dead_endpoint_leaves_what_was_done_and_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dead = {"after": 12}

    def faults(number: int, body: Body) -> Fault | None:
        return status(503, "gone") if number >= dead["after"] else None

    with serve(Oracle(Errands().tasks("test")), faults=faults) as server:
        words = (*ERRANDS, "--llm", server.base_url, "--model", "m", "--out", tmp_path, "--json")
        words = (*words, "--set", "llm.concurrency=1")
        said = refused(capsys, monkeypatch, *words)
        assert "3 of 8 episodes are kept" in said and "the same command goes on" in said
        with (tmp_path / "episodes.jsonl").open("a") as file:
            file.write('{"task": "half')  # and the machine went down in mid-write
        dead["after"] = 10_000
        code, out, err = called(capsys, monkeypatch, *words)
    result = json.loads(out)
    assert code == 0 and "going on: 3 of 8 are finished" in err and "half-written line was dropped" in err
    assert (result["n"], result["invalid"], result["dropped_lines"]) == (8, 0, 1)


def test_control_c_says_how_to_go_on(tmp_path: Path) -> None:
    slow: dict[str, Any] = {"is": True}

    def faults(number: int, body: Body) -> Fault | None:
        return silent(60) if slow["is"] and number >= 8 else None

    with serve(Oracle(Errands().tasks("test")), faults=faults) as server:
        words = [*ERRANDS, "--llm", server.base_url, "--model", "m", "--out", str(tmp_path), "--json"]
        command = [sys.executable, "-m", "coevolve", *words, "--set", "llm.concurrency=1"]
        surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, str(Path(HERE).parent)])}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=surroundings)
        while len(server.received) < 9:
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 130 and "the same command goes on" in err and "Traceback" not in err
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 2
