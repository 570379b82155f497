"""Tool-call formats: what is read as a call, what as malformed, what as words."""

from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_support import (
    OFFERED,
    SMOLLM2_TEMPLATE,
    TINY_TEMPLATE,
    published,
)

from coevolve.errors import ConfigError
from coevolve.rollout.formats import FormatName, ParsedMessage, detect, get_format, parse, render
from coevolve.types import Json, ToolCall
from keyvalue import get, put

NAMES: tuple[FormatName, ...] = ("hermes", "llama", "python")

plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
json_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
tagged = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "</think>",
            "<|python_tag|>",
            "<|im_end|>",
            "```",
            "'",
            '"',
            "\\",
            ";",
            "{",
            "}",
            "[",
            "]",
            "(",
            ")",
            "\n",
            "put",
            "get",
            "key=",
            '{"name": "put", "arguments": ',
            '{"name": "rm", "parameters": {}}',
            "get(key='a')",
            "rm(x=1)",
            "__import__('os')",
            "**{'key': 1}",
            ", ",
        ]
    )
    | st.text(max_size=3),
    max_size=25,
).map("".join)
anything_calls = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text() | tagged,
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "count": st.integers(),
        "flag": st.booleans(),
        "items": st.lists(json_values, max_size=3),
        "from": st.dictionaries(st.text(), json_values, max_size=3),
    },
).map(lambda arguments: ToolCall("anything", cast(dict[str, Json], arguments)))
calls_lists = st.lists(anything_calls | st.builds(get, st.text() | tagged), max_size=4)


def read(name: FormatName, text: str) -> ParsedMessage:
    return parse(name, text, OFFERED)


@pytest.mark.parametrize("name", NAMES)
@given(calls=calls_lists)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back_exactly(name: FormatName, calls: list[ToolCall]) -> None:
    message = read(name, render(name, calls))
    assert message.malformed == ()
    assert list(message.calls) == calls
    assert message.ends_turn == (not calls)


@pytest.mark.parametrize("name", NAMES)
@given(text=tagged | st.text())
@settings(max_examples=300, deadline=None)
def test_hostile_text_never_raises_and_never_calls_what_is_not_offered(name: FormatName, text: str) -> None:
    for thinking in (False, True):
        message = get_format(name).parse(text, OFFERED, thinking)
        assert all(call.name in {tool.name for tool in OFFERED} for call in message.calls)
        json.dumps([call.arguments for call in message.calls], allow_nan=False).encode()


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_that_is_not_offered_is_malformed_and_the_others_still_run(name: FormatName) -> None:
    text = render(name, [get("a"), ToolCall("rm", {"path": "/"}), put("b")])
    message = read(name, text)
    assert message.calls == (get("a"), put("b"))
    (why,) = message.malformed
    assert "no tool 'rm'" in why


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("call", "why"),
    [
        (ToolCall("put", {"key": "a"}), "missing argument 'value'"),
        (ToolCall("put", {"key": "a", "value": "red", "ttl": 3}), "unknown argument 'ttl'"),
        (ToolCall("put", {"key": 7, "value": "red"}), "must be a string, not an integer"),
        (ToolCall("anything", {"count": 1.5}), "must be an integer, not a number"),
        (ToolCall("anything", {"count": True}), "must be an integer, not true or false"),
        (ToolCall("anything", {"number": 10**400}), "too large a number"),
        (ToolCall("anything", {"items": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}), "nested too deep"),
    ],
)
def test_arguments_that_the_schema_refuses_are_malformed(name: FormatName, call: ToolCall, why: str) -> None:
    message = read(name, render(name, [call, get("a")]))
    assert message.calls == (get("a"),)
    assert len(message.malformed) == 1
    assert why in message.malformed[0]


