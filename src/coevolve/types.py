"""The nouns of the loop: frozen dataclasses that every room shares and none owns.

Nothing here imports the rest of the package. Every class survives a round trip through JSON
(:func:`dump` and :func:`load`), which is how the pool, the signals' evidence and the workers
carry them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import JsonValue, TypeAdapter

Json = JsonValue
Split = Literal["train", "dev", "test"]
T = TypeVar("T")


def canonical(value: Any) -> str:
    """One text per JSON value: sorted keys, no spaces, so that equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(value: Any) -> str:
    """16 hexadecimal digits of the SHA-256 of :func:`canonical`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(value: Any) -> Any:
    """A dataclass of this module as plain JSON data."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], data: Any) -> T:
    """The inverse of :func:`dump`; raises :class:`pydantic.ValidationError` on a wrong shape."""
    result: T = _adapter(kind).validate_python(data)
    return result


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as the agent may see it."""

    name: str
    description: str
    parameters: dict[str, Json]
    """JSON schema of type ``object``; the tool's whole argument contract."""
    returns: dict[str, Json] = field(default_factory=dict)
    """JSON schema of the answer, where the environment documents one."""
    group: str = ""
    """The class, app or server the tool belongs to."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call; ``arguments`` are keyword arguments, already bound to parameter names."""

    name: str
    arguments: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the world answered to one call."""

    text: str
    """Exactly what the agent is shown."""
    value: Json = None
    """The answer as data, where there is any."""
    error: str | None = None
    """Set when the call failed: raised, refused, or answered with an ``error`` key."""


@dataclass(frozen=True)
class World:
    """An initial state plus calls replayed from it.

    A fresh start, a benchmark's later turn and the point where rollouts broke are the same kind
    of thing, so exploration can begin at any of them.
    """

    environment: str
    id: str
    """Names the initial state within the environment; the environment can open it from this and
    ``start`` alone."""
    split: Split
    start: Json = None
    """The environment's own description of the initial state; opaque to everyone else."""
    prefix: tuple[ToolCall, ...] = ()

    @cached_property
    def key(self) -> str:
        """Content address of the state: same key, same state."""
        return fingerprint([self.environment, self.id, self.start, _plain_calls(self.prefix)])


