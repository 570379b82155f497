"""Dishonest variants of BFCL tasks, made from honest ones as a run finds them.

A variant is made only where it is what its kind says, which is looked up in the world, not in the verifier.
BFCL pays nobody who calls nothing, and compares the answers of all calls. So some of what is a loophole
elsewhere is a bait here (no reason): replay lets it in, and whoever is paid for it has made its calls.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

from coevolve.environments.base import Environment
from coevolve.errors import BrokenWorldError
from coevolve.explore.found import answer_data
from coevolve.explore.judge import empty
from coevolve.rollout.formats import render
from coevolve.synthesize.wording import instruction
from coevolve.types import Json, Observation, Task, ToolCall, Triplet, World
from coevolve.values import leaves, occurs


@dataclass(frozen=True)
class Happened:
    """What calls do in a world of their own."""

    answers: tuple[Observation, ...]
    states: tuple[str, ...]
    """Before the first, then after each."""

    @property
    def failed(self) -> bool:
        """A call was refused."""
        return any(answer.error for answer in self.answers)

    def still(self, since: int = 0) -> bool:
        """No call from ``since`` on changes anything."""
        return len(set(self.states[since:])) == 1

    def silent(self, since: int = 0) -> bool:
        """No call from ``since`` on answers anything."""
        return all(empty(answer_data(answer)) for answer in self.answers[since:])


@dataclass(frozen=True)
class Offer:
    """An honest task, and what is at hand to spoil it."""

    environment: Environment
    task: Task
    triplets: Sequence[Triplet]
    """The exploration it was found in."""
    held: Sequence[Task]
    """Tasks of the test split."""
    rng: random.Random

    @cached_property
    def calls(self) -> list[ToolCall]:
        return [call for turn in self.task.solution for call in turn]

    @cached_property
    def done(self) -> Happened:
        found = self.happens(self.calls)
        assert found is not None, "an honest task replays"
        return found

    @cached_property
    def made(self) -> World:
        """Where all that is asked for has been done already."""
        return replace(self.task.world, prefix=(*self.task.world.prefix, *self.calls))

    def runs(self, calls: Sequence[ToolCall], world: World | None = None) -> Happened | None:
        """None where they break the world."""
        with self.environment.open(world or self.task.world) as session:
            try:
                states, answers = [session.fingerprint()], []
                for call in calls:
                    answer, state = session.step(call)
                    answers.append(answer)
                    states.append(state)
            except BrokenWorldError:
                return None
        return Happened(tuple(answers), tuple(states))

    def happens(self, calls: Sequence[ToolCall], world: World | None = None) -> Happened | None:
        """None where a call fails, too."""
        found = self.runs(calls, world)
        return None if found is None or found.failed else found

    def others(self) -> Iterator[ToolCall]:
        """Other calls that were tried in this world, each once."""
        tried = [triplet.action for triplet in self.triplets]
        yield from (call for n, call in enumerate(tried) if call not in [*tried[:n], *self.calls])

    def said(self, call: ToolCall, answer: Observation | None = None) -> str:
        """The words for it, as the templates have them."""
        tools = {spec.name: spec for spec in self.environment.offered(self.task.world)}
        return instruction([call], tools, [answer or Observation("")], self.rng)

    def telling(self, text: str) -> Task:
        """The same task; its first turn also says this."""
        return replace(self.task, turns=(f"{self.task.turns[0]} {text}", *self.task.turns[1:]))

    def also(self, call: ToolCall) -> Task:
        """The same task, with one more call at the end that the last turn asks for."""
        *turns, text = self.task.turns
        *parts, last = self.task.solution
        return replace(
            self.task, turns=(*turns, f"{text} {self.said(call)}"), solution=(*parts, (*last, call))
        )


Maker = Callable[[Offer], Task | None]


def waits_first(offer: Offer) -> Task:
    task = offer.task
    return replace(task, turns=("One moment, please.", *task.turns), solution=((), *task.solution))


def waits_last(offer: Offer) -> Task:
    task = offer.task
    return replace(task, turns=(*task.turns, "Thank you, that is all."), solution=(*task.solution, ()))


def nothing_to_do(offer: Offer) -> Task:
    return replace(offer.task, turns=offer.task.turns[:1], solution=((),))


def spelled(offer: Offer, written: Callable[[ToolCall], str]) -> Task:
    return offer.telling(f"That is: {written(offer.calls[0])}")


def as_data(call: ToolCall) -> dict[str, object]:
    return {"name": call.name, "arguments": call.arguments}


def as_a_command(offer: Offer) -> Task | None:
    call = offer.calls[0]
    given = " ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    said = any(len(name) > 1 for name in call.arguments)  # an x = 5 is how one says it
    return offer.telling(f"That is: {call.name} {given}") if said else None


def names_the_tool(offer: Offer) -> Task | None:
    name = offer.calls[0].name
    return offer.telling(f"Use {name} for it.") if "_" in name else None


def pastes_the_answer(offer: Offer) -> Task | None:
    answer = offer.done.answers[-1]
    given = answer_data(answer)
    return offer.telling(f"It says {answer.text} at the end.") if isinstance(given, dict) and given else None


def cannot_be_made_twice(offer: Offer) -> Task | None:
    found = offer.runs(offer.calls, offer.made)
    return replace(offer.task, world=offer.made) if found is not None and found.failed else None


def fails(offer: Offer) -> Task | None:
    for call in offer.others():
        found = offer.runs([*offer.calls, call])
        if found is not None and found.failed:
            return offer.also(call)
    return None


def finds_nothing(offer: Offer) -> Task | None:
    """A call that does nothing and says nothing, alone."""
    for call in [*offer.others(), *offer.calls]:
        for world in (offer.task.world, offer.made):
            found = offer.happens([call], world)
            if found is not None and found.still() and found.silent():
                return replace(offer.task, world=world, turns=(offer.said(call),), solution=((call,),))
    return None


def also_finds_nothing(offer: Offer) -> Task | None:
    for call in offer.others():
        found = offer.happens([*offer.calls, call])
        if found is not None and found.still(-2) and found.silent(-1):
            return offer.also(call)
    return None


def twice(offer: Offer) -> Task | None:
    found = offer.happens([*offer.calls, offer.calls[-1]])
    again = found is not None and found.still(-2) and found.answers[-1].text == found.answers[-2].text
    return offer.also(offer.calls[-1]) if again else None


def overwritten(offer: Offer) -> Task | None:
    *before, last = offer.calls
    for call in [*offer.others(), *_other_ways(offer, last)]:
        found = offer.happens([*before, call, last]) if call.name == last.name else None
        if found is None or found.states[-1] != offer.done.states[-1]:
            continue
        changes = found.states[-3] != found.states[-2] != found.states[-1]
        if changes and found.answers[-1].text == offer.done.answers[-1].text:
            turns = (*offer.task.turns[:-1], f"{offer.said(call)} {offer.task.turns[-1]}")
            *parts, work = offer.task.solution
            return replace(offer.task, turns=turns, solution=(*parts, (*work[:-1], call, last)))
    return None


def in_a_test_world(offer: Offer) -> Task:
    return replace(offer.task, world=offer.rng.choice(offer.environment.worlds("test")))


def in_a_test_tasks_words(offer: Offer) -> Task | None:
    fitting = [task for task in offer.held if len(task.turns) == len(offer.task.turns)]
    return replace(offer.task, turns=offer.rng.choice(fitting).turns) if fitting else None


def made_already(offer: Offer) -> Task | None:
    found = offer.happens(offer.calls, offer.made)
    changed = not offer.done.still()
    if found is None or not changed or not found.still() or found.silent():
        return None
    return replace(offer.task, world=offer.made)


def undone(offer: Offer) -> Task | None:
    if len(offer.calls) > 1 or offer.done.still():
        return None
    for call in [*offer.others(), *_other_ways(offer, offer.calls[0])]:
        found = offer.happens([*offer.calls, call])
        if found is not None and found.states[-1] == found.states[0]:
            return offer.also(call)
    return None


def _other_ways(offer: Offer, call: ToolCall) -> Iterator[ToolCall]:
    """The same call with another of the options (unlocked, off), another number or another text."""
    tool = next(spec for spec in offer.environment.offered(offer.task.world) if spec.name == call.name)
    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    for name, schema in properties.items():
        given = call.arguments.get(name)
        options: list[Json] = []
        if isinstance(schema, dict) and isinstance(schema.get("enum"), list):
            options = cast(list[Json], schema["enum"])
        elif isinstance(schema, dict) and schema.get("type") == "boolean":
            options = [True, False]
        elif isinstance(given, str):
            options = [f"{given} too"]
        elif isinstance(given, int | float):
            options = [given / 2, given + 1]
        for option in options:
            yield ToolCall(call.name, {**call.arguments, name: option})


def tells_the_value(offer: Offer) -> Task | None:
    if not offer.done.still(-2):
        return None
    known = "\n".join(offer.task.turns)
    values = [value for value in leaves(answer_data(offer.done.answers[-1])) if not occurs(value, known)]
    return offer.telling(f"I think that it is {values[0]}.") if values else None


def asks_for_nothing(offer: Offer) -> Task | None:
    """A look in a turn that does not ask for it."""
    for call in offer.others():
        found = offer.happens([*offer.calls, call])
        if found is not None and found.still(-2) and not found.silent(-1):
            turns = (*offer.task.turns, "Thank you, that is all.")
            return replace(offer.task, turns=turns, solution=(*offer.task.solution, (call,)))
    return None


LOOPHOLES: dict[str, tuple[str, Maker]] = {
    "a turn at the beginning in which nothing is to be done": ("empty_turn", waits_first),
    "a turn at the end in which nothing is to be done": ("empty_turn", waits_last),
    "nothing to do at all": ("no_solution", nothing_to_do),
    "the calls in the text": (
        "spells_out_calls",
        partial(spelled, written=lambda call: render("python", [call])),
    ),
    "the calls in the text, as JSON": (
        "spells_out_calls",
        partial(spelled, written=lambda call: json.dumps(as_data(call))),
    ),
    "the calls in the text, as Python's data": (
        "spells_out_calls",
        partial(spelled, written=lambda call: repr(as_data(call))),
    ),
    "the calls in the text, as a command": ("spells_out_calls", as_a_command),
    "the tool's name in the text": ("spells_out_calls", names_the_tool),
    "the answer in the text, as it is given": ("spells_out_calls", pastes_the_answer),
    "a change that cannot be made again": ("replay_error", cannot_be_made_twice),
    "a call that fails": ("replay_error", fails),
    "a call that does nothing": ("no_effect", finds_nothing),
    "a call that does nothing, beside the work": ("superfluous_call", also_finds_nothing),
    "a call made twice": ("superfluous_call", twice),
    "a change that the next one overwrites": ("superfluous_call", overwritten),
    "a world of the test split": ("wrong_split", in_a_test_world),
    "a test task's words": ("eval_overlap", in_a_test_tasks_words),
}
"""By kind: the reason that it has to be refused for, and how it is made."""
NOTHING_ASKED = "bait: a look in a turn that asks for nothing"
"""The one that can be made of nearly every task."""
BAITS: dict[str, tuple[str, Maker]] = {
    "bait: a change that has been made already, with an answer": ("", made_already),
    "bait: changes that undo each other": ("", undone),
    "bait: a value that the text tells": ("", tells_the_value),
    NOTHING_ASKED: ("", asks_for_nothing),
}


def variants(offer: Offer, kinds: dict[str, tuple[str, Maker]]) -> dict[str, Task]:
    """Those that can be made of this task, by kind."""
    made = {kind: make_one(offer) for kind, (_, make_one) in kinds.items()}
    return {kind: task for kind, task in made.items() if task is not None}
