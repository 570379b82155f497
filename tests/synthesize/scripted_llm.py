"""A language model that says what it is told to say, and explorations made by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coevolve.environments.base import Environment
from coevolve.explore.base import Exploration
from coevolve.llm.base import Ledger, Message, OutageError, Reply
from coevolve.types import Json, ToolCall, ToolSpec, Triplet, World

Answer = str | Reply | Exception | Callable[[Sequence[Message]], "str | Reply"]


class ScriptedLLM:
    """Answers in the order given, the last one for ever; an exception is raised."""

    name = "scripted"
    concurrency = 8

    def __init__(self, *answers: Answer, native_tools: bool = False) -> None:
        self.answers = list(answers)
        self.native_tools = native_tools
        self.asked: list[tuple[str, list[Message], int]] = []
        """Stage, messages and seed of each request."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        ledger: Ledger,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Json] | None = None,
        seed: int = 0,
    ) -> Reply:
        ledger.must_have_left()
        self.asked.append((stage, list(messages), seed))
        ledger.counts[f"{stage}.calls"] += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(messages)
        reply = Reply(answer) if isinstance(answer, str) else answer
        ledger.counts[f"{stage}.prompt_tokens"] += sum(len(str(m.get("content"))) for m in messages) // 4
        ledger.counts[f"{stage}.completion_tokens"] += len(reply.text) // 4
        return reply


def outage() -> OutageError:
    return OutageError("the endpoint is down")


def draft(text: str, *calls: int, setup: Sequence[int] | None = None) -> dict[str, Any]:
    """A candidate of one turn."""
    made: dict[str, Any] = {"turns": [{"instruction": text, "calls": list(calls)}]}
    return made if setup is None else {**made, "setup": list(setup)}


def candidates(*drafts: Any) -> str:
    return json.dumps({"candidates": list(drafts)})


def explored(environment: Environment, world: World, *calls: ToolCall) -> Exploration:
    """What comes of making these calls in a fresh world."""
    triplets = []
    with environment.open(world) as session:
        for call in calls:
            before = session.fingerprint()
            seen = session.call(call)
            triplets.append(Triplet(before, call, seen, session.fingerprint()))
    return Exploration(world, tuple(triplets), "hand")


def compare(path: Path, text: str) -> None:
    """Hold ``text`` against a snapshot; UPDATE_SNAPSHOTS=1 writes it anew."""
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs: read it, then run with UPDATE_SNAPSHOTS=1"
