"""The pool as plain rows, for ``coevolve tasks`` and ``coevolve signals``."""

from __future__ import annotations

from typing import Any

from coevolve.pool.pool import Judgement, Pool
from coevolve.types import Rollout, Signal, dump


def task_rows(pool: Pool, refused: bool = False) -> list[dict[str, Any]]:
    """One row per task in order of admission, with lineage and verdict; JSON data.

    Args:
        pool: open for reading or writing.
        refused: list the refused candidates too, in order of judgement.
    """
    return [task_row(one) for one in pool.judgements() if one.verdict.admitted or refused]


def task_row(judgement: Judgement) -> dict[str, Any]:
    """One candidate: what it asks for and where, its lineage, its verdict; JSON data."""
    task, verdict = judgement.candidate.task, judgement.verdict
    return {
        "id": task.id,
        "name": task.name,
        "environment": task.environment,
        "version": task.version,
        "world": {"key": task.world.key, **dump(task.world)},
        "turns": list(task.turns),
        "solution": [[dump(call) for call in turn] for turn in task.solution],
        "extra": dump(task)["extra"],
        "origin": dump(task.origin),
        "step": judgement.step,
        "verdict": dump(verdict),
    }


def signal_rows(pool: Pool) -> list[dict[str, Any]]:
    """One row per signal, oldest first, with its evidence; JSON data."""
    return [signal_row(signal) for signal in pool.signals()]


def signal_row(signal: Signal) -> dict[str, Any]:
    """One signal with its rollouts, without their tokens; JSON data."""
    return {
        "id": signal.id,
        "kind": signal.kind,
        "step": signal.step,
        "task": signal.task.id,
        "turns": list(signal.task.turns),
        "pattern": list(signal.pattern),
        "scores": list(signal.scores),
        "failed": [_rollout(rollout) for rollout in signal.failed],
        "solved": [_rollout(rollout) for rollout in signal.solved],
    }


def _rollout(rollout: Rollout) -> dict[str, Any]:
    whole: dict[str, Any] = dump(rollout)
    del whole["tokens"]
    return whole
