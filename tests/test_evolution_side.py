"""Explorations side by side: the same pool whatever their pace, within a budget, every errand counted."""

from __future__ import annotations

import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import CALLS, TOKENS, at_once, made, soon
from coevolve.budget import RESOURCES, Purse
from coevolve.config import BudgetConfig
from coevolve.environments.base import Environment
from coevolve.errors import RunError
from coevolve.evolution import PATIENCE
from coevolve.llm.base import Ledger, Limits, OutageError
from coevolve.pool import Pool
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Candidate, Verdict
from test_loop import train

WHOLE = Limits(calls=CALLS, tokens=CALLS * TOKENS)

# In order


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_the_pool_does_not_depend_on_how_long_answers_take(tmp_path: Path, concurrency: int) -> None:
    came = []
    for number, latency in enumerate([at_once, soon(1), soon(2)]):
        with made(
            tmp_path / f"{number}.db", latency=latency, concurrency=concurrency, faulty=0.05, attempts=20
        ) as one:
            one.loop.populate(12)
            train(one, range(1, 9))
            came.append((one.pool.digest(), one.facts(), one.loop.state_dict()))
    assert came[0] == came[1] == came[2]
    _, facts, _ = came[0]
    assert facts["evolutions"] == 2 and facts["infrastructure_errors"] > 0
    assert ("explorations.not_needed" in facts) == (concurrency > 1)


def test_as_many_as_told_explore_at_the_same_time(tmp_path: Path) -> None:
    together, waiting = threading.Barrier(3), iter(range(3))
    with made(
        tmp_path / "pool.db",
        latency=lambda: next(waiting, None) is not None and together.wait(60),
        concurrency=3,
    ) as one:
        one.loop.populate(12)  # the first three wait for each other
        assert one.asker.most == 3 and one.asker.exploring == 0, "no more, and none is left behind"


