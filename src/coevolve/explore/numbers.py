"""Numbers for a parameter: near ones that were seen, within stated bounds, of a sensible size."""

from __future__ import annotations

import random
import re

from coevolve.explore.found import Found
from coevolve.explore.schema import Parameter

# Word of the kind → (low, high, decimals) of made-up values.
_RANGES: dict[str, tuple[float, float, int]] = {
    "price": (10, 900, 2),
    "cost": (50, 900, 0),
    "amount": (1, 200, 0),
    "balance": (100, 9000, 0),
    "limit": (500, 20000, 0),
    "budget": (500, 20000, 0),
    "threshold": (1, 20, 0),
    "temperature": (16, 30, 0),
    "speed": (20, 120, 0),
    "distance": (10, 900, 0),
    "percentage": (1, 100, 0),
    "fuel": (1, 45, 1),
    "gallon": (1, 60, 1),
    "liter": (1, 200, 1),
    "precision": (2, 10, 0),
    "place": (0, 4, 0),
    "base": (2, 10, 0),
    "exponent": (2, 5, 0),
    "line": (1, 10, 0),
    "share": (1, 200, 0),
    "value": (1, 999, 1),
    "number": (1, 999, 1),
    "priority": (1, 5, 0),
    "level": (1, 5, 0),
    "security_code": (100, 999, 0),
}
_TOO_MUCH = re.compile(r"\b(above|exceed|too (large|big|high|much)|more than|insufficient|capacity)\b", re.I)
_FULLY = re.compile(r"\b(fully|full|maximum|completely)\b", re.I)


def number(p: Parameter, found: list[Found], rng: random.Random, hint: str = "") -> int | float:
    """One number; integers for integer parameters, otherwise often whole and at times with decimals."""
    word = p.kind.rpartition(":")[2]
    low, high, decimals = _RANGES.get(word, (1, 100, 0))
    money = word == "amount" and p.type == "number"
    if money:
        low, high = 50, 5000
    if p.low is not None and p.high is not None:
        low, high = p.low, p.high
    if hint and _FULLY.search(hint) and p.high is not None:
        return _typed(p.high, p, rng)
    bounded = p.low is not None
    if found and not bounded and rng.random() < 0.5:
        seen = [f.value for f in found if isinstance(f.value, int | float) and 0 < abs(f.value) < 1e7]
        if seen:
            value = float(rng.choice(seen))
            varied = round(value * rng.choice((0.5, 0.9, 1.1, 2)), 2)
            return _typed(varied if rng.random() < 0.4 and low <= varied <= high else value, p, rng)
    if hint and _TOO_MUCH.search(hint):
        high = low + (high - low) / 4
    if high - low <= 1:
        return _typed(
            high if rng.random() < 0.4 else round(low + rng.randint(1, 9) / 10 * (high - low), 2), p, rng
        )
    if not bounded and word in ("value", "number", "price", "distance") and rng.random() < 0.3:
        high *= 10  # as large as benchmarks and people write them
    value = rng.uniform(low, high)
    if p.multiple:
        return _typed(p.multiple * round(value / p.multiple), p, rng)
    if money or word in ("limit", "budget", "cost"):
        value = round(value / 50) * 50 if rng.random() < 0.6 else round(value)
        return _typed(max(value, low), p, rng)
    value = round(value, decimals) if decimals and rng.random() < 0.5 else round(value)
    return _typed(value, p, rng)


def _typed(value: float, p: Parameter, rng: random.Random) -> int | float:
    """Whole numbers are mostly written as such, also where decimals are allowed."""
    if p.type == "integer" or (value == int(value) and rng.random() < 0.6):
        return int(value)
    return float(value)
