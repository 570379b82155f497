"""Stages 2 and 3 in one turn: from signals to explorations, candidates, verdicts and new tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from coevolve.environments.base import Environment
from coevolve.errors import BrokenWorldError, HeldOutError, InfrastructureError
from coevolve.explore.base import Explorer
from coevolve.pool import Pool, SignalRecord
from coevolve.synthesize.base import Abstractor, Verifier
from coevolve.types import Candidate, Origin, OriginKind, Rollout, Signal, Task, ToolCall, Verdict, World

KINDS = ("forgetting", "boundary", "rare")
"""The order in which signal kinds take turns."""

PATIENCE = 5
"""Infrastructure errors in a row after which an evolution gives up: an outage must not stall training."""

REMEMBERED = 10_000
"""Worlds whose tools are kept in memory."""

Progress = Callable[[int, str], None]
"""Told how many tasks are admitted, and a short text with the figures that matter."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What one evolution came to."""

    admitted: int
    explorations: int
    outage: str = ""
    """The last infrastructure error, if that ended it."""


class Evolution:
    """Sends the explorer out, and lets in what the verifier admits.

    The n-th exploration of a run draws from ``random.Random(f"{seed}/explore/{n}")``; n is kept in
    the pool, so that a resumed run goes on with the next one.
    """

    def __init__(
        self,
        environment: Environment,
        pool: Pool,
        explorer: Explorer,
        abstractor: Abstractor,
        verifier: Verifier,
        seed: int,
    ) -> None:
        self._environment = environment
        self._pool = pool
        self._explorer = explorer
        self._abstractor = abstractor
        self.verifier = verifier
        self._seed = seed
        self._worlds: tuple[World, ...] | None = None
        self._offered: dict[str, frozenset[str]] = {}

    def offered(self, world: World) -> frozenset[str]:
        """The tool names of a world."""
        if world.key not in self._offered:
            if len(self._offered) == REMEMBERED:
                self._offered.clear()
            self._offered[world.key] = frozenset(tool.name for tool in self._environment.offered(world))
        return self._offered[world.key]

    @property
    def worlds(self) -> tuple[World, ...]:
        """The train worlds (invariant 4: the only ones that an explorer sees)."""
        if self._worlds is None:
            self._worlds = tuple(self._environment.worlds("train"))
            for world in self._worlds:
                _must_be_train(world)
        return self._worlds

    def unguided(
        self, wanted: int, attempts: int, step: int, kind: OriginKind, progress: Progress | None = None
    ) -> Growth:
        """Explore the train worlds in turn, in an order shuffled anew for every round."""
        origin = Origin(kind, step=step, explorer=self._explorer.name)

        def errands() -> Iterator[tuple[World, Signal | None, Origin]]:
            while self.worlds:
                round_, place = divmod(self._explorations(), len(self.worlds))
                order = list(range(len(self.worlds)))
                random.Random(f"{self._seed}/worlds/{round_}").shuffle(order)
                yield self.worlds[order[place]], None, origin

        return self._grow(wanted, attempts, step, errands(), progress)

    def guided(
        self,
        wanted: int,
        attempts: int,
        step: int,
        records: Sequence[SignalRecord],
        progress: Progress | None = None,
    ) -> Growth:
        """Explore from signals, in the order of :func:`in_turn`, in worlds related to the failure."""

        def errands() -> Iterator[tuple[World, Signal | None, Origin]]:
            for record in in_turn(records, random.Random(f"{self._seed}/signals/{step}")):
                signal = self._pool.signal(record.id)
                rng = random.Random(f"{self._seed}/world/{self._explorations()}")
                parents = tuple(dict.fromkeys([signal.task.id, *(rollout.task for rollout in signal.failed)]))
                origin = Origin(signal.kind, parents, signal.id, step, self._explorer.name)
                yield self._related(signal, rng), signal, origin

        return self._grow(wanted, attempts, step, errands(), progress)

    def _related(self, signal: Signal, rng: random.Random) -> World:
        """Where rollouts broke, the same initial state fresh, or a sibling: one of these, evenly."""
        home = signal.task.world
        needed = set(signal.pattern) or {call.name for call in _flat(signal.task)}
        siblings = [world for world in self.worlds if world.id != home.id and needed <= self.offered(world)]
        places = [breaking_points(signal), [replace(home, prefix=())], siblings]
        return rng.choice(rng.choice([place for place in places if place]))

    def _explorations(self) -> int:
        return int(self._pool.counters().get("explorations", 0))

    def _grow(
        self,
        wanted: int,
        attempts: int,
        step: int,
        errands: Iterator[tuple[World, Signal | None, Origin]],
        progress: Progress | None,
    ) -> Growth:
        admitted = explorations = failures = 0
        outage = ""
        while admitted < wanted and explorations < attempts and failures < PATIENCE:
            errand = next(errands, None)
            if errand is None:
                break
            explorations += 1
            with self._pool.transaction():
                try:
                    candidates = self._explore(*errand)
                    failures = 0
                except InfrastructureError as error:
                    candidates, failures, outage = [], failures + 1, str(error)
                    self._pool.count("infrastructure_errors")
                except BrokenWorldError:
                    candidates = []
                    self._pool.count("explorations.broken_worlds")
                admitted += self._judge(candidates, step, wanted - admitted)
            if progress is not None:
                progress(admitted, f"{explorations} explorations")
        return Growth(admitted, explorations, outage if failures >= PATIENCE else "")

    def _explore(self, world: World, signal: Signal | None, origin: Origin) -> list[Candidate]:
        _must_be_train(world)
        rng = random.Random(f"{self._seed}/explore/{self._explorations()}")
        self._pool.count("explorations")
        exploration = self._explorer.explore(world, rng, signal)
        if signal is not None:
            self._pool.serve(signal.id)
        candidates = self._abstractor.abstract(exploration, origin, rng)
        if not candidates:
            self._pool.count("explorations.without_candidates")
        return candidates

    def _judge(self, candidates: Sequence[Candidate], step: int, room: int) -> int:
        """Verify each on its own, until there is no more room; returns how many were admitted."""
        admitted = 0
        for at, candidate in enumerate(candidates):
            if admitted == room:
                self._pool.count("candidates.not_needed", len(candidates) - at)
                break
            try:
                verdict = self.verifier.verify(candidate)
            except InfrastructureError as error:
                verdict = Verdict(False, "infrastructure", {"error": str(error)})
            if verdict.admitted:
                admitted += self._pool.add(candidate, verdict, step)
            else:
                self._pool.refuse(candidate, verdict, step)
        return admitted


