"""What the agent loop needs of whatever generates tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated message, with its stop token if it reached one."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the distribution sampled from; one per id."""


class Sampler(Protocol):
    """A policy that can be sampled from."""

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]) -> Sequence[Sample]:
        """One message for each prompt, in order, of at most ``max_new_tokens[i]`` ids.

        It stops after one of the ids in :attr:`Chat.stop_ids <coevolve.rollout.chat.Chat.stop_ids>`.
        """
        ...
