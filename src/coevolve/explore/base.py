"""What any explorer offers: act in a train world, and hand back exactly what was executed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from coevolve.errors import HeldOutError
from coevolve.explore.context import ExplorationContext
from coevolve.llm.base import Ledger, Message
from coevolve.types import Signal, Split, Triplet, World


@dataclass(frozen=True, slots=True)
class Exploration:
    """One exploration run: the triplets of one session, in order (section 3.2)."""

    world: World
    """Where it began; its prefix is already replayed."""
    triplets: tuple[Triplet, ...]
    explorer: str
    signal: Signal | None = None
    lead: tuple[str, ...] = ()
    """Tool names that it set out to use."""
    context: ExplorationContext | None = None
    """What a reflecting explorer set out to do."""
    conversation: tuple[Message, ...] = ()
    """What was said between explorer and world, where a language model explored; for the transcript."""
    prompts: Mapping[str, int] = field(default_factory=dict)
    """Versions of the prompt templates that it was asked with, where it is a language model."""


class Explorer(Protocol):
    """Scripted, an LLM, or the policy itself."""

    name: str

    def explore(
        self,
        world: World,
        rng: random.Random,
        signal: Signal | None = None,
        lead: tuple[str, ...] = (),
        ledger: Ledger | None = None,
    ) -> Exploration:
        """Explore from ``world``; guided by ``signal``, or by nothing where it is None.

        Args:
            ledger: where a language model's usage and faults are counted.

        Raises:
            InfrastructureError: the world or the endpoint broke; the caller counts and goes on.
        """

    def state_dict(self) -> dict[str, Any]:
        """What it has learned so far, as JSON data, for the checkpoint."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""


def must_be_of(split: Split, world: World) -> None:
    """Raise HeldOutError for a world of another split than the explorer's (invariant 4)."""
    if world.split != split:
        raise HeldOutError(f"world {world.id!r} is of the {world.split} split; this explorer takes {split}")
