"""Attack 4: a policy that writes whatever could be run, believed, or waited for.

Attacked are invariants 6 (the policy's text is data), 2 (ids are only appended; text of tools and users is
masked), 7 (nothing stalls) and 9 (every malformed call is counted), in every call format and through the
whole agent loop: against BFCL with tools that are withheld until a later turn, and a key-value store.

A canary proves that nothing was run: a built-in function that any evaluated code would find, a file that any
shell would make, and an audit hook that sees Python being asked to execute code.
"""

from __future__ import annotations

import builtins
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from hostile_completions import FILE, corpus, fragments, generated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollout_support import OFFERED, Scripted, Store, llama, qwen

from coevolve.config import RolloutConfig
from coevolve.environments.arguments import compile_arguments
from coevolve.environments.base import Environment
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.models.loading import load_tokenizer
from coevolve.rollout.agent import RolloutMetrics, run
from coevolve.rollout.chat import Chat
from coevolve.rollout.formats import LONGEST, MOST_PIECES, FormatName, ParsedMessage, get_format
from coevolve.types import Outcome, Rollout, StopReason, Task, ToolCall, ToolSpec
from keyvalue import a_task, put

FORMATS: tuple[FormatName, ...] = ("hermes", "llama", "python", "code")
LIMITS = RolloutConfig(
    steps_per_turn=4, calls_per_step=4, tokens_per_step=600, context_tokens=40_000, observation_tokens=64
)
COUNT = int(os.environ.get("COEVOLVE_COMPLETIONS", "10000"))
"""Of the slow variant."""
_executed: list[str] = []
_watching = False
_STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.spawn")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Every ``exec``, ``eval`` and new process while the policy's text is handled, but modules of files."""
    if not _watching:
        return
    source = getattr(arguments[0], "co_filename", "") if event == "exec" else ""
    is_module = source and (not source.startswith("<") or source.startswith("<frozen"))
    if (event in ("exec", "os.system") and not is_module) or event.startswith(_STARTS):
        _executed.append(f"{event} {arguments!r:.200}")


