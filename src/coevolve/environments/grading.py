"""Grading by replay, shared by every environment whose truth is a reference solution.

The reference is replayed in a fresh world once per task; a rollout's finished turns are held
against it, turn by turn. How strictly is the environment's choice (:class:`Rule`).
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.environments.base import Environment, Session, TurnRecord
from coevolve.errors import BrokenWorldError
from coevolve.types import Json, Task
from coevolve.values import taken

_BROKEN = "$broken"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a turn must fulfil."""

    answers: bool
    """Every answer of a non-empty reference turn must be among the rollout's answers so far; if
    False, only those of reference turns that leave the state as it was, and what a turn asks for beside
    its effects (:attr:`Reference.asked`)."""
    check_empty: bool
    """Hold a turn whose reference is empty to the reference's state, too."""
    abstain: bool
    """No call at all in a turn whose reference is empty."""


def snapshot(session: Session) -> Json:
    """The state, or a marker where it cannot be compared, so that a turn can always be closed."""
    try:
        return session.state()
    except BrokenWorldError as error:
        return {_BROKEN: str(error)}


def broken(turn: TurnRecord) -> str:
    """Why the turn's state cannot be compared; '' if it can."""
    if isinstance(turn.state, dict) and _BROKEN in turn.state:
        return str(turn.state[_BROKEN])
    return ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A replayed reference solution."""

    start: Json
    """The state before its first turn."""
    turns: tuple[TurnRecord, ...]
    asked: tuple[tuple[bool, ...], ...] = ()
    """Per call of each turn: whether it is there for its answer. Empty if nobody has looked."""


def run_solution(environment: Environment, task: Task, asking: bool = False) -> Reference:
    """The task's solution in a fresh world, with no hint; whole states, broken ones as markers.

    Args:
        asking: find out which calls are there for their answers; costs a state per call.
    """
    changed: list[bool] = []
    with environment.open(task.world) as session:
        before = start = snapshot(session)
        for turn in task.solution:
            for call in turn:
                session.call(call)
                if asking:
                    after = snapshot(session)
                    changed.append(after != before)
                    before = after
            session.end_turn()
        turns = session.record()
    return Reference(start, turns, _asked(task, turns, changed) if asking else ())


def _asked(task: Task, turns: Sequence[TurnRecord], changed: Sequence[bool]) -> tuple[tuple[bool, ...], ...]:
    """Calls that change nothing and whose answer holds no value that a later call takes from it."""
    arguments: list[Json] = [call.arguments for turn in task.solution for call in turn]
    found: list[tuple[bool, ...]] = []
    known, number = "", 0
    for text, turn in zip(task.turns, turns):
        known += f"{text}\n"
        row = []
        for observation in turn.observations:
            used = taken(observation.text, known, arguments[number + 1 :])
            row.append(not changed[number] and not used and bool(observation.text.strip()))
            known += f"{observation.text}\n"
            number += 1
        found.append(tuple(row))
    return tuple(found)


def replay_fault(reference: Reference) -> str:
    """What is wrong with a reference that was replayed: an error or a broken world; '' if nothing."""
    for index, turn in enumerate(reference.turns):
        for call, observation in zip(turn.calls, turn.observations):
            if observation.error is not None:
                return f"turn {index}: {call.name} answers {observation.error!r}"
        if broken(turn):
            return f"turn {index}: {broken(turn)}"
    return ""


class References:
    """Replayed references by task id; the least recently used beyond ``size`` are forgotten.

    Args:
        asking: they tell which calls are there for their answers.
    """

    def __init__(self, size: int = 512, asking: bool = False) -> None:
        self._size = size
        self._asking = asking
        self._kept: OrderedDict[str, Reference] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, environment: Environment, task: Task) -> Reference:
        with self._lock:
            found = self._kept.get(task.id)
            if found is not None:
                self._kept.move_to_end(task.id)
                return found
        found = run_solution(environment, task, self._asking)
        with self._lock:
            self._kept[task.id] = found
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return found


def judge(turns: Sequence[TurnRecord], reference: Reference, rule: Rule) -> tuple[str, ...]:
    """One finding per reference turn: '' if it was right, else what was wrong with it.

    Turns that the rollout never finished are wrong; so is one turn more than the task has.
    """
    findings = []
    answers: Counter[str] = Counter()
    before = reference.start
    for index, expected in enumerate(reference.turns):
        if index >= len(turns):
            findings.append("the turn was never finished")
            continue
        turn = turns[index]
        answers.update(observation.text for observation in turn.observations)
        unchanged = expected.state == before
        before = expected.state
        every = rule.answers or unchanged
        asked = reference.asked[index] if reference.asked else ()
        wanted = [every or (n < len(asked) and asked[n]) for n in range(len(expected.calls))]
        findings.append(_finding(turn, expected, answers, wanted, rule))
    if len(turns) > len(reference.turns):
        findings.append(f"{len(turns)} turns where the task has {len(reference.turns)}")
    return tuple(findings)


def _finding(
    turn: TurnRecord, expected: TurnRecord, answers: Counter[str], wanted: Sequence[bool], rule: Rule
) -> str:
    if not expected.calls:
        if rule.abstain and turn.calls:
            return f"called {turn.calls[0].name} where nothing was to be called"
        if not rule.check_empty:
            return ""  # not looked at, so not even for a broken world, which a later turn may mend
    if broken(turn):
        return f"broken world: {broken(turn)}"
    if broken(expected):
        return f"the reference breaks its world: {broken(expected)}"
    if expected.calls and not turn.calls:
        return "no call"
    if turn.state != expected.state:
        return f"state differs in {_difference(turn.state, expected.state)}"
    told = Counter(observation.text for observation in expected.observations)
    for call, observation, needed in zip(expected.calls, expected.observations, wanted):
        if needed and answers[observation.text] < told[observation.text]:
            return f"no answer like that of {call.name}"
    return ""


def _difference(state: Json, expected: Json, depth: int = 0) -> str:
    """The first differing place, as a short path."""
    if isinstance(state, dict) and isinstance(expected, dict) and depth < 3:
        for key in expected:
            if key not in state:
                return f"{key} (missing)"
            if state[key] != expected[key]:
                inner = _difference(state[key], expected[key], depth + 1)
                return f"{key}.{inner}" if inner else key
        extra = [key for key in state if key not in expected]
        return f"{extra[0]} (extra)" if extra else ""
    return ""
