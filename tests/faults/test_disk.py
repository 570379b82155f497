"""Attack 2: the disk is full, read-only, loses files or changes bytes (invariants 8 and 9).

What is broken is detected and named in one sentence with the way out, the exit code is not 0 where a run has
to stop, and it goes on from the last good state; no pool is ever read by half.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from shelf_run import shelf_run
from small_disk import fill, mounted, resize, writable

from coevolve import cli
from coevolve.errors import RunError
from coevolve.pool import Pool

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
