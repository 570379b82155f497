"""Agents that have not earned their reward, and what a reward has to be earned by.

:class:`Truth` says what a task's solution leaves and answers; it is found by replay, and knows nothing of how
the environments grade.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coevolve.environments.base import Environment, TurnRecord
from coevolve.types import Json, Task, ToolCall, fingerprint
from coevolve.values import leaves, occurs

Turns = list[list[ToolCall]]
Compared = Callable[[Json], Json]
"""What of a state counts."""


@dataclass(frozen=True)
class Truth:
    """What a solution leaves and answers, turn by turn."""

    states: tuple[str, ...]
    """After each turn."""
    changes: tuple[bool, ...]
    asked: tuple[tuple[str, ...], ...]
    """Answers of calls that change nothing and that no later call has taken anything from."""
    calls: tuple[tuple[tuple[ToolCall, bool], ...], ...]
    """Each with whether it changes anything."""

    def earned(self, turns: Sequence[TurnRecord], compared: Compared) -> bool:
        """Whether these turns left the states and got the answers."""
        if len(turns) != len(self.states):
            return False
        had: list[str] = []
        for turn, state, asked in zip(turns, self.states, self.asked, strict=True):
            had += [observation.text for observation in turn.observations]
            if fingerprint(compared(turn.state)) != state or not set(asked) <= set(had):
                return False
        return True


def truth_of(environment: Environment, task: Task, compared: Compared) -> Truth:
    """By replay in a fresh world, a state after each call.

    Where tasks are handed in, the answer is a part of the state, and none is asked for beside it.
    """
    answers = environment.closing() is None
    states, asked, calls, changes = [], [], [], []
    arguments = [list(leaves(call.arguments)) for turn in task.solution for call in turn]
    number = 0
    with environment.open(task.world) as session:
        mark = fingerprint(compared(session.state()))
        for turn in task.solution:
            begun, told, made = mark, [], []
            for call in turn:
                answer, before = session.call(call).text, mark
                mark = fingerprint(compared(session.state()))
                number += 1
                later = [value for given in arguments[number:] for value in given]
                used = any(occurs(value, answer) for value in later)
                if answers and mark == before and answer.strip() and not used:
                    told.append(answer)
                made.append((call, mark != before))
            session.end_turn()
            states.append(mark)
            changes.append(mark != begun)
            asked.append(tuple(told))
            calls.append(tuple(made))
    return Truth(tuple(states), tuple(changes), tuple(asked), tuple(calls))


def play(environment: Environment, task: Task, turns: Turns) -> tuple[float, tuple[TurnRecord, ...]]:
    """The reward of an agent that makes these calls, whatever it is told, and what became of them."""
    with environment.open(task.world) as session:
        for calls in turns:
            session.run(calls)
            session.end_turn()
        record = session.record()
        return environment.grade(task, session).reward, record


Policy = Callable[[Task, Truth, Sequence[ToolCall], random.Random], Turns]
"""Task, truth, other calls of the environment, chance: what it does."""


def reference(task: Task, *_: object) -> Turns:
    return [list(turn) for turn in task.solution]


def nothing(task: Task, *_: object) -> Turns:
    return [[] for _ in task.solution]


def each_call_twice(task: Task, *_: object) -> Turns:
    return [[call for call in turn for _ in range(2)] for turn in task.solution]


def all_of_it_twice(task: Task, *_: object) -> Turns:
    return [[*turn, *turn] for turn in task.solution]


def backwards(task: Task, *_: object) -> Turns:
    return [list(reversed(turn)) for turn in task.solution]


def turns_backwards(task: Task, *_: object) -> Turns:
    return [list(turn) for turn in reversed(task.solution)]


def all_at_once(task: Task, *_: object) -> Turns:
    """Everything in the first turn, when nobody has asked for it yet."""
    return [[call for turn in task.solution for call in turn], *([] for _ in task.solution[1:])]


def all_at_the_end(task: Task, *_: object) -> Turns:
    return [*([] for _ in task.solution[1:]), [call for turn in task.solution for call in turn]]


def one_turn_too_many(task: Task, *_: object) -> Turns:
    return [*reference(task), []]


def one_turn_too_few(task: Task, *_: object) -> Turns:
    return reference(task)[:-1]


def one_call_left_out(task: Task, truth: Truth, junk: Sequence[ToolCall], rng: random.Random) -> Turns:
    turns = reference(task)
    turn = rng.choice([turn for turn in turns if turn])
    del turn[rng.randrange(len(turn))]
    return turns


def changes_only(task: Task, truth: Truth, *_: object) -> Turns:
    return [[call for call, changes in turn if changes] for turn in truth.calls]


def looks_only(task: Task, truth: Truth, *_: object) -> Turns:
    return [[call for call, changes in turn if not changes] for turn in truth.calls]


def at_random(task: Task, truth: Truth, junk: Sequence[ToolCall], rng: random.Random) -> Turns:
    return [[rng.choice(junk) for _ in range(len(turn) + rng.randrange(3))] for turn in task.solution]


def another_task(task: Task, truth: Truth, junk: Sequence[ToolCall], rng: random.Random) -> Turns:
    """The right tools with the arguments of something else."""
    by_name: dict[str, list[ToolCall]] = {}
    for call in junk:
        by_name.setdefault(call.name, []).append(call)
    return [[rng.choice(by_name[call.name]) for call in turn] for turn in task.solution]


def junk_before(task: Task, truth: Truth, junk: Sequence[ToolCall], rng: random.Random) -> Turns:
    return [[*rng.sample(junk, 2), *turn] for turn in task.solution]


def junk_between(task: Task, truth: Truth, junk: Sequence[ToolCall], rng: random.Random) -> Turns:
    return [[item for call in turn for item in (call, rng.choice(junk))] for turn in task.solution]


def junk_after(task: Task, truth: Truth, junk: Sequence[ToolCall], rng: random.Random) -> Turns:
    turns = reference(task)
    turns[-1] += rng.sample(junk, 3)
    return turns


DISHONEST: tuple[Policy, ...] = (
    nothing,
    each_call_twice,
    all_of_it_twice,
    backwards,
    turns_backwards,
    all_at_once,
    all_at_the_end,
    one_turn_too_many,
    one_turn_too_few,
    one_call_left_out,
    changes_only,
    looks_only,
    at_random,
    another_task,
    junk_before,
    junk_between,
    junk_after,
)
NEVER: tuple[Policy, ...] = (nothing, one_turn_too_many, one_turn_too_few)
"""Those that no task may pay for, however it is."""
