"""An evolution beside training: it joins when it is due, and no clock, kill or outage changes the pool."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from asking import CALLS, Made, at_once, made, soon
from coevolve.config import EvolveConfig
from coevolve.config_file import load_config
from coevolve.errors import ConfigError, RunError
from coevolve.evolution import PATIENCE
from test_loop import train

Who = Literal["asker", "scripted"]
BOTH = pytest.mark.parametrize("who", ["asker", "scripted"])


class Latch:
    """Answers wait until it is opened."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.event.set()
        self.waiting = threading.Semaphore(0)

    def __call__(self) -> None:
        if not self.event.is_set():
            self.waiting.release()
        assert self.event.wait(60), "the test has forgotten the latch"

    def shut(self) -> None:
        self.event.clear()

    def has_waiting(self, n: int) -> None:
        """Return when ``n`` questions wait for their answers."""
        for _ in range(n):
            assert self.waiting.acquire(timeout=60)

    def open(self) -> None:
        self.event.set()


def sizes(one: Made, steps: range) -> dict[int, int]:
    """Tasks in the pool after each step."""
    found = {}
    for step in steps:
        train(one, range(step, step + 1))
        found[step] = len(one.pool)
    return found


# When the tasks join


@BOTH
def test_the_tasks_join_at_the_end_of_the_step_that_is_due(tmp_path: Path, who: Who) -> None:
    grown = {}
    for lag in (0, 1, 3):
        with made(tmp_path / f"{lag}.db", who, lag=lag) as one:
            one.loop.populate(12)
            grown[lag] = [step for step, size in sizes(one, range(1, 8)).items() if size == 16]
            first = [(task.id, task.origin) for task in one.pool.tasks()][12:16]
            if lag == 0:
                at_once_tasks = first
            assert first == at_once_tasks, "what is found does not depend on when it joins"
            assert {origin.step for _, origin in first} == {4}, "lineage tells when it was explored"
    assert grown == {0: [4, 5, 6, 7], 1: [5, 6, 7], 3: [7]}


def grown(one: Made) -> dict[str, float]:
    """The counters of what evolutions did; groups are counted as they are observed."""
    return {name: by for name, by in one.pool.counters().items() if not name.startswith("groups.")}


