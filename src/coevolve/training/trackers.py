"""TensorBoard, Weights & Biases, trackio: the lines of ``metrics.jsonl``, under the same names."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import get_reporting_integration_callbacks

from coevolve.errors import ConfigError


def insist_on_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker that is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"train.report_to: {name} is not installed; pip install {name}, or leave it out"
            )


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """A line of ``metrics.jsonl`` as names and numbers.

    What lies within is named by its way, ``seconds/rollout``; a list becomes its mean; what is null or no
    number is left out.
    """
    found: dict[str, float] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}/")
        elif isinstance(value, (list, tuple)):
            numbers = [float(one) for one in value if isinstance(one, int | float)]
            if numbers:
                found[name] = sum(numbers) / len(numbers)
        elif isinstance(value, int | float):
            found[name] = float(value)
    return found


class Trackers(TrainerCallback):  # type: ignore[misc]
    """Opens and closes the trackers with training; what they are told is :meth:`tell`'s alone.

    Args:
        names: as in ``train.report_to``.
        run_dir: TensorBoard writes below it.
    """

    def __init__(self, names: Sequence[str], run_dir: Path) -> None:
        insist_on_trackers(names)
        self._inner = [made() for made in get_reporting_integration_callbacks(list(names))]
        for one in self._inner:
            if getattr(one, "logging_dir", "") is None:  # else the environment has said where
                one.logging_dir = str(run_dir / "tensorboard")

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        for one in self._inner:
            made: Any = getattr(one, "_SummaryWriter", None)
            if made is not None and one.tb_writer is None:
                # A run that was killed has told of steps that are done again: TensorBoard forgets them.
                one.tb_writer = made(log_dir=one.logging_dir, purge_step=state.global_step + 1)
            one.on_train_begin(args, state, control, **others)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        for one in self._inner:
            one.on_train_end(args, state, control, **others)

    def tell(self, args: Any, state: Any, control: Any, record: Mapping[str, Any]) -> None:
        """One line of ``metrics.jsonl``."""
        told = flat({key: value for key, value in record.items() if key != "step"})
        for one in self._inner:
            one.on_log(args, state, control, logs=dict(told))
