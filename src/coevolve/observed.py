"""The groups of one training step as they come in: what must hold of them, and their figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coevolve.errors import HeldOutError, RunError
from coevolve.types import Group, Outcome


def check(group: Group) -> None:
    """Raise HeldOutError for a task outside the train split, RunError for rollouts that are not its own."""
    task = group.task
    if task.world.split != "train":
        raise HeldOutError(
            f"task {task.name or task.id} is of the {task.world.split} split: "
            "only train tasks may be observed"
        )
    for rollout in group.rollouts:
        if rollout.task != task.id:
            raise RunError(f"a rollout of task {rollout.task} was handed in as one of task {task.id}")
        if not 0 <= rollout.reward <= 1:
            raise RunError(f"a rollout of task {task.id} has reward {rollout.reward}: it must lie in [0, 1]")


def figures(groups: Sequence[Group]) -> dict[str, float]:
    """Rollouts by outcome, their mean reward, and the groups that teach nothing (invariant 9)."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    rewards = [rollout.reward for group in groups for rollout in group.valid]
    spreads = [{rollout.reward for rollout in group.valid} for group in groups if group.valid]
    counted = {f"rollouts/{outcome}": float(outcomes[outcome]) for outcome in Outcome}
    return counted | {
        "rollouts/reward": sum(rewards) / len(rewards) if rewards else 0.0,
        "groups/zero_variance": sum(len(spread) == 1 for spread in spreads) / len(spreads)
        if spreads
        else 0.0,
        "groups/without_valid_rollout": float(len(groups) - len(spreads)),
    }


def taught(groups: Sequence[Group]) -> dict[str, int]:
    """By origin of their tasks, how many groups there were and how many of them were mixed, to be counted.

    A group is mixed if its valid rollouts were paid differently: only such a group has an advantage.
    """
    counts: Counter[str] = Counter()
    for group in groups:
        if group.valid:
            name = f"groups.{group.task.origin.kind}"
            counts[name] += 1
            counts[f"{name}.mixed"] += len({rollout.reward for rollout in group.valid}) > 1
    return {name: by for name, by in sorted(counts.items()) if by}
