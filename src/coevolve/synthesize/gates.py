"""What is asked besides replay, where the configuration says so: is a task harmless, and can it be solved?

The paper's own rule asks whether the objective can be reached (section 3.3); a gate makes that a
question about the words. What a gate costs is in the ledger under its stage, ``safety`` or ``solve``.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from coevolve.config import ExploreConfig, VerifyConfig
from coevolve.environments.base import Environment
from coevolve.errors import InfrastructureError
from coevolve.explore.answers import InvalidAnswerError, ask
from coevolve.llm.base import LLM, Ledger, Message
from coevolve.prompting import render
from coevolve.synthesize.solving import CALLS, attempt
from coevolve.types import Json, Outcome, Rollout, Task

SOLVED_AT = 0.5
"""Reward from which a try is a success, as everywhere."""
SHOWN = 300
"""Characters of a judge's reason that are kept."""

Refusal = tuple[str, dict[str, Json]]
"""A short constant reason, and the evidence for it."""
Solve = Callable[[Task, int], Sequence[Rollout]]
"""So many rollouts of a task, sampled as in training."""


class Gate(Protocol):
    """One question about a task that replay cannot answer."""

    name: str

    def refusal(self, task: Task, ledger: Ledger) -> Refusal | None:
        """Reason and evidence, or None if the task passes; thread-safe.

        Raises:
            InfrastructureError: whoever is asked is out, or the budget is: the task is not judged.
        """


class Safety(BaseModel):
    """A judge's answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    safe: bool = Field(description="Whether the task may be used.")
    why: str = Field(description="One short sentence.")


class SafetyGate:
    """A language model refuses what asks for harm: ``unsafe``.

    It fails closed: without a valid answer a task is refused as ``safety_unclear``.
    """

    name = "safety"

    def __init__(self, llm: LLM, reasks: int = 2) -> None:
        self._llm = llm
        self._reasks = reasks

    def refusal(self, task: Task, ledger: Ledger) -> Refusal | None:
        rng = random.Random(f"safety/{task.id}")
        try:
            found = ask(
                self._llm,
                self.messages(task),
                Safety,
                stage="safety",
                ledger=ledger,
                reasks=self._reasks,
                rng=rng,
            )
        except InvalidAnswerError as error:
            return "safety_unclear", {"why": str(error)[:SHOWN]}
        return None if found.safe else ("unsafe", {"why": found.why[:SHOWN]})

    def messages(self, task: Task) -> list[Message]:
        """What the judge is asked."""
        names = list(dict.fromkeys(call.name for turn in task.solution for call in turn))
        user = render("coevolve.synthesize", "safety.user", turns=list(task.turns), tools=names)
        return [
            {"role": "system", "content": render("coevolve.synthesize", "safety.system")},
            {"role": "user", "content": user},
        ]


class LLMSolverGate:
    """A language model must solve the task in one of ``tries``, one after another; else ``unsolved``."""

    name = "solver"

    def __init__(
        self, environment: Environment, llm: LLM, tries: int = 3, calls: int = CALLS, reasks: int = 2
    ) -> None:
        self._environment = environment
        self._llm = llm
        self._tries = tries
        self._calls = calls
        self._reasks = reasks

    def refusal(self, task: Task, ledger: Ledger) -> Refusal | None:
        rewards: list[Json] = []
        for number in range(self._tries):
            reward = attempt(
                task,
                self._environment,
                self._llm,
                random.Random(f"solve/{task.id}/{number}"),
                ledger,
                calls=self._calls,
                reasks=self._reasks,
            )
            if reward >= SOLVED_AT:
                return None
            rewards.append(reward)
        return "unsolved", {"by": self._llm.name, "tries": self._tries, "rewards": rewards}


class PolicySolverGate:
    """The policy must solve the task in one of ``tries``; else ``unsolved``.

    ``solve`` is called by one thread at a time: a policy has one set of weights and one device.
    """

    name = "solver"

    def __init__(self, solve: Solve, tries: int = 3) -> None:
        self._solve = solve
        self._tries = tries
        self._turn = threading.Lock()

    def refusal(self, task: Task, ledger: Ledger) -> Refusal | None:
        with self._turn:
            started = time.perf_counter()
            rollouts = self._solve(task, self._tries)
            ledger.counts["solve.seconds"] += time.perf_counter() - started
        ledger.counts["solve.calls"] += sum(len(rollout.steps) for rollout in rollouts)
        ledger.counts["solve.completion_tokens"] += sum(sum(r.tokens.mask) for r in rollouts)
        ledger.counts["solve.prompt_tokens"] += sum(
            len(r.tokens.prompt) + len(r.tokens.mask) - sum(r.tokens.mask) for r in rollouts
        )
        if any(rollout.outcome is Outcome.SOLVED for rollout in rollouts):
            return None
        broken = [rollout.error for rollout in rollouts if rollout.outcome is Outcome.INVALID]
        if broken or not rollouts:
            # Too few tries to say that it cannot be solved (invariant 1: an outage is never a score).
            why = broken[0] if broken else "no rollout"
            raise InfrastructureError(f"the policy could not try task {task.id}: {why}")
        rewards: list[Json] = [rollout.reward for rollout in rollouts]
        return "unsolved", {"by": "policy", "tries": len(rollouts), "rewards": rewards}


def build_gates(
    config: VerifyConfig,
    explore: ExploreConfig,
    environment: Environment,
    llm: LLM | None = None,
    solve: Solve | None = None,
) -> tuple[Gate, ...]:
    """The gates of a configuration, the cheapest first.

    Args:
        llm: asked by ``safety`` and by ``solver.by: llm``.
        solve: the policy's rollouts, for ``solver.by: policy``.
    """
    gates: list[Gate] = []
    if config.safety:
        assert llm is not None, "verify.safety asks a language model"
        gates.append(SafetyGate(llm, explore.reasks))
    if config.solver is not None and config.solver.by == "policy":
        assert solve is not None, "verify.solver.by: policy asks the policy"
        gates.append(PolicySolverGate(solve, config.solver.tries))
    elif config.solver is not None:
        assert llm is not None, "verify.solver.by: llm asks a language model"
        gates.append(LLMSolverGate(environment, llm, config.solver.tries, explore.calls, explore.reasks))
    return tuple(gates)
