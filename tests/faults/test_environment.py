"""Attack 3: an environment whose tools hang, eat memory, raise, flood, end their process, or never answer
the same twice.

Attacked are invariants 1 (an outage is no failure), 3 (a task enters by replay only), 5 (one world per
rollout), 7 (nothing stalls training) and 9 (nothing is dropped silently), with real worker processes and an
environment as a user would write it (``hostile_tools.py``), loaded by configuration.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollout_support import Scripted, tiny

from coevolve.config import EnvironmentConfig, EvolveConfig, ExploreConfig, RolloutConfig, SignalsConfig
from coevolve.environments import worker_pipe
from coevolve.environments.base import Environment, Session
from coevolve.environments.registry import make, pooled
from coevolve.environments.workers import WorkerEnvironment
from coevolve.errors import BrokenWorldError, InfrastructureError, RunError
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.rollout.agent import RolloutMetrics, run
from coevolve.rollout.chat import Chat
from coevolve.rollout.formats import render
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Candidate, Json, Origin, Outcome, Rollout, Task, ToolCall, World, canonical, dump
from small_run import coevolve, lines, make_policy, write_config

MEMORY_MB = 80
SECONDS = 3.0
"""Deadline where something hangs; elsewhere it is a minute, so that no busy machine changes what happens."""
OWN_FAULTS = {
    "swallow": "swallow ran out of memory (80 MB)",
    "crumble": "crumble ran out of memory (80 MB)",
    "exit": "exit ended its process",
    "crash": "crash ended its process",
    "hang_up": "hang_up ended its process",
}
"""Calls that take their worker along, and what their sessions say from then on."""
ANSWERED = {
    "fail": "it did not work",
    "fail_at_length": "sorry sorry",
    "fail_oddly": "OddError",
    "give_up": "CancelledError",
    "leave": "leave wanted to end its process",
    "mumble": "surrogates not allowed",
}
"""Calls that are answered with an error, and nothing else happens."""


def hostile(kind: str = "Workshop", workers: int = 2, **changes: Any) -> WorkerEnvironment:
    """As a run makes it from its configuration."""
    config = EnvironmentConfig(
        name=f"hostile_tools:{kind}",
        **{"workers": workers, "call_seconds": 60, "memory_mb": MEMORY_MB, **changes},
    )
    environment = pooled(config)
    assert isinstance(environment, WorkerEnvironment)
    return environment


@pytest.fixture
def workshop() -> Iterator[WorkerEnvironment]:
    with hostile() as environment:
        yield environment


def world(environment: Environment, start: int | None = None) -> World:
    found = environment.worlds("train")[0]
    return found if start is None else replace(found, start=start)


def add(number: int) -> ToolCall:
    return ToolCall("add", {"number": number})


def hold(megabytes: int) -> ToolCall:
    return ToolCall("hold", {"megabytes": megabytes})


def a_task(environment: Environment, *calls: ToolCall, text: str = "Add what is to be added.") -> Task:
    return Task(
        environment.name, environment.version, world(environment), (text,), (calls,), Origin("unguided")
    )


def values(session: Session, *calls: ToolCall) -> list[Json]:
    return [session.call(call).value for call in calls]


# One step of training


def step(
    environment: Environment, scripts: dict[str, list[ToolCall]], threads: int = 4
) -> dict[str, Rollout]:
    """Rollouts side by side, each a script: its calls one message each, then the end of its turn."""
    chat = Chat(tiny(), RolloutConfig(context_tokens=6000, observation_tokens=64))
    tasks = [a_task(environment, add(5), text=f"Add five, says {name}.") for name in scripts]
    killed = [
        calls for name, calls in scripts.items() if name == "be_killed"
    ]  # begun anew, so they come again
    said = [
        [*(render(chat.format.name, [call]) for call in calls), "done"]
        for calls in [*scripts.values(), *killed]
    ]
    metrics = RolloutMetrics()
    rollouts = run(
        tasks, environment, chat, Scripted(chat, said), chat.limits, threads=threads, metrics=metrics
    )
    assert metrics.rollouts == len(scripts) == len(rollouts)
    return dict(zip(scripts, rollouts))


GOOD = {
    "well": [add(5)],
    "in steps": [add(2), ToolCall("read"), add(3)],
    "with a mistake": [add(7), ToolCall("fail"), add(-2)],
    "wrongly": [add(6)],
}


def test_every_hostile_call_fails_its_own_rollout_and_no_other_and_the_step_ends(
    workshop: WorkerEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = [*OWN_FAULTS, *ANSWERED, "shout", "recite", "drown", "dig", "be_killed"]
    # The hostile call stands between two harmless ones: after it, most worlds are gone.
    scripts = {**GOOD, **{name: [add(1), ToolCall(name), add(4)] for name in bad}}
    rollouts = step(workshop, scripts)
    with hostile(workers=1) as quiet:
        undisturbed = step(quiet, GOOD)
    assert {name: rollouts[name] for name in GOOD} == undisturbed
    assert [r.outcome for r in undisturbed.values()] == [Outcome.SOLVED] * 3 + [Outcome.FAILED]

    for name, says in OWN_FAULTS.items():  # what a call does to its process is the agent's own failure
        rollout = rollouts[name]
        assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, 0.0), (name, rollout.error)
        assert says in (rollout.steps[1].observations[0].error or ""), name
        assert says in (rollout.steps[2].observations[0].error or ""), name
        assert rollout.grade is not None and says in rollout.grade.findings[0]
    for name, says in ANSWERED.items():
        rollout = rollouts[name]
        assert rollout.outcome is Outcome.SOLVED, (name, rollout.error)
        assert says in (rollout.steps[1].observations[0].error or ""), name
    for name in ("shout", "recite", "drown"):
        assert rollouts[name].outcome is Outcome.SOLVED, (name, rollouts[name].error)
    # Killed from outside, twice and twice again: an outage, which is nobody's failure (invariant 1).
    assert rollouts["be_killed"].outcome is Outcome.INVALID
    assert "died twice" in rollouts["be_killed"].error
    assert [name for name in scripts if rollouts[name].outcome is Outcome.INVALID] == ["be_killed"]

    counted = workshop.metrics()
    assert counted["workers/timeouts"] == 0
    assert counted["workers/out_of_memory"] == 2
    assert counted["workers/ended"] == 3
    assert counted["workers/printed_bytes"] > 3 * 2**20
    printed = capfd.readouterr()
    assert printed.out == "" and "AAAA" not in printed.err and "BBBB" not in printed.err
    # What is kept of a step has a size that no tool decides.
    assert max(len(canonical(dump(rollout))) for rollout in rollouts.values()) < 250_000


def test_a_step_of_nothing_but_hostile_rollouts_ends_too() -> None:
    scripts = {name: [ToolCall(name)] for name in ("sleep", "swallow", "exit", "be_killed")}
    with hostile(call_seconds=SECONDS) as environment:
        outcomes = [rollout.outcome for rollout in step(environment, scripts).values()]
    assert outcomes == [Outcome.FAILED] * 3 + [Outcome.INVALID]


# Calls that never return


def test_calls_that_never_return_fail_their_own_rollouts() -> None:
    scripts = {**GOOD, **{name: [add(1), ToolCall(name), add(4)] for name in ("sleep", "freeze")}}
    with hostile(call_seconds=SECONDS) as environment:
        rollouts = step(environment, scripts)
        for name in ("sleep", "freeze"):
            rollout = rollouts.pop(name)
            assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, 0.0), rollout.error
            said = [str(one.observations[0].error) for one in rollout.steps[1:3]]
            assert all(f"{name} timed out after 3 s" in text for text in said)
            assert rollout.grade is not None and "timed out" in rollout.grade.findings[0]
        assert [r.outcome for r in rollouts.values()] == [Outcome.SOLVED] * 3 + [Outcome.FAILED]
        assert environment.metrics()["workers/timeouts"] == 2


def test_what_a_call_has_started_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "child"
    with hostile(call_seconds=SECONDS) as workshop, workshop.open(world(workshop)) as session:
        answer = session.call(ToolCall("delegate", {"file": str(file)}))
        assert "timed out" in (answer.error or "")
    child = Path("/proc") / file.read_text() / "stat"
    for _ in range(100):
        if not child.exists() or child.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the tool's own process is still running")


def test_a_world_that_never_closes_is_not_blamed_on_the_next_call() -> None:
    with hostile("Moody", workers=1, call_seconds=SECONDS) as environment:
        first, second = (environment.open(world(environment, start)) for start in (13, 2))
        second.call(add(1))
        first.close()
        assert second.call(add(1)).value == 4
        second.close()
        assert environment.metrics()["workers/killed"] == 1


def test_a_worker_that_stands_still_in_the_middle_of_a_message_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped from outside, it does not even read what it is asked: a deadline for answers is not enough."""
    monkeypatch.setattr(worker_pipe, "STALLED_SECONDS", 1.0)
    with hostile(workers=1) as environment, environment.open(world(environment)) as session:
        assert session.call(add(1)).value == 2
        process = environment._workers[0]._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert session.call(ToolCall("note", {"text": "long " * 1_000_000})).text == "1 notes"
        assert session.call(add(1)).value == 3


