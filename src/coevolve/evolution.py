"""Stages 2 and 3 in one turn: from signals to explorations, candidates, verdicts and new tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Protocol

from coevolve.budget import Purse
from coevolve.config import BudgetConfig
from coevolve.environments.base import Environment
from coevolve.errands import Errand, Found, Window, carry_out, must_be_train
from coevolve.errors import InfrastructureError
from coevolve.explore.base import Explorer
from coevolve.guidance import breaking_points, in_turn, siblings
from coevolve.llm.base import Ledger, Limits
from coevolve.pool import Pool, SignalRecord
from coevolve.synthesize.base import Abstractor, Verifier
from coevolve.types import Candidate, Origin, OriginKind, Signal, ToolCall, Verdict, World

PATIENCE = 5
"""Infrastructure errors in a row after which an evolution, an import or a replay of a pool gives up."""

REMEMBERED = 10_000
"""Worlds whose tools are kept in memory."""

Progress = Callable[[int, str], None]
"""Told how many tasks are admitted, and a short text with the figures that matter."""


class Book(Protocol):
    """Where an evolution writes: the pool, or a draft of what is to be written there."""

    def transaction(self) -> AbstractContextManager[None]: ...

    def count(self, name: str, by: float = 1) -> None: ...

    def serve(self, signal: str) -> None: ...

    def add(self, candidate: Candidate, verdict: Verdict, step: int) -> bool: ...

    def refuse(self, candidate: Candidate, verdict: Verdict, step: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Growth:
    """What one evolution came to."""

    admitted: int
    explorations: int
    outage: str = ""
    """The last infrastructure error, if that ended it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One evolution before it begins: all that it takes from the pool has been read."""

    wanted: int
    attempts: int
    step: int
    errands: Iterator[Errand]
    """Endless, or empty."""
    budget: BudgetConfig = field(default_factory=BudgetConfig)


class Evolution:
    """Sends the explorer out, and lets in what the verifier admits.

    The n-th exploration of a run draws from ``random.Random(f"{seed}/explore/{n}")``; n is kept in
    the pool, so that a resumed run goes on with the next one. The explorations side by side are handled
    in the order of their numbers, and the one that is ``concurrency`` later begins only then: so what
    comes of it depends on the answers alone, not on how long they take.

    Args:
        concurrency: explorations side by side; with 1 each learns from all before it.
        limits: what one exploration, with its abstraction and its gates, may ask of a model.
        watch: shown what came of each exploration, once it has been judged.
    """

    def __init__(
        self,
        environment: Environment,
        pool: Pool,
        explorer: Explorer,
        abstractor: Abstractor,
        verifier: Verifier,
        seed: int,
        concurrency: int = 1,
        limits: Limits | None = None,
        watch: Callable[[Found], None] | None = None,
    ) -> None:
        self._environment = environment
        self._pool = pool
        self._explorer = explorer
        self._abstractor = abstractor
        self.verifier = verifier
        self._seed = seed
        self._concurrency = concurrency
        self._limits = limits or Limits()
        self._watch = watch
        self._worlds: tuple[World, ...] | None = None
        self._offered: dict[str, frozenset[str]] = {}

    def offered(self, world: World) -> frozenset[str]:
        """The tool names of a world; may be asked from any thread."""
        names = self._offered.get(world.key)
        if names is None:
            names = frozenset(tool.name for tool in self._environment.offered(world))
            if len(self._offered) >= REMEMBERED:
                self._offered.clear()
            self._offered[world.key] = names
        return names

    def names(self, call: ToolCall) -> tuple[str, ...]:
        """The actions within one call."""
        return self._environment.names(call)

    @property
    def worlds(self) -> tuple[World, ...]:
        """The train worlds (invariant 4: the only ones that an explorer sees)."""
        if self._worlds is None:
            worlds = tuple(self._environment.worlds("train"))
            for world in worlds:
                must_be_train(world)
            self._worlds = worlds
        return self._worlds

    def unguided(
        self,
        wanted: int,
        attempts: int,
        step: int,
        kind: OriginKind = "unguided",
        budget: BudgetConfig | None = None,
    ) -> Plan:
        """Explore the train worlds in turn, in an order shuffled anew for every round."""
        numbers = count(self._explorations()) if self.worlds else ()
        errands = (self._anywhere(number, step, kind) for number in numbers)
        return Plan(wanted, attempts, step, errands, budget or BudgetConfig())

    def _anywhere(self, number: int, step: int, kind: OriginKind = "unguided") -> Errand:
        """The exploration of that number, if it follows no signal."""
        round_, place = divmod(number, len(self.worlds))
        order = list(range(len(self.worlds)))
        random.Random(f"{self._seed}/worlds/{round_}").shuffle(order)
        origin = Origin(kind, step=step, explorer=self._explorer.name)
        return Errand(number, self.worlds[order[place]], None, origin)

    def guided(
        self,
        wanted: int,
        attempts: int,
        step: int,
        records: Sequence[SignalRecord],
        budget: BudgetConfig | None = None,
        ahead: bool = False,
        shares: Mapping[str, float] | None = None,
        unguided: float = 0.0,
    ) -> Plan:
        """Explore from signals, in the order of :func:`in_turn`, in worlds related to the failure.

        Args:
            ahead: read all evidence now, for an evolution that runs in another thread.
            shares: how often each kind of signal has its turn; by default alike.
            unguided: share of the explorations that follow no signal; where it is above 0 and there is no
                signal, all of them.
        """
        first, worlds = self._explorations(), self.worlds if unguided else ()
        read: Callable[[str], Signal] = self._pool.signal
        if ahead:
            _ = self.worlds
            needed = islice(self._turns(records, step, shares), attempts)
            read = {key: self._pool.signal(key) for key in dict.fromkeys(r.id for r in needed)}.__getitem__

        def errands() -> Iterator[Errand]:
            turns = self._turns(records, step, shares)
            for number in count(first):
                alone = unguided and random.Random(f"{self._seed}/unguided/{number}").random() < unguided
                record = None if alone else next(turns, None)
                if record is None:
                    if not worlds:
                        return
                    yield self._anywhere(number, step)
                    continue
                signal = read(record.id)
                rng = random.Random(f"{self._seed}/world/{number}")
                parents = tuple(dict.fromkeys([signal.task.id, *(rollout.task for rollout in signal.failed)]))
                origin = Origin(signal.kind, parents, signal.id, step, self._explorer.name)
                yield Errand(number, self._related(signal, rng), signal, origin)

        return Plan(wanted, attempts, step, errands(), budget or BudgetConfig())

    def _turns(
        self, records: Sequence[SignalRecord], step: int, shares: Mapping[str, float] | None
    ) -> Iterator[SignalRecord]:
        return in_turn(records, random.Random(f"{self._seed}/signals/{step}"), shares)

    def _related(self, signal: Signal, rng: random.Random) -> World:
        """Where rollouts broke, the same initial state fresh, or a sibling: one of these, evenly."""
        places = [
            breaking_points(signal, self._environment.names),
            [replace(signal.task.world, prefix=())],
            siblings(signal, self._environment, self.worlds, self.offered),
        ]
        return rng.choice(rng.choice([place for place in places if place]))

    def _explorations(self) -> int:
        return int(self._pool.counters().get("explorations", 0))

    def grow(
        self,
        plan: Plan,
        book: Book,
        progress: Progress | None = None,
        window: Window | None = None,
    ) -> Growth:
        """Carry ``plan`` out until enough is admitted, the attempts or the budget are used up, or an
        outage ends it; everything is written to ``book``, one transaction per exploration.

        Args:
            window: from :meth:`window`, for a caller that may cancel it from another thread; the
                evolution then ends early, and ``book`` holds only a part.
        """
        window = self.window() if window is None else window
        purse = Purse(plan.budget, self._limits, window.size)
        admitted = explorations = launched = failures = 0
        outage = short_of = ""
        try:
            while admitted < plan.wanted and failures < PATIENCE and not window.cancelled:
                while window.in_flight < window.size and launched < plan.attempts:
                    limits = purse.deal(window.ledgers)
                    errand = next(plan.errands, None) if limits else None
                    if limits is None or errand is None:
                        break
                    window.launch(errand, limits)
                    launched += 1
                if not window.in_flight:
                    short_of = purse.blocked
                    break
                found = window.next()
                explorations += 1
                purse.settle(found.ledger)
                with book.transaction():
                    self._note(found, book)
                    admitted += self._judge(found, plan.step, plan.wanted - admitted, book)
                failures, outage = (failures + 1, found.outage) if found.outage else (0, outage)
                if self._watch is not None:
                    self._watch(found)
                if progress is not None:
                    progress(admitted, f"{explorations} explorations")
            if failures >= PATIENCE:
                window.cancel()  # the others will hardly fare better, and training waits
            not_needed = window.discard()
            with book.transaction():
                if short_of:
                    book.count("evolutions.budget_spent")
                    book.count(f"evolutions.budget_spent.{short_of}")
                for ledger in not_needed:
                    book.count("explorations.not_needed")
                    count_usage(ledger, book)
        finally:
            window.cancel()
        return Growth(admitted, explorations, outage if failures >= PATIENCE else "")

    def window(self) -> Window:
        """A new one, with nothing in flight yet."""
        explorer, abstractor, verifier, seed = self._explorer, self._abstractor, self.verifier, self._seed
        return Window(
            self._concurrency,
            lambda errand, ledger: carry_out(errand, ledger, explorer, abstractor, verifier, seed),
        )

    def _note(self, found: Found, book: Book) -> None:
        """Count what happened, apart from verdicts."""
        book.count("explorations")
        if found.explored and found.errand.signal is not None:
            book.serve(found.errand.signal.id)
        if found.outage:
            book.count("infrastructure_errors")
        elif found.broken:
            book.count("explorations.broken_worlds")
        elif found.spent:
            book.count("explorations.budget_spent")
        elif not found.candidates:
            book.count("explorations.without_candidates")
        count_usage(found.ledger, book)

    def _judge(self, found: Found, step: int, room: int, book: Book) -> int:
        """Verify each on its own, until there is no more room; returns how many were admitted."""
        admitted = 0
        for at, (candidate, refusal) in enumerate(found.candidates):
            if admitted == room:
                book.count("candidates.not_needed", len(found.candidates) - at)
                break
            try:
                verdict = refusal or self.verifier.verify(candidate)
            except InfrastructureError as error:
                verdict = Verdict(False, "infrastructure", {"error": str(error)})
            found.verdicts.append(verdict)
            if verdict.admitted:
                admitted += book.add(candidate, verdict, step)
            else:
                book.refuse(candidate, verdict, step)
        return admitted


def count_usage(ledger: Ledger, book: Book) -> None:
    """Write down what a model was asked for, as ``llm.<name>``."""
    for name, value in sorted(dict(ledger.counts).items()):
        book.count(f"llm.{name}", value)
