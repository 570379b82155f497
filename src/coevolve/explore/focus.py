"""From a weakness signal to a plan: which tools to lead with, and which to come back to.

The paper lets an LLM reflect on failed rollouts and write an exploration context; here the failed
calls are compared with the verified solution, and the point where they part is the context.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coevolve.environments.base import Environment
from coevolve.explore.schema import Tool
from coevolve.types import Rollout, Signal, ToolCall, World


@dataclass(frozen=True)
class Plan:
    """What one exploration sets out to do."""

    lead: tuple[str, ...] = ()
    """Tools to bring about first, in order."""
    weights: dict[str, float] = field(default_factory=dict)
    """Tools to prefer afterwards."""


def plan_from(signal: Signal, tools: Mapping[str, Tool], rng: random.Random) -> Plan:
    """Lead with the pattern that failed: the rare pattern itself, or the calls around the split."""
    weights: dict[str, float] = {}
    solution = [call for turn in signal.task.solution for call in turn]
    for call in solution:
        weights[call.name] = 2.0
    if signal.kind == "rare" and signal.pattern:
        lead = signal.pattern
    else:
        lead = failing(solution, signal.failed, rng)
    for name in lead:
        weights[name] = 4.0
    return Plan(tuple(name for name in lead if name in tools), weights)


def failing(solution: Sequence[ToolCall], failed: Sequence[Rollout], rng: random.Random) -> tuple[str, ...]:
    """Names of the calls around the first place where a failed rollout leaves the solution."""
    if not solution:
        return ()
    if not failed:
        return tuple(call.name for call in solution[-2:])
    calls = rng.choice(list(failed)).calls
    at = 0
    while at < len(solution) and at < len(calls) and calls[at] == solution[at]:
        at += 1
    at = min(at, len(solution) - 1)
    start = max(0, at - rng.randint(0, 1))
    names = [call.name for call in solution[start : at + 1 + rng.randint(0, 1)]]
    return tuple(dict.fromkeys(names))


def related_worlds(environment: Environment, signal: Signal) -> list[World]:
    """The signal's own world, and train worlds that offer the same leading tools, in order."""
    home = signal.task.world
    wanted = set(signal.pattern) or {call.name for turn in signal.task.solution for call in turn}
    others = [
        world
        for world in environment.worlds("train")
        if world.id != home.id and wanted <= {spec.name for spec in environment.offered(world)}
    ]
    return [home, *others]
