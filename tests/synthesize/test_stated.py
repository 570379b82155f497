"""Which values a task's words and answers tell, and which they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.environments.bfcl import BfclEnvironment
from coevolve.synthesize.replay import Replayer
from coevolve.synthesize.stated import Told, unstated
from coevolve.types import Json, Task, ToolCall, ToolSpec

SPEC = ToolSpec(
    "book",
    "Book a seat.",
    {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "seats": {"type": "integer"},
            "window": {"type": "boolean"},
            "cabin": {"type": "string", "enum": ["economy", "business"]},
            "meal": {"type": "string", "enum": ["vegan", "meat", "fish", "halal", "kosher"]},
            "note": {"type": "string", "default": "none given"},
            "names": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["to"],
    },
)


def missing(text: str, answers: Sequence[str] = (), **arguments: Json) -> str | None:
    """The parameter that a text does not tell, for one call after as many others as there are answers."""
    calls = [*(ToolCall("look") for _ in answers), ToolCall("book", arguments)]
    found = unstated([text], [calls], [*answers, "ok"], {"book": SPEC})
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("final_report.pdf", "Open Final_Report.pdf, please."),
        ("See you tomorrow!", "Tell him 'see you   tomorrow'."),
        ("USR001", "I am USR001."),
        ("東京", "東京へ行きたい。"),
        ("*", "Take * for all."),
        ("2026-03-05", "On March 5th."),
        ("2026-03-05", "On 05 Mar 2026."),
        ("12", "Order number twelve."),
        (3, "Buy three of them."),
        (25, "Buy twenty-five of them."),
        (300, "Buy three hundred of them."),
        (1500, "It costs $1,500 in all."),
        (1500.0, "It costs 1500 in all."),
        (0.05, "Take 5 % off."),
        (2000, "Pay 2k."),
        (-4, "It is -4 outside."),
        (3, "Take the 1,2,3 of it."),
        (2, "The second one."),
        (43.85, "43.8523 it was."),
        (1, "The last line."),
    ],
)
def test_told_in_other_letters_is_told(value: str | float, text: str) -> None:
    assert missing(text, to=value) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("final_report.pdf", "Open the report, the final one."),
        ("USR001", "I am USR0012."),
        ("See you tomorrow!", "Tell him tomorrow see you."),
        ("東京", "京都へ行きたい。"),
        ("2026-03-05", "On March 15th."),
        ("2026-99-05", "On March 5th."),
        (5, "Buy 15 of them."),
        (5, "Buy 5.5 of them."),
        (1.5, "Buy 1 or 5 of them."),
        (44, "43.8523 it was, and 45."),
        (10**400, "A large number."),
    ],
)
def test_near_is_not_told(value: str | float, text: str) -> None:
    assert missing(text, to=value) == "to"


def test_answers_on_the_way_tell_too_but_only_earlier_ones() -> None:
    assert missing("Book it there.", ['{"city": "Oslo"}'], to="Oslo") is None
    assert missing("Book it there.", to="Oslo") == "to"
    late = unstated(
        ["Book it there.", "I mean Oslo."], [[ToolCall("book", {"to": "Oslo"})], []], ["ok"], {"book": SPEC}
    )
    assert late == ("to", "Oslo"), "not before the user has said it"
    soon = unstated(["It is Oslo.", "Go."], [[], [ToolCall("book", {"to": "Oslo"})]], ["ok"], {})
    assert soon is None


def test_flags_defaults_and_blanks_need_no_word() -> None:
    assert missing("To Oslo.", to="Oslo", window=True, note="none given", names=[], meal=None) is None
    assert missing("To Oslo.", to="Oslo", note="by train") == "note"
    assert missing("Anywhere.", to=" ") is None


def test_of_few_options_none_need_be_named_and_of_many_a_stem() -> None:
    assert missing("To Oslo.", to="Oslo", cabin="business") is None
    assert missing("To Oslo, with a vegan's meal.", to="Oslo", meal="vegan") is None
    assert missing("To Oslo, a kosher meal.", to="Oslo", meal="vegan") == "meal"
    assert missing("To Oslo.", to="Oslo", cabin="first") == "cabin", "no option at all"


def test_each_item_of_a_list_is_asked_for() -> None:
    assert missing("To Oslo, for Ann and Bo.", to="Oslo", names=["Ann", "Bo"]) is None
    assert missing("To Oslo, for Ann.", to="Oslo", names=["Ann", "Bo"]) == "names"


@given(st.text(), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_what_stands_in_a_text_is_told(around: str, value: str | float) -> None:
    told = Told()
    told.add(f"{around} {value} {around}")
    if str(value).strip():
        assert told.tells(value)


def test_the_templates_words_tell_everything_and_other_words_do_not(
    bfcl: BfclEnvironment, harvested: list[Task]
) -> None:
    replayer = Replayer(bfcl)

    def told(task: Task) -> bool:
        run = replayer.run(task.world, [call for turn in task.solution for call in turn])
        tools = {spec.name: spec for spec in bfcl.offered(task.world)}
        return unstated(task.turns, task.solution, [o.text for o in run.observations], tools) is None

    few = [task for task in harvested[::4] if any(call.arguments for turn in task.solution for call in turn)]
    assert all(map(told, few))
    swapped = [
        replace(task, turns=other.turns)
        for task, other in pairwise(few)
        if len(task.turns) == len(other.turns)
    ]
    assert sum(map(told, swapped)) <= 0.25 * len(swapped)