@pytest.mark.parametrize("name", NAMES)
def test_thinking_is_never_executed(name: FormatName) -> None:
    written = render(name, [get("a")])
    assert read(name, f"<think>I could write {written}</think>\n\n{written}").calls == (get("a"),)
    assert read(name, f"<think>{written}").calls == ()
    assert read(name, f"<think>{written}</think>\n\nDone.") == ParsedMessage("Done.")
    inside = get_format(name).parse(f"hm, {written}</think>{written}", OFFERED, thinking=True)
    assert inside.calls == (get("a"),)
    assert get_format(name).parse(written, OFFERED, thinking=True).ends_turn


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "  \n", "All done.", "The value is (red).", "Use get(key) to read it!"])
def test_words_end_the_turn(name: FormatName, text: str) -> None:
    message = read(name, text)
    assert message.ends_turn
    assert message.text == text.strip()


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"name": "get", "arguments": {"key": "a"}', "not valid JSON"),
        ('{"name": "get", "arguments": {"key": NaN}}', "NaN is no JSON value"),
        ('{"name": "get", "arguments": {"key": "a", "key": "b"}}', "a key appears twice"),
        ('{"name": "get"}', 'object "arguments"'),
        ('{"name": "get", "arguments": "a"}', 'object "arguments"'),
        ('{"name": "get", "arguments": {"key": "a"}, "id": 1}', "nothing but"),
        ('{"arguments": {"key": "a"}}', 'with a "name"'),
        ('["get"]', 'with a "name"'),
        ('{"name": "get", "arguments": {"key": "\\ud800"}}', "lone surrogate"),
        ("get(key='a')", "not valid JSON"),
        ('{"name": "get", "arguments": {"key": "a"}} and so on', "text between"),
        ("[" * 100_000, "nested too deep"),
        ("9" * 5000, "not valid JSON"),
    ],
)
def test_broken_hermes_blocks_are_malformed_each_on_its_own(body: str, why: str) -> None:
    message = read("hermes", f"First {hermes(body)} then {hermes(render_json(get('b')))}.")
    if why != "nested too deep":  # there the whole message is given up
        assert message.calls == (get("b"),)
        assert message.text.split() == ["First", "then", "."]
    assert len(message.malformed) == 1
    assert why in message.malformed[0]
    assert len(message.malformed[0]) < 250


def render_json(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments})


def test_hermes_takes_a_complete_object_whose_closing_tag_is_missing() -> None:
    assert read("hermes", "<tool_call>" + render_json(get("a"))).calls == (get("a"),)
    both = "<tool_call>" + render_json(get("a")) + "\n<tool_call>" + render_json(get("b"))
    assert read("hermes", both).calls == (get("a"), get("b"))


def test_hermes_tags_inside_arguments_are_text() -> None:
    call = get("</tool_call><tool_call><think>")
    assert read("hermes", hermes(render_json(call))).calls == (call,)


def test_llama_writes_several_objects_with_semicolons() -> None:
    one, two = '{"name": "get", "parameters": {"key": "a"}}', '{"name": "get", "arguments": {"key": "b;{"}}'
    assert read("llama", f"{one}; {two}").calls == (get("a"), get("b;{"))
    assert read("llama", f"Let me see.<|python_tag|>{one};{two};").calls == (get("a"), get("b;{"))
    broken = read("llama", f'{{"name": "get", "parameters": {{"key": ; {two}')
    assert broken.calls == (get("b;{"),)
    assert len(broken.malformed) == 1
    assert read("llama", f"{one}\n{two}").calls == (get("a"), get("b;{"))
    (why,) = read("llama", f"{one} and so on").malformed
    assert "text after the JSON object" in why


