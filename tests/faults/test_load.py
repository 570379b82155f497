"""Attack 8, load: however much the pool holds, a step costs the same and memory stays where it is; sessions
by the hundred and steps without end leave nothing behind (invariants 5, 7 and 8).

Asserted are counts, bytes and instructions, never times: ``load.py`` tells those, and takes the full sizes.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from load import descendants, growth, handles, large_pool, resident, train

from coevolve import cli
from coevolve.config import EnvironmentConfig
from coevolve.environments.base import Environment
from coevolve.environments.registry import pooled
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.synthesize.twins import Twins
from coevolve.types import ToolCall, World
from small_run import Shelf

MIB = 2**20


@pytest.fixture(scope="module")
def small_and_large(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of a pool, and of one that is ten times as large."""
    small, large = (large_pool(n, 10 * n, 10, tmp_path_factory.mktemp(f"pool-{n}")) for n in (1_000, 10_000))
    assert large["tasks"] > 9 * small["tasks"] and large["pool_bytes"] > 8 * small["pool_bytes"]
    return small, large


@pytest.mark.parametrize("what", ["draw", "observe", "evolve", "metrics"])
def test_a_step_asks_no_more_of_a_large_pool_than_of_a_small_one(
    small_and_large: tuple[dict[str, Any], dict[str, Any]], what: str
) -> None:
    small, large = (figures[f"{what}_instructions"] for figures in small_and_large)
    assert 0 < large < 1.5 * small + 100


def test_neither_memory_nor_the_state_of_a_resumed_run_grows_with_its_pool(
    small_and_large: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    small, large = small_and_large
    for what in ("resume_bytes", "live_bytes"):
        # Two caches of SQLite, 10 MiB together, fill up; what is not in them lies on disk.
        assert large[what] < small[what] + 12 * MIB
    assert large["state_bytes"] < 1.2 * small["state_bytes"] + 1000


def test_the_search_for_duplicates_remembers_on_disk() -> None:
    import numpy as np

    def filled(n: int) -> int:
        twins, before = Twins(4, 16, 0.85), resident()
        for number in range(n):
            twins.add(
                f"{number:016}",
                f"s{number:015}",
                np.random.default_rng(number).integers(2**32, size=64, dtype=np.uint32),
            )
        assert len(twins) == n and "0000000000000007" in twins
        return resident() - before

    filled(500)
    assert filled(8_000) < 13 * MIB, "25 as Python's own objects"


def a_round(environment: Environment, world: World, number: int) -> list[Any]:
    """What one session of a dozen calls comes to."""
    rng = random.Random(number)
    with environment.open(world) as session:
        seen: list[Any] = []
        for _ in range(12):
            name = rng.choice(("add_box", "take_box", "count_boxes", "write_label", "nothing"))
            seen.append(session.call(ToolCall(name, {"kind": rng.choice(("red", "green", "blue", "white"))})))
        session.end_turn()
        return [*seen, session.state(), session.record()]


def test_two_hundred_sessions_side_by_side_are_each_their_own_and_leave_nothing_behind() -> None:
    plain = ToolboxEnvironment(Shelf)
    worlds = plain.worlds("train")
    before = handles(), len(descendants(os.getpid()))
    with pooled(EnvironmentConfig(name="small_run:Shelf", workers=2)) as environment:
        with environment.open(worlds[0]) as one, environment.open(worlds[0]) as other:
            assert one.state() == other.state()  # both workers are up now
        running = handles(), len(descendants(os.getpid()))
        with ThreadPoolExecutor(200) as threads:
            rounds = list(threads.map(lambda n: a_round(environment, worlds[n % len(worlds)], n), range(200)))
        sessions = [
            environment.open(worlds[n % len(worlds)]) for n in range(200)
        ]  # all at once, by one thread
        for n, session in enumerate(sessions):
            assert session.call(ToolCall("write_label", {"kind": ("red", "blue")[n % 2]})).error is None
        labels = [session.state()["label"] for session in sessions]  # type: ignore[index, call-overload]
        for session in sessions:
            session.close()
        assert handles() <= running[0] and len(descendants(os.getpid())) == running[1] == before[1] + 2
    assert rounds == [a_round(plain, worlds[n % len(worlds)], n) for n in range(200)]
    assert labels == ["red", "blue"] * 100
    assert (handles(), len(descendants(os.getpid()))) == before


def test_thousands_of_sessions_one_after_another_cost_a_worker_nothing() -> None:
    others = descendants(os.getpid())  # of tests that this process ran before
    with pooled(EnvironmentConfig(name="small_run:Shelf", workers=1)) as environment:
        world = environment.worlds("train")[0]

        def sizes() -> tuple[int, int]:
            (worker,) = (process for process in descendants(os.getpid()) if process not in others)
            return resident(worker), handles(worker)

        for n in range(200):
            a_round(environment, world, n)
        begun = sizes()
        for n in range(1500):
            a_round(environment, world, n)
        ended = sizes()
    assert ended[0] < begun[0] + 2 * MIB and ended[1] == begun[1]


def test_a_run_of_many_steps_keeps_its_memory_its_handles_and_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = 24
    found = train(tmp_path, steps)
    assert len(found) > steps / 2, "most steps were seen"
    told = growth(found, warm=8)
    assert told["bytes_more"] < 8 * MIB, told
    assert told["handles_more"] <= 0 and told["threads_more"] <= 1 and told["processes_more"] <= 0, told
    assert cli.app(["doctor", "--run", str(tmp_path / "run")], standalone_mode=False) in (None, 0)
    assert "metrics: 24 steps, as the pool has them and the summary" in capsys.readouterr().out


@pytest.mark.slow
def test_five_hundred_steps(tmp_path: Path) -> None:
    told = growth(train(tmp_path, 500), warm=50)
    print(told)
    assert told["bytes_more"] < 16 * MIB, told
    assert told["handles_more"] <= 0 and told["threads_more"] <= 1 and told["processes_more"] <= 0, told


@pytest.mark.slow
def test_a_hundred_thousand_tasks_and_a_million_attempts(tmp_path: Path) -> None:
    small, large = (large_pool(n, 10 * n, 20, _made(tmp_path / str(n))) for n in (1_000, 100_000))
    print(small, large, sep="\n")
    for what in ("draw", "observe", "evolve", "metrics"):
        assert large[f"{what}_instructions"] < 1.5 * small[f"{what}_instructions"] + 100
    assert large["live_bytes"] < small["live_bytes"] + 16 * MIB


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
