"""Training where tasks that pay for nothing are offered: what all grounds share.

A ground is an environment with a policy and somebody who offers such tasks. A kind of them has the reason
that it has to be refused for. One without a reason is no loophole but a bait: it may get in, since its
environment pays for the work alone, which every rollout on it is then held to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.types import Group, Rollout, Task

ASKED_BEFORE = frozenset(("duplicate", "near_duplicate", "eval_overlap", "spells_out_calls"))
"""What a candidate may be refused for whatever else is wrong with it: most have the calls or the words of an
honest task, which may have been there before, or has words (of a file, say) that read as a call."""

Earned = Callable[[Task, Rollout], bool]
"""Whether a rollout did what the task's reference solution does; asked of those that were paid."""


class Offering(Protocol):
    """Who offers what pays for nothing."""

    offered: dict[str, str]
    """Kind by the task's id."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """What each kind has to be refused for; '' for a bait."""


@dataclass
class Trained:
    """What training on such a pool came to."""

    steps: int = 0
    paid: int = 0
    """Rollouts with a reward."""
    unearned: list[str] = field(default_factory=list)
    """Those among them that did not do what was asked."""
    of_loopholes: int = 0
    """Rollouts of a task that was offered as a loophole."""
    of_baits: int = 0
    paid_baits: int = 0
    offered: Counter[str] = field(default_factory=Counter)
    """Tasks by kind."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Candidates by kind and reason."""
    astray: list[str] = field(default_factory=list)
    """Kinds with a reason that they should not have been refused for: by chance, so to speak."""
    admitted: list[str] = field(default_factory=list)
    """Kinds of loopholes that got in."""
    baits: Counter[str] = field(default_factory=Counter)
    """Baits that got in, by kind."""
    pool: int = 0
    rewards: list[float] = field(default_factory=list)
    """Mean by step."""

    @property
    def honest(self) -> bool:
        """Nothing got in that should not, and nothing was paid for that was not earned."""
        return not (self.admitted or self.unearned or self.of_loopholes or self.astray)

    def sum_up(self, pool: Pool, offering: Offering) -> None:
        """Look at what became of every candidate."""
        self.offered = Counter(offering.offered.values())
        for judgement in pool.judgements():
            kind, verdict = offering.offered.get(judgement.candidate.task.id), judgement.verdict
            if kind is None or verdict.admitted:
                continue
            self.refused[kind, verdict.reason] += 1
            reason = offering.reasons[kind]
            if reason and verdict.reason not in {reason, *ASKED_BEFORE}:
                self.astray.append(f"{kind}: {verdict.reason}")
        for task in pool:
            kind = offering.offered.get(task.id)
            if kind is not None and offering.reasons[kind]:
                self.admitted.append(kind)
            elif kind is not None:
                self.baits[kind] += 1
        self.pool = len(pool)

    def told(self) -> dict[str, Any]:
        """For whoever started the script."""
        tenth = max(1, self.steps // 10)
        told: dict[str, Any] = {
            "steps": self.steps,
            "pool": self.pool,
            "offered": sum(self.refused.values()) + len(self.admitted) + sum(self.baits.values()),
            "admitted loopholes": self.admitted,
            "refused": {f"{kind}: {reason}": n for (kind, reason), n in sorted(self.refused.items())},
            "refused for another reason": self.astray,
            "paid rollouts": self.paid,
            "unearned": len(self.unearned),
            "mean reward, first and last tenth": [
                round(sum(part) / len(part), 3) for part in (self.rewards[:tenth], self.rewards[-tenth:])
            ],
        }
        if self.unearned:
            told["unearned, the first"] = self.unearned[:10]
        if self.baits:
            told["baits in the pool"] = dict(sorted(self.baits.items()))
            told["rollouts on baits, and those paid"] = [self.of_baits, self.paid_baits]
        return told


class Watched(CoEvolution):
    """A loop that looks at what each reward was paid for."""

    trained: Trained
    offering: Offering
    earned: Earned

    def watch(self, trained: Trained, offering: Offering, earned: Earned) -> None:
        """Before the first step."""
        self.trained, self.offering, self.earned = trained, offering, earned

    def observe(self, step: int, groups: Sequence[Group]) -> None:
        for group in groups:
            kind = self.offering.offered.get(group.task.id)
            bait = kind is not None and not self.offering.reasons[kind]
            self.trained.of_loopholes += (kind is not None and not bait) * len(group.rollouts)
            self.trained.of_baits += bait * len(group.rollouts)
            for rollout in group.rollouts:
                if rollout.reward > 0:
                    self.trained.paid += 1
                    self.trained.paid_baits += bait
                    if not self.earned(group.task, rollout):
                        self.trained.unearned.append(f"step {step}, task {group.task.id}: {group.task.turns}")
        self.trained.steps = step
        rewards = [rollout.reward for group in groups for rollout in group.rollouts]
        self.trained.rewards.append(sum(rewards) / len(rewards))
        super().observe(step, groups)
