"""``metrics.jsonl``: one line per training step, cut back to the checkpoint on resume."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coevolve.training.collect import Collected
from coevolve.training.demonstrate import Demonstrations
from coevolve.types import Outcome

LOG = "metrics.jsonl"
"""Name of the log, in the run and as a copy in each checkpoint."""


class MetricsLog:
    """Appends to ``path``; only the main process has one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: dict[str, Any]) -> None:
        """Write one line. What is not a finite number becomes null, so that any JSON reader can read it."""
        with self._path.open("a") as file:
            file.write(json.dumps(_plain(record)) + "\n")

    def size(self) -> int:
        """Bytes written so far; part of a checkpoint."""
        return self._path.stat().st_size if self._path.exists() else 0

    def copy(self, path: Path) -> None:
        """Write what has been logged so far to ``path``, for a checkpoint."""
        if self._path.exists():
            shutil.copyfile(self._path, path)
        else:
            path.write_bytes(b"")

    def restore(self, copy: Path) -> bool:
        """Become what :meth:`copy` wrote: later steps are forgotten, lost ones are back.

        Returns:
            whether the log still began with all of it.
        """
        kept = copy.read_bytes()
        whole = self._path.exists() and self._path.read_bytes()[: len(kept)] == kept
        if whole:
            self.cut(len(kept))
        else:
            scratch = self._path.with_name(self._path.name + ".part")
            scratch.write_bytes(kept)
            scratch.replace(self._path)
        return whole

    def cut(self, size: int) -> None:
        """Forget everything after ``size`` bytes: steps that no checkpoint has."""
        if self.size() > size:
            with self._path.open("r+b") as file:
                file.truncate(size)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def step_record(collected: Collected, logs: Mapping[str, Any]) -> dict[str, Any]:
    """The step's counts and means; ``logs`` are TRL's figures of its update."""
    rollouts = [r for group in collected.groups for r in group.rollouts]
    valid = [r for r in rollouts if r.outcome is not Outcome.INVALID]
    outcomes = Counter(r.outcome for r in rollouts)
    spreads = [_deviation([r.reward for r in g.valid]) for g in collected.groups]
    lengths = [sum(r.tokens.mask) for r in valid]
    steps = [step for r in valid for step in r.steps]
    surprise = [-lp for r in valid for lp, own in zip(r.tokens.logprobs, r.tokens.mask) if own]
    return {
        "loss": logs["loss"],
        "reward": _mean([r.reward for r in valid]),
        "solved": outcomes[Outcome.SOLVED],
        "failed": outcomes[Outcome.FAILED],
        "invalid": outcomes[Outcome.INVALID],
        "stops": dict(sorted(Counter(r.stop.value for r in rollouts).items())),
        "group_std": [round(s, 4) for s in spreads],
        "zero_variance": _mean([float(s == 0.0) for s in spreads]),
        "retried": collected.retried,
        "cut_observations": collected.cut,
        "malformed_calls": sum(len(step.malformed) for step in steps),
        "calls": sum(len(step.calls) for step in steps),
        "prompt_tokens": _mean([len(r.tokens.prompt) for r in valid]),
        "policy_tokens": _mean(lengths),
        "policy_tokens_longest": max(lengths, default=0),
        "completion_tokens_longest": max((len(r.tokens.ids) for r in valid), default=0),
        "grad_norm": logs.get("grad_norm"),
        "learning_rate": logs.get("learning_rate"),
        "kl": logs.get("kl"),
        # Estimated from the tokens as they were sampled, in nats a token: the update reads only those
        # rollouts that have an advantage.
        "entropy": _mean(surprise),
        "clip_ratio": logs.get("clip_ratio/region_mean"),
    }


def demonstration_record(made: Demonstrations | None, loss: float) -> dict[str, Any]:
    """How many solutions the step learned from, and what they added to its loss."""
    return {
        "demonstrations": made.count if made else 0,
        "demonstrations_unusable": made.unusable if made else 0,
        "demonstration_loss": loss,
    }


def headline(record: Mapping[str, Any]) -> str:
    """The figures that matter, for a progress bar."""
    total = record["solved"] + record["failed"] + record["invalid"]
    return (
        f"reward {record['reward']:.2f} solved {record['solved']}/{total} "
        f"mixed groups {1 - record['zero_variance']:.0%} gradient {record['grad_norm'] or 0.0:.2f}"
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2 or min(values) == max(values):
        return 0.0
    mean = _mean(values)
    return float((sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5)
