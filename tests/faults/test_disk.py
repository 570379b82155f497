"""Attack 2: the disk is full, read-only, loses files or changes bytes (invariants 8 and 9).

What is broken is detected and named in one sentence with the way out, the exit code is not 0 where a run has
to stop, and it goes on from the last good state; no pool is ever read by half.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kill import Ended, Nursery, assert_same_end
from shelf_run import shelf_config, shelf_run
from small_disk import fill, mounted, resize, writable

from coevolve import cli
from coevolve.building import load_weights
from coevolve.errors import RunError
from coevolve.evaluation.between import Between, evaluations
from coevolve.evaluation.heldout import HeldOut
from coevolve.evaluation.store import ResultFolder
from coevolve.pool import Pool
from coevolve.report.page import write_report
from coevolve.rundir import RunDirectory

# The pool file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, without training."""
    return shelf_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(sound, tmp_path / "run")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "2m") as folder:
        yield folder


def looks(run: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What each command that reads a run says of it: '' where it went well."""
    said = []
    for words in (["tasks", run], ["signals", run], ["report", run]):
        try:
            cli.app([str(word) for word in words], standalone_mode=False)
            said.append("")
        except RunError as error:
            said.append(str(error))
    capsys.readouterr()
    return said


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def test_a_byte_that_changed_in_a_finished_pool_is_found_wherever_it_lies(
    sound: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = (sound / "pool.db").stat().st_size
    rng = random.Random("bytes")
    assert looks(run, capsys) == ["", "", ""]
    for at in [30, 100, *(rng.randrange(size) for _ in range(10))]:
        shutil.copyfile(sound / "pool.db", run / "pool.db")
        flip(run / "pool.db", at)
        for said in looks(run, capsys):
            assert "pool.db" in said and "checkpoints/step-N/source/pool.db" in said, at
    shutil.copyfile(run / "checkpoints" / "step-6" / "source" / "pool.db", run / "pool.db")
    (run / "pool.db.sha256").unlink()
    assert looks(run, capsys) == ["", "", ""], "what the message says to do helps"


def test_a_byte_that_changed_in_a_pool_without_a_seal_is_never_an_exception(
    sound: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "pool.db.sha256").unlink()  # as after a kill
    size = (sound / "pool.db").stat().st_size
    rng = random.Random("more bytes")
    found = 0
    for _ in range(15):
        shutil.copyfile(sound / "pool.db", run / "pool.db")
        flip(run / "pool.db", rng.randrange(size))
        said = [one for one in looks(run, capsys) if one]
        assert all("pool.db" in one and "checkpoints/step-N" in one for one in said)
        found += bool(said)
    assert found, "of fifteen bytes at least one lay in something that is read"


def test_a_task_that_changed_is_not_drawn(run: Path) -> None:
    db = sqlite3.connect(run / "pool.db")
    [(key, text)] = db.execute("SELECT id, json FROM tasks WHERE rank = 3").fetchall()
    db.execute("UPDATE tasks SET json = ? WHERE rank = 3", (text.replace('"turns":["', '"turns":["X'),))
    db.commit()
    db.close()
    with pytest.raises(RunError, match="SHA-256"):
        Pool.open(run / "pool.db")
    (run / "pool.db.sha256").unlink()
    with Pool.open(run / "pool.db") as pool:
        for reading in (lambda: pool.at_ranks([3]), lambda: pool.get(key)):
            with pytest.raises(RunError, match=f"the content of task {key} has changed"):
                reading()


def test_whoever_writes_breaks_the_seal_and_sets_it_again(run: Path) -> None:
    seal = run / "pool.db.sha256"
    before = seal.read_text()
    with Pool.open(run / "pool.db") as pool:
        assert not seal.exists()
        pool.count("explorations")
    assert seal.read_text() != before
    Pool.read_only(run / "pool.db").close()


def test_a_full_disk_ends_a_transaction_whole_and_the_pool_stays_as_it_was(run: Path, disk: Path) -> None:
    shutil.copy(run / "pool.db", disk / "pool.db")
    with Pool.open(disk / "pool.db") as pool:
        digest, counters = pool.digest(), pool.counters()
        ballast = fill(disk)
        full = pytest.raises(RunError, match=r"pool\.db: No space left on device; make room there, and the")
        with full, pool.transaction():
            for number in range(500):
                pool.count(f"something {number} {'long' * 500}")
        with pytest.raises(RunError, match="No space left"):
            pool.backup(disk / "copy.db")
        assert (pool.digest(), pool.counters()) == (digest, counters)
        assert not list(disk.glob("copy.db*"))
        ballast.unlink()
        with pool.transaction():
            pool.count("something else")
        assert pool.counters() == {**counters, "something else": 1.0}, "and with room it goes on"


def test_a_disk_too_small_for_a_pool_is_named(disk: Path) -> None:
    ballast = fill(disk, leave=8192)
    with pytest.raises(RunError, match=r"pool\.db: No space left on device; make room there"):
        Pool.open(disk / "pool.db")
    ballast.unlink()
    Pool.open(disk / "pool.db").close()


def test_a_copy_that_does_not_fit_leaves_the_pool_as_it_was(run: Path, disk: Path) -> None:
    with Pool.open(disk / "pool.db") as pool:
        pool.count("here before")
        fill(disk, leave=65536)
        with pytest.raises(RunError, match=r"pool\.db: No space left on device; make room there"):
            pool.restore(run / "checkpoints" / "step-6" / "source" / "pool.db")
        assert pool.counters() == {"here before": 1.0} and len(pool) == 0


def test_a_killed_writers_journal_is_never_left_out(run: Path, disk: Path) -> None:
    """On a read-only disk SQLite could ignore the journal, and would read half of the pool."""
    with Pool.open(run / "pool.db") as pool:
        pool.count("in the journal alone")
        for suffix in ("", "-wal"):  # as SIGKILL leaves them
            shutil.copyfile(f"{pool.path}{suffix}", disk / f"pool.db{suffix}")
    writable(disk, False)
    try:
        with pytest.raises(RunError, match=r"pool\.db-wal.* copy both to a disk that can be written to"):
            Pool.read_only(disk / "pool.db")
    finally:
        writable(disk, True)
    with Pool.read_only(disk / "pool.db") as pool:
        assert "in the journal alone" in pool.counters()


def test_it_is_read_on_a_read_only_disk_and_the_report_is_refused_by_name(
    run: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resize(disk, "20m")
    there = shutil.copytree(run, disk / "run")
    writable(disk, False)
    try:
        tasks, signals, report = looks(there, capsys)
    finally:
        writable(disk, True)
    assert (tasks, signals) == ("", "")
    assert f"cannot write {there / 'report.html'}: Read-only file system" in report


# Whole runs


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A disk with room enough for a run."""
    with mounted(tmp_path / "room", "40m") as folder:
        yield folder


def one_error(ended: Ended) -> str:
    """The one sentence that a run ended with."""
    assert ended.status == 2 and "Traceback" not in ended.said, ended.said[-3000:]
    [error] = [line for line in ended.said.splitlines() if line.startswith("error:")]
    return error


@pytest.mark.parametrize(
    ("stage", "number", "leave"),
    [
        pytest.param("D_0", 1, 0, marks=pytest.mark.slow),  # the pool's first tasks
        pytest.param("rollout", 1, 0, marks=pytest.mark.slow),  # the pool's attempts
        ("update", 3, 0),  # the log
        pytest.param("checkpoint", 2, 0, marks=pytest.mark.slow),  # the weights
        pytest.param("checkpoint", 2, 200_000, marks=pytest.mark.slow),  # the optimiser
        ("checkpoint", 2, 500_000),  # the copy of the pool
    ],
)
def test_a_run_on_a_full_disk_stops_with_one_sentence_and_goes_on_once_there_is_room(
    nursery: Nursery, run_config: Path, straight: Path, room: Path, stage: str, number: int, leave: int
) -> None:
    out = room / "run"

    def fills(process: int, begun: str, nth: int) -> None:
        if (begun, nth) == (stage, number):
            os.kill(process, signal.SIGSTOP)
            fill(room, leave)
            os.kill(process, signal.SIGCONT)

    error = one_error(nursery.run("run", run_config, "--out", out, on=fills))
    assert "No space left on device; make room there, and the same command goes on" in error
    assert str(out) in error
    checkpoints = out / "checkpoints"
    assert not (checkpoints / "unfinished" / "checkpoint-4").exists(), "half a checkpoint takes no room"
    (room / "ballast").unlink()
    again = nursery.run("run", run_config, "--out", out)
    assert again.status == 0, again.said
    assert_same_end(straight, out)


def test_a_report_that_the_disk_does_not_take_is_written_when_there_is_room(
    nursery: Nursery, run_config: Path, straight: Path, room: Path
) -> None:
    out = room / "run"

    def fills(process: int, begun: str, nth: int) -> None:
        if begun == "report":
            os.kill(process, signal.SIGSTOP)
            fill(room)
            os.kill(process, signal.SIGCONT)

    ended = nursery.run("run", run_config, "--out", out, on=fills)
    assert ended.status == 0, ended.said
    assert "the report could not be written (cannot write" in ended.said
    (room / "ballast").unlink()
    again = nursery.run("run", run_config, "--out", out)
    assert again.status == 0 and f"report: {out / 'report.html'}" in again.said
    assert_same_end(straight, out)


def test_nothing_is_begun_on_a_read_only_disk(nursery: Nursery, run_config: Path, room: Path) -> None:
    (room / "begun").mkdir()
    writable(room, False)
    try:
        for out in (room / "new", room / "begun"):
            error = one_error(nursery.run("run", run_config, "--out", out))
            assert f"cannot write in {out}: Read-only file system; choose another --out" in error
    finally:
        writable(room, True)


def test_whatever_is_lost_or_changed_is_said_and_the_last_good_state_is_gone_on_from(
    nursery: Nursery, run_config: Path, straight: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(straight, tmp_path / "run")
    (out / "summary.json").unlink()
    optimiser = out / "checkpoints" / "step-6" / "optimizer.pt"
    flip(optimiser, 1000)
    flip(out / "pool.db", 5000)
    (out / "metrics.jsonl").unlink()
    (out / "heldout" / "unguided.jsonl").unlink()
    (out / "report.html").unlink()
    ended = nursery.run("run", run_config, "--out", out)
    assert ended.status == 0, ended.said
    said = " ".join(ended.said.split())
    assert f"ignoring checkpoint {optimiser.parent}: optimizer.pt was altered" in said
    assert "going on from step 4 of 6" in said
    assert f"{out / 'metrics.jsonl'} was lost or changed: it is taken from {out}/checkpoints/step-4" in said
    assert_same_end(straight, out)


def test_without_a_whole_checkpoint_the_run_begins_again_and_says_so(
    nursery: Nursery, run_config: Path, straight: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(straight, tmp_path / "run")
    (out / "summary.json").unlink()
    for step in (4, 6):
        flip(out / "checkpoints" / f"step-{step}" / "model.safetensors", 3000)
    ended = nursery.run("run", run_config, "--out", out)
    assert ended.status == 0, ended.said
    assert ended.said.count("ignoring checkpoint") == 2 and "training 6/6" in ended.said
    assert_same_end(straight, out)


# What looks at a finished run, and other commands


def test_a_command_that_the_disk_stops_says_so_in_one_sentence(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ResultFolder(disk / "result", {"task": "any"})
    fill(disk, leave=8192)

    def evaluate() -> None:
        folder.append({"task": "one", "outcome": "solved", "steps": 0, "text": "long" * 5000})

    monkeypatch.setattr(cli, "app", evaluate)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = "error: cannot use a file: No space left on device; make room there, and start the same command"
    assert capsys.readouterr().err.strip() == f"{said} again"
    monkeypatch.setattr(cli, "app", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main()
    folder.release()
    (disk / "ballast").unlink()
    again = ResultFolder(disk / "result", {"task": "any"})
    assert (again.finished(), again.dropped) == ({}, 1), "half a line is cut off, and its episode runs again"
    again.release()


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("metrics.jsonl", lambda path: path.unlink(), "ends at step 0 of 6"),
        ("metrics.jsonl", lambda path: path.write_bytes(path.read_bytes()[:-40]), "ends at step 5 of 6"),
        ("metrics.jsonl", lambda path: flip(path, 0), "line 1 of .* cannot be read"),
        ("summary.json", lambda path: path.write_bytes(path.read_bytes()[:-40]), "cannot be read"),
        ("stages.json", lambda path: flip(path, 0), "cannot be read"),
        ("heldout/unguided.jsonl", lambda path: path.unlink(), "cannot be read"),
        ("heldout/unguided.jsonl", lambda path: flip(path, 500), "cannot be read|not the test"),
    ],
)
def test_no_report_is_made_of_half_a_run(
    straight: Path, tmp_path: Path, name: str, damage: Callable[[Path], object], why: str
) -> None:
    run = shutil.copytree(straight, tmp_path / "run")
    damage(run / name)
    with pytest.raises(RunError, match=why) as told:
        write_report([run])
    assert str(run / name) in str(told.value)
    assert "checkpoint" in str(told.value) or "remove" in str(told.value), "a way out"


def test_the_policy_of_a_run_is_its_own_or_none(run: Path) -> None:
    for step in (3, 6):
        flip(run / "checkpoints" / f"step-{step}" / "model.safetensors", 100)
    with pytest.raises(
        RunError, match=r"no checkpoint of run .* is complete .*model\.safetensors was altered"
    ):
        load_weights(shelf_config(), RunDirectory(run))


def test_scores_in_between_that_are_gone_are_missed(tmp_path: Path) -> None:
    test = HeldOut("unguided", "dev", (), 0)
    log = tmp_path / "evaluations.jsonl"
    log.write_text('{"step": 2, "test": "unguided"}\n{"step": 6, "test": "unguided"}\n{"step": 8')
    between = Between([test], 2, log, 7, lambda _: pytest.fail("nothing is due"))
    assert between.lost() == [4]
    assert [line["step"] for line in evaluations(log)] == [2, 6]
    log.write_text('{"step": 2\n')
    with pytest.raises(RunError, match=r"line 1 of .*evaluations\.jsonl cannot be read .* remove that line"):
        Between([test], 2, log, 7, lambda _: pytest.fail("nothing is due"))
