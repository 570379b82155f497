"""Whether a call did what it was called for. Some worlds say 'no' in ordinary words."""

from __future__ import annotations

import re

from coevolve.explore.found import answer_data
from coevolve.types import Json, Observation, Triplet

_REFUSED = re.compile(
    r"\b(not found|no such|invalid|not supported|does not exist|doesn't exist|not authenticated|"
    r"not logged in|unable to|failed to|no matching|not available|insufficient)\b",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"^(get|check|list|view|show|display|verify|estimate|is)|login_?status|_get_", re.IGNORECASE
)


def refused(observation: Observation) -> bool:
    """The call ran, but the answer says in words that it did not do it."""
    data = answer_data(observation)
    if isinstance(data, dict):
        for key, value in data.items():
            if isinstance(value, str) and len(value) < 120 and _REFUSED.search(value):
                return True
            if value is False and re.search(r"status|success", key, re.IGNORECASE):
                return True
    return isinstance(data, str) and len(data) < 120 and bool(_REFUSED.search(data))


def empty(data: Json) -> bool:
    """Nothing in it: None, '', [], {} or containers of those."""
    if isinstance(data, dict):
        return all(empty(value) for value in data.values())
    if isinstance(data, list):
        return all(empty(value) for value in data)
    return data is None or (isinstance(data, str) and data.strip().lower() in ("", "none", "null"))


def succeeded(triplet: Triplet) -> bool:
    """No error, and neither a refusal in words nor a status of False, unless that was the question."""
    if triplet.observation.error is not None:
        return False
    if triplet.changed or not refused(triplet.observation):
        return True
    data = answer_data(triplet.observation)
    asked = bool(_ASKING.search(triplet.action.name))
    return asked and isinstance(data, dict) and any(isinstance(v, bool) for v in data.values())


def informative(triplet: Triplet) -> bool:
    """The answer tells something that one could have asked for."""
    return succeeded(triplet) and not empty(answer_data(triplet.observation))
