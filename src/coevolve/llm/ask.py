"""One question on its way to an answer, and how long its requests and pauses may still take."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenacity import RetryCallState

from coevolve.llm.base import Ledger, Message
from coevolve.llm.faults import AnswerFault
from coevolve.types import Json, ToolSpec

_LONGEST_BACK_OFF = 20.0


@dataclass
class Ask:
    """One question on its way to an answer."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    schema: Mapping[str, Json] | None
    seed: int
    stage: str
    ledger: Ledger
    prompt: int
    """Tokens of the prompt, estimated."""
    left: float
    """Seconds that requests and pauses may still take."""
    useless: int = 0
    """Answers that came and could not be used; each moves the seed, or the next would be the same."""
    last: str = ""
    """The last fault, in words."""

    def deadline(self, longest: float) -> float:
        """Seconds that the next request may take: at most ``longest``."""
        return max(0.0, min(longest, self.left, seconds_left(self.ledger)))

    def wait(self, state: RetryCallState, back_off: float) -> float:
        """Seconds until the next request: as told, or doubling; never the same for two explorations."""
        fault = state.outcome.exception() if state.outcome is not None else None
        told = fault.wait if isinstance(fault, AnswerFault) else None
        jitter = random.Random(f"{self.seed}/{self.prompt}/{state.attempt_number}").random()
        if told is not None:
            return told + jitter * min(back_off, told)
        longest = min(_LONGEST_BACK_OFF, back_off * 2.0 ** (state.attempt_number - 1))
        return longest * (1 + jitter) / 2


def seconds_left(ledger: Ledger) -> float:
    """Seconds that an exploration may still wait for answers."""
    limit = ledger.limits.seconds
    return float("inf") if limit is None else limit - ledger.total("seconds")
