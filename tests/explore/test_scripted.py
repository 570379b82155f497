"""What the scripted explorer promises: reach, determinism, honesty, memory, and no held-out world."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest

from coevolve.config import ExploreConfig
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.errors import HeldOutError
from coevolve.explore.base import Exploration
from coevolve.explore.focus import failing, plan_from
from coevolve.explore.judge import succeeded
from coevolve.explore.memory import signature
from coevolve.explore.schema import read_tool
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.guidance import siblings
from coevolve.types import Signal, fingerprint
from keyvalue import KeyValue, a_rollout, a_task, get, put


def test_nearly_every_tool_succeeds_at_least_once(bfcl: BfclEnvironment, tour: list[Exploration]) -> None:
    every = {spec.name for world in bfcl.worlds("train") for spec in bfcl.offered(world)}
    reached = {t.action.name for e in tour for t in e.triplets if succeeded(t)}
    assert len(every) == 128
    assert len(reached & every) >= 125, sorted(every - reached)
    chains = {"startEngine", "setCruiseControl", "book_flight", "purchase_insurance", "cancel_booking"}
    assert chains <= reached


def test_state_changes_in_every_class_that_has_state(bfcl: BfclEnvironment, tour: list[Exploration]) -> None:
    group = {spec.name: spec.group for world in bfcl.worlds("train") for spec in bfcl.offered(world)}
    changed = {group[t.action.name] for e in tour for t in e.triplets if t.changed}
    assert changed == set(group.values()) - {"MathAPI"}


def test_the_same_generator_gives_the_same_exploration(bfcl: BfclEnvironment) -> None:
    worlds = bfcl.worlds("train")[:6]
    runs = []
    for _ in range(2):
        explorer = ScriptedExplorer(bfcl, ExploreConfig())
        runs.append([explorer.explore(w, random.Random(f"same/{w.id}")).triplets for w in worlds])
    assert runs[0] == runs[1]


def test_triplets_are_what_was_executed(bfcl: BfclEnvironment, tour: list[Exploration]) -> None:
    for exploration in tour[:12]:
        with bfcl.open(exploration.world) as session:
            for triplet in exploration.triplets:
                assert session.fingerprint() == triplet.before
                assert session.call(triplet.action) == triplet.observation
                assert session.fingerprint() == triplet.after


def test_no_call_is_repeated_while_nothing_changed(tour: list[Exploration]) -> None:
    for exploration in tour:
        since: set[str] = set()
        for triplet in exploration.triplets:
            key = fingerprint([triplet.action.name, triplet.action.arguments])
            moved = "current_working_directory" in triplet.observation.text
            assert key not in since or moved
            since = set() if triplet.changed or moved else since | {key}


def test_the_budget_of_calls_is_kept(bfcl: BfclEnvironment) -> None:
    explorer = ScriptedExplorer(bfcl, ExploreConfig(calls=5))
    for world in bfcl.worlds("train")[:10]:
        assert len(explorer.explore(world, random.Random(world.id)).triplets) <= 5


def test_a_held_out_world_is_refused_before_it_is_opened() -> None:
    environment = KeyValue()
    explorer = ScriptedExplorer(environment, ExploreConfig())
    with pytest.raises(HeldOutError, match="test"):
        explorer.explore(environment.worlds("test")[0], random.Random(0))
    assert not environment.opened


def test_what_was_learned_survives_a_checkpoint(bfcl: BfclEnvironment) -> None:
    worlds = bfcl.worlds("train")
    first = ScriptedExplorer(bfcl, ExploreConfig())
    for world in worlds[:20]:
        first.explore(world, random.Random(f"before/{world.id}"))
    state = json.loads(json.dumps(first.state_dict()))
    second = ScriptedExplorer(bfcl, ExploreConfig())
    second.load_state_dict(state)
    for world in worlds[20:26]:
        after = [e.explore(world, random.Random(f"after/{world.id}")) for e in (first, second)]
        assert after[0] == after[1]
    assert first.state_dict() == second.state_dict()


def test_repairs_are_learned_from_error_texts(bfcl: BfclEnvironment) -> None:
    explorer = ScriptedExplorer(bfcl, ExploreConfig())
    worlds = [w for w in bfcl.worlds("train") if "startEngine" in {s.name for s in bfcl.offered(w)}]
    early_late: defaultdict[bool, int] = defaultdict(int)
    for number in range(60):
        rng = random.Random(f"engine/{number}")
        made = explorer.explore(rng.choice(worlds), rng, lead=("startEngine",))
        early_late[number >= 30] += any(
            t.action.name == "startEngine" and succeeded(t) for t in made.triplets
        )
    assert early_late[True] >= 15
    assert any(key.startswith("startEngine|") for key in explorer.memory.repairs)


def test_an_error_is_recognised_whatever_values_it_names() -> None:
    assert signature("cat: 'a.txt': No such file") == signature("cat: 'b.md': No such file")
    assert signature("Order with ID 12 not found.") == signature("Order with ID 9 not found.")
    assert signature("Doors must be locked. Unlocked: a, b") == signature("Doors must be locked. Unlocked: c")


def test_a_signal_leads_with_the_call_where_rollouts_left_the_solution() -> None:
    task = a_task(put("a"), get("a"), put("b"))
    rollout = a_rollout(task, 0.0, put("a"), put("c"))
    for seed in range(10):
        assert "get" in failing([put("a"), get("a"), put("b")], [rollout], random.Random(seed))


def test_a_rare_signal_leads_with_its_pattern() -> None:
    environment = KeyValue()
    task = a_task(put("a"))
    tools = {spec.name: read_tool(spec) for spec in environment.offered(task.world)}
    signal = Signal("rare", 3, task, (1, 40), ("delete",))
    assert plan_from(signal, tools, random.Random(0)).lead == ("delete",)
    explorer = ScriptedExplorer(environment, ExploreConfig())
    made = explorer.explore(task.world, random.Random(0), signal)
    assert made.lead == ("delete",)
    assert made.triplets[0].action.name == "delete"
    worlds = environment.worlds("train")
    others = siblings(signal, environment, worlds, lambda world: [t.name for t in environment.offered(world)])
    assert {task.world.id, *(world.id for world in others)} == {world.id for world in worlds}


def test_exploration_goes_on_from_the_point_where_rollouts_broke() -> None:
    from dataclasses import replace

    environment = KeyValue()
    world = replace(environment.worlds("train")[0], prefix=(put("zebra"),))
    made = ScriptedExplorer(environment, ExploreConfig()).explore(world, random.Random(1))
    with environment.open(world) as session:
        assert made.triplets[0].before == session.fingerprint()
