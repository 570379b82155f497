"""The forgetting signal: solved before, failed now (section 3.1, after Toneva et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coevolve.config import ForgettingConfig
from coevolve.signals.base import SUCCESS, Scores, ScoresInMemory, by_task, evidence, failures, score
from coevolve.types import Group, Signal, SignalKind


class Forgetting:
    """Fires if one of a task's last W scores was >= 0.5 and its score now is < 0.5.

    Reading: the paper speaks of one current trajectory; GRPO samples K at once, from one policy.
    Put into the window one by one they would be compared with each other, and every group with
    mixed outcome would be 'forgotten': that is the boundary signal. So a step gives a task *one*
    score, the mean reward of its valid rollouts, which estimates the policy's success on it. It is
    compared with the W earlier scores and only then joins them.

    Args:
        config: W.
        scores: where the scores are kept; they belong to the checkpoint then. By default they are part of
            :meth:`state_dict`.
    """

    kind: SignalKind = "forgetting"

    def __init__(self, config: ForgettingConfig, scores: Scores | None = None) -> None:
        self._window = config.window
        self._own = ScoresInMemory()
        self._scores: Scores = self._own if scores is None else scores
        self._fired = 0
        self._tasks = 0

    def observe(self, step: int, groups: Sequence[Group]) -> list[Signal]:
        signals: list[Signal] = []
        for task, rollouts in by_task(groups):
            now = sum(score(rollout) for rollout in rollouts) / len(rollouts)
            earlier = self._scores.scores(task.id)[-self._window :]
            if now < SUCCESS and any(past >= SUCCESS for past in earlier):
                failed = evidence(failures(rollouts))
                signals.append(Signal(self.kind, step, task, scores=(*earlier, now), failed=failed))
            self._tasks += not earlier
            self._scores.keep_scores(task.id, [*earlier, now][-self._window :])
        self._fired = len(signals)
        return signals

    def metrics(self) -> dict[str, float]:
        return {
            "signals/forgetting/fired": float(self._fired),
            "signals/forgetting/tasks": float(self._tasks),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": self._tasks, "scores": dict(self._own.kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse; also of states from before the pool kept the scores."""
        self._own.kept.clear()
        for task, scores in state["scores"].items():
            self._scores.keep_scores(task, [float(score) for score in scores])
        self._tasks = state.get("tasks", len(state["scores"]))
