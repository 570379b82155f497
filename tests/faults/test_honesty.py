"""Attack: reward without the work.

Policies that do nothing, too much, the wrong thing or the right thing at the wrong time act on verified tasks
of every environment: no reward without the state change and the answer (invariant 3). Then a pool is offered
every loophole that we know, by an explorer that offers nothing else first: none gets in, and the policy that
is trained on it earns nothing by them.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from dishonest import (
    DISHONEST,
    NEVER,
    Compared,
    Policy,
    Truth,
    nothing,
    one_turn_too_few,
    one_turn_too_many,
    play,
    reference,
    truth_of,
)

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.synthesize.harvest import harvest
from coevolve.types import Json, Task, ToolCall
from desk import Desk
from keyvalue import KeyValue
from small_run import Shelf

PAGE = Path(__file__).parents[2] / "docs" / "your-own-environment.md"
MOST_BY_CHANCE = 0.1
"""Of an environment's tasks, at most, that a random policy may solve: by really doing what was asked."""


@dataclass(frozen=True)
class Ground:
    """An environment with verified tasks, and what their solutions leave."""

    environment: Environment
    tasks: Sequence[Task]
    compared: Compared = lambda state: state
    never: Sequence[Policy] = NEVER
    """Policies that are paid for no task."""

    def truths(self) -> Iterator[tuple[Task, Truth, list[ToolCall], random.Random]]:
        every = [call for task in self.tasks for turn in task.solution for call in turn]
        for task in self.tasks:
            yield task, truth_of(self.environment, task, self.compared), every, random.Random(task.id)


def harvested(environment: Environment, n: int, turns: int = 2) -> Ground:
    made = harvest(environment, n, 5, ExploreConfig(calls=8, calls_per_task=3, turns=turns))
    assert len(made) > n / 2
    return Ground(environment, made)


def todo() -> Ground:
    """The to-do list of the page on environments of one's own, as it stands there."""
    found = re.search(r"`todo\.py`[^\n]*\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, type] = {}
    exec(found[1], names)
    return harvested(ToolboxEnvironment(names["TodoList"]), 40)


def bfcl_official() -> Ground:
    """The benchmark's own tasks, every ninth: some have turns in which nothing is to be called."""
    environment = BfclEnvironment()
    return Ground(environment, environment.tasks("train")[::9])


def textworld_made() -> Ground:
    pytest.importorskip("textworld", reason="TextWorld is not installed (the extra 'textworld')")
    from coevolve.environments.textworld import TextWorldEnvironment

    return harvested(TextWorldEnvironment({"train": range(2)}), 12, turns=1)


def textworld_official() -> Ground:
    pytest.importorskip("textworld", reason="TextWorld is not installed (the extra 'textworld')")
    from coevolve.environments.textworld import TextWorldEnvironment

    def won(state: Json) -> Json:
        assert isinstance(state, dict)
        return state["won"]

    environment = TextWorldEnvironment({"train": range(3)})
    # A game that is won is won, whatever comes after: so the benchmark has it.
    return Ground(environment, environment.tasks("train"), won, (nothing, one_turn_too_few))


GROUNDS: dict[str, Callable[[], Ground]] = {
    "key-value store": lambda: harvested(KeyValue(), 40),
    "shelf": lambda: harvested(ToolboxEnvironment(Shelf), 40),
    "to-do list": todo,
    "BFCL": lambda: harvested(BfclEnvironment(), 60, turns=3),
    "BFCL, official": bfcl_official,
    "desk": lambda: harvested(Desk(), 20),
    "TextWorld": textworld_made,
    "TextWorld, official": textworld_official,
}


def unearned(ground: Ground) -> tuple[list[str], Counter[str], int]:
    """Rewards that nothing has earned, how often each policy was paid, and the number of tasks."""
    found, paid, tasks = [], Counter[str](), 0
    for task, truth, junk, rng in ground.truths():
        tasks += 1
        reward, record = play(ground.environment, task, reference(task))
        assert reward == 1 and truth.earned(record, ground.compared), f"the reference of {task.id}"
        for policy in DISHONEST:
            reward, record = play(ground.environment, task, policy(task, truth, junk, rng))
            paid[policy.__name__] += reward > 0
            after_the_end = policy is one_turn_too_many and policy not in ground.never
            if reward > 0 and not after_the_end and not truth.earned(record, ground.compared):
                found.append(f"{policy.__name__} on {task.id}: {task.turns}")
    return found, paid, tasks


@pytest.mark.parametrize("name", GROUNDS)
def test_no_reward_without_the_state_change_and_the_answer(name: str) -> None:
    ground = GROUNDS[name]()
    found, paid, tasks = unearned(ground)
    assert found == []
    assert not any(paid[policy.__name__] for policy in ground.never)
    assert paid["at_random"] <= max(3, MOST_BY_CHANCE * tasks)
    print(f"{name}: {tasks} tasks, paid: {dict(paid)}")
