"""The contract between the loop and whatever trains: TRL, verl, a trainer of your own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from coevolve.types import Group, Task


class TaskSource(Protocol):
    """What the co-evolution loop offers to an engine. Only the main process has one."""

    def draw(self, n: int) -> Sequence[Task]:
        """Exactly ``n`` tasks for the next step; a task may come more than once."""

    def observe(self, step: int, groups: Sequence[Group]) -> None:
        """Take the finished groups of ``step``, counted from 1, in the order drawn.

        Called between the rollouts and the weight update of the step; where signals are watched and
        the pool grows.
        """

    def metrics(self) -> dict[str, Any]:
        """Figures of the step just observed, for ``metrics.jsonl``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next draw and observation depend on, as JSON data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A source with more to keep than JSON, such as a pool in a database.

    :meth:`load_state` is called before ``load_state_dict``.
    """

    def save_state(self, folder: Path) -> None:
        """Write whatever is needed into the empty ``folder``."""

    def load_state(self, folder: Path) -> None:
        """Go on from what :meth:`save_state` wrote."""


class Engine(Protocol):
    """Samples K rollouts of each drawn task, updates the policy, hands the groups back."""

    def train(self, source: TaskSource, steps: int) -> None:
        """Train until ``steps`` steps are done in all, going on from the last complete checkpoint.

        Raises:
            TrainingError: no step was done, or training cannot go on.
        """
