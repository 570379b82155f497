"""What earlier explorations taught: which tools work, what repairs an error, which arguments go together."""

from __future__ import annotations

import copy
import re
from typing import Any

from coevolve.types import Json, canonical

_KEPT = 40
# Kinds whose values mean the same in every world, so that what worked once is worth another try.
PORTABLE = frozenset(("airport", "city", "zip", "place", "unit", "company", "sector", "currency"))


def signature(error: str) -> str:
    """The error without the values in it: what kind of thing went wrong."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\d+(\.\d+)?", "_", error)
    # What follows a full stop or a colon are details, such as the list of what is missing.
    first = re.split(r"(?<=\w)[.:] (?=\w)", text, maxsplit=2)
    kept = first[0] if len(first[0].split()) > 2 else ": ".join(first[:2])
    return " ".join(kept.lower().split())[:120]


class Memory:
    """Counts and examples, all JSON; bounded per tool."""

    def __init__(self) -> None:
        self.worked: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.repairs: dict[str, dict[str, int]] = {}
        """``tool|signature`` → tool that was called before it worked → times."""
        self.remedies: dict[str, list[dict[str, Json]]] = {}
        """``tool|signature|by`` → arguments of the repairing call, only flags, options and numbers."""
        self.movers: dict[str, int] = {}
        """Tools that changed where the session is → times."""
        self.arguments: dict[str, list[dict[str, Json]]] = {}
        self.sources: dict[str, list[int]] = {}
        """``tool.parameter|found`` or ``|made`` → [worked, failed]."""
        self.creators: dict[str, dict[str, int]] = {}
        """Kind → tool whose argument became a value of that kind in the state → times."""
        self.seen: dict[str, list[str]] = {}
        """Portable kinds only: values that answers held."""

    def success(self, tool: str, arguments: dict[str, Json], portable: dict[str, Json]) -> None:
        self.worked[tool] = self.worked.get(tool, 0) + 1
        if len(portable) > 1:
            kept = self.arguments.setdefault(tool, [])
            if canonical(portable) not in (canonical(k) for k in kept):
                kept.append(portable)
                del kept[:-_KEPT]

    def failure(self, tool: str) -> None:
        self.failed[tool] = self.failed.get(tool, 0) + 1

    def repaired(self, tool: str, error: str, by: str, arguments: dict[str, Json]) -> None:
        counts = self.repairs.setdefault(f"{tool}|{error}", {})
        counts[by] = counts.get(by, 0) + 1
        kept = self.remedies.setdefault(f"{tool}|{error}|{by}", [])
        if arguments and arguments not in kept and len(kept) < 8:
            kept.append(arguments)

    def created(self, kind: str, tool: str) -> None:
        counts = self.creators.setdefault(kind, {})
        counts[tool] = counts.get(tool, 0) + 1

    def sourced(self, key: str, worked: bool) -> None:
        counts = self.sources.setdefault(key, [0, 0])
        counts[0 if worked else 1] += 1

    def odds(self, key: str, prior: float) -> float:
        """Chance that values from this source work, starting from ``prior``."""
        worked, failed = self.sources.get(key, (0, 0))
        return (worked + 4 * prior) / (worked + failed + 4)

    def remember(self, kind: str, value: str) -> None:
        if kind in PORTABLE:
            values = self.seen.setdefault(kind, [])
            if value not in values and len(values) < 200:
                values.append(value)

    def state_dict(self) -> dict[str, Any]:
        return {name: copy.deepcopy(getattr(self, name)) for name in _FIELDS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in _FIELDS:
            setattr(self, name, copy.deepcopy(state[name]))


_FIELDS = ("worked", "failed", "repairs", "arguments", "sources", "creators", "movers", "remedies", "seen")