# Calls that eat memory


def test_memory_that_another_session_holds_is_no_fault_of_a_call() -> None:
    """The bound is a worker's, the blame is a session's: each is tried where nobody else holds anything."""
    with hostile(workers=1) as environment:
        full, hungry = (environment.open(world(environment)) for _ in range(2))
        assert values(full, hold(50), add(1)) == [1, 2]
        assert hungry.call(ToolCall("borrow", {"megabytes": 50})).value == 50 * 2**20
        assert values(full, add(1), hold(5)) == [3, 2]
        assert hungry.call(ToolCall("borrow", {"megabytes": 50})).value == 50 * 2**20
        assert environment.metrics()["workers/out_of_memory"] == 0
        assert "hold ran out of memory" in (full.call(hold(50)).error or "")
        assert hungry.call(add(1)).value == 2
        assert environment.metrics()["workers/out_of_memory"] == 1


def test_the_bound_is_set_by_configuration_and_can_be_lifted() -> None:
    with hostile(workers=1, memory_mb=0) as environment, environment.open(world(environment)) as session:
        assert session.call(ToolCall("borrow", {"megabytes": 400})).error is None
    with hostile(workers=1, memory_mb=None) as environment, environment.open(world(environment)) as session:
        assert session.call(ToolCall("borrow", {"megabytes": 400})).error is None
        assert "ran out of memory (2048 MB)" in (
            session.call(ToolCall("borrow", {"megabytes": 4000})).error or ""
        )
        with pytest.raises(BrokenWorldError, match="ran out of memory"):
            session.fingerprint()