OriginKind = Literal["unguided", "forgetting", "boundary", "rare", "unseen", "official"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a task came from: its lineage."""

    kind: OriginKind
    parents: tuple[str, ...] = ()
    """Ids of the tasks whose failed rollouts led to this one."""
    signal: str | None = None
    """Id of the signal that asked for it."""
    step: int = 0
    """Training step at which it was made; 0 for ``D_0``."""
    explorer: str = ""


@dataclass(frozen=True)
class Task:
    """Something to ask the agent, with the calls that are known to do it."""

    environment: str
    version: str
    """The environment's version: part of what the task means."""
    world: World
    turns: tuple[str, ...]
    """One user message per turn."""
    solution: tuple[tuple[ToolCall, ...], ...]
    """Reference calls, one tuple per turn; a turn may be empty."""
    origin: Origin
    name: str = ""
    """The benchmark's own id, if it is the benchmark's own task."""
    extra: dict[str, Json] = field(default_factory=dict)
    """What only the environment understands, e.g. tools withheld until a turn."""

    @cached_property
    def id(self) -> str:
        """Content address: same world, words, solution and extra, same id."""
        return fingerprint(
            [
                self.environment,
                self.world.key,
                list(self.turns),
                [_plain_calls(turn) for turn in self.solution],
                self.extra,
                self.name,
            ]
        )


def _plain_calls(calls: tuple[ToolCall, ...]) -> list[list[Any]]:
    return [[call.name, call.arguments] for call in calls]


@dataclass(frozen=True, slots=True)
class Grade:
    """An environment's judgement of one finished session."""

    reward: float
    """In [0, 1]; what training maximises."""
    scores: dict[str, float] = field(default_factory=dict)
    """Named verdicts beside the reward, e.g. ``official`` and ``strict``."""
    findings: tuple[str, ...] = ()
    """One short text per turn: '' if the turn was right, else what was wrong with it."""


class Outcome(StrEnum):
    """How a rollout ended (invariant 1). ``invalid`` is an outage, never a score."""

    SOLVED = "solved"
    FAILED = "failed"
    INVALID = "invalid"


class StopReason(StrEnum):
    """Why the agent loop stopped."""

    FINISHED = "finished"  # the last user turn was answered
    STEP_LIMIT = "step_limit"  # too many steps in one turn
    TOKEN_LIMIT = "token_limit"  # the context window or completion budget is spent
    BROKEN_WORLD = "broken_world"  # the world became uncomparable (e.g. cyclic): failed
    INFRASTRUCTURE = "infrastructure"  # worker killed twice, endpoint down: invalid


@dataclass(frozen=True, slots=True)
class Step:
    """One message of the agent and what came of it."""

    turn: int
    text: str
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    """One per call, then one per malformed call."""
    malformed: tuple[str, ...] = ()
    """Pieces that looked like calls and could not be parsed or validated."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token-exact record of one rollout (invariant 2).

    ``len(ids) == len(mask) == len(logprobs)``; ``prompt`` comes before them.
    """

    prompt: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    mask: tuple[int, ...] = ()
    """1 where the policy generated the token, 0 where a tool or a user did."""
    logprobs: tuple[float, ...] = ()
    """Log-probability under the sampling policy; 0.0 where ``mask`` is 0."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trajectory of the policy on one task."""

    task: str
    """The task's id."""
    steps: tuple[Step, ...]
    outcome: Outcome
    reward: float
    stop: StopReason
    grade: Grade | None = None
    tokens: Tokens = field(default_factory=Tokens)
    error: str = ""
    """For ``invalid``: what broke."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every call executed, in order."""
        return tuple(call for step in self.steps for call in step.calls)


@dataclass(frozen=True, slots=True)
class Group:
    """The K rollouts of one task, sampled from one policy."""

    task: Task
    rollouts: tuple[Rollout, ...]

    @property
    def valid(self) -> tuple[Rollout, ...]:
        """The rollouts that count (invariant 1)."""
        return tuple(r for r in self.rollouts if r.outcome is not Outcome.INVALID)


SignalKind = Literal["forgetting", "boundary", "rare", "unseen"]


@dataclass(frozen=True)
class Signal:
    """One weakness found in rollouts, with the evidence for it (section 3.1)."""

    kind: SignalKind
    step: int
    task: Task
    """The task whose rollouts showed it; its world is where re-exploration begins."""
    scores: tuple[float, ...]
    """Forgetting: the window, newest last. Boundary: the group's. Rare, unseen: [count, window total]."""
    pattern: tuple[str, ...] = ()
    """Rare: the tool name, or the pair of successive names. Unseen: the tool name."""
    failed: tuple[Rollout, ...] = ()
    """Failed rollouts, without token records."""
    solved: tuple[Rollout, ...] = ()
    """For boundary, a success to hold beside the failures."""

    @cached_property
    def id(self) -> str:
        return fingerprint([self.kind, self.step, self.task.id, list(self.pattern), list(self.scores)])


@dataclass(frozen=True, slots=True)
class Triplet:
    """(state, action, observation), exactly as executed (section 3.2)."""

    before: str
    """Fingerprint of the state before the call."""
    action: ToolCall
    observation: Observation
    after: str
    """Fingerprint of the state after it."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that asks to be admitted; only replay can admit it (invariant 3)."""

    task: Task
    triplets: tuple[Triplet, ...] = ()
    """The exploration it was abstracted from."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one candidate; stored whether it was admitted or not."""

    admitted: bool
    reason: str
    """``admitted`` or a short constant, e.g. ``replay_error``, ``solved_by_nothing``,
    ``superfluous_call``, ``empty_turn``, ``duplicate``, ``eval_overlap``, ``spells_out_calls``."""
    evidence: dict[str, Json] = field(default_factory=dict)
    seconds: float = 0.0
