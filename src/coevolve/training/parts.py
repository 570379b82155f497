"""What a training run is put together from, and how finished rollouts are handed to TRL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.rollout.chat import Chat
from coevolve.training.engine import TaskSource
from coevolve.training.metrics import MetricsLog
from coevolve.training.processes import Processes
from coevolve.types import Outcome, Rollout

Progress = Callable[[int, str], None]
"""Told the step and a few figures after each."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training step needs beside the model."""

    config: Config
    environment: Environment
    chat: Chat
    source: TaskSource | None
    """None on all but the main process."""
    processes: Processes
    metrics: MetricsLog
    checkpoints: Path
    progress: Progress | None
    notice: Callable[[str], None]


def as_trl(rollouts: Sequence[Rollout], pad: int, *, logprobs: bool) -> dict[str, Any]:
    """What TRL's ``rollout_func`` has to return: lists over rollouts, and their rewards.

    Args:
        pad: TRL cannot take an empty prompt or completion; one padding token with mask 0 stands for it.
        logprobs: hand over those of sampling time, which TRL corrects by where another engine sampled.
    """
    valid = [r.outcome is not Outcome.INVALID for r in rollouts]
    return {
        "prompt_ids": [list(r.tokens.prompt) or [pad] for r in rollouts],
        "completion_ids": [list(r.tokens.ids) or [pad] for r in rollouts],
        "logprobs": [list(r.tokens.logprobs) or [0.0] for r in rollouts] if logprobs else None,
        "env_mask": [list(r.tokens.mask) or [0] for r in rollouts],
        "rollout_reward": [r.reward if good else math.nan for r, good in zip(rollouts, valid)],
    }


def reward(rollout_reward: list[float], **_: Any) -> list[float | None]:
    """The environment's reward; None for an invalid rollout, which TRL leaves out of its figures."""
    return [None if math.isnan(one) else one for one in rollout_reward]


def adapter(config: Config) -> Any:
    """LoRA's settings for PEFT, or None."""
    if config.adapter == "none":
        return None
    from peft import LoraConfig

    targets = config.lora.targets
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
