"""Reflection: from a signal's failed rollouts to an exploration context (section 3.2)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coevolve.explore.answers import PACKAGE, ask
from coevolve.explore.context import ExplorationContext
from coevolve.explore.trim import Count, estimate, shares, trim
from coevolve.llm.base import LLM, Ledger, Message
from coevolve.prompting import render
from coevolve.types import Observation, Rollout, Signal, Task, ToolCall


@dataclass(frozen=True, slots=True)
class Shown:
    """One rollout as the prompt shows it."""

    text: str
    own: bool
    """Whether it is of the signal's own task."""


def prompt(signal: Signal, tools: Sequence[str], tokens: int, count: Count = estimate) -> list[Message]:
    """The request for a signal.

    Args:
        tools: names of the tools that the explorer will have.
        tokens: what the task's text and the rollouts may take together. Each rollout gets an even share;
            what does not fit loses its middle, and what a short one leaves goes to the longer ones.
        count: tokens of a text; without a tokenizer they are estimated at four characters each.
    """
    turns = json.dumps(list(signal.task.turns), ensure_ascii=False)
    solved = signal.solved[:1] if signal.kind == "boundary" else ()
    texts = [transcript(rollout, signal.task) for rollout in (*signal.failed, *solved)]
    given = shares([count(text) for text in (turns, *texts)], tokens)
    shown = [
        Shown(trim(text, share, count), rollout.task == signal.task.id)
        for text, share, rollout in zip(texts, given[1:], (*signal.failed, *solved))
    ]
    user = render(
        PACKAGE,
        "reflect.user",
        world=name_of(signal.task.world.id),
        key=signal.task.world.key,
        kind=signal.kind,
        pattern=list(signal.pattern),
        tools=list(tools),
        turns=list(signal.task.turns) if count(turns) <= given[0] else trim(turns, given[0], count),
        failed=shown[: len(signal.failed)],
        solved=shown[len(signal.failed) :],
    )
    return [
        {"role": "system", "content": render(PACKAGE, "reflect.system")},
        {"role": "user", "content": user},
    ]


def reflect(
    signal: Signal,
    llm: LLM,
    *,
    tools: Sequence[str],
    tokens: int,
    reasks: int,
    rng: random.Random,
    ledger: Ledger,
    count: Count = estimate,
) -> ExplorationContext:
    """Ask what the failures come to.

    Raises:
        InvalidAnswerError: no valid context after ``reasks`` more tries; counted as ``reflect.given_up``.
        OutageError, SpentError: as :meth:`LLM.complete`.
    """
    return ask(
        llm,
        prompt(signal, tools, tokens, count),
        ExplorationContext,
        stage="reflect",
        ledger=ledger,
        reasks=reasks,
        rng=rng,
    )


def transcript(rollout: Rollout, task: Task) -> str:
    """A rollout in lines: what the user said (where it is of ``task``), the agent, its calls, the answers."""
    return "\n".join(_lines(rollout, task.turns if rollout.task == task.id else ()))


def _lines(rollout: Rollout, turns: Sequence[str]) -> Iterator[str]:
    turn = -1
    for step in rollout.steps:
        while turn < step.turn:
            turn += 1
            yield f"User: {turns[turn]}" if turn < len(turns) else f"(turn {turn + 1} of the user)"
        if step.text.strip():
            yield f"Agent: {step.text.strip()}"
        for call, seen in zip(step.calls, step.observations):
            yield f"Call: {_written(call)}"
            yield _answer(seen)
        for piece, seen in zip(step.malformed, step.observations[len(step.calls) :]):
            yield f"Not a valid call: {piece}"
            yield _answer(seen)
    findings = [text for text in (rollout.grade.findings if rollout.grade else ()) if text]
    yield f"End: {rollout.outcome}, reward {rollout.reward:g}" + "".join(f"; {text}" for text in findings)


def _written(call: ToolCall) -> str:
    return f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"


def _answer(seen: Observation) -> str:
    return f"Error: {seen.text}" if seen.error is not None else f"Answer: {seen.text}"


def name_of(world: str) -> str:
    """A world's id on one line, at most 80 characters: it stands outside any quoted block."""
    return " ".join(world.replace("<", " ").split())[:80]