def test_a_world_that_takes_all_memory_to_open_or_ends_its_process_is_an_outage() -> None:
    with hostile("Moody", workers=1) as environment:
        with pytest.raises(InfrastructureError, match="does not open: it ran out of memory"):
            environment.open(world(environment, 9))
        with pytest.raises(InfrastructureError, match="does not open: SystemExit: not today"):
            environment.open(world(environment, 8))
        with environment.open(world(environment, 2)) as session:
            assert session.call(add(1)).value == 3


# Calls that print, and calls that end their process


def test_a_tool_that_prints_disturbs_nobody(
    workshop: WorkerEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    with workshop.open(world(workshop)) as session:
        for _ in range(3):
            assert session.call(ToolCall("shout")).text == "quiet now"
            assert session.call(add(1)).error is None
    workshop.close()
    assert capfd.readouterr() == ("", "")
    assert workshop.metrics()["workers/printed_bytes"] >= 6 * 2**20  # what Python still held back is gone


def test_an_outage_says_how_the_process_ended(workshop: WorkerEnvironment) -> None:
    with (
        workshop.open(world(workshop)) as session,
        pytest.raises(InfrastructureError, match=r"died twice in a session of world .*: signal 9 ended it"),
    ):
        session.call(ToolCall("be_killed"))


def test_a_tool_that_comes_back_in_two_processes_answers_once() -> None:
    """A second answer in the pipe would become that to somebody else's call."""
    with hostile(workers=1) as environment:
        forked, other = (environment.open(world(environment)) for _ in range(2))
        for number in range(2, 6):
            assert forked.call(ToolCall("split")).value
            assert other.call(add(1)).value == number
        assert values(forked, add(1), add(1)) == [2, 3]
        assert environment.metrics()["workers/died"] == 0


def test_without_workers_a_tool_still_cannot_leave_the_program() -> None:
    """Sessions in this process have no bounds of time and memory; what a tool raises stays in its call."""
    environment = make(EnvironmentConfig(name="hostile_tools:Workshop", workers=0))
    with environment.open(world(environment)) as session:
        for name, says in ANSWERED.items():
            assert says in (session.call(ToolCall(name)).error or "")
        assert len(session.call(ToolCall("recite")).text) < 110_000
        assert session.call(add(1)).value == 2


# What becomes of it in the pool


def grown(environment: Environment, pool: Pool, attempts: int = 3) -> CoEvolution:
    explore = ExploreConfig(calls=6, calls_per_task=2)
    return CoEvolution(
        environment,
        pool,
        SignalsConfig(),
        ScriptedExplorer(environment, explore),
        TemplateAbstractor(environment, explore),
        lambda pool: ReplayVerifier(environment),
        evolve=EvolveConfig(attempts=attempts),
        seed=0,
    )


def test_hostile_solutions_are_refused_and_counted(workshop: WorkerEnvironment) -> None:
    verifier = ReplayVerifier(workshop)
    reasons = {}
    for name in ("swallow", "exit", "fail", "leave"):
        task = a_task(workshop, add(1), ToolCall(name), text=f"Add one and {name}.")
        reasons[name] = verifier.verify(Candidate(task, ())).reason
    assert reasons == {
        "swallow": "broken_world",
        "exit": "broken_world",
        "fail": "replay_error",
        "leave": "replay_error",
    }
    task = a_task(workshop, add(1), ToolCall("be_killed"))
    with pytest.raises(InfrastructureError):
        verifier.verify(Candidate(task, ()))


@pytest.mark.parametrize("name", ["draw", "clock", "ticket", "whereabouts"])
def test_what_is_not_the_same_twice_is_refused_with_that_reason(name: str) -> None:
    with hostile("Chance") as environment:
        verdict = ReplayVerifier(environment).verify(Candidate(a_task(environment, ToolCall(name)), ()))
        assert (verdict.admitted, verdict.reason) == (False, "not_repeatable")
        first, again = verdict.evidence, verdict.evidence["again"]
        assert isinstance(again, dict)
        assert (first["observations"], first["states"]) != (again["observations"], again["states"])


def test_the_order_of_a_set_is_the_same_in_every_worker() -> None:
    """Python orders a set of texts anew in every process: workers are told one order."""
    with hostile("Chance", workers=3) as environment:
        seen = set()
        for _ in range(3):
            with environment.open(world(environment)) as session:
                seen.add((session.call(ToolCall("whereabouts")).text, session.call(ToolCall("colours")).text))
        assert len({process for process, _ in seen}) == 3
        assert len({colours for _, colours in seen}) == 1


def test_a_world_of_chance_yields_the_tasks_that_can_be_repeated_and_counts_the_others(
    tmp_path: Path,
) -> None:
    with hostile("Chance") as environment, Pool.open(tmp_path / "pool.db") as pool:
        loop = grown(environment, pool, attempts=10)
        loop.populate(4)
        tasks = loop.draw(4)
        assert {call.name for task in tasks for turn in task.solution for call in turn} <= {"add", "colours"}
        assert pool.refused()["not_repeatable"] > 0


def test_where_nothing_happens_twice_there_is_no_task_and_the_run_says_why(tmp_path: Path) -> None:
    with hostile("Lottery") as environment, Pool.open(tmp_path / "pool.db") as pool:
        with pytest.raises(RunError, match=r"0 of 2 tasks after 6 explorations; refused: not_repeatable"):
            grown(environment, pool).populate(2)
        assert set(pool.refused()) == {"not_repeatable"}


def test_a_world_that_does_not_open_in_the_same_state_makes_its_rollouts_invalid() -> None:
    with hostile("Moody", workers=1) as environment:
        task = replace(a_task(environment, add(5)), world=world(environment, 7))
        chat = Chat(tiny(), RolloutConfig(context_tokens=2000))
        scripts = [["done"] * 4] * 4
        rollouts = run([task, task], environment, chat, Scripted(chat, scripts), chat.limits)
        assert Outcome.INVALID in {rollout.outcome for rollout in rollouts}
        assert any("did not open in its initial state" in rollout.error for rollout in rollouts)


def test_the_pool_grows_in_a_hostile_environment_and_all_that_is_in_it_replays(tmp_path: Path) -> None:
    with hostile("Corner", call_seconds=1.5) as environment, Pool.open(tmp_path / "pool.db") as pool:
        loop = grown(environment, pool, attempts=10)
        loop.populate(4)
        tasks = loop.draw(4)
        assert len({task.id for task in tasks}) == 4
        for task in tasks:
            first, second = ([json.dumps(dump(turn)) for turn in environment.replay(task)] for _ in range(2))
            assert first == second
        counted = environment.metrics()
        assert counted["workers/timeouts"] + counted["workers/ended"] + counted["workers/out_of_memory"] > 0
        assert (tmp_path / "pool.db").stat().st_size < 4 << 20


# A whole run


@pytest.mark.slow
def test_a_run_with_a_policy_that_calls_what_is_hostile_ends_and_counts_it(tmp_path: Path) -> None:
    """From exploration to the report, through the command line; the policy has learned every hostile call."""
    rehearsal = make(EnvironmentConfig(name="hostile_tools:Rehearsal"))
    known = [
        a_task(rehearsal, call, text=f"Please {call.name}, {number}.")
        for number in range(3)
        for call in (add(number), *map(ToolCall, ("sleep", "swallow", "exit", "fail", "recite")))
    ]
    policy = tmp_path / "policy"
    make_policy(policy, rehearsal, 120, known)
    config = write_config(
        tmp_path / "run.yaml",
        policy,
        environment={
            "name": "hostile_tools:Corner",
            "workers": 2,
            "call_seconds": 2,
            "memory_mb": MEMORY_MB,
        },
        train={"tasks_per_step": 2, "group_size": 4, "threads": 1},
        evaluate={"episodes": 2},
    )
    out = tmp_path / "run"
    here = f"{Path(__file__).parent}{os.pathsep}{Path(__file__).parent.parent}"
    done = coevolve("run", config, "--out", out, PYTHONPATH=here)
    assert done.returncode == 0, done.stderr
    assert "AAAA" not in done.stdout + done.stderr and "last words" not in done.stdout
    records = lines(out / "metrics.jsonl")
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    counted = records[-1]["environment"]
    assert counted["workers/timeouts"] > 0 and counted["workers/ended"] > 0
    assert counted["workers/out_of_memory"] > 0
    print(json.dumps(counted))
    assert all(record["invalid"] == 0 for record in records)
    with Pool.read_only(out / "pool.db") as pool:
        assert len(pool) >= 8
    assert (out / "pool.db").stat().st_size < 16 << 20
