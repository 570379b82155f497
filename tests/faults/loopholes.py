"""Tasks that pay for nothing, and an explorer that offers them first.

As a script it trains the small policy on a pool that is offered all of them at every turn, and prints what
got in and what was paid for::

    PYTHONPATH=tests python tests/faults/loopholes.py --steps 100
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dishonest import truth_of

from coevolve.config import EvolveConfig, ExploreConfig, SignalsConfig, VerifyConfig
from coevolve.environments.base import Session
from coevolve.explore.base import Exploration
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.llm.base import Ledger
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.rollout.chat import Chat
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.training.trl import TrlEngine
from coevolve.types import Candidate, Grade, Group, Origin, Rollout, Task, ToolCall, World
from keyvalue import KeyValue, delete, get, put
from training import small


class Lenient(KeyValue):
    """A store that looks at the last state only; answers, turns and what was done on the way do not count."""

    name = "lenient"

    def grade(self, task: Task, session: Session) -> Grade:
        with self.open(task.world) as reference:
            reference.run([call for turn in task.solution for call in turn])
            reached = session.record() and session.record()[-1].state == reference.state()
        return Grade(float(bool(reached)))


@dataclass(frozen=True)
class Loophole:
    """One way to be paid for nothing."""

    reason: str
    """Why it is refused."""
    turns: tuple[str, ...]
    solution: tuple[tuple[ToolCall, ...], ...]
    exploit: tuple[tuple[ToolCall, ...], ...] | None = None
    """What it is paid for in the lenient store; None where it is no exploit but a bad task."""

    def task(self, world: World, origin: Origin) -> Task:
        return Task(Lenient.name, Lenient.version, world, self.turns, self.solution, origin)


LOOPHOLES: dict[str, Loophole] = {
    "a question that doing nothing answers": Loophole(
        "solved_by_nothing", ("Say color.",), ((get("color"),),), ((),)
    ),
    "a change that has been made already": Loophole(
        "solved_by_nothing", ("Set color to red.",), ((put("color"),),), ((),)
    ),
    "changes that undo each other": Loophole(
        "solved_by_nothing", ("Set size to red. Drop size.",), ((put("size"), delete("size")),), ((),)
    ),
    "an answer that nobody looks at": Loophole(
        "unrewarded_answer",
        ("Set size to red. Say color.",),
        ((put("size"), get("color")),),
        ((put("size"),),),
    ),
    "an answer in another turn that nobody looks at": Loophole(
        "unrewarded_answer",
        ("Set size to blue.", "Say color."),
        ((put("size", "blue"),), (get("color"),)),
        ((put("size", "blue"),), ()),
    ),
    "a turn in which nothing is to be done": Loophole(
        "empty_turn", ("Wait.", "Set size to red."), ((), (put("size"),)), ((), (put("size"),))
    ),
    "a turn at the end in which nothing is to be done": Loophole(
        "empty_turn", ("Set size to red.", "Drop color."), ((put("size"),), ()), ((put("size"),), ())
    ),
    "nothing to do at all": Loophole("no_solution", ("Drop color.",), ((),), ((),)),
    "the calls in the text": Loophole(
        "spells_out_calls",
        ("Set size by put(key='size', value='red').",),
        ((put("size"),),),
        ((put("size"),),),
    ),
    "the calls in the text, as JSON": Loophole(
        "spells_out_calls", ('Do {"name": "put", "key": "size"}.',), ((put("size"),),), ((put("size"),),)
    ),
    "a call that can be left out": Loophole(
        "superfluous_call",
        ("Set size to blue. Set size to red.",),
        ((put("size", "blue"), put("size")),),
        ((put("size"),),),
    ),
    "a solution that fails": Loophole("replay_error", ("Drop owner.",), ((delete("owner"),),), ((),)),
}
"""By kind; each with the reason that it has to be refused for."""


class Tempting:
    """Offers every loophole first, then one honest task that the small policy can learn."""

    def __init__(self) -> None:
        self.offered: dict[str, str] = {}
        """Kind by the task's id."""

    def abstract(
        self, exploration: Exploration, origin: Origin, rng: random.Random, ledger: Ledger | None = None
    ) -> list[Candidate]:
        world = exploration.world
        tempting = {kind: loophole.task(world, origin) for kind, loophole in LOOPHOLES.items()}
        tempting["a test world"] = LOOPHOLES["a call that can be left out"].task(
            Lenient().worlds("test")[0], origin
        )
        self.offered |= {task.id: kind for kind, task in tempting.items()}
        key, color = rng.choice(("size", "size", "shape")), rng.choice(small.COLORS)
        turns, solution = [f"Set {key} to {color}."], [(put(key, color),)]
        if rng.random() < 0.5:
            turns.append("Drop color.")
            solution.append((delete("color"),))
        honest = Task(Lenient.name, Lenient.version, world, tuple(turns), tuple(solution), origin)
        return [Candidate(task) for task in [*tempting.values(), honest]]


