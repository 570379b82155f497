"""A small real environment for tests: a key-value store with three tools, in memory.

Seven worlds in train, two in test. One world per start state; the state is the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from coevolve.environments.base import Environment, Session, TurnRecord
from coevolve.errors import InfrastructureError
from coevolve.types import (
    Grade,
    Group,
    Json,
    Observation,
    Origin,
    Outcome,
    Rollout,
    Split,
    Step,
    StopReason,
    Task,
    ToolCall,
    ToolSpec,
    World,
)

KEYS: list[Json] = ["color", "size", "shape", "label", "owner", "place"]
KEY: dict[str, Json] = {"type": "string", "enum": KEYS, "description": "The name of the key."}
VALUE: dict[str, Json] = {
    "type": "string",
    "enum": ["red", "green", "blue"],
    "description": "The value to store.",
}
TOOLS = (
    ToolSpec(
        "put",
        "Store a value under a key.",
        {"type": "object", "properties": {"key": KEY, "value": VALUE}, "required": ["key", "value"]},
        group="Store",
    ),
    ToolSpec(
        "get",
        "Read the value of a key.",
        {"type": "object", "properties": {"key": KEY}, "required": ["key"]},
        group="Store",
    ),
    ToolSpec(
        "delete",
        "Remove a key from the store.",
        {"type": "object", "properties": {"key": KEY}, "required": ["key"]},
        group="Store",
    ),
)


class KeyValueSession(Session):
    def __init__(self, start: dict[str, str]) -> None:
        self._store = dict(start)
        self._calls: list[ToolCall] = []
        self._seen: list[Observation] = []
        self._record: list[TurnRecord] = []

    def call(self, call: ToolCall) -> Observation:
        seen = self._do(call)
        self._calls.append(call)
        self._seen.append(seen)
        return seen

    def _do(self, call: ToolCall) -> Observation:
        key = call.arguments.get("key")
        if call.name == "put" and isinstance(key, str) and isinstance(call.arguments.get("value"), str):
            self._store[key] = str(call.arguments["value"])
            return Observation(f"stored {key}", {"stored": key})
        if call.name in ("get", "delete") and isinstance(key, str):
            if key not in self._store:
                return Observation(f"no key {key}", error=f"no key {key}")
            value = self._store[key]
            if call.name == "delete":
                del self._store[key]
            return Observation(value, {"value": value})
        return Observation("bad call", error="bad call")

    def end_turn(self) -> None:
        self._record.append(TurnRecord(tuple(self._calls), tuple(self._seen), self.state()))
        self._calls, self._seen = [], []

    def state(self) -> Json:
        return dict(sorted(self._store.items()))

    def record(self) -> tuple[TurnRecord, ...]:
        return tuple(self._record)

    def close(self) -> None:
        pass


class KeyValue(Environment):
    name = "keyvalue"
    version = "1"

    def __init__(self) -> None:
        self.opened: list[World] = []
        self.outages = 0
        """The next so many openings fail."""

    def worlds(self, split: Split) -> Sequence[World]:
        count = {"train": 7, "dev": 0, "test": 2}[split]
        return tuple(
            World(self.name, f"{split}-{n}", split, {"color": "red", f"{split}{n}": "blue"})
            for n in range(count)
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        return ()

    def offered(self, world: World) -> Sequence[ToolSpec]:
        return TOOLS

    def open(self, world: World) -> KeyValueSession:
        if self.outages:
            self.outages -= 1
            raise InfrastructureError("the store is down")
        self.opened.append(world)
        assert isinstance(world.start, dict)
        session = KeyValueSession({key: str(value) for key, value in world.start.items()})
        for call in world.prefix:
            if session.call(call).error is not None:
                raise InfrastructureError(f"prefix of {world.id} does not replay")
        session._calls, session._seen = [], []
        return session

    def grade(self, task: Task, session: Session) -> Grade:
        with self.open(task.world) as reference:
            right = True
            for turn, record in zip(task.solution, session.record()):
                answers = [reference.call(call).text for call in turn]
                said = [seen.text for seen in record.observations]
                right = right and record.state == reference.state() and all(a in said for a in answers)
        return Grade(float(right and len(session.record()) == len(task.solution)))


def put(key: str, value: str = "red") -> ToolCall:
    return ToolCall("put", {"key": key, "value": value})


def get(key: str) -> ToolCall:
    return ToolCall("get", {"key": key})


def delete(key: str) -> ToolCall:
    return ToolCall("delete", {"key": key})


def a_task(
    *calls: ToolCall, world: World | None = None, text: str = "Do it.", origin: Origin | None = None
) -> Task:
    """A one-turn task in the first train world."""
    return Task(
        "keyvalue",
        "1",
        world or KeyValue().worlds("train")[0],
        (text,),
        (calls or (put("a"),),),
        origin or Origin("unguided"),
    )


def a_rollout(
    task: Task, reward: float, *calls: ToolCall, invalid: bool = False, error: str | None = None
) -> Rollout:
    """A hand-made rollout of one step; ``error`` is what its last call answered."""
    seen = [Observation("ok") for _ in calls]
    if error is not None:
        seen[-1] = Observation(error, error=error)
    outcome = Outcome.INVALID if invalid else Outcome.SOLVED if reward >= 0.5 else Outcome.FAILED
    stop = StopReason.INFRASTRUCTURE if invalid else StopReason.FINISHED
    return Rollout(task.id, (Step(0, "…", calls, tuple(seen)),), outcome, reward, stop)


def a_group(task: Task, *rewards: float | None, calls: Sequence[ToolCall] = ()) -> Group:
    """A group with these rewards; None is an invalid rollout."""
    return Group(task, tuple(a_rollout(task, r or 0.0, *calls, invalid=r is None) for r in rewards))
