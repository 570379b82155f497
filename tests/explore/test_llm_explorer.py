"""What the exploring language model promises: true triplets, kept limits, train worlds only."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from brain import Brain, propose, said
from over_http import CALLS, explore, says, user_text, weakness, world
from server import refusing, serve, status

from coevolve.config import ExploreConfig, LlmConfig
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.errors import BrokenWorldError, HeldOutError
from coevolve.explore.base import Exploration
from coevolve.explore.llm import LLMExplorer
from coevolve.llm.base import Ledger, Limits, OutageError
from coevolve.llm.endpoint import Endpoint
from coevolve.types import Observation, Signal, ToolCall, World
from keyvalue import KeyValue, KeyValueSession, delete, put


@pytest.mark.parametrize("tools", ["native", "text"])
@pytest.mark.parametrize("per_message", [1, 3])
def test_triplets_are_what_the_brain_decided(tools: str, per_message: int) -> None:
    brain = Brain(KeyValue(), CALLS, per_message=per_message)
    run = explore(brain.answer, tools)
    decided = brain.decisions(world(), user_text(run.requests[0]))
    assert run.made.triplets == decided and len(decided) == 5
    assert run.made.explorer.startswith("llm:test@") and run.made.context is None
    assert said(run.made.conversation) == run.calls
    assert all(("tools" in body) == (tools == "native") for body in run.requests)
    assert not run.faults


def test_triplets_can_be_replayed() -> None:
    made = explore(Brain(KeyValue(), CALLS).answer).made
    with KeyValue().open(made.world) as session:
        for triplet in made.triplets:
            assert session.fingerprint() == triplet.before
            assert session.step(triplet.action) == (triplet.observation, triplet.after)


def test_equal_generators_make_equal_requests_and_others_do_not() -> None:
    first, again, other = (explore(Brain(KeyValue(), CALLS).answer, seed=seed).requests for seed in (0, 0, 1))
    assert first == again
    assert first[0]["seed"] != first[1]["seed"]
    assert first[0]["seed"] != other[0]["seed"]


def test_a_held_out_world_is_refused_before_it_is_opened_or_a_model_is_asked() -> None:
    environment = KeyValue()
    endpoint = Endpoint(LlmConfig(base_url="http://127.0.0.1:9/v1", model="test"))
    for held_out in environment.worlds("test"):
        with pytest.raises(HeldOutError, match="test"):
            LLMExplorer(environment, CALLS, endpoint).explore(held_out, random.Random(0), weakness())
    assert not environment.opened
    endpoint.close()


def test_the_limit_of_calls_is_kept_whatever_is_asked_for() -> None:
    run = explore(lambda body: propose([put("size")] * 50, native=True))
    assert run.calls == [put("size")] * 5
    assert run.ledger.counts["act.calls_over_limit"] == 45
    assert len(run.requests) == 1


def test_messages_are_bounded_too() -> None:
    turn = iter(range(1000))
    run = explore(lambda body: propose([put("size") if next(turn) % 3 == 2 else put("nowhere")], native=True))
    assert len(run.requests) == CALLS.calls + CALLS.reasks + 1
    assert run.calls == [put("size")] * 2
    assert run.ledger.counts["act.ended.messages"] == 1


def test_an_endpoint_that_turns_out_to_have_no_native_tools_is_asked_in_the_text_protocol() -> None:
    brain = Brain(KeyValue(), CALLS)
    run = explore(brain.answer, "auto", faults=refusing("tools", "this model does not support tools"))
    assert run.made.triplets == brain.decisions(world(), user_text(run.requests[0]))
    assert [bool(body.get("tools")) for body in run.requests] == [True] + [False] * 5
    assert run.requests[0]["seed"] == run.requests[1]["seed"]
    assert {message["role"] for message in run.requests[-1]["messages"]} == {"system", "user", "assistant"}
    assert '<tool>{"name": "put"' in run.requests[-1]["messages"][0]["content"]
    assert run.faults == {"faults.no_native_tools": 1}


def test_a_model_that_writes_its_native_calls_as_text_is_understood() -> None:
    written = '<tool_call>\n{"name": "put", "arguments": {"key": "size", "value": "red"}}\n</tool_call>'
    run = explore(says(written + written.replace("red", "blue"), "Done."))
    assert run.calls == [put("size"), put("size", "blue")]


def test_what_was_found_counts_when_the_budget_is_spent() -> None:
    run = explore(Brain(KeyValue(), CALLS).answer, ledger=Ledger(Limits(calls=3)))
    assert len(run.calls) == 3
    assert run.faults == {"faults.spent_calls": 1} and run.ledger.counts["act.ended.spent"] == 1


def test_without_a_ledger_the_limits_of_one_exploration_hold() -> None:
    with serve(Brain(KeyValue(), CALLS).answer) as server:
        endpoint = Endpoint(LlmConfig(base_url=server.base_url, model="test"))
        explorer = LLMExplorer(KeyValue(), ExploreConfig(calls=5, tokens=2000), endpoint)
        made = explorer.explore(world(), random.Random(0))
        endpoint.close()
    assert 0 < len(made.triplets) < 5


@pytest.mark.parametrize("signal", [None, weakness()])
def test_an_outage_is_an_outage(signal: Signal | None) -> None:
    with pytest.raises(OutageError):
        explore(says("never said"), signal=signal, faults=lambda number, body: status(500))


def test_a_conversation_too_long_for_the_model_ends_with_what_it_has() -> None:
    brain = Brain(KeyValue(), CALLS)
    full = status(400, "This model's maximum context length is 4096 tokens", code="context_length_exceeded")
    run = explore(brain.answer, faults=[None, None, full])
    assert len(run.calls) == 2 and run.ledger.counts["act.ended.context"] == 1
    with pytest.raises(OutageError):
        explore(brain.answer, faults=[full])


def test_explorations_side_by_side_are_those_that_come_one_after_another() -> None:
    brain = Brain(KeyValue(), CALLS)
    worlds = KeyValue().worlds("train")
    with serve(brain.answer) as server:
        endpoint = Endpoint(LlmConfig(base_url=server.base_url, model="test"))
        explorer = LLMExplorer(KeyValue(), CALLS, endpoint)

        def one(place: World) -> Exploration:
            return explorer.explore(place, random.Random(place.id), weakness(), ledger=Ledger())

        with ThreadPoolExecutor(len(worlds)) as pool:
            beside = list(pool.map(one, worlds))
        assert beside == [one(place) for place in worlds]
        endpoint.close()


@pytest.mark.parametrize("tools", ["native", "text"])
def test_bfcl_is_explored_over_the_wire(bfcl: BfclEnvironment, tools: str) -> None:
    brain = Brain(bfcl)
    with serve(brain.answer) as server:
        settings = {"base_url": server.base_url, "model": "test", "tools": tools}
        endpoint = Endpoint(LlmConfig.model_validate(settings))
        place, ledger = bfcl.worlds("train")[3], Ledger()
        made = LLMExplorer(bfcl, ExploreConfig(), endpoint).explore(place, random.Random(0), ledger=ledger)
        endpoint.close()
    assert made.triplets == brain.decisions(place, str(made.conversation[1]["content"]))
    assert len(made.triplets) == 12 and not any(name.startswith("faults.") for name in ledger.counts)


class Brittle(KeyValue):
    """A store that breaks when its size is deleted."""

    def open(self, world: World) -> KeyValueSession:
        session = super().open(world)
        step = session.step

        def brittle(call: ToolCall) -> tuple[Observation, str]:
            if call == delete("size"):
                raise BrokenWorldError("a cycle")
            return step(call)

        session.step = brittle  # type: ignore[method-assign]
        return session


def test_a_broken_world_ends_the_exploration_with_what_it_has() -> None:
    plan = [put("size"), delete("size"), put("shape")]
    run = explore(lambda body: propose(plan, native=True), environment=Brittle())
    assert run.calls == [put("size")]
    assert run.ledger.counts["act.ended.broken_world"] == 1
    assert run.made.conversation[-1]["role"] == "tool"
