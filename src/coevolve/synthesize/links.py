"""Which argument of a call was read from which earlier answer of the same task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.explore.found import Found, answer_data, walk
from coevolve.explore.kinds import accepted
from coevolve.explore.schema import Parameter, Tool
from coevolve.types import Json, Observation, ToolCall, canonical


@dataclass(frozen=True, slots=True)
class Link:
    """Argument ``parameter`` of call ``user`` is field ``field`` of the answer to call ``source``."""

    user: int
    parameter: str
    source: int
    field: str
    place: int = 0
    """Which of several different values of that field it is, in the order they appeared."""
    among: int = 1
    """How many there are before ``user``."""


def links(
    calls: Sequence[ToolCall], observations: Sequence[Observation], tools: Sequence[Tool | None]
) -> list[Link]:
    """Every unambiguous dependency, at most one per argument.

    A value counts as read from an answer if it stands alone under a named field, its kind fits the
    parameter, and it was not already an argument of that or an earlier call (then it is known anyway).
    """
    answers = [
        [f for f in walk(answer_data(o), j, c.name) if _alone(f)]
        for j, (c, o) in enumerate(zip(calls, observations))
    ]
    spoken: list[set[str]] = []
    known: set[str] = set()
    found: list[Link] = []
    for i, call in enumerate(calls):
        tool = tools[i]
        parameters = {p.name: p for p in tool.parameters} if tool else {}
        for name, value in call.arguments.items():
            parameter = parameters.get(name)
            if parameter is None or not _telling(value, parameter) or canonical(value) in known:
                continue
            for j in range(i):
                match = [
                    f
                    for f in answers[j]
                    if _same(f.value, value) and _fits(f, parameter) and canonical(value) not in spoken[j]
                ]
                if match:
                    field = match[0].path[-1] if match[0].path else calls[j].name
                    values = list(
                        dict.fromkeys(
                            canonical(f.value)
                            for answer in answers[:i]
                            for f in answer
                            if f.path[-1:] == match[0].path[-1:]
                        )
                    )
                    place = values.index(canonical(match[0].value))
                    found.append(Link(i, name, j, field, place, len(values)))
                    break
        linked = {x.parameter for x in found if x.user == i}
        mine = {canonical(v) for n, v in call.arguments.items() if n not in linked}
        for value in call.arguments.values():
            if isinstance(value, list):
                mine |= {canonical(v) for v in value}
        known |= mine
        spoken.append(set(known))
    return found


def _alone(found: Found) -> bool:
    """Not one of several in a list or a map: 'the booking id' must name exactly one thing."""
    return all(not p.isdigit() and re.fullmatch(r"_?[A-Za-z][A-Za-z_]*", p) for p in found.path)


def _telling(value: Json, parameter: Parameter) -> bool:
    """Worth a reference: no flag, no tiny number that occurs everywhere, no option of the schema."""
    if isinstance(value, bool) or value is None or value in parameter.options:
        return False
    if isinstance(value, str):
        return len(value) >= 2 and not parameter.kind.startswith(("text", "title", "keyword", "word:"))
    if isinstance(value, int | float):
        return parameter.kind.startswith("id") or abs(value) > 12 or value != int(value)
    return False


def _same(found: Json, value: Json) -> bool:
    return found == value and isinstance(found, str) == isinstance(value, str)


def _fits(found: Found, parameter: Parameter) -> bool:
    if found.kind in accepted(parameter.kind):
        return True
    if isinstance(found.value, int | float) and parameter.type in ("number", "integer"):
        return not parameter.kind.startswith("id")
    return False
