"""One live exploration: the session, what was called, and every value in sight."""

from __future__ import annotations

from dataclasses import dataclass, field

from coevolve.environments.base import Session
from coevolve.explore.found import Found, answer_data, walk
from coevolve.explore.judge import succeeded
from coevolve.explore.schema import Tool
from coevolve.types import ToolCall, Triplet, canonical, fingerprint


@dataclass
class Scene:
    """Mutable; lives for one exploration."""

    session: Session
    tools: dict[str, Tool]
    budget: int
    triplets: list[Triplet] = field(default_factory=list)
    state: list[Found] = field(default_factory=list)
    answers: list[Found] = field(default_factory=list)
    focus: list[str] = field(default_factory=list)
    """Arguments of the last calls that worked: what follows is likely about the same things."""
    known: dict[str, str] = field(default_factory=dict)
    place: tuple[str, ...] = ()
    """Where the session is, if an answer said so: the parts of a current directory."""
    moved: bool = False
    """Whether the last call changed the place."""
    created: list[tuple[str, str]] = field(default_factory=list)
    """(kind, value) that the last call added to the state out of its own arguments."""
    tried: set[str] = field(default_factory=set)
    """Calls made since the state last changed, so that none is repeated for nothing."""
    mark: str = ""

    def __post_init__(self) -> None:
        self.look()

    @property
    def left(self) -> int:
        return self.budget - len(self.triplets)

    def look(self) -> None:
        """Read the state again."""
        data = self.session.state()
        self.mark = fingerprint(data)
        self.state = walk(data, -1)
        for item in self.state:
            if isinstance(item.value, str) and not item.kind.startswith(("word:", "text")):
                self.known.setdefault(item.value, item.kind)

    def act(self, call: ToolCall) -> Triplet:
        """Run one call and take in what it shows."""
        before = self.mark
        observation = self.session.call(call)
        after = self.session.fingerprint()
        triplet = Triplet(before, call, observation, after)
        turn = len(self.triplets)
        self.triplets.append(triplet)
        self.created, self.moved = [], False
        if after != before:
            self.tried.clear()
            older = {f.value for f in self.state}
            self.look()
            mine = {v for v in call.arguments.values() if isinstance(v, str)} - older
            self.created = list(dict.fromkeys((f.kind, f.value) for f in self.state if f.value in mine))
        self.tried.add(canonical([call.name, call.arguments]))
        if succeeded(triplet):
            fresh = walk(answer_data(observation), turn, call.name, self.known)
            self.answers += fresh
            self._locate(fresh)
            if self.moved:
                self.tried.clear()
            texts = [v for v in call.arguments.values() if isinstance(v, str)]
            self.focus = (self.focus + texts)[-4:]
        return triplet

    def _locate(self, fresh: list[Found]) -> None:
        for item in fresh:
            named = item.path and "current" in item.path[-1] and isinstance(item.value, str)
            if named and str(item.value).startswith("/"):
                place = tuple(part for part in str(item.value).split("/") if part)
                self.moved = place != self.place
                self.place = place
