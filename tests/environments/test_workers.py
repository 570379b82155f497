"""No call stalls or crashes the caller; what happens to one session happens to that one alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import toolbox_examples as examples
from bfcl_support import follow

from coevolve.environments.base import Environment, Session, TurnRecord
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.environments.workers import WorkerEnvironment
from coevolve.errors import BrokenWorldError, CoEvolveError, InfrastructureError, UnknownEnvironmentError
from coevolve.types import Origin, Task, ToolCall, World

HANG = ToolCall("hang")
DIE = ToolCall("die")
ENDLESS = ToolCall("power", {"base": 9, "exponent": 387420489})
"""9 ** 9 ** 9: one operation of the interpreter that takes hours and cannot be interrupted."""


def add(number: int) -> ToolCall:
    return ToolCall("add", {"number": number})


@pytest.fixture(scope="module")
def rogues() -> Iterator[WorkerEnvironment]:
    with WorkerEnvironment(partial(ToolboxEnvironment, examples.Rogue), 1, call_seconds=1.5) as environment:
        yield environment


def world(environment: Environment) -> World:
    return environment.worlds("train")[0]


def task(environment: Environment, *turns: tuple[ToolCall, ...]) -> Task:
    words = tuple("do it" for _ in turns)
    return Task(environment.name, environment.version, world(environment), words, turns, Origin("unguided"))


def texts(session: Session, *calls: ToolCall) -> list[str]:
    return [session.call(call).text for call in calls]


def test_results_do_not_depend_on_the_number_of_workers(official: dict[str, Task]) -> None:
    sample = list(official.values())[::40]
    outcomes = []
    for workers in (0, 1, 3):
        with WorkerEnvironment(BfclEnvironment, workers, call_seconds=20) as environment:

            def play(one: Task, environment: WorkerEnvironment = environment) -> tuple[object, ...]:
                with environment.open(one.world) as session:
                    seen = []
                    for turn in one.solution:
                        seen += [session.step(call) for call in turn]
                        session.end_turn()
                    return seen, session.state(), session.record(), environment.grade(one, session)

            with ThreadPoolExecutor(4) as threads:
                outcomes.append(list(threads.map(play, sample)))
            assert environment.replay_all(sample) == [environment.inner.replay(one) for one in sample]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert all(outcome[3].reward == 1 for outcome in outcomes[0])  # type: ignore[attr-defined]


def test_an_endless_call_is_killed_and_the_other_sessions_notice_nothing(official: dict[str, Task]) -> None:
    with WorkerEnvironment(BfclEnvironment, 1, call_seconds=2) as environment:
        mine = next(t for t in official.values() if any(s.name == "power" for s in environment.tools(t, 0)))
        other = environment.open(mine.world)
        other.run(mine.solution[0])
        other.end_turn()
        before = other.fingerprint()
        with follow(environment, mine) as session:
            session.call(ToolCall("pwd"))
            assert "power timed out after 2 s" in (session.call(ENDLESS).error or "")
            assert "power timed out" in (session.call(ToolCall("pwd")).error or "")
            session.end_turn()
            with pytest.raises(BrokenWorldError, match="power timed out"):
                session.state()
            assert len(session.record()) == len(mine.solution)
            grade = environment.grade(mine, session)
        assert grade.reward == 0 and grade.scores == {"official": 0.0, "strict": 0.0}
        assert "power timed out" in grade.findings[-1]
        assert other.fingerprint() == before
        for turn in mine.solution[1:]:
            other.run(turn)
            other.end_turn()
        assert environment.grade(mine, other).reward == 1
        metrics = environment.metrics()
        assert metrics["workers/killed"] == metrics["workers/timeouts"] == 1 and metrics["workers/died"] == 0


def test_a_batch_finds_the_call_that_hangs(rogues: WorkerEnvironment) -> None:
    with rogues.open(world(rogues)) as session:
        found = session.run([add(1), add(1), HANG, add(1)])
        assert [o.text for o in found[:2]] == ["1", "2"]
        assert all("hang timed out" in (o.error or "") for o in found[2:])


def test_a_hang_in_the_second_turn_keeps_the_first(rogues: WorkerEnvironment) -> None:
    wanted = task(rogues, (add(1),), (add(2),))
    with rogues.open(wanted.world) as session:
        session.call(add(1))
        session.end_turn()
        session.call(add(2))
        with pytest.raises(BrokenWorldError, match="hang timed out"):
            session.step(HANG)
        session.end_turn()
        assert [record.state for record in session.record()] == [{"value": 1}]
        grade = rogues.grade(wanted, session)
    assert grade.reward == 0 and grade.findings[0] == "" and "hang timed out" in grade.findings[1]


def test_a_worker_killed_from_outside_costs_nobody_anything(rogues: WorkerEnvironment) -> None:
    with rogues.open(world(rogues)) as first, rogues.open(world(rogues)) as second:
        assert texts(first, add(1), add(2)) == ["1", "3"]
        first.end_turn()
        assert texts(second, add(5)) == ["5"]
        process = rogues._workers[0]._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert texts(first, add(1)) == ["4"]
        assert texts(second, add(1)) == ["6"]
        assert [record.state for record in first.record()] == [{"value": 3}]


def test_a_call_that_takes_its_worker_along_twice_is_to_blame(rogues: WorkerEnvironment) -> None:
    with rogues.open(world(rogues)) as bystander, rogues.open(world(rogues)) as session:
        bystander.call(add(7))
        assert "die ended its process" in (session.call(DIE).error or "")
        assert texts(bystander, add(1)) == ["8"]
        assert rogues.metrics()["workers/died"] >= 2


def test_a_world_that_answers_otherwise_when_rebuilt_is_an_outage(rogues: WorkerEnvironment) -> None:
    with rogues.open(world(rogues)) as session, rogues.open(world(rogues)) as hanging:
        session.call(ToolCall("who"))
        hanging.call(HANG)
        with pytest.raises(InfrastructureError, match="answers otherwise"):
            session.call(add(1))


def test_many_replays_isolate_the_bad_ones(rogues: WorkerEnvironment) -> None:
    good, hanging, deadly = task(rogues, (add(1),)), task(rogues, (HANG,)), task(rogues, (DIE,))
    found: list[tuple[TurnRecord, ...] | CoEvolveError] = rogues.replay_all(
        [good, hanging, good, deadly, good]
    )
    assert [isinstance(one, InfrastructureError) for one in found] == [False, True, False, True, False]
    assert found[0] == found[2] == found[4] == rogues.inner.replay(good)


def test_errors_cross_the_pipe_with_their_type() -> None:
    with WorkerEnvironment(partial(ToolboxEnvironment, examples.Device), 1) as environment:
        with environment.open(world(environment)) as session:
            session.call(ToolCall("tangle"))
            with pytest.raises(BrokenWorldError, match="cannot be compared"):
                session.fingerprint()
            assert session.call(ToolCall("set_level", {"level": "high"})).error is None
        with pytest.raises(InfrastructureError, match="does not open"):
            environment.open(World("device", "x", "train", {"level": "no such"}))


def test_an_environment_that_cannot_be_made_says_so_at_once() -> None:
    with pytest.raises(UnknownEnvironmentError):
        WorkerEnvironment(partial(BfclEnvironment, classes=("Nothing",)), 1)


def test_closing_ends_the_processes_and_sessions_are_single_use() -> None:
    environment = WorkerEnvironment(partial(ToolboxEnvironment, examples.TodoList), 2)
    session = environment.open(world(environment))
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.call(ToolCall("count"))
    processes = [worker._process for worker in environment._workers if worker._process is not None]
    environment.close()
    assert processes and all(process.returncode is not None for process in processes)


def test_sessions_spread_over_the_workers() -> None:
    with WorkerEnvironment(partial(ToolboxEnvironment, examples.Rogue), 3) as environment:
        sessions = [environment.open(world(environment)) for _ in range(6)]
        found = [session.call(ToolCall("who")).text for session in sessions]
        assert sorted(Counter(found).values()) == [2, 2, 2]
        for session in sessions:
            session.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_a_worker_in_an_endless_call_does_not_outlive_its_parent() -> None:
    """The run is killed with SIGKILL while a call hangs: nobody is left to kill the worker."""
    script = (
        "import threading\n"
        "from coevolve.environments.bfcl import BfclEnvironment as B\n"
        "from coevolve.environments.workers import WorkerEnvironment as W\n"
        "from coevolve.types import ToolCall as C\n"
        "e = W(B, 1, call_seconds=2)\n"
        "w = next(w for w in e.worlds('train') if any(s.name == 'power' for s in e.offered(w)))\n"
        "s = e.open(w)\n"
        "print(e._workers[0]._process.pid, flush=True)\n"
        "s.call(C('power', {'base': 9, 'exponent': 387420489}))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = Path("/proc") / parent.stdout.readline().strip() / "stat"
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(300):
        if not worker.exists() or worker.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker is still running")
