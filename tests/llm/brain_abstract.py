"""Answers a request to abstract as a good model would: reads the prompt's data, selects calls, words them.

It knows nothing but the messages that it is sent, so it can stand behind any test server. What it has
worded it can also solve (:class:`Solving`), as a model would that is good at its tasks.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from brain import propose, said

from coevolve.explore.found import answer_data
from coevolve.explore.judge import empty
from coevolve.synthesize.wording import instruction
from coevolve.types import Observation, ToolCall, ToolSpec, canonical

Brain = dict[str, Any]


class Abstraction:
    """One way to answer.

    Args:
        candidates: how many it writes, if the log has enough to choose from.
        broken: how many of them cannot be used, each in a way of its own, mixed among the good ones.
        turns: user turns of one candidate, at most; no more than the prompt allows.
        calls: calls of one candidate, at most; no more than the prompt allows.
    """

    def __init__(self, candidates: int = 3, broken: int = 0, turns: int = 1, calls: int = 3) -> None:
        self.candidates = candidates
        self.broken = broken
        self.turns = turns
        self.calls = calls
        self.worded: dict[str, list[ToolCall]] = {}
        """The calls that each instruction so far asks for."""

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The assistant's message for a chat completion request, for ``Brain(on_abstract=...)``."""
        return {"role": "assistant", "content": self.answer(body["messages"])}

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The JSON text of the candidates; equal messages get equal answers."""
        system, user = str(messages[0]["content"]), str(messages[1]["content"])
        log: list[dict[str, Any]] = block(user, "log")
        tools = {tool["name"]: tool for tool in block(user, "tools")}
        turns, calls = (int(found) for found in re.findall(r"at most (\d+) (?:user turn|call)", system)[:2])
        rng = random.Random(canonical(log))
        useful = [e["index"] for e in log if e["selectable"] and (e["changed_state"] or not _silent(e))]
        picked = _selections(useful, min(self.calls, calls), rng)[: self.candidates - self.broken]
        drafts: list[Any] = [
            _draft([log[index] for index in chosen], tools, min(self.turns, turns), rng) for chosen in picked
        ]
        for drafted in drafts:
            for turn in drafted["turns"]:
                called = [log[index] for index in turn["calls"]]
                self.worded[turn["instruction"]] = [ToolCall(e["tool"], e["arguments"]) for e in called]
        for number in range(self.broken):
            drafts.insert(1 + 3 * number, _broken(number, log))
        return json.dumps({"candidates": drafts})


class Solving:
    """Answers requests to solve: it knows the calls for each instruction that ``abstraction`` has worded.

    Of the tasks whose text holds one of ``fails`` it says at once that they are done.
    """

    def __init__(self, abstraction: Abstraction, fails: Sequence[str] = ()) -> None:
        self.abstraction = abstraction
        self.fails = fails

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The assistant's message for a chat completion request, for ``Brain(hooks={"solve": ...})``."""
        messages = body["messages"]
        native = bool(body.get("tools"))
        asked = max(n for n, m in enumerate(messages) if m["role"] == "user" and self._text(m))
        text = self._text(messages[asked])
        if any(word in text for word in self.fails):
            return propose([], native)
        calls = self.abstraction.worded[text]
        done = len(said(messages[asked:]))
        return propose(calls[done : done + 1], native, number=len(messages))

    def _text(self, message: Mapping[str, Any]) -> str:
        """The instruction that a message of the user ends with; '' if there is none."""
        content = str(message["content"])
        return max((text for text in self.abstraction.worded if content.endswith(text)), key=len, default="")


def block(text: str, tag: str) -> Any:
    """The data that stands between ``<tag>`` and ``</tag>``."""
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert found is not None, f"the prompt has no <{tag}>"
    return json.loads(found[1])


def _silent(entry: Mapping[str, Any]) -> bool:
    return empty(answer_data(Observation(str(entry["answer"]))))


def _selections(useful: Sequence[int], longest: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Stretches of the useful calls, the late ones first; then each alone."""
    found = []
    at = len(useful)
    while at > 0:
        size = rng.randint(1, longest)
        found.append(tuple(useful[max(0, at - size) : at]))
        at -= size
    return list(dict.fromkeys([*found, *((index,) for index in useful)]))


def _draft(
    entries: Sequence[Mapping[str, Any]], tools: Mapping[str, Any], turns: int, rng: random.Random
) -> Brain:
    specs = {
        name: ToolSpec(name, str(tool["description"]), dict(tool["parameters"]))
        for name, tool in tools.items()
    }
    calls = [ToolCall(entry["tool"], entry["arguments"]) for entry in entries]
    seen = [Observation(str(entry["answer"])) for entry in entries]
    parts = rng.randint(1, min(turns, len(calls)))
    cuts = [0, *sorted(rng.sample(range(1, len(calls)), parts - 1)), len(calls)]
    written = []
    for start, end in pairwise(cuts):
        earlier = list(zip(calls[:start], seen[:start]))
        text = instruction(calls[start:end], specs, seen[start:end], rng, earlier)
        written.append({"instruction": text, "calls": [entry["index"] for entry in entries[start:end]]})
    return {"turns": written}


def _broken(number: int, log: Sequence[Mapping[str, Any]]) -> Any:
    """An index that is none, a call of its own making, no list, in turn."""
    kinds: list[Any] = [
        {"turns": [{"instruction": "Do what comes after the end.", "calls": [len(log)]}]},
        {"turns": [{"instruction": "Remove it all.", "calls": [{"name": "rm", "arguments": {"all": True}}]}]},
        {"turns": "all of them"},
    ]
    return kinds[number % len(kinds)]
