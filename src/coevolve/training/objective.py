"""Equation 1: group-relative advantages, and the weights that make TRL's loss the paper's.

TRL's ``dapo`` loss is ``sum(token losses) / N`` with ``N`` the tokens of the whole step. Equation 1 is
the mean over groups of each group's own token mean, so a token of group g weighs
``N / (P * N_g)``. Both hold only tokens that the policy generated; tools' and users' tokens weigh 0 in
every term, the KL term included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from coevolve.types import Group, Outcome

STD_FLOOR = 1e-4
"""Added to the standard deviation, as TRL's ``scale_rewards='group'`` does."""


@dataclass(frozen=True, slots=True)
class Weighting:
    """How the rollouts of one step enter the loss; one entry per rollout, groups in order."""

    advantages: Tensor  # [P * K], 0 for what does not count
    weights: Tensor  # [P * K], factor on every token of the rollout, 0 for what does not count
    tokens: int
    """Policy tokens that count: what the loss is divided by."""
    groups: int
    """Groups that count, P."""


def advantages(rewards: Tensor, valid: Tensor) -> Tensor:
    """(r - mean) / (std + 1e-4) over the valid rollouts of each group; ``[P, K]`` in and out.

    The standard deviation is the sample's (K - 1), as in TRL. A group in which all rewards are equal,
    or with fewer than two valid rollouts, has advantages of exactly 0.
    """
    r = rewards.double()
    count = valid.sum(1, keepdim=True)
    mean = torch.where(valid, r, 0.0).sum(1, keepdim=True) / count.clamp(min=1)
    centred = torch.where(valid, r - mean, 0.0)
    std = (centred.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    highest = torch.where(valid, r, -torch.inf).amax(1, keepdim=True)
    lowest = torch.where(valid, r, torch.inf).amin(1, keepdim=True)
    spread = (count >= 2) & (highest > lowest)
    return torch.where(spread, centred / (std + STD_FLOOR), 0.0).float()


def weigh(rewards: Tensor, valid: Tensor, lengths: Tensor, normalise: Literal["group", "batch"]) -> Weighting:
    """Advantages and token weights of one step.

    Args:
        rewards: ``[P, K]``; what stands at an invalid rollout is not read.
        valid: ``[P, K]``, bool (invariant 1).
        lengths: ``[P, K]``, policy tokens of each rollout.
        normalise: ``group`` is Equation 1, ``batch`` one token mean over the step.

    A group with fewer than two valid rollouts, or without a policy token, is left out altogether: an
    outage must not shrink the gradient of the others.
    """
    own = torch.where(valid, lengths, 0).long()
    per_group = own.sum(1)
    counts = (valid.sum(1) >= 2) & (per_group > 0)
    total, groups = int(per_group[counts].sum()), int(counts.sum())
    if normalise == "group":
        factor = total / (max(groups, 1) * per_group.clamp(min=1).double())
    else:
        factor = torch.ones_like(per_group, dtype=torch.double)
    weights = torch.where(valid & counts[:, None], factor[:, None], 0.0).float()
    scores = torch.where(counts[:, None], advantages(rewards, valid), 0.0)
    return Weighting(scores.flatten(), weights.flatten(), total, groups)


def weigh_groups(groups: Sequence[Group], normalise: Literal["group", "batch"]) -> Weighting:
    """:func:`weigh` of finished groups, all of one size."""
    rows = [group.rollouts for group in groups]
    return weigh(
        torch.tensor([[r.reward for r in row] for row in rows], dtype=torch.double),
        torch.tensor([[r.outcome is not Outcome.INVALID for r in row] for row in rows]),
        torch.tensor([[sum(r.tokens.mask) for r in row] for row in rows]),
        normalise,
    )


def teaches(batch: Mapping[str, Any]) -> Tensor:
    """Which rollouts of a micro-batch, ``[B]``, have a gradient in Equation 1 without its KL term.

    Args:
        batch: TRL's, with ``advantages`` ``[B]`` and ``tool_mask`` ``[B, T]``.
    """
    found: Tensor = (batch["advantages"] != 0) & (batch["tool_mask"] != 0).any(1)
    return found


def only(batch: Mapping[str, Any], chosen: Tensor, rows: int) -> dict[str, Any]:
    """``rows`` rollouts of a micro-batch: the ``chosen`` ones, and of the others the shortest.

    What is left out only cost time where it has no gradient: its part of the loss is exactly 0, and the
    divisor, the step's policy tokens, counts it all the same.

    Args:
        batch: TRL's, with ``completion_mask`` ``[B, T]``; every other tensor of B rows is cut with it.
        chosen: ``[B]``, at most ``rows`` of them true.
        rows: The same in every process, as their figures are gathered; at least 1.
    """
    lengths = torch.where(chosen, -1, batch["completion_mask"].sum(1))
    kept = lengths.argsort(stable=True)[:rows].sort().values
    size = len(chosen)
    return {
        name: value[kept] if isinstance(value, Tensor) and value.dim() and len(value) == size else value
        for name, value in batch.items()
    }


def all_failed(groups: Sequence[Group]) -> list[Group]:
    """Groups whose valid rollouts, at least one, have all failed: where a demonstration has a use."""
    return [g for g in groups if g.valid and all(r.outcome is Outcome.FAILED for r in g.valid)]
