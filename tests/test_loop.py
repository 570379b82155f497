"""What the loop promises, end to end in a small real environment."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevolve.config import EvolveConfig, ExploreConfig, PoolConfig, SignalsConfig
from coevolve.config_file import load_config
from coevolve.errors import ConfigError, HeldOutError, InfrastructureError, RunError
from coevolve.evolution import PATIENCE
from coevolve.explore.base import Exploration
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.guidance import breaking_points, common_prefix, in_turn, learnable_shares
from coevolve.llm.base import Ledger
from coevolve.loop import CoEvolution
from coevolve.pool import Pool, SignalRecord, build_sampler
from coevolve.types import (
    Candidate,
    Group,
    Origin,
    Outcome,
    Rollout,
    Signal,
    Step,
    StopReason,
    Task,
    ToolCall,
    Triplet,
    Verdict,
    World,
)
from keyvalue import KeyValue, a_group, a_rollout, a_task, delete, get, put


class Wanderer:
    """A small explorer: random calls, led by the signal's failed tools where there is one."""

    name = "wanderer"

    def __init__(self, environment: KeyValue) -> None:
        self.environment = environment
        self.errands: list[tuple[World, str]] = []
        self.runs = 0

    def explore(
        self,
        world: World,
        rng: random.Random,
        signal: Signal | None = None,
        lead: tuple[str, ...] = (),
        ledger: Ledger | None = None,
    ) -> Exploration:
        self.errands.append((world, signal.kind if signal else "unguided"))
        self.runs += 1
        triplets: list[Triplet] = []
        with self.environment.open(world) as session:
            for _ in range(6):
                call = rng.choice([put, get, delete])(f"{rng.choice('abcdefgh')}{rng.randrange(9)}")
                before = session.fingerprint()
                observation, after = session.step(call)
                triplets.append(Triplet(before, call, observation, after))
        return Exploration(world, tuple(triplets), self.name, signal)

    def state_dict(self) -> dict[str, Any]:
        return {"runs": self.runs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.runs = state["runs"]


class OnePerChange:
    """A small abstractor: every change of the state is a task, whatever led to it a solution."""

    def abstract(
        self, exploration: Exploration, origin: Origin, rng: random.Random, ledger: Ledger | None = None
    ) -> list[Candidate]:
        calls: list[ToolCall] = []
        found = []
        for triplet in exploration.triplets:
            calls.append(triplet.action)
            if triplet.changed:
                text = f"Please {' and '.join(call.name for call in calls[-2:])}."
                task = Task("keyvalue", "1", exploration.world, (text,), (tuple(calls[-2:]),), origin)
                found.append(Candidate(task, exploration.triplets))
        return found


class Replay:
    """A small verifier: the solution replays without an error, and changes something."""

    def __init__(self, environment: KeyValue, pool: Pool) -> None:
        self.environment = environment
        self.pool = pool

    def consult(self, candidate: Candidate, ledger: Ledger) -> Verdict | None:
        return None

    def verify(self, candidate: Candidate) -> Verdict:
        task = candidate.task
        if task in self.pool:
            return Verdict(False, "duplicate", {"of": task.id})
        with self.environment.open(task.world) as session:
            before = session.fingerprint()
            for call in task.solution[0]:
                if session.call(call).error is not None:
                    return Verdict(False, "replay_error", {"call": call.name})
            changed = session.fingerprint() != before
        return Verdict(changed, "admitted" if changed else "solved_by_nothing")


class Parts:
    def __init__(self, path: Path, fresh: bool = True, signals: SignalsConfig | None = None, **evolve: Any):
        self.environment = KeyValue()
        self.pool = Pool.open(path, fresh=fresh)
        self.explorer = Wanderer(self.environment)
        settings = EvolveConfig.model_validate({"every": 3, "tasks": 4} | evolve)
        self.loop = CoEvolution(
            self.environment,
            self.pool,
            signals or SignalsConfig(),
            self.explorer,
            OnePerChange(),
            Replay(self.environment, self.pool),
            evolve=settings,
            sampler=build_sampler(PoolConfig(sampler="retire", retire_after=2)),
        )


@contextmanager
def parts(path: Path, **kinds: Any) -> Iterator[Parts]:
    made = Parts(path, **kinds)
    try:
        yield made
    finally:
        made.pool.close()


def policy(environment: KeyValue, task: Task, number: int, step: int) -> Rollout:
    """Stands for a policy that is right six times in ten: replays the solution, or stops half-way."""
    rng = random.Random(f"{task.id}/{step}/{number}")
    calls = [call for turn in task.solution for call in turn]
    if rng.random() < 0.02:
        return Rollout(task.id, (), Outcome.INVALID, 0.0, StopReason.INFRASTRUCTURE, error="worker died")
    made = calls if rng.random() < 0.6 else [*calls[:-1], delete("nothing")]
    with environment.open(task.world) as session:
        seen = tuple(session.call(call) for call in made)
        session.end_turn()
        reward = environment.grade(task, session).reward
    outcome = Outcome.SOLVED if reward >= 0.5 else Outcome.FAILED
    return Rollout(task.id, (Step(0, "…", tuple(made), seen),), outcome, reward, StopReason.FINISHED)


def train(made: Parts, steps: range, n: int = 5, k: int = 4) -> None:
    for step in steps:
        tasks = made.loop.draw(n)
        groups = [
            Group(task, tuple(policy(made.environment, task, at, step) for at in range(k))) for task in tasks
        ]
        made.loop.observe(step, groups)


# The whole loop


def test_the_pool_grows_where_the_agent_is_weak(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(10)
        assert len(made.pool) == 10 and made.pool.admitted() == {"unguided": 10}
        train(made, range(1, 13))
        admitted = made.pool.admitted()
        assert sum(admitted.values()) == len(made.pool) == 10 + 4 * 4
        assert admitted.keys() > {"unguided"} and admitted["boundary"] > 0 and admitted["forgetting"] > 0
        for task in made.pool.tasks():
            if task.origin.kind != "unguided":
                assert task.origin.signal is not None and task.origin.step % 3 == 0
                signal = made.pool.signal(task.origin.signal)
                assert (signal.kind, signal.task.id) == (task.origin.kind, task.origin.parents[0])
                assert task.origin.step - 3 < signal.step <= task.origin.step, "since the last evolution"
                assert all(parent in made.pool for parent in task.origin.parents)
        outcomes = made.pool.outcomes()
        assert sum(outcomes.values()) == 12 * 5 * 4 and outcomes["invalid"] > 0
        assert made.loop.metrics()["total/evolutions"] == 4


def test_equal_inputs_give_equal_pools(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        with parts(tmp_path / f"{name}.db") as made:
            made.loop.populate(8)
            train(made, range(1, 8))
            digests.append(made.pool.digest())
    assert digests[0] == digests[1]


def test_the_pool_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "from test_loop import real_parts, train\n"
        "with real_parts(Path(sys.argv[1])) as made:\n"
        "    made.loop.populate(8); train(made, range(1, 8)); print(made.pool.digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / f"{seed}.db"), str(Path(__file__).parent)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@contextmanager
def real_parts(path: Path, fresh: bool = True) -> Iterator[Parts]:
    """The scripted explorer, template abstraction and strict replay: the constructor's defaults."""
    with parts(path, fresh=fresh) as made:
        explorer = ScriptedExplorer(made.environment, ExploreConfig())
        made.loop = CoEvolution(
            made.environment, made.pool, SignalsConfig(), explorer, evolve=EvolveConfig(every=3, tasks=4)
        )
        yield made


@pytest.mark.parametrize("which", [parts, real_parts])
@pytest.mark.parametrize("killed_after", [1, 3, 5])
def test_a_resumed_run_ends_with_the_pool_of_one_that_was_never_killed(
    tmp_path: Path, killed_after: int, which: Any
) -> None:
    with which(tmp_path / "whole.db") as made:
        made.loop.populate(8)
        train(made, range(1, 10))
        assert len(made.pool) > 12
        whole, state = made.pool.digest(), made.loop.state_dict()
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    with which(tmp_path / "pool.db") as made:
        made.loop.populate(8)
        train(made, range(1, killed_after + 1))
        saved = json.dumps(made.loop.state_dict())
        made.loop.save_state(folder)
        train(made, range(killed_after + 1, killed_after + 5))  # lost with the kill
    with which(tmp_path / "pool.db", fresh=False) as made:
        made.loop.load_state(folder)
        made.loop.load_state_dict(json.loads(saved))
        train(made, range(killed_after + 1, 10))
        assert made.pool.digest() == whole
        assert made.loop.state_dict() == state


def test_four_arguments_are_enough(tmp_path: Path) -> None:
    environment = KeyValue()
    with Pool.open(tmp_path / "pool.db") as pool:
        explorer = ScriptedExplorer(environment, ExploreConfig())
        loop = CoEvolution(environment, pool, SignalsConfig(), explorer)
        loop.populate(12)
        assert pool.admitted() == {"unguided": 12}
        for step in range(1, 11):
            groups = [
                Group(task, tuple(policy(environment, task, at, step) for at in range(4)))
                for task in loop.draw(6)
            ]
            loop.observe(step, groups)
        assert len(pool) == 12 + loop.metrics()["evolve/admitted"] > 12
        assert {one.verdict.reason for one in pool.judgements()} >= {"admitted"}


def test_a_verifier_that_remembers_the_pool_is_made_anew_after_a_restore(tmp_path: Path) -> None:
    environment, remembered = KeyValue(), []

    def remembering(pool: Pool) -> Replay:
        remembered.append([task.id for task in pool])
        return Replay(environment, pool)

    with Pool.open(":memory:") as pool:
        loop = CoEvolution(environment, pool, [], Wanderer(environment), OnePerChange(), remembering)
        loop.populate(2)
        loop.save_state(tmp_path)
        loop.populate(5)
        loop.load_state(tmp_path)
        assert [len(tasks) for tasks in remembered] == [0, 2] and len(pool) == 2


def test_a_state_without_its_pool_is_refused(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(5)
        state = made.loop.state_dict()
        train(made, range(1, 2))
        with pytest.raises(RunError, match="not the one of this checkpoint"):
            made.loop.load_state_dict(state)
    with parts(tmp_path / "other.db", signals=SignalsConfig(rare=None)) as made:
        made.loop.populate(5)
        with pytest.raises(RunError, match=r"holds the signals .*'rare'"):
            made.loop.load_state_dict(state | {"pool": made.pool.sizes()})


# Observing


def test_a_step_is_taken_once(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(5)
        train(made, range(1, 3))
        before = made.pool.digest()
        for step in (2, 1, 0):
            with pytest.raises(RunError, match=f"step {step} was handed in after step 2"):
                made.loop.observe(step, [])
        assert made.pool.digest() == before


def test_only_train_tasks_that_were_drawn_may_be_observed(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(2)
        held_out = a_task(world=made.environment.worlds("test")[0])
        with pytest.raises(HeldOutError, match="test split"):
            made.loop.observe(1, [a_group(held_out, 1, 0)])
        with pytest.raises(RunError, match="not in the pool"):
            made.loop.observe(1, [a_group(a_task(get("x")), 1, 0)])
        (task,) = made.loop.draw(1)
        with pytest.raises(RunError, match="handed in as one of task"):
            made.loop.observe(1, [Group(task, (a_rollout(held_out, 1),))])
        with pytest.raises(RunError, match="reward nan"):
            made.loop.observe(1, [a_group(task, float("nan"))])
        assert sum(made.pool.outcomes().values()) == 0


def test_an_outage_feeds_nothing_but_its_own_count(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", every=0) as made:
        made.loop.populate(3)
        tasks = made.loop.draw(3)
        made.loop.observe(1, [a_group(task, 1, 1) for task in tasks])
        state = made.loop.state_dict()["signals"]
        made.loop.observe(2, [a_group(task, None, None) for task in tasks])
        after = made.loop.state_dict()["signals"]
        assert (after["forgetting"], after["boundary"]) == (state["forgetting"], state["boundary"])
        assert list(made.pool.signals()) == []
        metrics = made.loop.metrics()
        assert metrics["rollouts/invalid"] == 6 and metrics["groups/without_valid_rollout"] == 3


def test_zero_variance_groups_are_counted(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", every=0) as made:
        made.loop.populate(4)
        rewards = [(1, 1), (0, 0), (1, 0), (None, None)]
        made.loop.observe(1, [a_group(task, *r) for task, r in zip(made.loop.draw(4), rewards)])
        metrics = made.loop.metrics()
        assert metrics["groups/zero_variance"] == pytest.approx(2 / 3)
        assert metrics["rollouts/reward"] == 0.5
        assert (metrics["rollouts/solved"], metrics["rollouts/failed"]) == (3, 3)


# Populating


def test_d0_uses_every_train_world_and_no_other(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(40)
        assert {task.world.id for task in made.pool.tasks()} == {f"train-{n}" for n in range(7)}
        assert {world.split for world in made.environment.opened} == {"train"}


def test_populating_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(12)
        whole = made.pool.digest()
    with parts(tmp_path / "two.db") as made:
        made.loop.populate(12)
        made.loop.populate(12)
        assert made.pool.digest() == whole, "full is full"


def test_too_few_tasks_is_an_error_that_says_why(tmp_path: Path) -> None:
    with (
        parts(tmp_path / "pool.db", attempts=1) as made,
        pytest.raises(RunError, match=r"D_0 has \d+ of 4000 tasks after \d+ explorations; refused: "),
    ):
        made.loop.populate(4000)


def test_a_dead_environment_is_an_error_that_names_it(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.environment.outages = 1000
        with pytest.raises(
            RunError, match=r"0 of 5 tasks after 5 explorations, .* is down: the store is down"
        ):
            made.loop.populate(5)


class Worldless(KeyValue):
    def worlds(self, split: str) -> Sequence[World]:  # type: ignore[override]
        return ()


class Leaky(KeyValue):
    def worlds(self, split: str) -> Sequence[World]:  # type: ignore[override]
        return super().worlds("test")


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [(Worldless, RunError, "no train worlds"), (Leaky, HeldOutError, "only train worlds may be explored")],
)
def test_worlds_are_checked_before_they_are_explored(
    tmp_path: Path, kind: type[KeyValue], error: type[Exception], message: str
) -> None:
    environment = kind()
    with Pool.open(tmp_path / "pool.db") as pool:
        explorer = Wanderer(environment)
        loop = CoEvolution(
            environment, pool, SignalsConfig(), explorer, OnePerChange(), Replay(environment, pool)
        )
        with pytest.raises(error, match=message):
            loop.populate(3)
        assert explorer.errands == []


# Evolving


def test_evolution_explores_the_failures_and_related_train_worlds_only(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", tasks=40) as made:
        made.loop.populate(10)
        made.explorer.errands.clear()
        train(made, range(1, 4))
        kinds = {kind for _, kind in made.explorer.errands}
        assert kinds >= {"boundary"} and "unguided" not in kinds
        assert {world.split for world, _ in made.explorer.errands} == {"train"}
        homes = {signal.task.world.id for signal in made.pool.signals()}
        assert any(world.prefix for world, _ in made.explorer.errands), "where rollouts broke"
        assert any(not world.prefix and world.id in homes for world, _ in made.explorer.errands), "fresh"
        assert {world.id for world, _ in made.explorer.errands} - homes or len(homes) == 7, "siblings"


def test_without_guidance_it_explores_at_random(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", guided=False) as made:
        made.loop.populate(10)
        train(made, range(1, 4))
        assert made.pool.admitted() == {"unguided": 14}
        assert {task.origin.step for task in made.pool.tasks()} == {0, 3}


def test_a_share_of_the_explorations_follows_no_signal(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", tasks=40, unguided=0.5) as made:
        made.loop.populate(10)
        made.explorer.errands.clear()
        train(made, range(1, 4))
        kinds = [kind for _, kind in made.explorer.errands]
        assert 0.3 < kinds.count("unguided") / len(kinds) < 0.7 and len(set(kinds)) > 1
        assert {world.split for world, _ in made.explorer.errands} == {"train"}
        born = [task.origin for task in made.pool.tasks() if task.origin.step == 3]
        assert {origin.kind for origin in born} >= {"unguided", "boundary"}
        assert all((origin.signal is None) == (origin.kind == "unguided") for origin in born)


def test_where_nothing_fires_a_share_without_signals_is_all_there_is(tmp_path: Path) -> None:
    for unguided, admitted in ((0.0, 0), (0.1, 4)):
        with parts(tmp_path / f"{unguided}.db", unguided=unguided) as made:
            made.loop.populate(10)
            assert made.loop.evolve(3) == admitted


def test_a_share_without_signals_of_random_exploration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"evolve\.unguided is a share of guided explorations"):
        load_config(None, ["evolve.guided=false", "evolve.unguided=0.5"])


def test_every_refusal_is_stored_with_its_reason(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", tasks=60) as made:
        made.loop.populate(10)
        train(made, range(1, 4))
        refused = made.pool.refused()
        assert refused["replay_error"] > 0
        stored = [one for one in made.pool.judgements() if not one.verdict.admitted]
        assert len(stored) == sum(refused.values())
        assert all(one.verdict.reason and one.candidate.triplets for one in stored)


def test_nothing_to_explore_is_said_and_training_goes_on(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.loop.populate(5)
        for step in range(1, 8):
            made.loop.observe(step, [a_group(task, 1, 1) for task in made.loop.draw(3)])
        assert made.loop.metrics()["total/evolutions.nothing_to_explore"] == 2
        assert len(made.pool) == 5


def test_one_broken_exploration_is_counted_and_skipped(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db") as made:
        made.environment.outages = 1
        made.loop.populate(5)
        assert made.pool.counters()["infrastructure_errors"] == 1 and len(made.pool) == 5


def test_an_outage_of_the_explorer_stalls_nothing_and_loses_no_signal(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", every=0, attempts=10) as made:
        made.loop.populate(5)
        train(made, range(1, 4))
        waiting = len(made.pool.signals_since(0))
        made.environment.outages = 10_000
        assert made.loop.evolve(3) == 0
        assert {record.served for record in made.pool.signals_since(0)} == {0}
        counters = made.pool.counters()
        assert (counters["evolutions.given_up"], counters["infrastructure_errors"]) == (1, PATIENCE)
        made.environment.outages = 0
        assert waiting and made.loop.evolve(3) == 4
        assert sum(record.served for record in made.pool.signals_since(0)) > 0


def test_a_verifier_that_is_down_refuses_with_that_reason(tmp_path: Path) -> None:
    class Down:
        def consult(self, candidate: Candidate, ledger: Ledger) -> None:
            pass

        def verify(self, candidate: Candidate) -> Verdict:
            raise InfrastructureError("no worker left")

    with Pool.open(tmp_path / "pool.db") as pool:
        environment = KeyValue()
        loop = CoEvolution(environment, pool, [], Wanderer(environment), OnePerChange(), Down())
        with pytest.raises(RunError, match="refused: infrastructure"):
            loop.populate(3)
        assert {one.verdict.evidence["error"] for one in pool.judgements()} == {"no worker left"}


# The rules of choice


def records(**kinds: int) -> list[SignalRecord]:
    return [SignalRecord(f"{kind}{n}", kind, n, 0) for kind, count in kinds.items() for n in range(count)]


def test_signal_kinds_take_turns_newest_first() -> None:
    order = in_turn(records(rare=5, forgetting=1, boundary=2), random.Random(0))
    assert [next(order).id for _ in range(8)] == [
        *("forgetting0", "boundary1", "rare4"),
        *("forgetting0", "boundary0", "rare3"),
        *("forgetting0", "boundary1"),
    ]
    assert list(in_turn([], random.Random(0))) == []


@given(
    st.lists(
        st.builds(SignalRecord, st.uuids().map(str), st.just("rare"), st.integers(1, 4), st.integers(0, 2))
    )
)
@settings(max_examples=50, deadline=None)
def test_signals_not_yet_served_come_first(one_kind: list[SignalRecord]) -> None:
    order = in_turn(one_kind, random.Random(3))
    drawn = [next(order) for _ in one_kind]
    assert sorted(drawn, key=lambda record: (record.served, -record.step)) == drawn
    assert {record.id for record in drawn} == {record.id for record in one_kind}


def test_kinds_whose_tasks_teach_more_have_more_turns() -> None:
    counters = {"groups.rare": 98, "groups.rare.mixed": 9, "groups.boundary": 98, "groups.boundary.mixed": 59}
    shares = learnable_shares(counters)
    assert (shares["rare"], shares["boundary"], shares["unseen"]) == (0.1, 0.6, 0.5)
    order = in_turn(records(rare=5, boundary=2), random.Random(0), shares)
    drawn = Counter(next(order).kind for _ in range(7000))
    assert 5700 < drawn["boundary"] < 6300
    assert list(in_turn([], random.Random(0), shares)) == []


def test_what_tasks_of_each_origin_teach_is_counted_and_followed(tmp_path: Path) -> None:
    with parts(tmp_path / "pool.db", turns="learnable") as made:
        made.loop.populate(10)
        train(made, range(1, 13))
        counters = made.pool.counters()
        groups = {name: by for name, by in counters.items() if name.startswith("groups.")}
        assert sum(by for name, by in groups.items() if not name.endswith(".mixed")) == 12 * 5
        assert 0 < groups["groups.unguided.mixed"] < groups["groups.unguided"]
        assert made.loop.metrics()["total/groups.unguided"] == groups["groups.unguided"]
        assert sum(made.pool.admitted().values()) == 10 + 4 * 4


THREE = a_task(put("a"), put("b"), put("c"))


@pytest.mark.parametrize(
    ("made", "error", "length"),
    [
        ([], None, 0),
        ([get("a")], None, 0),
        ([put("a")], None, 1),
        ([put("a"), put("x"), put("b")], None, 1),
        ([put("a"), put("b")], "no space", 1),
        ([put("a"), put("b"), put("c"), put("d")], None, 2),
    ],
)
def test_a_rollout_breaks_where_it_leaves_the_solution(
    made: list[ToolCall], error: str | None, length: int
) -> None:
    assert common_prefix(THREE, [a_rollout(THREE, 0, *made, error=error)]) == length


def test_code_breaks_after_the_last_action_that_it_took_in_order() -> None:
    def names(call: ToolCall) -> list[str]:
        return call.arguments["code"].split() if call.name == "python" else [call.name]  # type: ignore[union-attr]

    task = a_task(put("a"), get("a"), delete("a"))
    blocks = [ToolCall("python", {"code": text}) for text in ("look put", "look", "get delete")]
    for made, error, length in (
        (blocks[:1], None, 1),
        (blocks[1:], None, 0),
        (blocks, None, 2),
        (blocks, "no", 1),
    ):
        assert common_prefix(task, [a_rollout(task, 0, *made, error=error)], names) == length


def test_several_rollouts_share_what_all_of_them_got_right() -> None:
    far, near = a_rollout(THREE, 0, put("a"), put("b"), get("a")), a_rollout(THREE, 0, put("a"), get("a"))
    assert common_prefix(THREE, [far, near]) == 1 and common_prefix(THREE, []) == 0


def test_breaking_points_are_replayable_worlds_of_the_task() -> None:
    other = a_rollout(a_task(put("z")), 0, put("z"))
    far, near = a_rollout(THREE, 0, put("a"), put("b"), get("a")), a_rollout(THREE, 0, put("a"), get("a"))
    signal = Signal("rare", 1, THREE, (1.0, 50.0), ("get",), failed=(far, near, other))
    points = breaking_points(signal)
    assert [point.prefix for point in points] == [(put("a"),), (put("a"), put("b"))]
    assert all(replace(point, prefix=()) == THREE.world for point in points)
    with KeyValue().open(points[1]) as session:
        assert session.state() == {"a": "red", "b": "red", "color": "red", "train0": "blue"}
