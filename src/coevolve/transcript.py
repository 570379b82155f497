"""What explorations did, told: for people on a terminal, for programs as JSON data.

Everything in it that an environment or a model wrote is printed as it is, never as markup, and without
control characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from coevolve.explore.base import Exploration
from coevolve.types import Candidate, Signal, ToolCall, Triplet, Verdict, World, dump

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WIDTH = 240
"""Characters of one answer that a reader is shown; the JSON has all of it."""
COUNTED = "llm."
"""What the pool's counters of a ledger's counts begin with."""
_TOTALS = ("calls", "prompt_tokens", "completion_tokens", "seconds", "money")
_APART = ("paid", "cached", "faults")


@dataclass(frozen=True, slots=True)
class Chapter:
    """One exploration from beginning to end."""

    world: World
    signal: Signal | None
    exploration: Exploration | None
    """None where it broke off."""
    judged: Sequence[tuple[Candidate, Verdict | None]]
    """Candidates in order; None where there was no more room for it."""
    usage: Mapping[str, float]
    """The exploration's ledger."""
    error: str = ""
    """What broke it off."""


def usage_of(counts: Mapping[str, float]) -> dict[str, Any]:
    """A ledger's counts summed up: ``calls``, ``tokens``, ``money``, ``seconds``, the same by stage;
    ``paid`` for what was really asked and ``cached`` for answers that were there already; ``faults`` by kind.
    """
    stages: dict[str, dict[str, float]] = {}
    faults: dict[str, int] = {}
    for name, value in sorted(counts.items()):
        head, _, what = name.partition(".")
        if head == "faults":
            faults[what] = int(value)
        elif what in _TOTALS and head not in _APART:
            stages.setdefault(head, {})[what] = _number(value)

    def total(*names: str) -> float:
        return _number(sum(stage.get(name, 0.0) for stage in stages.values() for name in names))

    return {
        "calls": total("calls"),
        "tokens": total("prompt_tokens", "completion_tokens"),
        "money": total("money"),
        "seconds": total("seconds"),
        "paid": {name: _number(counts.get(f"paid.{name}", 0.0)) for name in ("calls", "tokens", "money")},
        "cached": _number(counts.get("cached.calls", 0.0)),
        "stages": stages,
        "faults": faults,
    }


def usage_in(counters: Mapping[str, float]) -> dict[str, Any]:
    """The same out of a pool's counters."""
    return usage_of({n.removeprefix(COUNTED): v for n, v in counters.items() if n.startswith(COUNTED)})


def usage_line(usage: Mapping[str, Any]) -> str:
    """One line for people."""
    parts = [f"{usage['calls']:,} answers", f"{usage['tokens']:,} tokens", f"{usage['seconds']:.0f} s"]
    if usage["money"]:
        parts.append(f"{usage['money']:.4g} spent")
    if usage["cached"]:
        parts.append(f"{usage['cached']:,} from the cache")
    faults = ", ".join(f"{name} {number}" for name, number in usage["faults"].items())
    return f"{', '.join(parts)}; faults: {faults or 'none'}"


def _number(value: float) -> float:
    return int(value) if value == int(value) else round(value, 6)


def row(chapter: Chapter) -> dict[str, Any]:
    """One exploration as JSON data."""
    exploration = chapter.exploration
    context = exploration.context if exploration is not None else None
    return {
        "world": {"id": chapter.world.id, "prefix": [dump(call) for call in chapter.world.prefix]},
        "signal": None if chapter.signal is None else _signal_row(chapter.signal),
        "explorer": exploration.explorer if exploration is not None else "",
        "prompts": dict(exploration.prompts) if exploration is not None else {},
        "context": None if context is None else context.model_dump(mode="json"),
        "triplets": [_triplet_row(t) for t in exploration.triplets] if exploration is not None else [],
        "candidates": [_candidate_row(*pair) for pair in chapter.judged],
        "conversation": list(exploration.conversation) if exploration is not None else [],
        "error": chapter.error,
        "usage": usage_of(chapter.usage),
    }


def _signal_row(signal: Signal) -> dict[str, Any]:
    return {
        "id": signal.id,
        "kind": signal.kind,
        "step": signal.step,
        "pattern": list(signal.pattern),
        "task": signal.task.id,
        "turns": list(signal.task.turns),
        "failed": len(signal.failed),
        "solved": len(signal.solved),
    }


def _triplet_row(triplet: Triplet) -> dict[str, Any]:
    return {
        "action": dump(triplet.action),
        "observation": triplet.observation.text,
        "error": triplet.observation.error,
        "before": triplet.before,
        "after": triplet.after,
    }


def _candidate_row(candidate: Candidate, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "id": candidate.task.id,
        "turns": list(candidate.task.turns),
        "solution": [[dump(call) for call in turn] for turn in candidate.task.solution],
        "prefix": [dump(call) for call in candidate.task.world.prefix],
        "verdict": "not_needed" if verdict is None else "admitted" if verdict.admitted else "refused",
        "reason": "" if verdict is None else verdict.reason,
        "evidence": {} if verdict is None else verdict.evidence,
    }


def tell(chapter: Chapter, number: int, console: Console) -> None:
    """One exploration for people."""

    def say(text: str, style: str = "", indent: int = 2) -> None:
        console.print(Text(" " * indent + plain(text), style=style), soft_wrap=True, highlight=False)

    world, signal, exploration = chapter.world, chapter.signal, chapter.exploration
    begun = f", after {len(world.prefix)} calls" if world.prefix else ""
    say(f"exploration {number}: world {world.id}{begun}", "bold", 0)
    if signal is not None:
        about = f" {' then '.join(signal.pattern)}" if signal.pattern else ""
        say(f"signal: {signal.kind}{about}, step {signal.step}; failed at: {' / '.join(signal.task.turns)}")
    if exploration is not None and exploration.context is not None:
        say("context")
        for name, value in exploration.context.model_dump(mode="json").items():
            for line in value if isinstance(value, list) else [value]:
                if line:
                    say(f"{name}: {line}", indent=4)
    if exploration is not None:
        acted = f"acted: {len(exploration.triplets)} calls (* changed the state)"
        say(acted if exploration.triplets else "acted: not one call")
        for index, triplet in enumerate(exploration.triplets):
            seen = triplet.observation
            say(f"{index}. {spelled(triplet.action)}{' *' if triplet.changed else ''}", indent=4)
            say(f"-> {_short(seen.text)}", "red" if seen.error is not None else "dim", 7)
    if chapter.error:
        say(f"broke off: {chapter.error}", "red")
    for candidate, verdict in chapter.judged:
        good = verdict is not None and verdict.admitted
        reason = "not needed any more" if verdict is None else verdict.reason
        say(f"candidate, {reason}", "green" if good else "yellow")
        for text, calls in zip(candidate.task.turns, candidate.task.solution):
            say(f'"{text}"', indent=4)
            for call in calls:
                say(f"= {spelled(call)}", indent=6)
    if exploration is not None and not chapter.judged and not chapter.error:
        say("no candidate", "yellow")
    if chapter.usage:
        say(f"used: {usage_line(usage_of(chapter.usage))}", "dim")


def plain(text: str) -> str:
    """Text of others for a terminal: on one line, nothing in it that moves the cursor or turns the text."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text.replace("\n", " ").replace("\t", " "))


def spelled(call: ToolCall) -> str:
    """A call as a reader writes it."""
    arguments = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items()
    )
    return f"{call.name}({arguments})"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH // 2]} … {text[-_WIDTH // 2 :]}"
