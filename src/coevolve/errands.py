"""One errand: explore, abstract, ask the gates. Several side by side, and handed back in order."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from coevolve.errors import BrokenWorldError, HeldOutError, InfrastructureError
from coevolve.explore.base import Exploration, Explorer
from coevolve.llm.base import Ledger, Limits, SpentError
from coevolve.synthesize.base import Abstractor, Verifier
from coevolve.types import Candidate, Origin, Signal, Verdict, World


@dataclass(frozen=True, slots=True)
class Errand:
    """What one exploration is sent out for."""

    number: int
    """Which exploration of the run it is: seeds its generator."""
    world: World
    signal: Signal | None
    origin: Origin


class Account(Ledger):
    """The ledger of one errand; once ``over`` is set, it lets no more be asked."""

    def __init__(self, limits: Limits, over: threading.Event) -> None:
        super().__init__(limits)
        self._over = over

    def must_have_left(self) -> None:
        if self._over.is_set():
            raise SpentError("the evolution that this exploration belongs to is over")
        super().must_have_left()


@dataclass(slots=True)
class Found:
    """What came of one errand; nothing of it has been judged or written yet."""

    errand: Errand
    ledger: Ledger
    candidates: list[tuple[Candidate, Verdict | None]] = field(default_factory=list)
    """Each with its refusal by a gate that asked a model, or None."""
    explored: bool = False
    """The exploration came to its end, whatever happened to what it found."""
    exploration: Exploration | None = None
    """For whoever watches."""
    verdicts: list[Verdict] = field(default_factory=list)
    """Of the candidates, in order, as far as there was room for them; filled in where they are judged."""
    broken: bool = False
    """The world could not be compared any more."""
    spent: bool = False
    """The errand's share of the budget ended it before there was a candidate."""
    outage: str = ""
    """The last infrastructure error."""


def carry_out(
    errand: Errand, ledger: Ledger, explorer: Explorer, abstractor: Abstractor, verifier: Verifier, seed: int
) -> Found:
    """Explore, abstract, and consult ``verifier`` about each candidate.

    Raises:
        HeldOutError: the world is not of the train split (invariant 4).
    """
    must_be_train(errand.world)
    rng = random.Random(f"{seed}/explore/{errand.number}")
    found = Found(errand, ledger)
    candidates: list[Candidate] = []
    try:
        exploration = explorer.explore(errand.world, rng, errand.signal, ledger=ledger)
        found.explored, found.exploration = True, exploration
        candidates = abstractor.abstract(exploration, errand.origin, rng, ledger)
    except SpentError:
        found.spent = True
    except InfrastructureError as error:
        found.outage = str(error)
    except BrokenWorldError:
        found.broken = True
    for candidate in candidates:  # each on its own: one that cannot be judged takes no other with it
        refusal: Verdict | None
        try:
            refusal = verifier.consult(candidate, ledger)
        except SpentError as error:
            refusal = Verdict(False, "budget_spent", {"error": str(error)})
        except InfrastructureError as error:
            refusal = Verdict(False, "infrastructure", {"error": str(error)})
            found.outage = str(error)
        found.candidates.append((candidate, refusal))
    return found


class Window:
    """Up to ``size`` errands in flight; what they find comes back in the order of their launch.

    With a size of 1 an errand runs in the calling thread, when its result is asked for; otherwise
    each runs in a thread of its own, which ends no later than the program does.
    """

    def __init__(self, size: int, carry_out: Callable[[Errand, Ledger], Found]) -> None:
        self.size = size
        self._carry_out = carry_out
        self._flying: deque[tuple[Errand, Account, Future[Found] | None]] = deque()
        self._over = threading.Event()

    @property
    def in_flight(self) -> int:
        """Errands launched whose finds have not been taken yet."""
        return len(self._flying)

    @property
    def cancelled(self) -> bool:
        return self._over.is_set()

    @property
    def ledgers(self) -> list[Account]:
        """Of the errands in flight; may be asked from any thread."""
        return [ledger for _, ledger, _ in list(self._flying)]

    def launch(self, errand: Errand, limits: Limits) -> None:
        ledger = Account(limits, self._over)
        future = None if self.size == 1 else self._in_a_thread(errand, ledger)
        self._flying.append((errand, ledger, future))

    def next(self) -> Found:
        """Wait for the errand launched first; raises what it raised. Until then it counts as in flight."""
        errand, ledger, future = self._flying[0]
        try:
            return self._carry_out(errand, ledger) if future is None else future.result()
        finally:
            self._flying.popleft()

    def cancel(self) -> None:
        """Let no errand ask a model again; does not wait for them."""
        self._over.set()

    def discard(self) -> list[Account]:
        """Wait until all have ended, for what they find is not needed; returns what they used.

        They are not cut short, unless cancelled: how far they had come would depend on the clock, and a
        resumed run, answered from the cache, would come further and pay more.
        """
        for _, _, future in self._flying:
            if future is not None:
                future.result()
        ledgers = self.ledgers
        self._flying.clear()
        return ledgers

    def _in_a_thread(self, errand: Errand, ledger: Account) -> Future[Found]:
        future: Future[Found] = Future()

        def work() -> None:
            try:
                future.set_result(self._carry_out(errand, ledger))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name=f"exploration-{errand.number}", daemon=True).start()
        return future


def must_be_train(world: World) -> None:
    """Raise HeldOutError for a world that an explorer may not see (invariant 4)."""
    if world.split != "train":
        raise HeldOutError(
            f"world {world.id} of {world.environment} is of the {world.split} split: "
            "only train worlds may be explored"
        )
