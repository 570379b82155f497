"""What the BFCL tests share beside the fixtures."""

from __future__ import annotations

from coevolve.environments.base import Environment, Session
from coevolve.types import Split, Task

SPLITS: tuple[Split, ...] = ("train", "dev", "test")


def follow(environment: Environment, task: Task) -> Session:
    """A session in which the task's own solution has been run."""
    session = environment.open(task.world)
    for turn in task.solution:
        session.run(turn)
        session.end_turn()
    return session
