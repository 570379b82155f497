"""One turn at a time from an engine that all processes must call together, such as vLLM.

Agents end after different numbers of turns, so processes would call it unequally often and with unequally
many prompts, which mis-slices answers or hangs. :class:`TurnSampler` fills up with dummy prompts, and
:meth:`TurnSampler.drain` keeps calling until the last process has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coevolve.rollout.sampler import Sample
from coevolve.training.processes import Processes

Generate = Callable[
    [list[list[int]]], tuple[Sequence[Sequence[int]], Sequence[Sequence[float | None]] | None]
]


class TurnSampler:
    """Samples through ``generate``, called equally often and with equally many prompts on all processes."""

    def __init__(self, generate: Generate, processes: Processes, pad: int) -> None:
        self._generate = generate
        self._processes = processes
        self._dummy = [pad]

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]) -> list[Sample]:
        """One message per prompt, in order; cut after ``max_new_tokens[i]`` ids."""
        if not prompts:
            return []
        most = max(self._processes.gather([len(prompts)]))
        ids, logprobs = self._call([list(prompt) for prompt in prompts], most)
        return [
            Sample(tuple(ids[n][:limit]), _numbers(logprobs[n] if logprobs else None, len(ids[n][:limit])))
            for n, limit in enumerate(max_new_tokens)
        ]

    def drain(self) -> None:
        """Join in the calls of the others until nobody has a prompt left."""
        while (most := max(self._processes.gather([0]))) > 0:
            self._call([], most)

    def _call(self, prompts: list[list[int]], size: int) -> Any:
        return self._generate(prompts + [self._dummy] * (size - len(prompts)))


def _numbers(values: Sequence[float | None] | None, length: int) -> tuple[float, ...]:
    """NaN where the engine has no log-probability: TRL corrects nothing there."""
    if values is None:
        return (0.0,) * length
    return tuple(float("nan") if value is None else value for value in values[:length])
