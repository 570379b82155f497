"""Which signal guides next, and where exploration then begins."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice

from coevolve.environments.base import Environment
from coevolve.pool import SignalRecord
from coevolve.types import Rollout, Signal, Task, ToolCall, World

Names = Callable[[ToolCall], Sequence[str]]
"""The actions within a call."""

KINDS = ("forgetting", "boundary", "rare", "unseen")
"""The order in which signal kinds take turns."""


def in_turn(
    records: Sequence[SignalRecord], rng: random.Random, shares: Mapping[str, float] | None = None
) -> Iterator[SignalRecord]:
    """Endlessly, one signal of each kind in turn; ends at once if there is none.

    With ``shares``, by kind and above 0, a kind's turn comes with that probability, relative to the others.
    Within a kind those that have guided the fewest explorations come first, among them the newest,
    and what is alike then is shuffled. A kind that is through begins again.
    """
    queues: dict[str, Iterator[SignalRecord]] = {}
    for kind in dict.fromkeys([*KINDS, *(record.kind for record in records)]):
        alike = [record for record in records if record.kind == kind]
        rng.shuffle(alike)
        alike.sort(key=lambda record: (record.served, -record.step))
        if alike:
            queues[kind] = cycle(alike)
    kinds = list(queues)
    while kinds:
        chosen = kinds if shares is None else rng.choices(kinds, [shares[kind] for kind in kinds])
        yield from (next(queues[kind]) for kind in chosen)


def learnable_shares(counters: Mapping[str, float]) -> dict[str, float]:
    """By kind of signal, the share of mixed groups among those on the tasks that it brought.

    A group in which all rollouts did alike teaches nothing. Laplace's rule, (mixed + 1) / (groups + 2):
    a kind without tasks is taken to be even, and none is ever given up.

    Args:
        counters: the pool's.
    """
    return {
        kind: (counters.get(f"groups.{kind}.mixed", 0) + 1) / (counters.get(f"groups.{kind}", 0) + 2)
        for kind in KINDS
    }


def breaking_points(signal: Signal, names: Names | None = None) -> list[World]:
    """The states in which the signal's failed rollouts went astray, distinct, the shared one first.

    Each is the task's world, with the part of its reference solution replayed that the rollouts got
    right: all of them together, and each on its own.

    Args:
        names: the actions within a call, where agents write several into one (code).
    """
    task = signal.task
    failed = [rollout for rollout in signal.failed if rollout.task == task.id]
    alone = (common_prefix(task, [rollout], names) for rollout in failed)
    lengths = [common_prefix(task, failed, names), *alone]
    calls = flat(task)
    return [
        replace(task.world, prefix=(*task.world.prefix, *calls[:length])) for length in dict.fromkeys(lengths)
    ]


def siblings(
    signal: Signal,
    environment: Environment,
    worlds: Sequence[World],
    offered: Callable[[World], Collection[str]],
) -> list[World]:
    """Those of ``worlds`` but the signal's own that offer the tools of its pattern, or else of its task.

    Args:
        offered: the names of the tools that a world offers.
    """
    names, closing = environment.names, environment.closing()
    needed = set(signal.pattern) or {name for call in flat(signal.task) for name in names(call)}
    needed -= {closing.name} if closing is not None else set()
    home = signal.task.world
    return [world for world in worlds if world.id != home.id and needed.issubset(offered(world))]


def common_prefix(task: Task, rollouts: Iterable[Rollout], names: Names | None = None) -> int:
    """How many leading calls of the solution all ``rollouts`` made first, and without an error.

    At most all but the last: a rollout that made them all failed by what it did besides, and there
    must be something left to lead to. 0 without rollouts. Where rollouts are code, a call of the solution
    counts as made if its action was taken, in the order of the solution, by a block that ran.
    """
    solution = flat(task)[:-1]
    lengths = [_right(solution, rollout, names) for rollout in rollouts]
    return min(lengths, default=0)


def _right(solution: Sequence[ToolCall], rollout: Rollout, names: Names | None) -> int:
    made = [(call, seen) for step in rollout.steps for call, seen in zip(step.calls, step.observations)]
    length = 0
    if names is not None and any(names(call) != (call.name,) for call, _ in made):
        wanted = [names(call) for call in solution]
        for action in (name for call, seen in made if seen.error is None for name in names(call)):
            length += length < len(wanted) and action in wanted[length]
        return length
    for reference, (call, seen) in zip(solution, islice(made, len(solution))):
        if call != reference or seen.error is not None:
            break
        length += 1
    return length


def flat(task: Task) -> list[ToolCall]:
    """The calls of the solution, over all turns."""
    return [call for turn in task.solution for call in turn]
