"""Texts in, checked data out: JSON in answers, calls, quoted observations, trimmed texts."""

from __future__ import annotations

import json

import pytest
from brain import said
from hypothesis import given
from hypothesis import strategies as st
from over_http import BY_NAME, PUT

from coevolve.explore.answers import InvalidAnswerError, objects, read
from coevolve.explore.calls import bind
from coevolve.explore.protocol import Exchange, messages, numbered, understand
from coevolve.explore.trim import estimate, sendable, shares, trim
from coevolve.llm.base import ProposedCall, Reply
from coevolve.synthesize.drafts import RawDrafts
from coevolve.types import Json, ToolCall, ToolSpec
from keyvalue import put


def test_ids_of_calls_are_made_unique() -> None:
    asked = [ProposedCall("a", "x", ""), ProposedCall("a", "y", ""), ProposedCall("", "z", "")]
    assert [call.id for call in numbered(asked, 7, set())] == ["a", "call00008", "call00009"]


@pytest.mark.parametrize(
    "value",
    [
        "[" * 40 + "]" * 40,
        "[" * 5000 + "]" * 5000,
        "9" * 400,
        "1e999",
        "NaN",
        '"\\ud800"',
        '"' + "a" * 30_000 + '"',
    ],
)
def test_values_that_cannot_be_stored_or_sent_are_refused(value: str) -> None:
    anything = ToolSpec("keep", "", {"type": "object", "properties": {"it": {}}})
    with pytest.raises(InvalidAnswerError, match="JSON object"):
        bind(ProposedCall("", "keep", f'{{"it": {value}}}'), {"keep": anything})


def test_null_for_what_need_not_be_given_is_left_out() -> None:
    schema: dict[str, Json] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    spec = ToolSpec("roll", "", schema)
    assert bind(ProposedCall("", "roll", '{"n": null}'), {"roll": spec}) == ToolCall("roll", {})
    with pytest.raises(InvalidAnswerError, match="integer"):
        bind(
            ProposedCall("", "roll", '{"n": null}'),
            {"roll": ToolSpec("roll", "", {**schema, "required": ["n"]})},
        )


@given(st.text(max_size=200))
def test_any_answer_comes_to_something(text: str) -> None:
    for native in (True, False):
        found = understand(Reply(text), native)
        for call in found.calls:
            try:
                assert bind(call, BY_NAME).name in BY_NAME
            except InvalidAnswerError as error:
                assert error.kind in ("unknown_tool", "bad_arguments")


@given(st.integers(1, len(PUT) - 1))
def test_half_an_answer_is_no_answer(end: int) -> None:
    assert objects(f"Here: {PUT[:end]}") == []
    assert objects(f"```json\n{PUT[:end]}\n```") == []


def test_several_objects_are_read_in_order() -> None:
    assert objects('{"a": 1} and {b} and {"c": {"d": "}"}}') == [{"a": 1}, {"c": {"d": "}"}}]


@given(st.text(st.characters(codec=None) | st.just("\ud83d"), max_size=20))
def test_half_a_character_spoils_no_more_than_itself(text: str) -> None:
    answer = read(Reply(json.dumps({"candidates": [text, {"whole": "\U0001f600"}]})), RawDrafts)
    written, whole = answer.candidates
    halves = [a if not 0xD800 <= ord(a) < 0xE000 else "\ufffd" for a in json.loads(json.dumps(text))]
    assert written == "".join(halves) and whole == {"whole": "\U0001f600"}


@given(st.lists(st.text(), min_size=1, max_size=3), st.booleans())
def test_whatever_a_world_answers_stays_inside_its_block(answers: list[str], native: bool) -> None:
    calls = tuple(ProposedCall(str(n), "get", '{"key": "size"}') for n in range(len(answers)))
    exchange = Exchange("", calls, tuple(answers), native=native)
    spoken, heard = messages([exchange], native=False)
    lines = str(heard["content"]).split("\n")
    assert len(lines) == len(answers) and spoken["role"] == "assistant"
    for line, answer in zip(lines, answers):
        inner = line.removeprefix("<observation>").removesuffix("</observation>")
        assert "<" not in inner and json.loads(inner)["answer"] == answer


def test_what_was_done_natively_can_be_told_as_text_and_the_other_way_round() -> None:
    calls = (ProposedCall("a", "put", '{"key": "size", "value": "red"}'), ProposedCall("b", "get", "{broken"))
    for native in (True, False):
        text = "" if native else PUT
        story = [
            Exchange(text, calls, ("stored size", "Error"), native=native),
            Exchange("So it is.", note="Go on."),
        ]
        for told in (messages(story, native=True), messages(story, native=False)):
            assert put("size") in said(told)
            assert "stored size" in str(told) and told[-1]["content"] == "Go on."


@given(st.text(max_size=400), st.integers(0, 120))
def test_a_trimmed_text_fits_and_a_short_one_is_whole(text: str, tokens: int) -> None:
    for count in (estimate, len):
        short = trim(text, tokens, count)
        assert count(short) <= max(tokens, count(text) and tokens)
        if count(sendable(text)) <= tokens:
            assert short == sendable(text)


@given(st.lists(st.integers(0, 500), max_size=6), st.integers(0, 1000))
def test_shares_are_even_and_nothing_is_left_that_one_needs(needs: list[int], total: int) -> None:
    given_ = shares(needs, total)
    assert all(0 <= share <= need for share, need in zip(given_, needs))
    assert sum(given_) == min(total, sum(needs))
    short = [share for share, need in zip(given_, needs) if share < need]
    assert not short or max(given_) - min(short) <= 1