def test_what_was_not_needed_is_paid_for_and_explored_again(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", concurrency=8) as one:
        one.loop.populate(1)
        facts = one.facts()
        assert one.asker.begun == facts["explorations"] + facts["explorations.not_needed"]
        assert facts["explorations.not_needed"] > 0
        assert one.used("calls") == one.asker.begun * CALLS
        one.loop.populate(12)
    with made(tmp_path / "alone.db") as alone:
        alone.loop.populate(1)
        alone.loop.populate(12)
        assert [task.id for task in alone.pool.tasks()] == [task.id for task in one_by_one(tmp_path)]


def one_by_one(path: Path) -> list[Any]:
    with Pool.read_only(path / "pool.db") as pool:
        return list(pool.tasks())


# Outages, refusals


def test_an_outage_ends_it_with_all_explorations_stopped_and_no_signal_lost(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", concurrency=3, every=0) as one:
        one.loop.populate(12)
        train(one, range(1, 4))
        signals = one.pool.signals_since(0)
        one.llm.faulty = 1.0
        assert one.loop.evolve(3) == 0
        facts = one.facts()
        assert facts["infrastructure_errors"] == PATIENCE and facts["evolutions.given_up"] == 1
        assert one.pool.counters()["llm.faults.connection"] >= PATIENCE, "what failed is counted, too"
        assert signals and one.pool.signals_since(0) == signals and one.asker.exploring == 0
        one.llm.faulty = 0.0
        assert one.loop.evolve(3) == 4


class Gated(ReplayVerifier):
    """A gate that asks: one candidate in three is refused, for one in three it is out of order."""

    def __init__(self, environment: Environment, pool: Pool) -> None:
        super().__init__(environment, screen=Screen(pool))

    def consult(self, candidate: Candidate, ledger: Ledger) -> Verdict | None:
        ledger.counts["solve.calls"] += 1
        kind = int(candidate.task.id, 16) % 3
        if kind == 2:
            raise OutageError("the gate is out of order")
        return Verdict(False, "unsolved", {"tries": 1}) if kind else None


def test_gates_refuse_with_their_reason_and_each_candidate_on_its_own(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", concurrency=3, verifier=Gated, attempts=50) as one:
        one.loop.populate(12)
        assert {int(task.id, 16) % 3 for task in one.pool.tasks()} == {0}
        refused = one.pool.refused()
        assert refused["unsolved"] > 0 and refused["infrastructure"] > 0
        reasons = {j.verdict.reason: j.verdict.evidence for j in one.pool.judgements()}
        assert reasons["unsolved"] == {"tries": 1}
        assert reasons["infrastructure"] == {"error": "the gate is out of order"}
        judged = sum(refused.values()) + len(one.pool) + one.facts().get("candidates.not_needed", 0)
        assert one.pool.counters()["llm.solve.calls"] >= judged


# The budget


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(
    ("budget", "what"), [({"calls": 17}, "calls"), ({"tokens": 1500}, "tokens"), ({"money": 0.9}, "money")]
)
def test_an_evolution_keeps_to_its_budget_whatever_the_pace(
    tmp_path: Path, concurrency: int, budget: dict[str, float], what: str
) -> None:
    came = []
    for number, latency in enumerate([at_once, soon(3)]):
        with made(
            tmp_path / f"{number}.db",
            latency=latency,
            concurrency=concurrency,
            limits=WHOLE,
            every=0,
            tasks=100,
            budget=budget,
        ) as one:
            one.loop.populate(12)
            before = one.used(what)
            train(one, range(1, 4))
            admitted = one.loop.evolve(3)
            used = one.used(what) - before
            came.append((admitted, used, one.pool.digest(), one.facts()))
    assert came[0] == came[1]
    _, used, _, facts = came[0]
    (whole,) = budget.values()
    # The oracle finishes the answer during which a limit is reached: no more than that is too much.
    answer = {"calls": 0, "tokens": TOKENS, "money": TOKENS / 1000}[what]
    assert 0.6 * whole < used <= whole + answer * concurrency
    assert facts["evolutions.budget_spent"] == facts[f"evolutions.budget_spent.{what}"] == 1
    assert "evolutions.given_up" not in facts


def test_the_last_exploration_gets_what_is_left_if_that_is_worth_it() -> None:
    purse = Purse(BudgetConfig(calls=25), Limits(calls=10))
    shares = []
    for _ in range(3):
        limits = purse.deal([])
        assert limits is not None and limits.calls is not None
        shares.append(limits.calls)
        purse.settle(Ledger(counts={"act.calls": float(limits.calls)}))
    assert shares == [10, 10, 5]
    assert purse.deal([]) is None and purse.blocked == "calls"
    mean = Purse(BudgetConfig(calls=12), Limits(calls=10))
    assert mean.deal([]) == Limits(calls=10)
    mean.settle(Ledger(counts={"act.calls": 10.0}))
    assert mean.deal([]) is None, "a fifth of an exploration is none"


def test_without_limits_of_its_own_an_exploration_gets_an_equal_share() -> None:
    purse = Purse(BudgetConfig(tokens=1000, money=2.0), Limits(), concurrency=4)
    flying = []
    for _ in range(4):
        limits = purse.deal(flying)
        assert limits == Limits(tokens=250, money=0.5)
        flying.append(Ledger(limits))
    assert purse.deal(flying) is None
    assert Purse(BudgetConfig(), Limits(tokens=5)).deal([]) == Limits(tokens=5)
    assert Purse(BudgetConfig(tokens=3), Limits(tokens=5)).deal([]) == Limits(tokens=3)


@given(
    st.integers(1, 200),
    st.integers(1, 60) | st.none(),
    st.integers(1, 8),
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_a_purse_is_never_overdrawn_and_deals_on_while_there_is_room(
    whole: int, most: int | None, concurrency: int, uses: list[float]
) -> None:
    purse = Purse(BudgetConfig(calls=whole), Limits(calls=most), concurrency)
    flying: list[Ledger] = []
    used = 0
    for share in uses:
        while len(flying) < concurrency and (limits := purse.deal(flying)) is not None:
            flying.append(Ledger(limits))
        reserved = sum(ledger.limits.calls or 0 for ledger in flying)
        assert used + reserved <= whole
        if not flying:
            assert purse.blocked == "calls" and whole - used < max(1, min(most or whole, whole) / 4)
            break
        first = flying.pop(0)
        first.counts["act.calls"] = float(int(share * (first.limits.calls or 0)))
        used += int(first.counts["act.calls"])
        purse.settle(first)
    assert used <= whole


def test_every_limit_has_a_budget() -> None:
    assert RESOURCES == tuple(field.name for field in fields(Limits)) == tuple(BudgetConfig.model_fields)


def test_a_share_that_is_spent_is_no_outage(tmp_path: Path) -> None:
    with made(tmp_path / "pool.db", limits=Limits(calls=2), thrifty=False) as one:
        with pytest.raises(RunError, match=r"after 30 explorations; refused: no candidate at all"):
            one.loop.populate(3)
        assert one.facts()["explorations.budget_spent"] == one.facts()["explorations"] == 30
        assert "infrastructure_errors" not in one.facts()
        assert one.pool.counters()["llm.faults.spent_calls"] == 30 and one.used("calls") == 60
    with made(tmp_path / "two.db", limits=Limits(calls=2)) as one:
        one.loop.populate(3)  # what was found before it was spent still counts
        assert one.used("calls") == 2 * one.facts()["explorations"]
