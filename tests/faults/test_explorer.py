"""Attack: the language model that explores, and the endpoint that it sits behind.

Whole runs over real HTTP with every fault at once, and an endpoint that dies for good. The run finishes, what
is admitted replays, what is spent stays within the budget, and an outage is said (invariants 1, 3, 4, 7, 9).
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from hostile_explorer import SAYINGS, TRANSPORT, Came, hostile_run
from server import serve

from coevolve.config import LlmConfig
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.evolution import PATIENCE
from coevolve.llm.base import Ledger, OutageError
from coevolve.llm.build import build_llm
from coevolve.llm.cache import CachedLLM
from coevolve.llm.endpoint import Endpoint
from small_run import Shelf, make_policy, write_config

STEPS, EVERY, TASKS, TOKENS = 8, 2, 6, 60_000
RUN = {
    "steps": STEPS,
    "evolve": {"every": EVERY, "tasks": TASKS, "budget": {"tokens": TOKENS, "calls": 60}},
    "explore": {"calls": 6},
    "signals": {"rare": {"theta": 50.0}},  # so that there always is one
    "llm": {"concurrency": 2, "attempts": 3, "seconds": 0.5},
    "pool": {"initial": 10},
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    make_policy(folder / "policy", ToolboxEnvironment(Shelf), taught=60)
    return write_config(folder / "shelf.yaml", folder / "policy", **RUN)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between requests are as many as ever, and a hundredth as long."""
    plain = Endpoint.__init__

    def hurried(self: Endpoint, config: LlmConfig, back_off: float = 0.005, *, silence: bool = False) -> None:
        plain(self, config, back_off, silence=silence)

    monkeypatch.setattr(Endpoint, "__init__", hurried)


def assert_nothing_unsound(came: Came) -> None:
    assert len(came.lines) == STEPS, "the run went to its end"
    assert came.unsound == [], "what was admitted replays in fresh worlds, by a verifier of its own"
    assert came.splits == {"train"}


def test_all_faults_at_once_cost_requests_and_nothing_else(config: Path, tmp_path: Path) -> None:
    came = hostile_run(config, tmp_path / "run", share=0.3)
    assert_nothing_unsound(came)
    assert came.summary["pool"]["final"] > came.summary["pool"]["initial"], "some of it was of use"
    assert set(came.met) == {*TRANSPORT, *SAYINGS}, "every kind of fault was met"
    # One that is met is counted, by kind; nothing else was asked than what can be asked.
    faults = came.summary["llm"]["faults"]
    for name, kind in COUNTED.items():
        assert not came.met[name] or faults.get(kind, 0), f"{name} was met {came.met[name]} times: {faults}"
    assert set(came.stages) == {"reflect", "act", "abstract"}
    for tokens in came.spent("prompt_tokens", "completion_tokens"):
        # Each of those side by side may pass its own limit by the one answer during which it is reached.
        assert tokens <= TOKENS + 2 * 4000
    for calls in came.spent("calls"):
        assert calls <= 60
    assert "faults: " in came.said


COUNTED = {
    "429": "rate_limited",
    "500": "server_error",
    "error in a 200": "error_body",
    "no choices": "empty_choices",
    "no content": "empty_content",
    "another shape": "wrong_shape",
    "no shape at all": "wrong_shape",
    "a page of HTML": "not_json_body",
    "deep JSON": "not_json_body",
    "more than memory is worth": "oversized",
    "silence": "timeout",
    "a body without end": "timeout",
    "reset": "connection",
    "no usage": "no_usage",
    "refused": "refused",
    "too long": "context_too_long",
    "unknown tool, natively": "unknown_tool",
}
assert set(COUNTED) <= {*TRANSPORT, *SAYINGS}


@pytest.mark.parametrize("lag", [0, 1])
def test_an_endpoint_that_dies_for_good_ends_evolution_and_the_run_says_so(
    config: Path, tmp_path: Path, lag: int, caplog: pytest.LogCaptureFixture
) -> None:
    came = hostile_run(config, tmp_path / "run", 0.0, [f"evolve.lag={lag}"], dies_at="reflect")
    assert_nothing_unsound(came)
    pool, evolutions = came.summary["pool"], came.summary["evolutions"]
    assert pool["final"] == pool["initial"], "no new task"
    joined = STEPS // EVERY - lag  # the last one is not due any more
    assert evolutions["made"] == evolutions["given_up"] == joined and evolutions["unused"] == lag
    assert f"evolutions: {joined}, {joined} given up" in came.said
    assert f"evolutions: {joined}, {joined} given up" in (tmp_path / "run" / "summary.md").read_text()
    assert came.lines[-1]["source"]["total/evolutions.given_up"] == joined
    assert came.lines[-1]["source"]["total/infrastructure_errors"] == joined * PATIENCE
    warned = [r.getMessage() for r in caplog.records if "was given up" in r.getMessage()]
    assert len(warned) == joined
    assert "training goes on without new tasks" in warned[0] and "gone for good" in warned[0]
    # Three requests an exploration, five explorations in a row and those beside them: then it is left alone.
    assert came.summary["llm"]["faults"]["server_error"] <= (evolutions["given_up"] + 1) * 3 * (PATIENCE + 1)


def test_a_cache_that_is_closed_while_it_is_asked_keeps_every_answer(tmp_path: Path) -> None:
    """At the end of a run an evolution may be in flight: its threads go on asking for a while."""
    for turn in range(5):
        path, answered = tmp_path / f"{turn}.db", dict[int, str]()
        with serve(lambda body: str(body["messages"][0]["content"]).upper()) as server:
            settings = LlmConfig(base_url=server.base_url, model="test", attempts=1, concurrency=4)
            llm = build_llm(settings, path)
            assert isinstance(llm, CachedLLM)
            begun, faults = threading.Semaphore(0), list[BaseException]()

            def ask(first: int, llm: CachedLLM, begun: threading.Semaphore, answered: dict[int, str]) -> None:
                for number in range(first, 4000, 4):
                    try:
                        message = {"role": "user", "content": f"question {number}"}
                        reply = llm.complete([message], stage="act", ledger=Ledger())
                    except OutageError:
                        return
                    except BaseException as error:
                        faults.append(error)  # noqa: B023
                        return
                    answered[number] = reply.text
                    begun.release()

            threads = [threading.Thread(target=ask, args=(n, llm, begun, answered)) for n in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(6 + turn):
                assert begun.acquire(timeout=60)
            llm.close()
            llm.close()
            for thread in threads:
                thread.join(60)
            assert not faults and not any(thread.is_alive() for thread in threads)
        assert not path.with_name(path.name + ".broken").exists(), "closing is no damage"
        with sqlite3.connect(path) as kept:
            (count,) = kept.execute("SELECT count(*) FROM answers").fetchone()
        assert count >= len(answered), "every answer that was paid for is kept"


@pytest.mark.slow
def test_the_demo_itself_with_all_faults_at_once(tmp_path: Path) -> None:
    """Minutes: the demo's configuration on BFCL, scored on fewer episodes."""
    recipe = Path(__file__).parents[2] / "recipes" / "demo.yaml"
    smaller = ["evaluate.episodes=32", "evolve.tasks=20", "evolve.budget.tokens=400000", "llm.seconds=2"]
    came = hostile_run(recipe, tmp_path / "run", 0.3, [*smaller, "environment.workers=0"])
    assert len(came.lines) == came.config.steps and came.unsound == [] and came.splits == {"train"}
    assert came.summary["pool"]["final"] > 100
    for tokens in came.spent("prompt_tokens", "completion_tokens"):
        assert tokens <= 400_000 + came.config.llm.concurrency * 20_000
