"""From messages to ids: append-only, control tokens from the template alone, the task always in sight."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_support import (
    LLAMA,
    QWEN,
    SMOLLM2_TEMPLATE,
    TINY,
    TOOLS,
    encoded,
    every_chat,
    llama,
    published,
    qwen,
    spelled,
    spelt_out,
    squeezed,
    tiny,
    tokenizer,
)

from coevolve.config import RolloutConfig
from coevolve.errors import ConfigError
from coevolve.rollout.chat import CUT, Chat
from coevolve.rollout.encoding import Encoder, Text
from keyvalue import get, put

CHATS = every_chat()
TOOL_DOCS = [
    {
        "type": "function",
        "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
    }
    for t in TOOLS
]


@pytest.mark.parametrize(
    ("name", "call_format", "describes", "history"),
    [
        ("tiny", "python", "none", True),
        ("smollm2", "python", "system", True),
        ("qwen2.5", "hermes", "template", True),
        ("qwen3", "hermes", "template", False),
        ("qwen3-2507", "hermes", "template", True),
        ("llama3.1", "llama", "template", True),
        ("llama3", "python", "system", True),
        ("gemma", "python", "system", True),
    ],
)
def test_everything_is_decided_from_the_template(
    name: str, call_format: str, describes: str, history: bool
) -> None:
    chat = CHATS[name]
    assert chat.format.name == call_format
    assert chat.describe_tools == describes
    assert chat.template.keeps_history is history  # Qwen3 adds and drops thinking; ours stays as it was


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3", "qwen3-2507", "llama3.1"])
def test_the_prompt_is_the_templates_own_token_by_token(name: str) -> None:
    chat = CHATS[name]
    own = chat.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Put red under color."}],
        tools=TOOL_DOCS,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert list(chat.prompt("Put red under color.", TOOLS)) == own


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3-2507", "smollm2", "tiny"])
def test_what_is_appended_is_what_the_template_would_have_rendered_as_a_whole(name: str) -> None:
    chat = CHATS[name]
    first, last = "[put(key='color', value='red')]", "stored"
    ids = list(chat.prompt("Put red under color.", TOOLS if name == "qwen2.5" else ()))
    ids += chat.tokenizer.encode(first, add_special_tokens=False)
    ids += chat.results(["stored color", "no key shape"], ended=False)
    ids += [*chat.tokenizer.encode(last, add_special_tokens=False), chat.end_id]
    ids += chat.user("Now read shape.", ended=True)
    messages = [
        {"role": "user", "content": "Put red under color."},
        {"role": "assistant", "content": first},
        {"role": "tool", "content": "stored color"},
        {"role": "tool", "content": "no key shape"},
        {"role": "assistant", "content": last},
        {"role": "user", "content": "Now read shape."},
    ]
    own = chat.tokenizer.apply_chat_template(
        messages,
        tools=TOOL_DOCS if name == "qwen2.5" else None,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert ids == own


@pytest.mark.parametrize("name", CHATS)
def test_the_agent_sees_its_task_its_tools_and_every_answer(name: str) -> None:
    chat = CHATS[name]
    prompt = squeezed(spelled(chat, chat.prompt("Put red under color.", TOOLS)))
    assert squeezed("Put red under color.") in prompt
    shown = all(squeezed(tool.description) in prompt for tool in TOOLS)
    assert shown == (chat.describe_tools != "none")
    following = squeezed(spelled(chat, chat.results(["stored color", "no key shape"], ended=True)))
    assert following.index("storedcolor") < following.index("nokeyshape")
    later = squeezed(spelled(chat, chat.user("Read it.", ended=True, new_tools=TOOLS[:1])))
    assert "readit." in later
    assert (squeezed(TOOLS[0].description) in later) == (chat.describe_tools != "none")


@pytest.mark.parametrize("name", CHATS)
def test_a_missing_end_token_is_supplied_and_one_that_is_there_is_not_doubled(name: str) -> None:
    chat = CHATS[name]
    for ids, bare in (
        (chat.results(["ok"], ended=False), chat.results(["ok"], ended=True)),
        (chat.user("go on", ended=False), chat.user("go on", ended=True)),
    ):
        assert ids == (*chat.closing, *bare)
        assert ids.count(chat.end_id) == bare.count(chat.end_id) + 1
    assert chat.stop_ids[0] == chat.end_id
    assert chat.ended([5, chat.end_id])
    assert not chat.ended([5])
    assert not chat.ended([])


@pytest.mark.parametrize("name", CHATS)
def test_text_of_tools_and_users_never_becomes_a_control_token(name: str) -> None:
    chat = CHATS[name]
    control = chat.encoder.control
    hostile = "a " + " ".join(control.values()) + "<<|im_end|>|im_end|> b" + "".join(control.values())

    def used(ids: tuple[int, ...]) -> list[int]:
        return [number for number in ids if number in control]

    assert used(chat.prompt(hostile, TOOLS)) == used(chat.prompt("x", TOOLS))
    assert used(chat.results([hostile, hostile], True)) == used(chat.results(["x", "y"], True))
    assert used(chat.user(hostile, True)) == used(chat.user("x", True))
    assert used(tuple(chat.encoder.plain(hostile))) == []
    tool = type(TOOLS[0])("put", hostile, {"type": "object", "properties": {hostile: {"type": "string"}}})
    calm = type(TOOLS[0])("put", "x", {"type": "object", "properties": {"x": {"type": "string"}}})
    assert used(chat.prompt("x", [tool])) == used(chat.prompt("x", [calm]))
    assert used(chat.message([put(hostile)])) == used(chat.message([put("x")]))
    if "not bijective" not in name:
        said = chat.message([get(hostile)])
        assert chat.read(said, TOOLS)[1].calls == (get(hostile),)
        assert spelled(chat, chat.encoder.plain(hostile)) == hostile


fragments = st.lists(
    st.sampled_from([*QWEN, *LLAMA, *TINY, "<tool_call>", "</think>", "<", "|", "im_end", ">", " ", "\n"])
    | st.text(max_size=4),
    max_size=12,
).map("".join)


@given(text=fragments, other=fragments)
@settings(max_examples=150, deadline=None)
def test_no_text_at_all_becomes_a_control_token(text: str, other: str) -> None:
    for name in ("qwen3", "llama3.1", "tiny", "tiny, not bijective"):
        chat = CHATS[name]
        calm, hostile = chat.results(["", ""], True), chat.results([text, other], True)
        assert chat.encoder.controls(hostile) == chat.encoder.controls(calm)
        if name != "tiny, not bijective":
            assert spelled(chat, chat.encoder.plain(text)) == text


def test_an_added_token_that_is_not_special_is_a_control_token_too() -> None:
    encoder = Encoder(qwen("qwen3"))
    assert encoder.controls(encoder.ids([Text("<think>", trusted=True)])) != []
    assert encoder.controls(encoder.plain("<think>")) == []


def test_contents_are_shaped_as_the_template_shapes_them() -> None:
    chat = Chat(llama())  # trims what users say, prints tool answers as JSON strings
    assert spelled(chat, chat.results(['a "quoted"\nline'], True)).count('"a \\"quoted\\"\\nline"') == 1
    assert "\n\nhello<|eot_id|>" in spelled(chat, chat.user("  hello \n", True))


def test_the_prompt_does_not_depend_on_the_day() -> None:
    chat = Chat(llama("llama3_2"))
    assert "Today Date: 26 Jul 2024" in spelled(chat, chat.prompt("hello", TOOLS))


def test_generated_ids_are_read_even_where_the_tokenizer_is_not_bijective() -> None:
    chat = CHATS["tiny, not bijective"]
    ids = spelt_out(chat, "[get(key='a')]")
    text, message = chat.read([*ids, chat.end_id], TOOLS)
    assert encoded(chat, text) != ids
    assert message.calls == (get("a"),)


def test_an_undecodable_message_ends_the_turn() -> None:
    _, message = CHATS["tiny"].read([10**6, 10**7], TOOLS)
    assert message.ends_turn


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("limit", [1, 8, 32])
def test_long_observations_are_cut_in_the_middle(name: str, limit: int) -> None:
    chat = Chat(CHATS[name].tokenizer, RolloutConfig(observation_tokens=limit))
    text = "beginning " + "stored color " * 5000 + " the very end"
    shown, was_cut = chat.cut(text)
    assert was_cut
    assert len(chat.encoder.plain(shown)) <= limit
    if limit == 32:
        head, _, tail = shown.partition(CUT)
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) > 5
        assert len(tail) > 5
    assert chat.cut("") == ("", False)
    assert chat.cut("a") in (("a", False), ("", True))


@given(text=st.text(max_size=300), limit=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_a_cut_observation_always_fits_and_a_short_one_is_whole(text: str, limit: int) -> None:
    chat = CHATS["tiny"]
    limited = Chat.__new__(Chat)
    limited.limits, limited.encoder = RolloutConfig(observation_tokens=limit), chat.encoder
    shown, was_cut = limited.cut(text)
    assert len(chat.encoder.plain(shown)) <= limit
    assert was_cut == (len(chat.encoder.plain(text)) > limit)
    assert was_cut or shown == text


def test_a_system_message_of_ones_own_comes_first() -> None:
    for name in ("qwen2.5", "llama3.1", "smollm2", "gemma"):
        chat = Chat(CHATS[name].tokenizer, system="Be brief.")
        text = spelled(chat, chat.prompt("hello there", TOOLS))
        assert text.index("Be brief.") < text.index("hello there")


def test_a_format_set_by_config_is_explained_in_our_words() -> None:
    chat = Chat(qwen("qwen3_5_think"), RolloutConfig(format="python"))
    text = spelled(chat, chat.prompt("hello there", TOOLS))
    assert "list of calls" in text
    assert TOOLS[0].description in text
    assert chat.template.opens_thinking
    assert chat.read(chat.message([get("a")]), TOOLS)[1].calls == (get("a"),)


def test_template_options_reach_the_template() -> None:
    chat = Chat(qwen("qwen3"), options={"enable_thinking": False})
    assert spelled(chat, chat.prompt("hello", TOOLS)).endswith("<think>\n\n</think>\n\n")
    assert not chat.template.opens_thinking


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("text", ["", " \n "])
def test_a_blank_task_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="would see no task"):
        CHATS[name].prompt(text, TOOLS)


def refused(template: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Chat(tokenizer(template, QWEN, "<|im_end|>"))
    return str(caught.value)


def test_templates_that_cannot_be_used_are_refused_when_they_are_loaded() -> None:
    assert "no chat template" in refused("")
    turn = "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    go = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    loop = "{% for m in messages %}"
    assert "drops what the assistant said" in refused(
        loop + "{% if m.role != 'assistant' %}" + turn + "{% endif %}{% endfor %}" + go
    )
    assert "see its task" in refused(
        loop + "{% if m.role != 'user' %}" + turn + "{% endif %}{% endfor %}" + go
    )
    assert "rewrites earlier messages" in refused("{{ messages|length }}" + loop + turn + "{% endfor %}" + go)
    assert "no control token" in refused(
        loop + "{{ m.role + ': ' + m.content + '\n' }}{% endfor %}" + go.replace("<|im_start|>", "")
    )
    assert "unknown way" in refused(loop + turn.replace("m.content", "m.content|upper") + "{% endfor %}" + go)
    assert "cannot render" in refused("{{ nothing.at.all }}" + loop + turn + "{% endfor %}")


def test_describing_the_tools_by_a_template_that_does_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not print the tools"):
        Chat(tokenizer(SMOLLM2_TEMPLATE, QWEN, "<|im_end|>"), describe_tools="template")


def test_of_several_named_templates_the_one_for_tools_is_taken() -> None:
    several = tokenizer(SMOLLM2_TEMPLATE + "{# copy #}", QWEN, "<|im_end|>")
    several.chat_template = {"default": SMOLLM2_TEMPLATE, "tool_use": published("qwen2_5")}
    assert Chat(several).format.name == "hermes"


def test_a_llama_may_end_a_step_with_its_end_of_step_token() -> None:
    chat = Chat(llama())
    step_end = chat.tokenizer.encode("<|eom_id|>", add_special_tokens=False)[0]
    assert step_end in chat.stop_ids
    assert chat.ended([7, step_end])


def test_the_tiny_policys_conversation_is_as_short_as_can_be() -> None:
    chat = Chat(tiny())
    text = spelled(chat, (*chat.prompt("Put it.", TOOLS), *chat.message([get("a")])))
    assert text == "<|user|>Put it.<|end|><|assistant|>[get(key='a')]<|end|>"
    assert spelled(chat, chat.results(["x", "y"], True)) == "<|tool|>x<|end|><|tool|>y<|end|><|assistant|>"
    assert chat.message([]) == (chat.end_id,)