def test_until_then_the_pool_shows_nothing_of_it(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", lag=3, concurrency=3) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        before = grown(one), one.pool.sizes()["candidates"]
        train(one, range(4, 7))
        assert (grown(one), one.pool.sizes()["candidates"]) == before
        assert {record.served for record in one.pool.signals_since(0)} == {0}
        assert "evolve/admitted" not in one.loop.metrics()
        train(one, range(7, 8))
        metrics = one.loop.metrics()
        assert metrics["evolve/admitted"] == 4 and metrics["evolve/explorations"] > 0
        assert metrics["evolve/waited_seconds"] == metrics["total/seconds.evolve"]
        assert metrics["total/seconds.evolve_beside"] > 0
        assert sum(record.served for record in one.pool.signals_since(0)) == metrics["evolve/explorations"]
        train(one, range(8, 9))
        assert "evolve/admitted" not in one.loop.metrics(), "figures are of one step"


@BOTH
@pytest.mark.parametrize("evolve", [{"guided": True}, {"guided": False}, {"unguided": 0.5}])
def test_the_pool_does_not_depend_on_who_is_faster(tmp_path: Path, who: Who, evolve: dict[str, Any]) -> None:
    came = []
    for number, latency in enumerate([at_once, soon(1), soon(2, 0.02)]):
        with made(
            tmp_path / f"{number}.db",
            who,
            latency,
            lag=2,
            **evolve,
            concurrency=3 if who == "asker" else 1,
        ) as one:
            one.loop.populate(12)
            train(one, range(1, 12))
            came.append((one.pool.digest(), one.facts(), one.loop.state_dict()))
    assert came[0] == came[1] == came[2]
    assert came[0][1]["evolutions"] == 2


def test_training_goes_on_while_answers_are_awaited(tmp_path: Path) -> None:
    latch = Latch()
    with made(tmp_path / "pool.db", "asker", latch, lag=3) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        latch.shut()
        train(one, range(4, 7))  # would hang here if it waited
        latch.open()
        train(one, range(7, 8))
        assert len(one.pool) == 16


# Killed and resumed


@BOTH
@pytest.mark.parametrize(
    ("killed_after", "turns", "unguided"),
    [
        (4, "equal", 0),
        (5, "equal", 0),
        (6, "equal", 0),
        (7, "equal", 0),
        (6, "learnable", 0),
        (6, "equal", 0.5),
    ],
)
def test_a_run_killed_in_flight_ends_with_the_pool_of_one_that_was_not(
    tmp_path: Path, who: Who, killed_after: int, turns: str, unguided: float
) -> None:
    settings: dict[str, Any] = {"lag": 3, "turns": turns, "unguided": unguided}
    settings["concurrency"] = 3 if who == "asker" else 1
    with made(tmp_path / "whole.db", who, soon(1), **settings) as one:
        one.loop.populate(12)
        train(one, range(1, 12))
        whole, state, facts = one.pool.digest(), one.loop.state_dict(), one.facts()
        assert len(one.pool) == 20
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    with made(tmp_path / "pool.db", who, soon(2), **settings) as one:
        one.loop.populate(12)
        train(one, range(1, killed_after + 1))
        saved = json.dumps(one.loop.state_dict())
        one.loop.save_state(folder)
        train(one, range(killed_after + 1, 10))  # lost with the kill
    in_flight = json.loads(saved)["in_flight"]
    assert (in_flight is not None) == (killed_after < 7)
    if in_flight is not None:
        assert in_flight["step"] == 4 and (in_flight["shares"] is None) == (turns == "equal")
    with made(tmp_path / "pool.db", who, soon(3), fresh=False, **settings) as one:
        one.loop.load_state(folder)
        one.loop.load_state_dict(json.loads(saved))
        assert json.dumps(one.loop.state_dict()) == saved, "begun again from the same state"
        train(one, range(killed_after + 1, 12))
        assert (one.pool.digest(), one.loop.state_dict(), one.facts()) == (whole, state, facts)


@BOTH
def test_a_state_taken_back_in_flight_begins_the_evolution_again(tmp_path: Path, who: Who) -> None:
    with made(tmp_path / "pool.db", who, soon(1), lag=3) as one:
        one.loop.populate(12)
        train(one, range(1, 5))
        state = one.loop.state_dict()
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        one.loop.save_state(folder)
        train(one, range(5, 9))
        digest = one.pool.digest()
        one.loop.load_state(folder)  # with the evolution of step 8 in flight
        one.loop.load_state_dict(state)
        train(one, range(5, 9))
        assert one.pool.digest() == digest


def test_the_explorer_is_not_asked_for_its_state_while_it_explores(tmp_path: Path) -> None:
    latch = Latch()
    with made(tmp_path / "pool.db", "asker", latch, lag=3) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        one.asker.state_dict = lambda: {"exploring": one.asker.exploring}  # type: ignore[method-assign]
        latch.shut()
        train(one, range(4, 6))
        state = one.loop.state_dict()
        assert state["explorer"] == {"exploring": 0} and state["in_flight"]["step"] == 4
        latch.open()
        train(one, range(6, 8))
        assert one.loop.state_dict()["in_flight"] is None


# Outages, faults, the end


def test_an_outage_beside_training_keeps_the_signals_and_stops_nothing(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", lag=2, concurrency=3) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        one.llm.faulty = 1.0
        train(one, range(4, 7))
        assert len(one.pool) == 12
        facts = one.facts()
        assert facts["evolutions.given_up"] == 1 and facts["infrastructure_errors"] == PATIENCE
        waiting = one.pool.signals_since(one.loop.state_dict()["evolved"])
        assert {record.step for record in waiting} >= {1, 4} and {record.served for record in waiting} == {0}
        one.llm.faulty = 0.0
        train(one, range(7, 11))
        assert len(one.pool) == 16


def test_a_fault_of_ours_shows_where_the_tasks_are_due(tmp_path: Path) -> None:
    def fault() -> None:
        raise ZeroDivisionError("a bug")

    with made(tmp_path / "pool.db", lag=2) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        one.llm.latency = fault
        train(one, range(4, 6))
        with pytest.raises(ZeroDivisionError, match="a bug"):
            train(one, range(6, 7))


def test_nothing_else_grows_the_pool_meanwhile(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", lag=2) as one:
        one.loop.populate(12)
        train(one, range(1, 5))
        for grow in (lambda: one.loop.populate(20), lambda: one.loop.evolve(4)):
            with pytest.raises(RunError, match=r"of step 4 is in flight .* join at the end of step 6"):
                grow()


def test_the_end_of_a_run_waits_for_no_answer(tmp_path: Path) -> None:
    latch = Latch()
    with made(tmp_path / "pool.db", "asker", latch, lag=3, concurrency=3) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        before, calls = one.used("calls"), iter(range(2 * CALLS))
        one.llm.latency = lambda: None if next(calls, None) is not None else latch()
        latch.shut()
        train(one, range(4, 6))
        latch.has_waiting(1)
        one.loop.close()  # would hang here if it waited
        one.loop.close()
        assert one.facts()["evolutions.unused"] == 1 and len(one.pool) == 12
        assert one.used("calls") - before == 2 * CALLS, "paid for all the same"
        with pytest.raises(RunError, match="has been closed"):
            one.loop.evolve(5)
        latch.open()


def test_a_cancelled_evolution_asks_for_nothing_more(tmp_path: Path) -> None:
    latch = Latch()
    with made(tmp_path / "pool.db", "asker", latch, lag=3, concurrency=3, tasks=1000, attempts=1000) as one:
        one.loop.populate(12)
        latch.shut()
        train(one, range(1, 5))
        latch.has_waiting(3)
        begun = one.asker.begun
        threading.Timer(0.05, latch.open).start()  # within the grace that a cancelled evolution has
        one.loop.close()
        assert one.asker.exploring == 0 and one.asker.begun == begun
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("e")]


def test_closing_with_nothing_in_flight_counts_nothing(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", lag=1) as one:
        one.loop.populate(12)
        train(one, range(1, 6))
        one.loop.close()
        assert "evolutions.unused" not in one.facts() and one.facts()["evolutions"] == 1


# The configuration


def test_a_lag_that_reaches_the_next_evolution_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"evolve.lag \(5\) must be less than evolve.every \(5\)"):
        load_config(None, ["evolve.lag=5", "evolve.every=5"])
    assert load_config(None, ["evolve.lag=4", "evolve.every=5"]).evolve == EvolveConfig(lag=4, every=5)
    assert load_config(None, ["evolve.lag=4", "evolve.every=0"]).evolve.lag == 4, "it never evolves"


@pytest.mark.parametrize("setting", ["explore.kind=policy", "verify.solver={by: policy}"])
def test_the_policy_answers_only_while_it_is_not_trained(setting: str) -> None:
    key = "verify.solver.by" if "solver" in setting else "explore.kind"
    with pytest.raises(ConfigError, match=f"evolve.lag must be 0 where {key} is policy"):
        load_config(None, ["evolve.lag=2", setting])
    assert load_config(None, [setting]).evolve.lag == 0
