"""Duplicates are found against the whole pool in any language; leaks are found in the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.synthesize.screen import Screen, spelled_out
from coevolve.types import Task
from keyvalue import a_task, get, put


def reason(screen: Screen, task: Task) -> str | None:
    refusal = screen.refusal(task)
    return refusal[0] if refusal else None


LONG = "Please store the colour red under the key named sunset and then read the value of color"


def test_near_duplicates_are_found_and_named() -> None:
    first = a_task(put("sunset"), get("color"), text=LONG + ".")
    screen = Screen([first])
    twin = a_task(get("color"), put("sunset"), text=LONG + "!")
    refusal = screen.refusal(twin)
    assert refusal is not None and refusal[0] == "near_duplicate"
    assert refusal[1]["of"] == first.id


def test_duplicates_are_found_in_other_scripts() -> None:
    text = "请把红色保存到名为日落的键下，然后读取颜色的值。 Отправь отчёт Анне и сохрани ключ"
    screen = Screen([a_task(put("sunset"), get("color"), text=text)])
    assert reason(screen, a_task(get("color"), put("sunset"), text=text)) == "near_duplicate"


def test_other_arguments_make_another_task() -> None:
    screen = Screen([a_task(put("sunset"), text="Store red under the key 'sunset'.")])
    assert reason(screen, a_task(put("harbor", "blue"), text="Store blue under the key 'harbor'.")) is None


def test_a_screen_rebuilt_from_the_pool_judges_alike() -> None:
    tasks = [a_task(put(f"key{n}"), text=f"Store red under key number {n}, as agreed.") for n in range(40)]
    grown = Screen()
    for task in tasks:
        grown.add(task)
        grown.add(task)
    rebuilt = Screen(tasks)
    assert len(grown) == len(rebuilt) == 40
    probes = [a_task(put(f"key{n}"), text=f"Store red under key number {n}, as said.") for n in range(60)]
    assert [grown.refusal(p) for p in probes] == [rebuilt.refusal(p) for p in probes]


@pytest.mark.parametrize(
    "text",
    [
        "Call put(key='a') now.",
        'Use {"name": "put"} please.',
        "First get_value(x), then stop.",
        "Use store_value for a.",
        "Run startEngine.",
        "sort (file='x')",
        "Do {'name': 'sort', 'arguments': {'file': 'x'}}.",
        "sort file='x'",
        "Sort with file = x.",
    ],
)
def test_texts_that_spell_out_calls_are_found(text: str) -> None:
    assert spelled_out([text], ["store_value", "startEngine", "sort"], arguments=["file", "number"])


@pytest.mark.parametrize(
    "text",
    [
        "Store the value 'red' under the key 'a_b'.",
        "Sort the contents of the file 'final_report.pdf' (the old one).",
        "Start the engine of the vehicle with ignition mode 'START'.",
        "Post 'Done! #Success (finally)'.",
        "The file 'x == y' has the number 5, the profile=red, and x = 5.",
    ],
)
def test_plain_texts_are_not(text: str) -> None:
    assert not spelled_out([text], ["store_value", "startEngine", "sort"], arguments=["file", "number", "x"])


@given(st.text(max_size=60))
def test_any_text_can_be_screened(text: str) -> None:
    screen = Screen()
    screen.add(a_task(put("a"), text=text))
    assert reason(screen, a_task(put("a"), text=text)) == "duplicate" or spelled_out(
        [text], ["put"], arguments=["key", "value"]
    )
