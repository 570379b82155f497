"""Attack: reward without the work.

Policies that do nothing, too much, the wrong thing or the right thing at the wrong time act on verified tasks
of every environment: no reward without the state change and the answer (invariant 3). Then a pool is offered
every loophole that we know, by an explorer that offers nothing else first: none gets in, and the policy that
is trained on it earns nothing by them: a small one in a store that is easily pleased, and the built-in one on
BFCL.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import bfcl_variants
import pytest
from bfcl_variants import BAITS, Offer, variants
from dishonest import (
    DISHONEST,
    NEVER,
    Compared,
    Policy,
    Truth,
    at_random,
    changes_only,
    junk_after,
    looks_only,
    nothing,
    one_call_left_out,
    one_turn_too_few,
    one_turn_too_many,
    play,
    reference,
    truth_of,
)
from loopholes import LOOPHOLES, Lenient, train
from loopholes_bfcl import configuration, earned, train_tiny
from tempted import Trained

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.synthesize.harvest import harvest
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Candidate, Json, Origin, Outcome, Rollout, Step, StopReason, Task, ToolCall
from desk import Desk
from keyvalue import KeyValue, a_task, get, put
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
    policies: Sequence[Policy] = DISHONEST

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

    return harvested(TextWorldEnvironment({"train": range(1)}), 8, turns=1)


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
        for policy in ground.policies:
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


# Loopholes on offer


@pytest.mark.parametrize("kind", LOOPHOLES)
def test_every_loophole_pays_and_is_refused_for_what_it_is(kind: str) -> None:
    """That it pays shows that the screen is needed; the reason, that it is not refused by chance."""
    environment, loophole = Lenient(), LOOPHOLES[kind]
    task = loophole.task(environment.worlds("train")[0], Origin("unguided"))
    assert loophole.exploit is not None
    reward, _ = play(environment, task, [list(turn) for turn in loophole.exploit])
    assert reward == 1
    verdict = ReplayVerifier(environment).verify(Candidate(task))
    assert (verdict.admitted, verdict.reason) == (False, loophole.reason)


def test_an_answer_that_the_text_tells_is_refused_where_answers_are_handed_in() -> None:
    environment = Desk()
    task = next(t for t in harvested(environment, 20).tasks if t.solution[0][-1].arguments)
    answer = str(task.solution[0][-1].arguments["answer"])
    leaked = replace(task, turns=(f"{task.turns[0]} I think that it is {answer}.",))
    assert play(environment, leaked, [[task.solution[0][-1]]])[0] == 1, "whoever reads it need not look"
    verdict = ReplayVerifier(environment).verify(Candidate(leaked))
    assert (verdict.admitted, verdict.reason) == (False, "answer_in_text")
    assert verdict.evidence["answer"] == answer
    assert ReplayVerifier(environment).verify(Candidate(task)).admitted


def test_where_answers_are_observations_a_text_that_tells_them_pays_nobody() -> None:
    environment = KeyValue()
    task = replace(a_task(get("color")), turns=("Say color, which is red.",))
    assert ReplayVerifier(environment).verify(Candidate(task)).admitted
    assert play(environment, task, [[]])[0] == 0 and play(environment, task, [[put("place")]])[0] == 0


def test_a_policy_trained_where_every_loophole_is_offered_finds_none(tmp_path: Path) -> None:
    assert_honest(train(4, tmp_path))


def test_without_verification_it_would_be_paid_for_them(tmp_path: Path) -> None:
    trained = train(2, tmp_path, rule="none")
    assert trained.admitted and trained.of_loopholes and trained.unearned


@pytest.mark.slow
def test_nor_does_it_in_a_hundred_steps(tmp_path: Path) -> None:
    trained = train(100, tmp_path)
    assert_honest(trained)
    assert trained.paid > 100


def assert_honest(trained: Trained) -> None:
    assert trained.admitted == [] and trained.of_loopholes == 0, "none of them got in"
    assert trained.unearned == [] and trained.paid > 0, (
        "each reward was paid for the change that was asked for"
    )
    kinds = {*LOOPHOLES, "a test world"}
    assert {kind for kind, _ in trained.refused} == kinds == set(trained.offered)
    for kind in sorted(kinds):
        known = LOOPHOLES[kind].reason if kind in LOOPHOLES else "wrong_split"
        # The calls of some are those of an honest task, which may have been there before.
        assert {reason for k, reason in trained.refused if k == kind} - {"duplicate"} == {known}


# The same on BFCL, with the variants of the tasks that a run finds there


def bfcl_offers(environment: Environment, explorations: int) -> Iterator[Offer]:
    """Honest tasks, one of each exploration, with what was tried beside them."""
    held = environment.tasks("test")
    explorer = ScriptedExplorer(environment, ExploreConfig())
    abstractor = TemplateAbstractor(environment, ExploreConfig(calls_per_task=2), per_exploration=1)
    worlds = environment.worlds("train")
    for number in range(explorations):
        rng = random.Random(f"offers/{number}")
        exploration = explorer.explore(worlds[number % len(worlds)], rng)
        for honest in abstractor.abstract(exploration, Origin("unguided"), rng):
            yield Offer(environment, honest.task, exploration.triplets, held, rng)


def acted(task: Task, turns: Sequence[Sequence[ToolCall]]) -> Rollout:
    steps = tuple(Step(number, "", tuple(calls)) for number, calls in enumerate(turns))
    return Rollout(task.id, steps, Outcome.SOLVED, 1.0, StopReason.FINISHED)


def test_every_dishonest_variant_of_a_bfcl_task_is_refused_for_what_it_is() -> None:
    environment, seen = BfclEnvironment(), Counter[str]()
    screen = Screen(evaluation=environment.tasks("test"), names=environment.names)
    verifier = ReplayVerifier(environment, screen=screen)
    for offer in bfcl_offers(environment, 30):
        for kind, task in variants(offer, bfcl_variants.LOOPHOLES).items():
            verdict = verifier.verify(Candidate(task))
            assert verdict.reason == bfcl_variants.LOOPHOLES[kind][0], (kind, task.turns, task.solution)
            seen[kind] += 1
    assert set(seen) == set(bfcl_variants.LOOPHOLES), "each was offered"
    print(dict(seen))


def test_where_all_answers_are_compared_baits_pay_for_the_work_only() -> None:
    environment, seen = BfclEnvironment(), Counter[str]()
    verifier = ReplayVerifier(environment)
    for offer in bfcl_offers(environment, 30):
        for kind, task in variants(offer, BAITS).items():
            if not verifier.verify(Candidate(task)).admitted:
                continue
            seen[kind] += 1
            all_of_it, none_of_it = reference(task), nothing(task)
            assert play(environment, task, all_of_it)[0] == 1 and earned(
                environment, task, acted(task, all_of_it)
            )
            assert not earned(environment, task, acted(task, none_of_it)), (kind, task.turns, task.solution)
            for turn in range(len(all_of_it)):
                for at in range(len(all_of_it[turn])):
                    fewer = reference(task)
                    del fewer[turn][at]
                    assert play(environment, task, fewer)[0] == 0, (kind, task.turns, task.solution)
    assert set(seen) == set(BAITS), "each got in"
    print(dict(seen))


def test_the_tiny_policy_finds_none_on_bfcl(tmp_path: Path) -> None:
    config = configuration(1, 0, "pool.initial=8", "train.tasks_per_step=4", "evolve.tasks=4")
    trained = train_tiny(config, tmp_path)
    assert trained.honest and trained.steps == 1 and trained.pool >= 8, trained.told()


@pytest.mark.slow
def test_nor_does_it_on_bfcl_in_a_hundred_steps(tmp_path: Path) -> None:
    trained = train_tiny(configuration(100), tmp_path)
    assert trained.honest and trained.paid > 100, trained.told()
    assert {kind for kind, _ in trained.refused} >= set(bfcl_variants.LOOPHOLES)
    assert set(trained.baits) == set(BAITS)


@pytest.mark.slow
def test_nor_is_there_any_in_appworld() -> None:
    """On the small test world: tasks that an exploration found; answers are a part of the state."""
    from coevolve.environments.appworld import AppWorldEnvironment
    from coevolve.environments.appworld.grading import answer_of, comparable
    from environments.appworld_support import world_root

    with AppWorldEnvironment(root=world_root(), workers=2, call_seconds=60) as environment:
        with environment.open(environment.worlds("train")[0]) as session:
            columns = environment._columns(session)

        def compared(state: Json) -> Json:
            return [comparable(state, columns), answer_of(state)]

        tasks = harvest(environment, 2, 5, ExploreConfig(calls=14, calls_per_task=2), attempts=5)
        policies = (
            nothing,
            one_turn_too_few,
            one_call_left_out,
            changes_only,
            looks_only,
            at_random,
            junk_after,
        )
        found, paid, count = unearned(Ground(environment, tasks, compared, policies=policies))
        assert found == [] and count == 2 and paid["nothing"] == paid["one_turn_too_few"] == 0
        print(f"AppWorld: {count} tasks, paid: {dict(paid)}")
