"""What stage 3 offers to the loop: triplets become candidates, candidates get verdicts."""

from __future__ import annotations

import random
from typing import Protocol

from coevolve.explore.base import Exploration
from coevolve.types import Candidate, Origin, Verdict


class Abstractor(Protocol):
    """Groups the triplets of one exploration into (instruction, reference solution) pairs (section 3.3)."""

    def abstract(self, exploration: Exploration, origin: Origin, rng: random.Random) -> list[Candidate]:
        """Zero or more candidates, each judged on its own later."""


class Verifier(Protocol):
    """The only door to the pool (invariant 3)."""

    def verify(self, candidate: Candidate) -> Verdict:
        """Replay and screen one candidate; never raises for a bad one."""
