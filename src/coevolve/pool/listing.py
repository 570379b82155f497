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
    return [_task(one) for one in pool.judgements() if one.verdict.admitted or refused]


def _task(judgement: Judgement) -> dict[str, Any]:
    task, verdict = judgement.candidate.task, judgement.verdict
    return {
        "id": task.id,
        "name": task.name,
        "environment": task.environment,
        "version": task.version,
        "world": {"id": task.world.id, "key": task.world.key, "prefix": dump(task.world)["prefix"]},
        "turns": list(task.turns),
        "solution": [[dump(call) for call in turn] for turn in task.solution],
        "origin": dump(task.origin),
        "step": judgement.step,
        "verdict": dump(verdict),
    }


def signal_rows(pool: Pool) -> list[dict[str, Any]]:
    """One row per signal, oldest first, with its evidence; JSON data."""
    return [_signal(signal) for signal in pool.signals()]


def _signal(signal: Signal) -> dict[str, Any]:
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
