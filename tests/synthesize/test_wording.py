"""Instructions read like a person's and say exactly what is needed, never how to call it."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.environments.bfcl import BfclEnvironment
from coevolve.explore.schema import read_tool
from coevolve.synthesize.links import links
from coevolve.synthesize.phrases import parameter_phrase, verb_phrase
from coevolve.synthesize.screen import spelled_out
from coevolve.synthesize.wording import instruction, render
from coevolve.types import Json, Observation, Task, ToolCall, ToolSpec
from keyvalue import TOOLS, get, put

KEYVALUE = {tool.name: tool for tool in TOOLS}


@pytest.fixture(scope="session")
def tools(bfcl: BfclEnvironment) -> dict[str, ToolSpec]:
    return {spec.name: spec for world in bfcl.worlds("train") for spec in bfcl.offered(world)}


def observe(bfcl: BfclEnvironment, task: Task) -> list[list[Observation]]:
    with bfcl.open(task.world) as session:
        return [[session.call(call) for call in turn] for turn in task.solution]


def test_two_tools_are_never_worded_alike(tools: dict[str, ToolSpec]) -> None:
    phrases = [verb_phrase(read_tool(spec)) for spec in tools.values()]
    assert len(phrases) == 128
    assert len(set(phrases)) == len(phrases), sorted(p for p in phrases if phrases.count(p) > 1)


def test_two_parameters_of_a_tool_are_never_named_alike(tools: dict[str, ToolSpec]) -> None:
    for spec in tools.values():
        names = [parameter_phrase(p) for p in read_tool(spec).parameters]
        assert len(set(names)) == len(names), spec.name


def test_every_phrase_is_one_clause_that_begins_with_a_verb(tools: dict[str, ToolSpec]) -> None:
    for spec in tools.values():
        phrase = verb_phrase(read_tool(spec))
        assert 2 <= len(phrase.split()) <= 14, phrase
        assert phrase[0].islower() and not phrase.endswith((".", ",")), phrase
        assert "_" not in phrase and "(" not in phrase, phrase
        assert not re.match(r"\w+(?<!s)s\b", phrase), phrase  # 'gets', 'displays'


def plain(value: Json) -> Sequence[Json]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    return [value]


def test_every_argument_is_said_or_referred_to(
    bfcl: BfclEnvironment, tools: dict[str, ToolSpec], harvested: list[Task]
) -> None:
    for task in harvested:
        calls = [call for turn in task.solution for call in turn]
        seen = [o for turn in observe(bfcl, task) for o in turn]
        text = " ".join(task.turns)
        known = links(calls, seen, [read_tool(tools[c.name]) for c in calls])
        linked = {(x.user, x.parameter) for x in known}
        assert text.count("equal to the ") == len(linked), text
        for index, call in enumerate(calls):
            for name, value in call.arguments.items():
                if (index, name) not in linked and not isinstance(value, bool):
                    assert all(render(part) in text for part in plain(value)), (text, name, value)


def test_no_text_gives_calls_away(harvested: list[Task]) -> None:
    for task in harvested:
        assert not spelled_out(task.turns, [c.name for turn in task.solution for c in turn]), task.turns


def test_sentences_begin_and_end_like_sentences(harvested: list[Task]) -> None:
    for task in harvested:
        for turn in task.turns:
            assert turn[0].isupper() and turn[-1] in ".?", turn
            bare = re.sub(r"'[^']*'|\"[^\"]*\"", "x", turn)
            assert "  " not in bare and " ." not in bare and " ," not in bare, turn


def test_a_value_read_from_an_answer_is_not_spelled_out() -> None:
    spec = {
        "book": ToolSpec("book", "Book a table.", {"type": "object", "properties": {}}),
        "cancel": ToolSpec(
            "cancel",
            "Cancel a booking.",
            {
                "type": "object",
                "properties": {"booking_id": {"type": "string", "description": "Its id."}},
                "required": ["booking_id"],
            },
        ),
    }
    calls = [ToolCall("book"), ToolCall("cancel", {"booking_id": "B77"})]
    seen = [Observation("", {"booking_id": "B77"}), Observation("", {"ok": "yes"})]
    text = instruction(calls, spec, seen, random.Random(0))
    assert "B77" not in text and "booking ID you get" in text
    later = instruction(calls[1:], spec, seen[1:], random.Random(0), list(zip(calls[:1], seen[:1])))
    assert "B77" not in later and "booking ID you get" in later
    alone = instruction(calls[1:], spec, seen[1:], random.Random(0))
    assert "'B77'" in alone


def test_of_two_answers_the_one_meant_is_named() -> None:
    spec = ToolSpec(
        "find",
        "Find the zipcode of a city.",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    use = ToolSpec(
        "use",
        "Use a zipcode.",
        {"type": "object", "properties": {"zipcode": {"type": "string"}}, "required": ["zipcode"]},
    )
    calls = [
        ToolCall("find", {"city": "Rome"}),
        ToolCall("find", {"city": "Oslo"}),
        ToolCall("use", {"zipcode": "11111"}),
    ]
    seen = [
        Observation("", {"zipcode": "11111"}),
        Observation("", {"zipcode": "22222"}),
        Observation("", {"done": "yes"}),
    ]
    text = instruction(calls, {"find": spec, "use": use}, seen, random.Random(3))
    assert "the first zipcode you get" in text


def test_what_is_left_at_its_default_is_not_mentioned() -> None:
    spec = ToolSpec(
        "tail",
        "Show the last lines.",
        {"type": "object", "properties": {"lines": {"type": "integer", "default": 10}}},
    )
    for seed in range(6):
        text = instruction(
            [ToolCall("tail", {"lines": 10})], {"tail": spec}, [Observation("x")], random.Random(seed)
        )
        assert "10" not in text


def test_equal_generators_give_equal_texts_and_few_variants() -> None:
    texts = [
        instruction([get("color")], KEYVALUE, [Observation("red")], random.Random(seed))
        for seed in range(200)
    ]
    again = instruction([get("color")], KEYVALUE, [Observation("red")], random.Random(0))
    assert texts[0] == again
    assert 4 <= len(set(texts)) <= 24


@given(st.text(min_size=1, max_size=30), st.integers(0, 5))
def test_any_argument_can_be_worded(value: str, seed: int) -> None:
    text = instruction([put(value, value)], KEYVALUE, [Observation("ok")], random.Random(seed))
    assert value in text


def test_an_unknown_tool_is_worded_from_its_name() -> None:
    text = instruction([ToolCall("openDoor", {"side": "left"})], {}, [Observation("ok")], random.Random(0))
    assert "open door" in text and "'left'" in text