sys.addaudithook(_hook)


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Fail if anything is executed inside that the policy could have written."""
    global _watching
    _executed.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert _executed == []
    assert not Path(FILE).exists(), "a file was made: something has run"


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail rather than hang: far more time than what is inside takes anywhere."""

    def late(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_the_canary_sings() -> None:
    """What would be seen, if anything were run: the other tests rest on it."""
    with pytest.raises(AssertionError), nothing_runs():
        eval("1 + 1")
    with pytest.raises(AssertionError, match="a file was made"), nothing_runs():
        Path(FILE).touch()
    Path(FILE).unlink()
    with nothing_runs():
        get_format("python").parse("[get(key=eval('1 + 1'))]", OFFERED)


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """A built-in that flags whoever calls it, in an empty folder."""
    sung: list[str] = []
    monkeypatch.setattr(builtins, "canary", lambda *_: sung.append("sung") or "sung", raising=False)
    monkeypatch.chdir(tmp_path)
    yield sung
    assert sung == [], "the policy's text was run"


def check_message(message: ParsedMessage, tools: Sequence[ToolSpec], text: str) -> None:
    """Calls of offered tools with valid arguments, malformed pieces with a reason, or the end of a turn."""
    offered = {tool.name: tool for tool in tools}
    for call in message.calls:
        assert call.name in offered
        assert call.name in text  # as it was written, not as something made of it
        given = {key: value for key, value in call.arguments.items() if value is not None}
        assert compile_arguments({**offered[call.name].parameters, "required": []})(given) is None
        json.dumps(call.arguments, allow_nan=False).encode()
    assert len(message.calls) + len(message.malformed) <= MOST_PIECES + 1
    assert all(0 < len(why) < 500 and "\n" not in why for why in message.malformed)
    assert message.ends_turn == (not message.calls and not message.malformed)


# Every format, text by text


@pytest.mark.parametrize("name", FORMATS)
def test_no_text_of_the_corpus_is_more_than_data(name: FormatName) -> None:
    call_format = get_format(name)
    kinds: Counter[str] = Counter()
    with nothing_runs():
        for text in corpus():
            for thinking in (True, False):
                message = call_format.parse(text, OFFERED, thinking)
                check_message(message, OFFERED, text)
            kinds["calls"] += bool(message.calls)
            kinds["malformed"] += bool(message.malformed)
            kinds["words"] += message.ends_turn
    if name != "code":  # what that format calls is no tool here
        assert kinds["calls"] > 20
    assert kinds["malformed"] > 20 and kinds["words"] > 20


@pytest.mark.parametrize("name", FORMATS)
def test_a_megabyte_of_anything_is_read_in_bounded_time(name: FormatName) -> None:
    with nothing_runs(), within(120):
        for text in corpus(megabyte=True):
            if len(text) > LONGEST:
                check_message(get_format(name).parse(text, OFFERED), OFFERED, text)
                check_message(get_format(name).parse(text[: LONGEST - 1], OFFERED), OFFERED, text)


hostile_texts = st.lists(st.sampled_from(fragments()) | st.text(max_size=4), max_size=16).map("".join)


@pytest.mark.parametrize("name", FORMATS)
@given(text=hostile_texts)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_that_can_be_put_together_is_more_than_data(name: FormatName, text: str) -> None:
    with nothing_runs():
        message = get_format(name).parse(text, OFFERED)
    check_message(message, OFFERED, text)


@pytest.mark.parametrize(
    "text",
    [
        "[ｇet(key='a')]",
        "[gｅt(key='a')]",
        "[g\u0435t(key='a')]",
        "[get(ｋey='a')]",
        "[get(k\u0435y='a')]",
        "ﬁnd(name='a')",
    ],
)
def test_a_look_alike_of_a_name_is_another_name(text: str) -> None:
    """Python reads full-width and other letters of names as the plain ones; the allow-list does not."""
    find = ToolSpec("find", "Find.", {"type": "object", "properties": {"name": {"type": "string"}}})
    message = get_format("python").parse(text, (*OFFERED, find))
    assert message.calls == ()
    assert message.ends_turn == (text[0] == "ﬁ" or text[1] == "ｇ")  # what begins like no call is words


def test_look_alikes_in_values_are_kept_as_they_are() -> None:
    message = get_format("python").parse("[get(key='ｇеﬁ')]", OFFERED)
    assert message.calls == (ToolCall("get", {"key": "ｇеﬁ"}),)


@pytest.mark.parametrize("name", ["hermes", "llama", "python"])
def test_what_follows_very_many_calls_is_one_malformed_piece(name: FormatName) -> None:
    call_format = get_format(name)
    text = call_format.render([ToolCall("get", {"key": "a"})] * (MOST_PIECES + 40))
    message = call_format.parse(text, OFFERED)
    assert len(message.calls) == MOST_PIECES
    (why,) = message.malformed
    assert "more than 256 calls in one message" in why


# Through the whole agent loop


def the_chat(name: str) -> Chat:
    """The shipped policy's own tokenizer, and small ones with the templates of Qwen and Llama."""
    if name == "tiny":
        return Chat(load_tokenizer("tiny"), LIMITS)
    if name == "qwen, code":
        return Chat(qwen(), LIMITS.model_copy(update={"format": "code"}))
    return Chat({"qwen": qwen, "llama": llama}[name](), LIMITS)


CHATS = ("tiny", "qwen", "llama", "qwen, code")


def controls(chat: Chat, ids: Sequence[int]) -> list[int]:
    return chat.encoder.controls(ids)


def stretches(rollout: Rollout) -> list[list[int]]:
    """Ids that the policy has not generated, one list per stretch."""
    found: list[list[int]] = []
    before = 1
    for number, mask in zip(rollout.tokens.ids, rollout.tokens.mask):
        if mask == 0:
            if before:
                found.append([])
            found[-1].append(number)
        before = mask
    return found


def check_rollout(
    chat: Chat, environment: Environment, task: Task, rollout: Rollout, tools: dict[int, Sequence[ToolSpec]]
) -> None:
    """Every step is its calls' answers and its malformed pieces; no control token but the template's."""
    assert rollout.outcome is not Outcome.INVALID, rollout.error
    tokens = rollout.tokens
    assert len(tokens.ids) == len(tokens.mask) == len(tokens.logprobs)
    between: list[list[int]] = []
    for step in rollout.steps:
        offered = {tool.name for tool in tools[step.turn]}
        assert {call.name for call in step.calls} <= offered
        last = step is rollout.steps[-1]
        cut_short = last and rollout.stop is StopReason.TOKEN_LIMIT
        assert cut_short or len(step.observations) == len(step.calls) + len(step.malformed)
        if last:
            continue
        # What was appended, with every foreign text replaced by a harmless one.
        if step.observations:
            between.append(controls(chat, chat.results(["x"] * len(step.observations), True)))
        else:
            new = {tool.name for tool in tools[step.turn + 1]} - offered
            added = [tool for tool in tools[step.turn + 1] if tool.name in new]
            between.append(controls(chat, chat.user("x", True, added)))
    found = [controls(chat, stretch) for stretch in stretches(rollout)]
    closing = list(chat.closing)
    for one, other in zip(found, between):
        assert one == other or one == controls(chat, closing) + other  # a missing end token is supplied
    assert len(found) in (len(between), len(between) + (rollout.stop is StopReason.TOKEN_LIMIT))


def play(
    chat: Chat, environment: Environment, task: Task, completions: Sequence[str], spelt: bool = False
) -> RolloutMetrics:
    """One rollout per completion: it comes first, and again after whatever has answered it.

    Args:
        spelt: every character an id of its own: what spells a control token is text then.
    """
    tools = {turn: environment.tools(task, turn) for turn in range(len(task.turns))}
    metrics = RolloutMetrics()
    known = {call for specs in tools.values() for call in (spec.name for spec in specs)}
    for first in range(0, len(completions), 40):
        batch = completions[first : first + 40]
        tasks = [
            replace(task, turns=(f"{task.turns[0]} ({first + n})", *task.turns[1:]))
            for n in range(len(batch))
        ]
        scripts = [[text, *["done"] * 30] for text in batch]
        with nothing_runs(), within(300):
            sampler = Scripted(chat, scripts, one_by_one=spelt)
            rollouts = run(tasks, environment, chat, sampler, chat.limits, metrics=metrics)
        for one, rollout in zip(tasks, rollouts):
            check_rollout(chat, environment, one, rollout, tools)
            assert {call.name for call in rollout.calls} <= known
            json.dumps([call.arguments for call in rollout.calls], allow_nan=False).encode()
    assert metrics.rollouts == len(completions)
    assert metrics.invalid == metrics.retried == 0
    return metrics


def key_value_task() -> Task:
    return replace(a_task(put("a")), turns=("Put red under a", "Thank you"), solution=((put("a"),), ()))


@pytest.fixture(scope="module")
def bfcl() -> BfclEnvironment:
    return BfclEnvironment()


def withheld_task(bfcl: BfclEnvironment) -> Task:
    """A task whose tool ``mv`` comes with its third turn."""
    task = next(task for task in bfcl.tasks("train") if task.extra.get("withheld") == {"2": ["mv"]})
    assert "mv" not in {tool.name for tool in bfcl.tools(task, 1)}
    assert "mv" in {tool.name for tool in bfcl.tools(task, 2)}
    return task


def sample(chat: Chat, count: int, seed: object) -> list[str]:
    """Half of the corpus, above all what looks like a call in this chat's format; half generated."""
    rng = random.Random(f"{seed}")
    known = [text for text in corpus() if len(text) < 3000]
    tried = [text for text in known if not chat.format.parse(text, OFFERED).ends_turn]
    drawn = [
        *rng.sample(tried, min(count // 4, len(tried))),
        *rng.sample(known, min(count // 4, len(known))),
    ]
    made = generated(rng, count + len(drawn), tried)
    return list(dict.fromkeys([*drawn, *made]))[:count]


@pytest.mark.parametrize("name", CHATS)
def test_every_completion_ends_as_an_observation_or_a_counted_failure(name: str) -> None:
    chat = the_chat(name)
    metrics = play(chat, Store(), key_value_task(), sample(chat, 240, name))
    assert metrics.malformed > 50
    assert (metrics.calls == 0) == (name == "qwen, code")
    assert metrics.stops.total() == 240


@given(texts=st.lists(hostile_texts, min_size=1, max_size=4, unique=True))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_completion_that_can_be_put_together_escapes_the_loop(texts: list[str]) -> None:
    for name in ("tiny", "qwen"):
        play(the_chat(name), Store(), key_value_task(), texts)


def test_arguments_of_a_megabyte_are_answered_with_a_few_tokens() -> None:
    limits = LIMITS.model_copy(update={"tokens_per_step": 2_000_000, "context_tokens": 3_000_000})
    chat = Chat(qwen(), limits)
    call = '<tool_call>{"name": "get", "arguments": {"key": "%s"}}</tool_call>'
    texts = [call % ("red " * (size // 4)) for size in (150_000, 1_000_000)]
    metrics = play(
        chat, Store(), key_value_task(), [*texts, call.replace('"key"', '"%s"') % ("k" * 150_000, 1)]
    )
    assert (metrics.calls, metrics.call_errors, metrics.malformed) == (1, 1, 2)
    assert metrics.cut >= 1


@pytest.mark.parametrize("name", ["qwen", "llama"])
def test_text_that_spells_control_tokens_stays_text_when_it_is_answered(name: str) -> None:
    """Written letter by letter it is the policy's own text, and comes back in error messages and answers."""
    chat = the_chat(name)
    texts = [text for text in corpus() if "<|" in text and text.isascii() and text.isprintable()][:60]
    play(chat, Store(), key_value_task(), texts, spelt=True)


@pytest.mark.parametrize("name", ["tiny", "qwen"])
def test_a_real_benchmark_runs_its_own_tools_and_nothing_else(name: str, bfcl: BfclEnvironment) -> None:
    chat = the_chat(name)
    task = withheld_task(bfcl)
    completions = sample(chat, 80, f"bfcl/{name}")
    assert play(chat, bfcl, task, completions).malformed > 20


@pytest.mark.parametrize("name", ["tiny", "qwen", "llama"])
def test_a_tool_of_a_later_turn_is_no_tool_before_it(name: str, bfcl: BfclEnvironment) -> None:
    chat, task = the_chat(name), withheld_task(bfcl)
    call = chat.format.render([ToolCall("mv", {"source": "a", "destination": "b"})])
    with nothing_runs():
        script = [call, "done", call, "done", call, *["done"] * 9]
        (rollout,) = run([task], bfcl, chat, Scripted(chat, [script]), chat.limits)
    tried = [(step.turn, step.calls, step.malformed) for step in rollout.steps if step.text != "done"]
    assert [(turn, len(calls), len(malformed)) for turn, calls, malformed in tried] == [
        (0, 0, 1),
        (1, 0, 1),
        (2, 1, 0),
    ]
    assert all("there is no tool 'mv'" in why for _, _, malformed in tried for why in malformed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHATS)
def test_ten_thousand_completions(name: str, bfcl: BfclEnvironment) -> None:
    """``COEVOLVE_COMPLETIONS`` is how many there are, over all; a tenth of them goes to BFCL."""
    chat, share = the_chat(name), max(1, COUNT // len(CHATS))
    metrics = play(chat, Store(), key_value_task(), sample(chat, share - share // 10, f"slow/{name}"))
    real = play(chat, bfcl, withheld_task(bfcl), sample(chat, max(1, share // 10), f"slow/bfcl/{name}"))
    print(f"{name}: {metrics.as_dict()} {real.as_dict()}")