def in_turn(records: Sequence[SignalRecord], rng: random.Random) -> Iterator[SignalRecord]:
    """Endlessly, one signal of each kind in turn; ends at once if there is none.

    Within a kind those that have guided the fewest explorations come first, among them the newest,
    and what is alike then is shuffled. A kind that is through begins again.
    """
    queues: list[Iterator[SignalRecord]] = []
    for kind in dict.fromkeys([*KINDS, *(record.kind for record in records)]):
        alike = [record for record in records if record.kind == kind]
        rng.shuffle(alike)
        alike.sort(key=lambda record: (record.served, -record.step))
        if alike:
            queues.append(cycle(alike))
    while queues:
        yield from (next(queue) for queue in queues)


def breaking_points(signal: Signal) -> list[World]:
    """The states in which the signal's failed rollouts went astray, distinct, the shared one first.

    Each is the task's world, with the part of its reference solution replayed that the rollouts got
    right: all of them together, and each on its own.
    """
    task = signal.task
    failed = [rollout for rollout in signal.failed if rollout.task == task.id]
    lengths = [common_prefix(task, failed), *(common_prefix(task, [rollout]) for rollout in failed)]
    calls = _flat(task)
    return [
        replace(task.world, prefix=(*task.world.prefix, *calls[:length])) for length in dict.fromkeys(lengths)
    ]


def common_prefix(task: Task, rollouts: Iterable[Rollout]) -> int:
    """How many leading calls of the solution all ``rollouts`` made first, and without an error.

    At most all but the last: a rollout that made them all failed by what it did besides, and there
    must be something left to lead to. 0 without rollouts.
    """
    solution = _flat(task)[:-1]
    lengths = [_right(solution, rollout) for rollout in rollouts]
    return min(lengths, default=0)


def _right(solution: Sequence[ToolCall], rollout: Rollout) -> int:
    made = ((call, seen) for step in rollout.steps for call, seen in zip(step.calls, step.observations))
    length = 0
    for reference, (call, seen) in zip(solution, islice(made, len(solution))):
        if call != reference or seen.error is not None:
            break
        length += 1
    return length


def _flat(task: Task) -> list[ToolCall]:
    return [call for turn in task.solution for call in turn]


def _must_be_train(world: World) -> None:
    if world.split != "train":
        raise HeldOutError(
            f"world {world.id} of {world.environment} is of the {world.split} split: "
            "only train worlds may be explored"
        )
