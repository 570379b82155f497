"""What the data became (figures 6 to 8 of the paper): length, variety and dependence of the tasks that
were added, by step and origin, and how near they come to the sealed tests. Plain data, from a pool and
tests alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coevolve.explore.schema import Tool, read_tool
from coevolve.pool import Pool
from coevolve.synthesize.links import links
from coevolve.synthesize.screen import shingles
from coevolve.types import Json, Observation, Task, ToolCall, ToolSpec, load

GUARD = "eval_overlap"
"""Reason of the refusals that keep the sealed tests out of the pool."""

_KEPT = 300
"""Characters of an answer that a verdict keeps at most (``synthesize/verify.py``)."""


@dataclass(frozen=True, slots=True)
class Added:
    """One task of the pool, measured."""

    task: str
    step: int
    origin: str
    turns: int
    calls: int
    """Length of its reference solution."""
    tools: frozenset[str]
    """The names of those that it uses."""
    dependent: int
    """Arguments that were read from an earlier answer of the same solution."""
    similarity: float | None = None
    """Jaccard similarity of its shingles to those of the nearest sealed test; None without tests."""
    nearest: str = ""
    """That test's own name, else its id."""


def added(
    pool: Pool, held: Iterable[Task] = (), tools: Mapping[str, Tool] | None = None, since: int = 0
) -> list[Added]:
    """Every task of the pool in order of admission.

    Args:
        held: the sealed tests' tasks.
        tools: by name, for the dependence between steps; by default what the calls themselves tell.
        since: tasks to leave out at the beginning, which were measured before.
    """
    near = Nearest(held)
    found = []
    admitted = (one for one in pool.stored_candidates() if one.admitted)
    for number, one in enumerate(admitted):
        if number < since:
            continue
        task = load(Task, json.loads(one.task))
        similarity, nearest = near.of(task)
        answers = whole(json.loads(one.evidence).get("observations", []), one.triplets)
        found.append(
            Added(
                one.id,
                one.step,
                one.kind,
                len(task.turns),
                sum(map(len, task.solution)),
                frozenset(call.name for turn in task.solution for call in turn),
                dependence(task, answers, tools),
                similarity,
                nearest,
            )
        )
    return found


def whole(answers: Sequence[str], triplets: str) -> list[str]:
    """A verdict keeps the beginning of each answer; the exploration it came from has all of it."""
    cut = [text for text in answers if len(text) >= _KEPT]
    if not cut:
        return list(answers)
    full = [triplet["observation"]["text"] for triplet in json.loads(triplets)]
    return [
        next((text for text in full if text.startswith(answer)), answer) if answer in cut else answer
        for answer in answers
    ]


def dependence(task: Task, answers: Sequence[str], tools: Mapping[str, Tool] | None = None) -> int:
    """Arguments of the solution that were read from an earlier answer.

    Args:
        answers: what the world answered to each call when the solution was replayed; 0 if they do not
            belong to the calls one by one.
    """
    calls = [call for turn in task.solution for call in turn]
    if len(answers) != len(calls) or len(calls) < 2:
        return 0
    known = [tools.get(call.name) if tools is not None else as_called(call) for call in calls]
    return len(links(calls, [Observation(str(text), _value(text)) for text in answers], known))


def as_called(call: ToolCall) -> Tool:
    """What one call tells of its tool: names and types of the arguments given."""
    properties: dict[str, Json] = {name: {"type": _type(value)} for name, value in call.arguments.items()}
    return read_tool(ToolSpec(call.name, "", {"type": "object", "properties": properties}))


def _type(value: Json) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "any")


def _value(text: Any) -> Json:
    try:
        value: Json = json.loads(text)
    except (TypeError, ValueError):
        return None
    return value


class Nearest:
    """The nearest of a fixed list of tasks, by Jaccard similarity of shingles (exact, not sketched)."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        sets: dict[str, set[str]] = {task.name or task.id: shingles(task) for task in tasks}
        self._names = list(sets)
        self._sizes = np.array([len(one) for one in sets.values()], dtype=np.int64)
        holders: dict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(sets.values()):
            for shingle in one:
                holders[shingle].append(number)
        self._holders = {shingle: np.array(numbers) for shingle, numbers in holders.items()}

    def of(self, task: Task) -> tuple[float | None, str]:
        """Similarity to the nearest, in [0, 1], and its name; None if there is none to be near to."""
        if not self._names:
            return None, ""
        mine = shingles(task)
        shared = [self._holders[one] for one in sorted(mine) if one in self._holders]
        if not shared:
            return 0.0, self._names[0]
        common = np.bincount(np.concatenate(shared), minlength=len(self._names))
        similarity = common / np.maximum(len(mine) + self._sizes - common, 1)
        best = int(similarity.argmax())
        return round(float(similarity[best]), 4), self._names[best]


def growth(rows: Iterable[Added]) -> list[dict[str, Any]]:
    """Means by step and origin, in that order; similarities as median, ninth decile and maximum."""
    groups: dict[tuple[int, str], list[Added]] = defaultdict(list)
    for row in rows:
        groups[row.step, row.origin].append(row)
    return [
        {"step": step, "origin": origin, **means(some)} for (step, origin), some in sorted(groups.items())
    ]


def means(rows: Sequence[Added]) -> dict[str, Any]:
    """The figures of one group of tasks, at least one."""
    near = [row.similarity for row in rows if row.similarity is not None]
    return {
        "tasks": len(rows),
        "turns": _mean([row.turns for row in rows]),
        "calls": _mean([row.calls for row in rows]),
        "tools": _mean([len(row.tools) for row in rows]),
        "dependent": _mean([row.dependent for row in rows]),
        "with_dependence": _mean([row.dependent > 0 for row in rows]),
        "similarity": None
        if not near
        else {
            "median": round(float(np.median(near)), 4),
            "decile": round(float(np.quantile(near, 0.9)), 4),
            "largest": max(near),
        },
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)
