"""One step's rollouts: draw on the main process, act on all, group, observe on the main process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.errors import NotANumberError, TrainingError
from coevolve.rollout.agent import run
from coevolve.rollout.chat import Chat
from coevolve.rollout.metrics import RolloutMetrics
from coevolve.rollout.sampler import Sampler
from coevolve.training.engine import TaskSource
from coevolve.training.processes import Processes
from coevolve.types import Group, Outcome, Rollout, Task

_NAMED = 8  # tasks named in a message


@dataclass(frozen=True, slots=True)
class Collected:
    """What one step sampled."""

    step: int
    groups: tuple[Group, ...]
    """Of all processes, in the order drawn; the same on every process."""
    mine: tuple[Rollout, ...]
    """This process's share of their rollouts, in order."""
    seconds: dict[str, float]
    retried: int
    """Rollouts begun anew because their world broke."""
    cut: int
    """Observations whose middle was left out."""


def collect(
    step: int,
    source: TaskSource | None,
    config: Config,
    environment: Environment,
    chat: Chat,
    sampling: Callable[[], AbstractContextManager[Sampler]],
    processes: Processes,
) -> Collected:
    """Sample K rollouts of each of the step's tasks and hand the groups to ``source``.

    Args:
        source: On the main process.
        sampling: Opens the sampler for the time of the rollouts.

    Raises:
        TrainingError: not one rollout is valid, the policy's logits are no numbers, or the source gave
            another number of tasks than asked.
    """
    size, wanted = config.train.group_size, config.train.tasks_per_step
    began = time.perf_counter()
    tasks = processes.share(lambda: _draw(source, wanted, step))
    entries = [task for task in tasks for _ in range(size)]
    share = len(entries) // processes.count
    own = entries[processes.rank * share : (processes.rank + 1) * share]

    counters = RolloutMetrics()

    def act() -> Sequence[Rollout]:
        threads = max(1, config.environment.workers)
        try:
            with sampling() as sampler:
                return run(own, environment, chat, sampler, config.rollout, threads=threads, metrics=counters)
        except NotANumberError as error:
            raise TrainingError(
                f"step {step}: {error}; training stops before anyone sees these rollouts, and the last "
                f"checkpoint is intact; lower train.learning_rate before going on ({named(tasks)})"
            ) from None

    mine = tuple(processes.together(act))
    rollouts = processes.gather(mine)
    groups = tuple(Group(task, tuple(rollouts[n * size : (n + 1) * size])) for n, task in enumerate(tasks))
    if all(r.outcome is Outcome.INVALID for r in rollouts):
        causes = Counter(r.error for r in rollouts).most_common(1)
        raise TrainingError(
            f"step {step}: all {len(rollouts)} rollouts are invalid ({causes[0][0] or 'no reason given'}); "
            "training stops rather than learn from an outage, and goes on from the last checkpoint when "
            "it is started again"
        )
    sampled = time.perf_counter()
    processes.together(lambda: source.observe(step, groups) if source is not None else None)
    observed = time.perf_counter()
    extra = processes.gather([(counters.retried, counters.cut)])
    return Collected(
        step,
        groups,
        mine,
        {"rollout": sampled - began, "observe": observed - sampled},
        retried=sum(retried for retried, _ in extra),
        cut=sum(cut for _, cut in extra),
    )


def _draw(source: TaskSource | None, wanted: int, step: int) -> list[Task]:
    assert source is not None, "the main process trains from a source"
    tasks = list(source.draw(wanted))
    if len(tasks) != wanted:
        raise TrainingError(f"step {step}: the task source gave {len(tasks)} tasks instead of {wanted}")
    return tasks


def named(tasks: Sequence[Task]) -> str:
    """The distinct tasks of a batch by their ids, for a message; the first eight of many."""
    ids = list(dict.fromkeys(task.id for task in tasks))
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"tasks of the batch: {', '.join(ids[:_NAMED])}{more}"
