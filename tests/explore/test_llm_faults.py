"""Bad answers and hostile worlds: each fault is counted and told, and nothing unchecked is executed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from brain import Brain, propose, said
from over_http import CALLS, DONE, ORDER, PUT, explore, says, user_text, world
from server import Fault, fenced, truncated, wrong_types

from coevolve.explore.acting import ANSWER
from coevolve.explore.llm import LLMExplorer
from coevolve.llm.base import Ledger, Message, Reply
from coevolve.types import Observation, ToolCall, World
from keyvalue import KeyValue, KeyValueSession, delete, get, put


@pytest.mark.parametrize(
    "text",
    [
        PUT,
        f"I will store a size now.\n{PUT}\nLet us see {{what}} comes of it.",
        f"Sure!\n```json\n{json.dumps(json.loads(PUT), indent=2)}\n```\n",
        f'<think>Or {{"calls": [{{"name": "delete", "arguments": {{"key": "color"}}}}]}}?</think>{PUT}',
        '{"name": "put", "arguments": {"key": "size", "value": "red"}}',
        json.dumps(json.loads(PUT)["calls"]),
        f"{PUT}\n{DONE}",
    ],
)
def test_prose_and_fences_round_a_call_do_not_matter(text: str) -> None:
    run = explore(says(text, DONE), "text")
    assert run.calls == [put("size")] and not run.faults


FAULTS = {
    "truncated": ('{"calls": [{"name": "put", "arguments": {"key": "size", "value": "red"}}', "invalid_json"),
    "prose": ("I would store a size.", "invalid_json"),
    "shape": ('{"calls": "put"}', "invalid_schema"),
    "entry": ('{"calls": ["put"]}', "bad_arguments"),
    "unknown": ('{"calls": [{"name": "rm -rf", "arguments": {}}]}', "unknown_tool"),
    "type": ('{"calls": [{"name": "put", "arguments": {"key": "size", "value": 7}}]}', "bad_arguments"),
    "missing": ('{"calls": [{"name": "put", "arguments": {"key": "size"}}]}', "bad_arguments"),
    "invented": ('{"calls": [{"name": "get", "arguments": {"key": "size", "n": 1}}]}', "bad_arguments"),
    "list": ('{"calls": [{"name": "get", "arguments": ["size"]}]}', "bad_arguments"),
    "nan": ('{"calls": [{"name": "put", "arguments": {"key": "size", "value": NaN}}]}', "invalid_json"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_executed_is_counted_and_told_and_never_executed(name: str) -> None:
    text, kind = FAULTS[name]
    run = explore(says(text, PUT, DONE), "text")
    assert run.calls == [put("size")]
    assert run.faults == {f"faults.{kind}": 1}
    told = run.requests[1]["messages"][-1]
    assert told["role"] == "user" and ("not executed" in told["content"] or "JSON" in told["content"])


@pytest.mark.parametrize("arguments", ['{"key": "size", "value": "re', "[1]", "null", '{"key": 1e999}'])
def test_broken_native_arguments_are_refused_and_echoed_as_json(arguments: str) -> None:
    broken = {"tool_calls": [{"name": "put", "arguments": arguments}]}
    answers: Iterator[Any] = iter([broken, propose([put("size")], True), "Ok"])
    run = explore(lambda body: next(answers))
    assert run.calls == [put("size")]
    assert run.faults == {"faults.bad_arguments": 1}
    echoed = run.requests[1]["messages"][2]["tool_calls"][0]["function"]
    assert isinstance(json.loads(echoed["arguments"]), dict)
    assert "not executed" in run.requests[1]["messages"][3]["content"]


@pytest.mark.parametrize("tools", ["native", "text"])
@pytest.mark.parametrize("fault", [fenced(), truncated(), wrong_types()])
def test_damage_on_the_way_costs_a_message_and_changes_no_call(tools: str, fault: Fault) -> None:
    brain = Brain(KeyValue(), CALLS)
    run = explore(brain.answer, tools, faults=[None, fault])
    assert run.made.triplets == brain.decisions(world(), user_text(run.requests[0]))
    harmless = fault == fenced() and tools == "text"
    assert len(run.requests) == (5 if harmless else 6)
    assert sum(run.faults.values()) == (0 if harmless else 1)


def test_an_empty_answer_is_counted_and_asked_for_again() -> None:
    class Mute:
        """A model of this process, which unlike an endpoint may hand on an answer of nothing."""

        name, native_tools, concurrency = "mute", False, 1
        texts: ClassVar = ["", PUT, DONE]

        def complete(self, messages: Sequence[Message], **given: Any) -> Reply:
            return Reply(self.texts.pop(0))

    ledger = Ledger()
    made = LLMExplorer(KeyValue(), CALLS, Mute()).explore(world(), random.Random(0), ledger=ledger)
    assert [triplet.action for triplet in made.triplets] == [put("size")]
    assert ledger.counts["faults.empty_answer"] == 1


def test_a_model_that_never_says_anything_usable_is_given_up_on() -> None:
    run = explore(says("no"), "text")
    assert run.made.triplets == () and len(run.requests) == CALLS.reasks + 1
    assert run.ledger.counts["act.ended.given_up"] == 1
    assert run.faults == {"faults.invalid_json": CALLS.reasks + 1}


@pytest.mark.parametrize(("tools", "text"), [("native", "Nothing to do."), ("text", DONE)])
def test_a_model_that_stops_before_it_began_is_asked_once_to_go_on(tools: str, text: str) -> None:
    run = explore(says(text), tools)
    assert run.made.triplets == ()
    assert len(run.requests) == 2 and run.ledger.counts["act.ended.done"] == 1


class Poisoned(KeyValue):
    """A store whose answers tell the reader to leave its task."""

    def open(self, world: World) -> KeyValueSession:
        session = super().open(world)
        answer = session._do

        def poisoned(call: ToolCall) -> Observation:
            return replace(answer(call), text=ORDER)

        session._do = poisoned  # type: ignore[method-assign]
        return session


@pytest.mark.parametrize("tools", ["native", "text"])
def test_an_instruction_in_a_tools_answer_changes_nothing(tools: str) -> None:
    brain = Brain(KeyValue(), CALLS)
    clean, poisoned = explore(brain.answer, tools), explore(brain.answer, tools, Poisoned())
    assert poisoned.calls == clean.calls
    for before, after in zip(clean.requests, poisoned.requests, strict=True):
        assert {**before, "messages": []} == {**after, "messages": []}
        assert before["messages"][:2] == after["messages"][:2]
        assert [m["role"] for m in before["messages"]] == [m["role"] for m in after["messages"]]
    last = poisoned.requests[-1]["messages"][-1]
    if tools == "native":
        assert last["role"] == "tool" and last["content"] == ORDER
    else:
        assert last["content"].count("</observation>") == 1
        inner = last["content"].removeprefix("<observation>").removesuffix("</observation>")
        assert json.loads(inner)["answer"] == ORDER


def test_a_model_that_obeys_the_instruction_gets_no_further_than_its_limits() -> None:
    obey = propose([ToolCall("format_disk"), *[delete("color")] * 500], native=True)
    run = explore(lambda body: obey, environment=Poisoned())
    assert run.calls == [delete("color")] * 5 and run.made.world.split == "train"
    assert run.faults == {"faults.unknown_tool": 1}


def test_a_very_long_answer_loses_its_middle() -> None:
    class Long(KeyValue):
        def open(self, world: World) -> KeyValueSession:
            session = super().open(world)
            session._do = lambda call: Observation("a" * 50_000 + "z" * 50_000)  # type: ignore[method-assign]
            return session

    run = explore(
        lambda body: propose([] if said(body["messages"]) else [get("size")], True), "native", Long()
    )
    shown = str(run.requests[-1]["messages"][-1]["content"])
    assert len(shown) < ANSWER + 60 and shown.startswith("aaa") and shown.endswith("zzz")
    assert "98000 characters left out" in shown
    assert len(run.made.triplets[0].observation.text) == 100_000
