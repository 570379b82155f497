"""Success on a fixed list of tasks, with the figures every score has to name (invariant 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from coevolve.config import RolloutConfig
from coevolve.environments.base import Environment
from coevolve.rollout.agent import Sampler, run
from coevolve.rollout.chat import Chat
from coevolve.types import Outcome, Rollout, Task


@dataclass(frozen=True, slots=True)
class Score:
    """Share of solved episodes among the valid ones."""

    mean: float
    interval: tuple[float, float]
    """95 % Wilson interval over episodes; it knows nothing of the spread between seeds."""
    n: int
    """Valid episodes."""
    invalid: int
    """Episodes lost to infrastructure; not counted in ``n``."""
    solved: tuple[str, ...]
    """Ids of the solved tasks, so that two scores can be compared in pairs."""


def score(tasks: Sequence[Task], rollouts: Sequence[Rollout]) -> Score:
    """Count one rollout per task."""
    valid = [r for r in rollouts if r.outcome is not Outcome.INVALID]
    solved = tuple(r.task for r in valid if r.outcome is Outcome.SOLVED)
    if not valid:
        return Score(float("nan"), (0.0, 1.0), 0, len(rollouts), ())
    interval = binomtest(len(solved), len(valid)).proportion_ci(method="wilson")
    return Score(
        mean=len(solved) / len(valid),
        interval=(float(interval.low), float(interval.high)),
        n=len(valid),
        invalid=len(rollouts) - len(valid),
        solved=solved,
    )


def evaluate(
    tasks: Sequence[Task],
    environment: Environment,
    chat: Chat,
    sampler: Sampler,
    limits: RolloutConfig,
    batch: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Score:
    """Run one episode per task, ``batch`` side by side, and score them."""
    rollouts: list[Rollout] = []
    for start in range(0, len(tasks), batch):
        rollouts += run(tasks[start : start + batch], environment, chat, sampler, limits)
        progress(len(rollouts))
    return score(tasks, rollouts)
