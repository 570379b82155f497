"""``train.demonstrate``: where all K rollouts of a task failed, learn from its verified solution.

Group-relative advantages are all 0 there, so Equation 1 alone learns nothing. With weight w the objective
of such a group becomes, beside Equation 1's terms, w times the token-mean log-likelihood of the solution;
like those it enters the mean over the P groups of the step. The paper has no such term: 0 is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coevolve.environments.base import Environment
from coevolve.errors import CoEvolveError
from coevolve.rollout.agent import demonstration
from coevolve.rollout.chat import Chat
from coevolve.training.objective import all_failed
from coevolve.training.processes import Processes
from coevolve.types import Group, Task, Tokens

_NOTHING = Tokens(prompt=(0,), ids=(0,), mask=(0,), logprobs=(0.0,))
"""Fills a process without a demonstration: all must run equally many forward passes."""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """The solutions to learn from in one step, spread over processes and forward passes."""

    mine: tuple[tuple[Tokens, ...], ...]
    """By forward pass of the step, for this process; never empty where ``active``."""
    active: tuple[bool, ...]
    """By forward pass: whether any process has one, the same everywhere."""
    scale: float
    """w / P."""
    count: int
    unusable: int
    """Solutions that could not be run or do not fit the context."""


def plan(
    groups: Sequence[Group],
    weight: float,
    passes: int,
    processes: Processes,
    chat: Chat,
    environment: Environment,
) -> Demonstrations | None:
    """Demonstrations for the groups that all failed, or None if there is no such group."""
    failed = all_failed(groups)
    if not failed:
        return None
    own = [_solve(group.task, chat, environment) for group in failed[processes.rank :: processes.count]]
    unusable = sum(processes.gather([sum(tokens is None for tokens in own)]))
    most = len(failed[:: processes.count])
    return Demonstrations(
        mine=tuple(
            tuple(tokens or _NOTHING for tokens in own[n::passes]) or (_NOTHING,) for n in range(passes)
        ),
        active=tuple(n < most for n in range(passes)),
        scale=weight / sum(1 for group in groups if group.valid),
        count=len(failed) - unusable,
        unusable=unusable,
    )


def _solve(task: Task, chat: Chat, environment: Environment) -> Tokens | None:
    try:
        tokens: Tokens = demonstration(task, chat, environment)
    except CoEvolveError:
        return None
    fits = len(tokens.prompt) + len(tokens.ids) <= chat.limits.context_tokens
    return tokens if fits and any(tokens.mask) else None


def pad_tokens(rows: Sequence[Tokens], pad: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Ids and attention ``[rows, before + after]``, loss mask ``[rows, after]``, and ``after``."""
    before = max(len(row.prompt) for row in rows)
    after = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), before + after), pad)
    attention = torch.zeros_like(ids)
    mask = torch.zeros((len(rows), after))
    for n, row in enumerate(rows):
        span = slice(before - len(row.prompt), before + len(row.ids))
        ids[n, span] = torch.tensor([*row.prompt, *row.ids])
        attention[n, span] = 1
        mask[n, : len(row.ids)] = torch.tensor(row.mask, dtype=torch.float)
    return ids, attention, mask, after
