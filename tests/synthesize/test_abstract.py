"""From one exploration to tasks: minimal solutions, several lengths, dependencies kept."""

from __future__ import annotations

import random
from collections import Counter

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.explore.base import Exploration
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.types import Origin, Task, ToolCall, Triplet, World
from keyvalue import KeyValue, delete, get, put


def explored(environment: Environment, world: World, *calls: ToolCall) -> Exploration:
    triplets = []
    with environment.open(world) as session:
        for call in calls:
            before = session.fingerprint()
            seen = session.call(call)
            triplets.append(Triplet(before, call, seen, session.fingerprint()))
    return Exploration(world, tuple(triplets), "hand")


def solutions(environment: KeyValue, *calls: ToolCall, tries: int = 30, **keys: int) -> list[Task]:
    world = environment.worlds("train")[0]
    found = []
    for seed in range(tries):
        made = TemplateAbstractor(environment, ExploreConfig(**keys)).abstract(
            explored(environment, world, *calls), Origin("unguided"), random.Random(seed)
        )
        found += [candidate.task for candidate in made]
    return found


def flat(task: Task) -> list[ToolCall]:
    return [call for turn in task.solution for call in turn]


def test_failed_calls_are_never_part_of_a_solution() -> None:
    for task in solutions(KeyValue(), get("nothing"), put("a"), delete("nothing"), get("a")):
        assert get("nothing") not in flat(task) and delete("nothing") not in flat(task)


def test_a_goal_brings_what_it_needs_in_its_solution_or_in_its_world() -> None:
    inside = outside = 0
    for task in solutions(KeyValue(), put("z"), put("a"), get("a")):
        if get("a") in flat(task):
            inside += put("a") in flat(task)
            outside += put("a") in task.world.prefix
            assert (put("a") in flat(task)) != (put("a") in task.world.prefix)
            assert put("z") not in task.world.prefix
    assert inside and outside


def test_lengths_vary_up_to_the_limit() -> None:
    calls = [put(f"k{n}") for n in range(8)]
    lengths = Counter(len(flat(t)) for t in solutions(KeyValue(), *calls, calls_per_task=3, tries=80))
    assert set(lengths) == {1, 2, 3}


def test_turns_vary_up_to_the_limit_and_each_has_a_call() -> None:
    calls = [put(f"k{n}") for n in range(8)]
    made = solutions(KeyValue(), *calls, calls_per_task=4, turns=3, tries=80)
    assert {len(task.turns) for task in made} == {1, 2, 3}
    assert all(len(task.turns) == len(task.solution) and all(task.solution) for task in made)


def test_nothing_comes_of_nothing() -> None:
    environment = KeyValue()
    world = environment.worlds("train")[0]
    abstractor = TemplateAbstractor(environment)
    for calls in ((), (get("nothing"), delete("nothing"))):
        exploration = explored(environment, world, *calls)
        assert abstractor.abstract(exploration, Origin("unguided"), random.Random(0)) == []


def test_equal_generators_give_equal_candidates() -> None:
    first, second = (solutions(KeyValue(), put("a"), get("a"), put("b"), tries=5) for _ in range(2))
    assert first == second


def test_harvested_tasks_depend_on_answers_and_use_many_tools(harvested: list[Task]) -> None:
    tools = {call.name for task in harvested for call in flat(task)}
    assert len(tools) >= 110
    assert sum("equal to the" in " ".join(task.turns) for task in harvested) >= 25
    assert {len(flat(task)) for task in harvested} == {1, 2, 3, 4}
    assert {len(task.turns) for task in harvested} == {1, 2, 3}
