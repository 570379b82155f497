"""What the pool promises."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevolve.config import PoolConfig
from coevolve.errors import HeldOutError, RunError
from coevolve.pool import Pool, Retire, Uniform, build_sampler
from coevolve.pool.listing import signal_rows, task_rows
from coevolve.types import Candidate, Observation, Origin, Signal, Task, Triplet, Verdict
from keyvalue import KeyValue, a_group, a_rollout, a_task, delete, get, put

YES = Verdict(True, "admitted", {}, 0.5)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Pool.open(tmp_path / "pool.db") as opened:
        yield opened


def some_tasks(n: int) -> list[Task]:
    return [a_task(put(f"k{i}")) for i in range(n)]


def fill(pool: Pool, n: int) -> list[Task]:
    tasks = some_tasks(n)
    for task in tasks:
        pool.add(task, YES, 0)
    return tasks


# Tasks


def test_what_went_in_comes_out(pool: Pool) -> None:
    origin = Origin("rare", ("a", "b"), "s", 7, "scripted")
    task = replace(
        a_task(put("ü"), get("a"), origin=origin),
        turns=("Erst dies.", "然后那个。"),
        solution=((put("ü"),), ()),
    )
    assert pool.add(task, YES, 7)
    assert pool.get(task.id) == task and list(pool.tasks()) == [task]
    assert task in pool and task.id in pool and "nobody" not in pool and len(pool) == 1


def test_the_same_task_enters_once_whoever_made_it(pool: Pool) -> None:
    task = a_task(put("a"))
    again = replace(task, origin=Origin("boundary", ("x",), "s", 9))
    assert pool.add(task, YES, 0) and not pool.add(again, YES, 9)
    assert len(pool) == 1 and pool.get(task.id).origin.kind == "unguided"
    assert pool.refused() == {"duplicate": 1}


def test_a_task_of_a_test_world_never_enters(pool: Pool) -> None:
    for split in ("dev", "test"):
        world = replace(KeyValue().worlds("train")[0], split=split)
        with pytest.raises(HeldOutError, match=f"{split} world"):
            pool.add(a_task(world=world), YES, 0)
    assert len(pool) == 0


def test_a_refused_task_cannot_be_added(pool: Pool) -> None:
    with pytest.raises(ValueError, match="replay_error"):
        pool.add(a_task(), Verdict(False, "replay_error"), 0)


def test_every_verdict_is_kept_with_reason_evidence_and_exploration(pool: Pool) -> None:
    steps = (Triplet("s0", put("a"), Observation("stored", {"stored": "a"}), "s1"),)
    good, bad = Candidate(a_task(put("a")), steps), Candidate(a_task(put("b")), steps)
    no = Verdict(False, "superfluous_call", {"call": 0}, 0.25)
    pool.add(good, YES, 3)
    pool.refuse(bad, no, 4)
    found = [(one.step, one.candidate, one.verdict) for one in pool.judgements()]
    assert found == [(3, good, YES), (4, bad, no)]
    assert pool.refused() == {"superfluous_call": 1} and pool.admitted() == {"unguided": 1}


# Draws


def test_a_draw_holds_no_task_twice_while_there_are_enough(pool: Pool) -> None:
    fill(pool, 20)
    for n in (1, 7, 20):
        drawn = Uniform().draw(pool, n, random.Random(n), 0)
        assert len({task.id for task in drawn}) == n
    times = Counter(task.id for task in Uniform().draw(pool, 50, random.Random(0), 0))
    assert sorted(set(times.values())) == [2, 3], "a small pool goes round, as evenly as can be"


def test_draws_are_uniform(pool: Pool) -> None:
    tasks = fill(pool, 12)
    times = Counter(task.id for n in range(1500) for task in Uniform().draw(pool, 4, random.Random(n), 0))
    assert set(times) == {task.id for task in tasks}
    expected = 1500 * 4 / 12
    chi2 = sum((count - expected) ** 2 / expected for count in times.values())
    assert chi2 < 31.3, "chi-squared with 11 degrees of freedom, p = 0.001"


def test_new_tasks_are_drawn_at_once_and_equal_seeds_draw_equal_tasks(pool: Pool) -> None:
    fill(pool, 5)
    late = a_task(delete("z"))
    pool.add(late, YES, 10)
    assert late in Uniform().draw(pool, 6, random.Random(0), 10)
    assert Uniform().draw(pool, 3, random.Random(1), 0) == Uniform().draw(pool, 3, random.Random(1), 0)


def test_an_empty_pool_says_what_to_do(pool: Pool) -> None:
    with pytest.raises(RunError, match="is empty: build D_0"):
        Uniform().draw(pool, 1, random.Random(0), 0)


# Retirement


def observe(pool: Pool, sampler: Retire, step: int, task: Task, *rewards: float | None) -> None:
    groups = [a_group(task, *rewards)]
    pool.record_groups(step, groups)
    sampler.observe(pool, step, groups, [])


def test_a_mastered_task_rests(pool: Pool) -> None:
    mastered, *others = fill(pool, 5)
    sampler = Retire(after=2)
    observe(pool, sampler, 1, mastered, 1, 1)
    assert pool.active == 5
    observe(pool, sampler, 2, mastered, 1, None)
    assert pool.active == 4 and len(pool) == 5
    drawn = {task.id for n in range(30) for task in sampler.draw(pool, 4, random.Random(n), 2)}
    assert drawn == {task.id for task in others}


def test_one_failure_or_an_outage_is_not_mastery(pool: Pool) -> None:
    first, second = fill(pool, 2)
    sampler = Retire(after=2)
    for step, rewards in enumerate([(1, 1), (1, 0), (1, 1)], 1):
        observe(pool, sampler, step, first, *rewards)
    observe(pool, sampler, 4, second, 1)
    observe(pool, sampler, 5, second, None, None)
    assert pool.active == 2
    observe(pool, sampler, 6, second, 1)
    assert pool.active == 1, "the outage neither counted nor broke the streak"


def test_a_signal_wakes_the_task_it_fires_on_and_those_it_names(pool: Pool) -> None:
    parent, shown, other = fill(pool, 3)
    child = a_task(put("child"), origin=Origin("boundary", (parent.id,)))
    pool.add(child, YES, 1)
    for task in (parent, shown, other):
        pool.rest(task.id, 2)
    signal = Signal("boundary", 3, child, (1.0, 0.0), failed=(a_rollout(shown, 0),))
    Retire(after=2).observe(pool, 3, [], [signal])
    assert pool.active == 3 and pool.resting(9) == [other.id]
    assert pool.counters()["retire.woken_by_signal"] == 2


def test_a_pool_at_rest_wakes_those_that_rested_longest(pool: Pool) -> None:
    tasks = fill(pool, 4)
    for step, task in enumerate(tasks):
        pool.rest(task.id, step)
    drawn = Retire(after=2).draw(pool, 2, random.Random(0), 9)
    assert {task.id for task in drawn} == {tasks[0].id, tasks[1].id}


@given(st.lists(st.tuples(st.sampled_from(["add", "rest", "wake"]), st.integers(0, 9)), max_size=40))
@settings(max_examples=25, deadline=None)
def test_ranks_stay_dense_whatever_rests_and_wakes(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int]]
) -> None:
    tasks = some_tasks(10)
    awake: set[str] = set()
    with Pool.open(tmp_path_factory.mktemp("ranks") / "pool.db") as pool:
        for move, at in moves:
            task = tasks[at]
            if move == "add" and task not in pool:
                pool.add(task, YES, 0)
                awake.add(task.id)
            elif move == "rest" and task in pool:
                assert pool.rest(task.id, 1) == (task.id in awake)
                awake.discard(task.id)
            elif move == "wake" and task in pool:
                assert pool.wake(task.id) == (task.id not in awake)
                awake.add(task.id)
        assert pool.active == len(awake)
        assert {task.id for task in pool.at_ranks(range(len(awake)))} == awake


def test_the_configuration_names_the_sampler() -> None:
    assert isinstance(build_sampler(PoolConfig()), Uniform)
    assert isinstance(build_sampler(PoolConfig(sampler="retire")), Retire)


# Attempts and signals


def test_every_rollout_is_an_attempt(pool: Pool) -> None:
    task, other = fill(pool, 2)
    pool.record_groups(1, [a_group(task, 1, 0, None), a_group(other, 1)])
    assert pool.outcomes() == {"solved": 2, "failed": 1, "invalid": 1}


def test_a_group_of_a_stranger_is_refused_and_nothing_of_the_step_is_kept(pool: Pool) -> None:
    (task,) = fill(pool, 1)
    with pytest.raises(RunError, match="not in the pool"):
        pool.record_groups(1, [a_group(task, 1), a_group(a_task(get("x")), 1)])
    assert pool.outcomes() == {"solved": 0, "failed": 0, "invalid": 0}


def test_signals_come_back_with_their_evidence(pool: Pool) -> None:
    task, _ = fill(pool, 2)
    bad, good = a_rollout(task, 0, get("q"), error="no key q"), a_rollout(task, 1, put("k0"))
    signals = [
        Signal("rare", 3, task, (1.0, 40.0), ("get", "put"), failed=(bad,)),
        Signal("boundary", 3, task, (0.0, 1.0), failed=(bad,), solved=(good,)),
    ]
    pool.record_signals(3, signals)
    assert list(pool.signals()) == signals
    assert pool.signal(signals[0].id) == signals[0]
    pool.serve(signals[1].id)
    assert [(one.kind, one.served) for one in pool.signals_since(2)] == [("rare", 0), ("boundary", 1)]
    assert pool.signals_since(3) == []


# The file


def test_it_is_all_there_after_closing(tmp_path: Path) -> None:
    with Pool.open(tmp_path / "pool.db") as pool:
        tasks = fill(pool, 3)
        pool.rest(tasks[0].id, 1)
        pool.count("explorations", 4)
        digest = pool.digest()
    with Pool.open(tmp_path / "pool.db") as pool:
        assert list(pool.tasks()) == tasks and pool.active == 2
        assert pool.counters() == {"explorations": 4} and pool.digest() == digest


def test_a_broken_transaction_leaves_nothing_behind(pool: Pool) -> None:
    tasks = fill(pool, 2)
    digest = pool.digest()
    with pytest.raises(ZeroDivisionError), pool.transaction():
        pool.add(a_task(get("x")), YES, 1)
        pool.rest(tasks[0].id, 1)
        raise ZeroDivisionError
    assert pool.digest() == digest


def test_a_copy_restores_what_was(tmp_path: Path, pool: Pool) -> None:
    tasks = fill(pool, 4)
    pool.rest(tasks[1].id, 1)
    pool.count("explorations")
    before, sizes = pool.digest(), pool.sizes()
    pool.backup(tmp_path / "copy.db")
    pool.add(a_task(get("late")), YES, 5)
    pool.record_groups(5, [a_group(tasks[0], 1, 0)])
    assert pool.digest() != before
    pool.restore(tmp_path / "copy.db")
    assert (pool.digest(), pool.sizes()) == (before, sizes)
    assert pool.add(a_task(get("late")), YES, 5), "and it goes on from there"
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy.db"]


def test_a_damaged_copy_is_refused_and_harms_nothing(tmp_path: Path, pool: Pool) -> None:
    fill(pool, 40)
    copy = tmp_path / "copy.db"
    pool.backup(copy)
    whole, digest = copy.read_bytes(), pool.digest()
    for damaged in (whole[: len(whole) // 2], b"", b"not a database at all" * 100):
        copy.write_bytes(damaged)
        with pytest.raises(RunError, match=r"copy\.db"):
            pool.restore(copy)
        assert pool.digest() == digest
    copy.unlink()
    with pytest.raises(RunError, match="no pool file"):
        pool.restore(copy)


def test_a_file_of_another_layout_is_refused_with_its_name(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "pool.db"
    Pool.open(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=99")
    db.close()
    (tmp_path / "pool.db.sha256").unlink()
    for opening in (Pool.open, Pool.read_only):
        with pytest.raises(RunError, match=r"pool\.db has pool layout 99"):
            opening(path)
    path.write_bytes(b"something else entirely" * 50)
    for opening in (Pool.open, Pool.read_only):
        with pytest.raises(RunError, match=r"pool\.db cannot be used as a pool file"):
            opening(path)
    with pytest.raises(RunError, match="no directory"):
        Pool.open(tmp_path / "nowhere" / "pool.db")


def test_learnable_tasks_are_drawn_more_often_and_none_is_forgotten(pool: Pool) -> None:
    tasks = fill(pool, 30)
    split, mastered, lost = tasks[:10], tasks[10:20], tasks[20:]
    for group, rewards in ((split, (1, 0)), (mastered, (1, 1)), (lost, (0, 0))):
        pool.record_groups(1, [a_group(task, *rewards) for task in group])
    sampler = build_sampler(PoolConfig(sampler="learnable"))
    drawn = Counter(task.id for n in range(400) for task in sampler.draw(pool, 3, random.Random(f"{n}"), 2))
    times = [sum(drawn[task.id] for task in group) for group in (split, mastered, lost)]
    assert sum(times) == 1200 and times[0] > 5 * max(times[1:]) and min(times[1:]) > 30
    assert len({task.id for task in sampler.draw(pool, 30, random.Random(0), 2)}) == 30
    assert len(sampler.draw(pool, 70, random.Random(0), 2)) == 70
    assert sampler.draw(pool, 5, random.Random(1), 2) == sampler.draw(pool, 5, random.Random(1), 2)


def test_a_file_of_an_earlier_layout_is_brought_up_to_date(tmp_path: Path) -> None:
    import sqlite3

    path, copy = tmp_path / "pool.db", tmp_path / "copy.db"
    with Pool.open(path) as pool:
        tasks = fill(pool, 3)
        pool.record_groups(1, [a_group(tasks[0], 1, 1), a_group(tasks[1], 1, 0)])
        pool.record_groups(2, [a_group(tasks[0], 1, 0, 0, 0)])
        digest = pool.digest()
    (tmp_path / "pool.db.sha256").unlink()  # layouts that old knew no seal
    for file in (path, copy):
        db = sqlite3.connect(path if file is path else copy)
        if file is path:
            db.executescript(
                "ALTER TABLE tasks DROP COLUMN last; ALTER TABLE tasks DROP COLUMN scores;"
                "PRAGMA user_version=1;"
            )
            db.execute("VACUUM INTO ?", (str(copy),))
        db.close()
    with Pool.read_only(path) as pool:
        assert pool.digest() == digest
    with Pool.open(path) as pool:
        assert [pool.last_success(task.id) for task in tasks] == [0.25, 0.5, None]
        assert pool.digest() == digest
    with Pool.open(tmp_path / "other.db") as pool:
        pool.restore(copy)
        assert [pool.last_success(task.id) for task in tasks] == [0.25, 0.5, None]


def test_a_fresh_pool_forgets_the_old_file(tmp_path: Path) -> None:
    with Pool.open(tmp_path / "pool.db") as pool:
        fill(pool, 3)
    with Pool.open(tmp_path / "pool.db", fresh=True) as pool:
        assert len(pool) == 0


OPEN = "import sys; from coevolve.pool import Pool; pool = Pool.open(sys.argv[1]); "


def test_a_second_run_on_the_same_pool_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "pool.db"
    other = subprocess.Popen(
        [sys.executable, "-c", OPEN + "print('open', flush=True); sys.stdin.read()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "open\n"
    with pytest.raises(RunError, match=rf"pool\.db is in use by another run \(pid {other.pid}\)"):
        Pool.open(path)
    with pytest.raises(RunError, match="in use"):
        Pool.open(path, fresh=True)
    other.kill()  # kill -9: nobody tidies up
    other.communicate()
    Pool.open(path).close()


def test_one_process_opens_it_once(tmp_path: Path, pool: Pool) -> None:
    with pytest.raises(RunError, match="in use by this process"):
        Pool.open(pool.path)
    result = subprocess.run(
        [sys.executable, "-c", OPEN, str(pool.path)], capture_output=True, text=True, check=False
    )
    assert "in use by another run" in result.stderr, "the refusal above must not have given up the lock"


def test_others_can_look_while_a_run_writes(pool: Pool) -> None:
    tasks = fill(pool, 2)
    with pool.transaction():
        pool.add(a_task(get("x")), YES, 1)
        with Pool.read_only(pool.path) as reader:
            assert list(reader.tasks()) == tasks
    with Pool.read_only(pool.path) as reader:
        assert len(reader) == 3


def test_a_finished_run_can_be_read_from_a_read_only_disk(tmp_path: Path) -> None:
    path = tmp_path / "pool.db"
    with Pool.open(path) as pool:
        fill(pool, 2)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        with Pool.read_only(path) as reader:
            assert len(reader) == 2
    finally:
        tmp_path.chmod(0o755)


# Listings


def test_task_rows_tell_lineage_and_verdict(pool: Pool) -> None:
    origin = Origin("forgetting", ("p1", "p2"), "sig", 20, "scripted")
    task = a_task(put("a"), get("a"), text="Store red under a.", origin=origin)
    pool.add(task, YES, 20)
    pool.refuse(Candidate(a_task(put("b"))), Verdict(False, "duplicate"), 20)
    (row,) = task_rows(pool)
    assert row["id"] == task.id and row["turns"] == ["Store red under a."]
    assert row["solution"] == [
        [
            {"name": "put", "arguments": {"key": "a", "value": "red"}},
            {"name": "get", "arguments": {"key": "a"}},
        ]
    ]
    assert row["origin"] == {
        "kind": "forgetting",
        "parents": ["p1", "p2"],
        "signal": "sig",
        "step": 20,
        "explorer": "scripted",
    }
    assert row["verdict"] == {"admitted": True, "reason": "admitted", "evidence": {}, "seconds": 0.5}
    assert [row["verdict"]["reason"] for row in task_rows(pool, refused=True)] == ["admitted", "duplicate"]


def test_signal_rows_show_the_evidence(pool: Pool) -> None:
    (task,) = fill(pool, 1)
    bad = a_rollout(task, 0, get("q"), error="no key q")
    pool.record_signals(3, [Signal("rare", 3, task, (1.0, 40.0), ("get",), failed=(bad,))])
    (row,) = signal_rows(pool)
    assert (row["kind"], row["step"], row["task"]) == ("rare", 3, task.id)
    assert (row["pattern"], row["scores"], row["turns"]) == (["get"], [1.0, 40.0], list(task.turns))
    assert row["failed"][0]["steps"][0]["observations"][0]["error"] == "no key q"
    assert "tokens" not in row["failed"][0] and row["solved"] == []
