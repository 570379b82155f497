"""What stage 3 offers to the loop: triplets become candidates, candidates get verdicts."""

from __future__ import annotations

import random
from typing import Protocol

from coevolve.explore.base import Exploration
from coevolve.llm.base import Ledger
from coevolve.types import Candidate, Origin, Verdict


class Abstractor(Protocol):
    """Groups the triplets of one exploration into (instruction, reference solution) pairs (section 3.3)."""

    def abstract(
        self, exploration: Exploration, origin: Origin, rng: random.Random, ledger: Ledger | None = None
    ) -> list[Candidate]:
        """Zero or more candidates, each judged on its own later.

        ``ledger`` is where a language model's usage and faults are counted.
        """


class Verifier(Protocol):
    """The only door to the pool (invariant 3)."""

    def consult(self, candidate: Candidate, ledger: Ledger) -> Verdict | None:
        """A refusal by a gate that asks a model, or None; may run beside others, and remembers nothing."""

    def verify(self, candidate: Candidate) -> Verdict:
        """Replay and screen one candidate, in order; never raises for a bad one."""
