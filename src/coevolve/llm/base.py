"""What any language model offers to the explorer, the abstractor and the gates.

Nothing here knows an SDK, an environment or a prompt. An answer is text, or proposed tool calls where
the endpoint has native tool calling; what it cost is kept in a :class:`Ledger`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coevolve.errors import InfrastructureError
from coevolve.types import Json, ToolSpec

Message = Mapping[str, Any]
"""One chat message in OpenAI's shape: ``role``, ``content``, and ``tool_calls`` or ``tool_call_id``."""


class OutageError(InfrastructureError):
    """The model gave no usable answer after all retries: an outage, never a score."""


class NoToolsError(OutageError):
    """The endpoint refuses native tools: ``native_tools`` is False from now on, ask by the text protocol."""


class TooLongError(OutageError):
    """The model cannot read a conversation as long as this one; asking again does not help."""


class SpentError(InfrastructureError):
    """This exploration's share of the budget is used up; what it has found so far still counts."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """One tool call as the model wrote it; nothing about it has been checked."""

    id: str
    name: str
    arguments: str
    """Raw JSON text, perhaps broken."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    text: str
    calls: tuple[ProposedCall, ...] = ()
    finish: str = "stop"
    """OpenAI's ``finish_reason``: ``length`` means that the answer was cut."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: bool = False
    """Answered from the run's cache: paid for before."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one exploration, with its abstraction and its gates, may use; None is no limit."""

    calls: int | None = None
    tokens: int | None = None
    """Prompt and completion together."""
    seconds: float | None = None
    """Wall time spent waiting for answers."""
    money: float | None = None
    """In the currency of the configured price."""


@dataclass
class Ledger:
    """What one exploration used, and what went wrong on the way; one thread's own.

    An answer from the cache counts as if it had been paid for, so that a resumed run stops where the
    first one did; ``paid.*`` counts only what was really sent.
    """

    limits: Limits = field(default_factory=Limits)
    counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """``<stage>.calls|prompt_tokens|completion_tokens|seconds|money``, ``paid.calls|tokens|money``,
    ``cached.calls``, and ``faults.<kind>``: by kind of fault, each time one was met."""

    def total(self, what: str) -> float:
        """Calls, tokens, seconds or money over all stages."""
        keys = ("prompt_tokens", "completion_tokens") if what == "tokens" else (what,)
        skipped = ("paid", "cached", "faults")
        used = 0.0
        for name, value in self.counts.items():
            stage, _, rest = name.partition(".")  # whole: 'act.ended.calls' counts endings, not calls
            if rest in keys and stage not in skipped:
                used += value
        return used

    def fault(self, kind: str) -> None:
        self.counts[f"faults.{kind}"] += 1

    def must_have_left(self) -> None:
        """Raise :class:`SpentError`, naming the limit, if this exploration may not ask again."""
        for what in ("calls", "tokens", "seconds", "money"):
            limit = getattr(self.limits, what)
            if limit is not None and self.total(what) >= limit:
                self.fault(f"spent_{what}")
                raise SpentError(f"this exploration has used its {limit:g} {what}")


class LLM(Protocol):
    """An endpoint, a local model, or the policy itself. Thread-safe unless ``concurrency`` is 1."""

    @property
    def name(self) -> str:
        """For lineage and cache keys: the model, and where it is served."""

    @property
    def native_tools(self) -> bool:
        """Whether ``tools`` may be given; else the caller uses a text protocol. May become false."""

    @property
    def concurrency(self) -> int:
        """How many explorations may use it side by side."""

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
        """One answer to ``messages``.

        Args:
            stage: ``reflect``, ``act``, ``abstract``, ``solve`` or ``safety``: what usage is counted under.
            ledger: of this exploration; its limits are checked before each request.
            tools: for native tool calling.
            schema: JSON schema that the answer should follow, where the endpoint can enforce one.
            seed: told to the endpoint, and part of the cache key, so that two explorations with the same
                prompt get answers of their own.

        Raises:
            NoToolsError: an OutageError; ``tools`` were given and cannot be, so ask again without them.
            TooLongError: an OutageError; the messages are more than the model can read.
            OutageError: no usable answer after all retries; each fault is in the ledger.
            SpentError: the ledger's limits leave no room.
        """
