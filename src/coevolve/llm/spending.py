"""How an answer is paid for: what it may take of a ledger's limits, and how it is counted there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.config import LlmConfig, PriceConfig
from coevolve.llm.base import Ledger, Message, SpentError
from coevolve.types import ToolSpec, canonical

LEAST_ROOM = 16
"""Completion tokens under which an answer is not worth its prompt."""
_CHARACTERS_PER_TOKEN = 4


def estimated_tokens(text: str) -> int:
    """Tokens of ``text`` where nobody counts them for us: a quarter of its characters."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def estimated_prompt(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """Tokens of a prompt, from its characters."""
    written = [canonical(list(map(dict, messages)))]
    written += [canonical([tool.name, tool.description, tool.parameters]) for tool in tools]
    return sum(map(estimated_tokens, written))


@dataclass(frozen=True, slots=True)
class Meter:
    """What one answer may take, and what it costs.

    ``<stage>.*`` is what limits look at. ``paid.*`` is counted here only, where a model is really asked,
    so it is right with a cache in front of it and without one.
    """

    tokens: int
    """Completion tokens of one answer, at most."""
    price: PriceConfig

    @classmethod
    def of(cls, config: LlmConfig) -> Meter:
        return cls(config.tokens, config.price)

    def room(self, ledger: Ledger, prompt: int) -> int:
        """Completion tokens that the next answer may take, given a prompt of ``prompt`` tokens.

        Raises:
            SpentError: the limits leave no room for prompt and answer.
        """
        ledger.must_have_left()
        limits, room = ledger.limits, self.tokens
        if limits.tokens is not None:
            left = int(limits.tokens - ledger.total("tokens"))
            room = min(room, left - prompt)
            if room < LEAST_ROOM:
                ledger.fault("spent_tokens")
                raise SpentError(
                    f"this exploration has {left} of its {limits.tokens} tokens left, "
                    f"and the next prompt takes about {prompt}"
                )
        if limits.money is not None and (self.price.prompt or self.price.completion):
            money = limits.money - ledger.total("money") - self.cost(prompt, 0)
            if self.price.completion:
                room = min(room, int(money * 1e6 / self.price.completion))
            if room < LEAST_ROOM or money < 0:
                ledger.fault("spent_money")
                raise SpentError(
                    f"what is left of this exploration's {limits.money:g} in money does not pay for "
                    f"a prompt of about {prompt} tokens and an answer"
                )
        return room

    def cost(self, prompt: int, completion: int) -> float:
        """Money for so many tokens."""
        return (prompt * self.price.prompt + completion * self.price.completion) / 1e6

    def used(self, ledger: Ledger, stage: str, prompt: int, completion: int) -> None:
        """Count the tokens of an answer, usable or not, and their price."""
        money = self.cost(prompt, completion)
        ledger.counts[f"{stage}.prompt_tokens"] += prompt
        ledger.counts[f"{stage}.completion_tokens"] += completion
        ledger.counts[f"{stage}.money"] += money
        ledger.counts["paid.tokens"] += prompt + completion
        ledger.counts["paid.money"] += money

    def answered(self, ledger: Ledger, stage: str) -> None:
        """Count one usable answer."""
        ledger.counts[f"{stage}.calls"] += 1
        ledger.counts["paid.calls"] += 1

    def waited(self, ledger: Ledger, stage: str, seconds: float) -> None:
        """Count time spent waiting for an answer, a refused or failed one included."""
        ledger.counts[f"{stage}.seconds"] += seconds