@dataclass
class Trained:
    """What training on such a pool came to."""

    steps: int = 0
    paid: int = 0
    """Rollouts with a reward."""
    unearned: list[str] = field(default_factory=list)
    """Those among them that did not change the state as asked."""
    of_loopholes: int = 0
    """Rollouts of a task that was offered as a loophole."""
    offered: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Candidates by kind and reason."""
    admitted: list[str] = field(default_factory=list)
    """Kinds of loopholes that got in."""
    pool: int = 0
    rewards: list[float] = field(default_factory=list)
    """Mean by step."""


class Watched(CoEvolution):
    """A loop that looks at what each reward was paid for."""

    environment: Lenient
    trained: Trained
    tempting: Tempting

    def observe(self, step: int, groups: Sequence[Group]) -> None:
        for group in groups:
            self.trained.of_loopholes += group.task.id in self.tempting.offered
            truth = truth_of(self.environment, group.task, lambda state: state)
            for rollout in group.rollouts:
                if rollout.reward > 0:
                    self.trained.paid += 1
                    if not _left(self.environment, group.task, rollout, truth.states[-1]):
                        self.trained.unearned.append(f"step {step}, task {group.task.id}")
        self.trained.steps = step
        rewards = [rollout.reward for group in groups for rollout in group.rollouts]
        self.trained.rewards.append(sum(rewards) / len(rewards))
        super().observe(step, groups)


def _left(environment: Lenient, task: Task, rollout: Rollout, state: str) -> bool:
    """Whether its calls change the state, and to the one that was asked for."""
    with environment.open(task.world) as session:
        before = session.fingerprint()
        session.run(rollout.calls)
        return session.fingerprint() == state != before


def train(steps: int, folder: Path, seed: int = 0, rule: Literal["replay", "none"] = "replay") -> Trained:
    """Train the small policy so many steps on a pool to which every loophole is offered, time and again.

    Args:
        rule: ``none`` executes nothing, to see what comes of it.
    """
    environment, tempting, trained = Lenient(), Tempting(), Trained()
    small.make_policy(folder / "policy")
    model, tokenizer = small.load(folder / "policy")
    config = small.config(steps=steps, seed=seed, train={"beta": 0.0}, checkpoint={"every": 10_000})
    with Pool.open(folder / "pool.db") as pool:
        loop = Watched(
            environment,
            pool,
            SignalsConfig(),
            ScriptedExplorer(environment, ExploreConfig(calls=4)),
            tempting,
            lambda pool: ReplayVerifier(environment, VerifyConfig(rule=rule), Screen(pool)),
            evolve=EvolveConfig(every=max(1, steps // 10), tasks=2, attempts=5, guided=False),
            seed=seed,
        )
        loop.environment, loop.trained, loop.tempting = environment, trained, tempting
        loop.populate(6)
        chat = Chat(tokenizer, config.rollout)
        TrlEngine(model, tokenizer, chat, environment, config, folder).train(loop)
        loop.close()
        trained.offered = Counter(tempting.offered.values())
        for judgement in pool.judgements():
            kind = tempting.offered.get(judgement.candidate.task.id)
            if kind is not None:
                trained.refused[kind, judgement.verdict.reason] += not judgement.verdict.admitted
        trained.admitted = [tempting.offered[task.id] for task in pool if task.id in tempting.offered]
        trained.pool = len(pool)
    return trained


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the small policy where every loophole is offered.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rule", choices=("replay", "none"), default="replay", help="verify.rule")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(given.steps, Path(folder), given.seed, given.rule)
    told: dict[str, Any] = {
        "steps": trained.steps,
        "pool": trained.pool,
        "offered": sum(trained.refused.values()),
        "admitted loopholes": trained.admitted,
        "refused": {f"{kind}: {reason}": n for (kind, reason), n in sorted(trained.refused.items())},
        "paid rollouts": trained.paid,
        "unearned": len(trained.unearned),
        "mean reward, first and last tenth": [
            round(sum(part) / len(part), 3)
            for part in (
                trained.rewards[: max(1, given.steps // 10)],
                trained.rewards[-max(1, given.steps // 10) :],
            )
        ],
    }
    print(json.dumps(told, indent=1))
    sys.exit(bool(trained.admitted or trained.unearned or trained.of_loopholes))


if __name__ == "__main__":
    main()
