"""Processes that must call an engine together do so, whatever their rollouts need."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coevolve.training.turns import TurnSampler


class Threads:
    """Processes played by threads: ``gather`` is a collective call of all of them."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=120)
        self.items: list[Any] = [None] * count

    def of(self, rank: int) -> Any:
        outer = self

        class One:
            def gather(self, items: Sequence[Any]) -> list[Any]:
                outer.items[rank] = list(items)
                outer.barrier.wait()
                found = [item for items in outer.items for item in items]
                outer.barrier.wait()
                return found

        return One()


@pytest.mark.parametrize("turns", [(1, 1, 1), (3, 1, 2), (0, 4, 0), (0, 0, 0)])
def test_every_process_calls_equally_often_with_equally_many_prompts(turns: tuple[int, ...]) -> None:
    threads, calls = Threads(len(turns)), [[] for _ in turns]  # type: ignore[var-annotated]

    def act(rank: int) -> None:
        def generate(prompts: list[list[int]]) -> tuple[list[list[int]], None]:
            calls[rank].append(len(prompts))
            return [[*prompt, 99] for prompt in prompts], None

        numbers = random.Random(rank)
        sampler = TurnSampler(generate, threads.of(rank), pad=0)
        for turn in range(turns[rank]):
            prompts = [[rank, turn, n] for n in range(numbers.randrange(1, 5))]
            got = sampler.generate(prompts, [9] * len(prompts))
            assert [s.ids for s in got] == [(*p, 99) for p in prompts]
        sampler.drain()

    with ThreadPoolExecutor(len(turns)) as pool:
        list(pool.map(act, range(len(turns))))
    assert all(c == calls[0] for c in calls)
    assert len(calls[0]) == max(turns)


def test_messages_are_cut_at_their_limit_and_missing_log_probabilities_are_nan() -> None:
    def generate(prompts: list[list[int]]) -> Any:
        return [[1, 2, 3]] * len(prompts), [[-0.1, None, -0.3]] * len(prompts)

    sampler = TurnSampler(generate, Threads(1).of(0), pad=0)
    short, whole = sampler.generate([[7], [8]], [2, 3])
    assert short.ids == (1, 2) and whole.ids == (1, 2, 3)
    assert short.logprobs[0] == -0.1 and math.isnan(short.logprobs[1])
    assert len(whole.logprobs) == 3