def test_llama_code_after_the_python_tag_is_malformed_and_never_run() -> None:
    message = read("llama", "<|python_tag|>import os; os.remove('x')")
    assert message.calls == ()
    assert len(message.malformed) == 1


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[put('a', value='red')]", (put("a"),)),
        ("put('a', 'red')", (put("a"),)),
        ("get(key='a'), get('b')", (get("a"), get("b"))),
        ("```python\n[get(key='a')]\n```", (get("a"),)),
        (
            "[anything(number=-1.5, flag=true, items=[None, null, (1, +2)])]",
            (ToolCall("anything", {"number": -1.5, "flag": True, "items": [None, None, [1, 2]]}),),
        ),
        (
            "[anything(**{'from': {'a': 1}}, count=2)]",
            (ToolCall("anything", {"from": {"a": 1}, "count": 2}),),
        ),
        ("[get(key='''many\nlines''')]", (get("many\nlines"),)),
        (r"[get(key='\d')]", (get(r"\d"),)),
    ],
)
def test_python_lists_bind_positional_and_keyword_arguments(text: str, calls: tuple[ToolCall, ...]) -> None:
    message = read("python", text)
    assert message.malformed == ()
    assert message.calls == calls


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        ("get(key=get(key='b'))", "literal values"),
        ("os.system('ls')", "plain name"),
        ("get(key='a' + 'b')", "literal values"),
        ("anything(count=2 ** 99999999)", "literal values"),
        ("anything(count=--1)", "literal values"),
        ("anything(count=-True)", "literal values"),
        ("get(key=f'{1}')", "literal values"),
        ("get(key=lambda: 1)", "literal values"),
        ("get(key=b'a')", "literal values"),
        ("get(key=...)", "literal values"),
        ("anything(number=1e999)", "not a finite number"),
        ("anything(items={1, 2})", "literal values"),
        ("anything(**{1: 2})", "keys of a dictionary"),
        ("anything(**x)", "literal dictionary"),
        ("get(*['a'])", "literal values"),
        ("get('a', 'b')", "at most 1 arguments"),
        ("get('a', key='b')", "two values"),
        ("get(key='a', **{'key': 'b'})", "two values"),
        ("get(key='\\ud800')", "lone surrogate"),
        ("get(key=name)", "literal values"),
        ("get", "not a call"),
        ("__import__('os')", "no tool '__import__'"),
        ("eval('1')", "no tool 'eval'"),
        ("get(key='a')(1)", "plain name"),
        ("(lambda: get)()", "plain name"),
    ],
)
def test_python_pieces_that_are_no_plain_call_are_malformed(piece: str, why: str) -> None:
    message = read("python", f"[get(key='z'), {piece}]")
    assert message.calls == (get("z"),)
    assert len(message.malformed) == 1
    assert why in message.malformed[0]


@pytest.mark.parametrize(
    "text",
    [
        "[get(key='a'",
        "get(key='a",
        "[get(key='a') get(key='b')]",
        "[get(key='a')] done",
        "get(" * 3000,
        "get(key=" + "[" * 5000 + "]" * 5000 + ")",
        "get(key=" + "-" * 15000 + "1)",
        "get(key='" + "x" * 30000 + "')",
    ],
)
def test_a_broken_python_list_is_malformed_as_a_whole(text: str) -> None:
    message = read("python", text)
    assert message.calls == ()
    assert len(message.malformed) == 1


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("qwen2_5", "hermes"),
        ("qwen3", "hermes"),
        ("qwen3_instruct_2507", "hermes"),
        ("llama3_1", "llama"),
        ("llama3_2", "llama"),
        ("llama3", "python"),
        ("gemma", "python"),
    ],
)
def test_the_format_is_read_off_the_models_own_template(template: str, name: FormatName) -> None:
    assert detect(published(template)) == name


def test_a_marker_in_the_template_decides() -> None:
    assert detect(TINY_TEMPLATE) == "python"
    assert detect(SMOLLM2_TEMPLATE) == "python"
    assert detect("{# coevolve: calls=llama #}" + published("qwen3")) == "llama"
    with pytest.raises(ConfigError, match="calls=yaml"):
        detect("{# coevolve: calls=yaml #}")


@pytest.mark.parametrize("template", ["qwen3_5_think", "glm4moe", "gptoss", "gemma4"])
def test_tools_in_a_format_that_is_none_of_ours_are_refused_with_the_way_out(template: str) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.format"):
        detect(published(template))


@pytest.mark.parametrize("template", [None, ""])
def test_a_model_without_a_chat_template_is_refused(template: str | None) -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        detect(template)
