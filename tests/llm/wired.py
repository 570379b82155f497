"""A co-evolution in BFCL whose explorer and abstractor are a language model behind the test server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from server import Answer, Faults, Server, serve

from coevolve.config import EvolveConfig, ExploreConfig, LlmConfig, SignalsConfig
from coevolve.environments.base import Environment
from coevolve.explore.llm import LLMExplorer
from coevolve.llm.base import Limits
from coevolve.llm.endpoint import Endpoint
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.synthesize.llm import LLMAbstractor
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Candidate, Group, Outcome, Rollout, Step, StopReason, Task, ToolCall

EXPLORE = ExploreConfig(calls=5, calls_per_task=3)


@dataclass
class Wired:
    """A loop, and what it is wired to."""

    loop: CoEvolution
    pool: Pool
    environment: Environment
    endpoint: Endpoint

    @property
    def tasks(self) -> list[Task]:
        return list(self.pool)

    @property
    def ids(self) -> list[str]:
        return [task.id for task in self.pool]

    @property
    def faults(self) -> dict[str, int]:
        """What the loop's metrics say of faults."""
        begin = "total/llm.faults."
        return {
            name.removeprefix(begin): int(value)
            for name, value in self.loop.metrics().items()
            if name.startswith(begin)
        }

    def counted(self, name: str) -> float:
        """A total of the loop's metrics."""
        return self.loop.metrics().get(f"total/{name}", 0.0)

    def train_a_step(self, step: int, tasks: int = 2) -> None:
        """What a trainer does: draw, roll out twice each (one of them fails), hand the groups back."""
        drawn = self.loop.draw(tasks)
        self.loop.observe(step, [half_solved(self.environment, task) for task in drawn])

    def all_replay(self) -> bool:
        """Whether each task of the pool passes the strict verifier anew, which knows nothing of the run."""
        verifier = ReplayVerifier(self.environment)
        return all(verifier.verify(Candidate(task)).admitted for task in self.pool)


@contextmanager
def wired(
    environment: Environment,
    base_url: str,
    *,
    explore: ExploreConfig = EXPLORE,
    concurrency: int = 1,
    evolve: dict[str, Any] | None = None,
    limits: Limits | None = None,
    back_off: float = 0.002,
    **llm: Any,
) -> Iterator[Wired]:
    """``llm`` are keys of the configuration's section of that name."""
    settings = {"base_url": base_url, "model": "test", "concurrency": concurrency, "seconds": 20.0} | llm
    endpoint = Endpoint(LlmConfig.model_validate(settings), back_off)
    with Pool.open(":memory:") as pool:
        loop = CoEvolution(
            environment,
            pool,
            SignalsConfig(),
            LLMExplorer(environment, explore, endpoint),
            LLMAbstractor(environment, explore, endpoint),
            evolve=EvolveConfig.model_validate({"every": 1, "tasks": 3, "attempts": 3} | (evolve or {})),
            concurrency=concurrency,
            limits=limits or Limits(tokens=explore.tokens, seconds=explore.seconds),
        )
        try:
            yield Wired(loop, pool, environment, endpoint)
        finally:
            loop.close()
            endpoint.close()


@contextmanager
def served(
    answer: Answer, environment: Environment, faults: Faults = (), **keys: Any
) -> Iterator[tuple[Wired, Server]]:
    """The same, with a server of its own that answers so."""
    with serve(answer, faults) as server, wired(environment, server.base_url, **keys) as made:
        yield made, server


def roll_out(environment: Environment, task: Task, calls: Sequence[ToolCall]) -> Rollout:
    """A real rollout of a one-turn task by an agent that makes these calls."""
    with environment.open(task.world) as session:
        seen = tuple(session.call(call) for call in calls)
        session.end_turn()
        grade = environment.grade(task, session)
    outcome = Outcome.SOLVED if grade.reward >= 0.5 else Outcome.FAILED
    step = Step(0, "I will see to it.", tuple(calls), seen)
    return Rollout(task.id, (step,), outcome, grade.reward, StopReason.FINISHED, grade)


def half_solved(environment: Environment, task: Task) -> Group:
    """Two rollouts: one makes the calls of the solution, the other leaves out the last."""
    calls = [call for turn in task.solution for call in turn]
    return Group(task, (roll_out(environment, task, calls), roll_out(environment, task, calls[:-1])))
