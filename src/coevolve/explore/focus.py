"""From a weakness signal to a plan: which tools to lead with, and which to come back to.

The paper lets an LLM reflect on failed rollouts and write an exploration context; here the failed
calls are compared with the verified solution, and the point where they part is the context.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coevolve.explore.schema import Tool
from coevolve.types import Rollout, Signal, ToolCall

Names = Callable[[ToolCall], tuple[str, ...]]
"""The actions within one call: :meth:`Environment.names`."""


def own_name(call: ToolCall) -> tuple[str, ...]:
    """A call is one action, where nobody says otherwise."""
    return (call.name,)


@dataclass(frozen=True)
class Plan:
    """What one exploration sets out to do."""

    lead: tuple[str, ...] = ()
    """Tools to bring about first, in order."""
    weights: dict[str, float] = field(default_factory=dict)
    """Tools to prefer afterwards."""


def plan_from(signal: Signal, tools: Mapping[str, Tool], rng: random.Random, names: Names = own_name) -> Plan:
    """Lead with the pattern that failed: the rare pattern itself, or the calls around the split."""
    weights: dict[str, float] = {}
    solution = [call for turn in signal.task.solution for call in turn]
    for call in solution:
        for name in names(call):
            weights[name] = 2.0
    lead = signal.pattern or failing(solution, signal.failed, rng, names)
    for name in lead:
        weights[name] = 4.0
    return Plan(tuple(name for name in lead if name in tools), weights)


def failing(
    solution: Sequence[ToolCall], failed: Sequence[Rollout], rng: random.Random, names: Names = own_name
) -> tuple[str, ...]:
    """Names of the actions around the first place where a failed rollout leaves the solution.

    Where calls hold actions of other names (code), a rollout follows the solution as far as it takes the
    same actions in the same order, whatever it does between them.
    """
    actions = [name for call in solution for name in names(call)]
    if not actions:
        return ()
    if not failed:
        return tuple(actions[-2:])
    calls = rng.choice(list(failed)).calls
    at = 0
    if all(names(call) == (call.name,) for call in (*solution, *calls)):
        while at < len(solution) and at < len(calls) and calls[at] == solution[at]:
            at += 1
    else:
        for name in (name for call in calls for name in names(call)):
            at += at < len(actions) and name == actions[at]
    at = min(at, len(actions) - 1)
    start = max(0, at - rng.randint(0, 1))
    return tuple(dict.fromkeys(actions[start : at + 1 + rng.randint(0, 1)]))
