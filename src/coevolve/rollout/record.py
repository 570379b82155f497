"""The token-exact record of one rollout while it grows (invariant 2)."""

from __future__ import annotations

from collections.abc import Sequence

from coevolve.types import Tokens


class BrokenRecordError(AssertionError):
    """Ids, mask and log-probabilities have drifted apart: a bug of ours, never caught."""


class Record:
    """Prompt, then ids that are only ever appended; mask 1 on what the policy generated."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.prompt = tuple(prompt)
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []

    def __len__(self) -> int:
        return len(self.prompt) + len(self.ids)

    def generated(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append a message of the policy."""
        self.ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += logprobs
        self.check()

    def given(self, ids: Sequence[int]) -> None:
        """Append text of a tool, a user or the template."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.check()

    def check(self) -> None:
        """Raises BrokenRecordError if the three lists have drifted apart."""
        if not len(self.ids) == len(self.mask) == len(self.logprobs):
            raise BrokenRecordError(
                f"token record: {len(self.ids)} ids, {len(self.mask)} mask, {len(self.logprobs)} logprobs"
            )

    def tokens(self, filler: int) -> Tokens:
        """The finished record. Engines need a completion: without one it is ``filler`` with mask 0,
        which no term of the loss counts."""
        if not self.ids:
            self.given([filler])
        return Tokens(self.prompt or (filler,), tuple(self.ids), tuple(self.mask), tuple(self.logprobs))
