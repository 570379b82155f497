"""What an evolution may spend on a model, dealt out to its explorations before they begin."""

from __future__ import annotations

from collections.abc import Sequence

from coevolve.config import BudgetConfig
from coevolve.llm.base import Ledger, Limits

RESOURCES = ("calls", "tokens", "seconds", "money")
_WHOLE = ("calls", "tokens")
_LEAST = 0.25
"""The part of a full reserve that an exploration must get, or it is not worth its beginning."""


class Purse:
    """Deals the budget of one evolution out.

    Each exploration reserves the most that it may use, and may not use more; when it has been handled,
    what it really used takes the place of that. So the budget holds whatever the explorations do, apart
    from the one answer each during which a limit is reached; and since they are handled in order, what
    is dealt out depends on nothing but the answers.

    Args:
        budget: of the whole evolution.
        limits: of one exploration; where it names none but the budget does, an equal share of the budget
            for each of those side by side.
        concurrency: explorations side by side.
    """

    def __init__(self, budget: BudgetConfig, limits: Limits, concurrency: int = 1) -> None:
        self.blocked = ""
        """The resource of which there was too little for the last request, or ''."""
        self._whole: dict[str, float | None] = {name: getattr(budget, name) for name in RESOURCES}
        self._spent = dict.fromkeys(RESOURCES, 0.0)
        self._full: dict[str, float | None] = {}
        for name, whole in self._whole.items():
            most: float | None = getattr(limits, name)
            if whole is not None:
                most = min(whole / concurrency if most is None else most, whole)
            self._full[name] = None if most is None else _round(name, most)

    def deal(self, in_flight: Sequence[Ledger]) -> Limits | None:
        """Limits for one more exploration, or None while there is no room beside those in flight.

        With none in flight, None is the end: nothing will come back. The last exploration may get
        less than the others.
        """
        dealt: dict[str, float | None] = {}
        for name, full in self._full.items():
            whole = self._whole[name]
            if full is None or whole is None:
                dealt[name] = full
                continue
            left = whole - self._spent[name] - sum(getattr(ledger.limits, name) for ledger in in_flight)
            least = full if in_flight else full * _LEAST
            if left < max(least, 1 if name in _WHOLE else 0) or left <= 0:
                self.blocked = name
                return None
            dealt[name] = _round(name, min(full, left))
        self.blocked = ""
        return Limits(**dealt)  # type: ignore[arg-type]  # calls and tokens are whole numbers

    def settle(self, ledger: Ledger) -> None:
        """Take note of what a handled exploration really used."""
        for name in RESOURCES:
            self._spent[name] += ledger.total(name)


def _round(name: str, value: float) -> float:
    return max(1, int(value)) if name in _WHOLE else value
