'''Your own environment: a plain class whose typed, documented public methods are the tools.

Example::

    class TodoList:
        """A list of things to do."""

        worlds = {"empty": [], "shopping": ["milk", "bread"]}

        def __init__(self, start: list[str]) -> None:
            self.items = list(start)

        def add(self, text: str) -> str:
            """Add one thing to do."""
            self.items.append(text)
            return f"{len(self.items)} things to do"

        def state(self) -> list[str]:
            return self.items

``environment: {name: 'my_module:TodoList'}`` is all that a run needs; ``ToolboxEnvironment(TodoList)``
is the same in Python.
'''

from __future__ import annotations

import difflib
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from coevolve.environments.base import Environment, Session
from coevolve.environments.grading import References, Rule, judge
from coevolve.environments.recording import RecordingSession
from coevolve.environments.toolbox_schema import Method, methods
from coevolve.errors import BrokenWorldError, InfrastructureError, UnknownEnvironmentError
from coevolve.types import (
    Grade,
    Json,
    Observation,
    Split,
    Task,
    ToolCall,
    ToolSpec,
    World,
    canonical,
    fingerprint,
)

_log = logging.getLogger("coevolve.environments")

LONGEST = 100_000
"""Characters of an answer that anyone is shown; of a longer one the middle is left out."""
RULE = Rule(answers=False, check_empty=True, abstain=False)
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
_SHARES: dict[Split, float] = {"train": 0.5, "test": 0.3, "dev": 0.2}


class ToolboxEnvironment(Environment):
    """An environment made of one class.

    The class has:

    - ``worlds``: initial states by name, as JSON data, each handed to the class's constructor; or a
      mapping of ``train``, ``dev`` and ``test`` to such. Without splits of their own, worlds are
      divided 50 / 20 / 30 by a hash of their names;
    - public methods with a type for every parameter and a docstring: the tools. What they raise, or
      answer under ``error``, is the agent's error, but for an :class:`InfrastructureError`: that is
      nobody's, and the rollout invalid. An ``Args:`` section describes the parameters;
    - optionally ``state()``; otherwise the public attributes are the state;
    - optionally ``close()``, called once when the world is not needed any more;
    - optionally ``name`` and ``version``; otherwise the class's name, and a digest of its tools.

    A turn is right if it leaves the reference's state and has what the reference asks for among the
    answers so far: the answers of calls that change nothing, unless a later call takes a value from them
    (where a whole turn changes nothing, all its answers).

    Raises:
        UnknownEnvironmentError: a class that cannot be used; the message names what is missing.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind
        self._methods: dict[str, Method] = methods(kind)
        self._specs = tuple(method.spec for method in self._methods.values())
        self._worlds = _worlds(kind)
        self.name = str(getattr(kind, "name", kind.__name__))
        digest = fingerprint([[spec.name, spec.description, spec.parameters] for spec in self._specs])
        self.version = str(getattr(kind, "version", f"tools-{digest}"))
        self._references = References(asking=True)

    def worlds(self, split: Split) -> Sequence[World]:
        return [World(self.name, name, split, start) for name, start in self._worlds[split].items()]

    def tasks(self, split: Split) -> Sequence[Task]:
        """None: tasks come from exploration. Override this for tasks of your own."""
        return []

    def try_out(self) -> None:
        """Open a train world twice, as a run does many times: what is wrong with the class shows here.

        Raises:
            UnknownEnvironmentError: its state cannot be compared, or is not the same both times.
            InfrastructureError: it does not open.
        """
        world = self.worlds("train")[0]
        marks = []
        for _ in range(2):
            with self.open(world) as session:
                try:
                    marks.append(session.fingerprint())
                except BrokenWorldError as error:
                    raise UnknownEnvironmentError(
                        f"{self.name}: world {world.id!r}: {error}; let state() return JSON data"
                    ) from None
        if marks[0] != marks[1]:
            raise UnknownEnvironmentError(
                f"{self.name}: world {world.id!r} does not open in the same state twice; a world must be "
                "made of nothing but its initial state: no clock, no chance, nothing shared"
            )

    def offered(self, world: World) -> Sequence[ToolSpec]:
        return self._specs

    def open(self, world: World) -> Session:
        try:
            instance = self.kind(to_jsonable_python(world.start))
        except (InfrastructureError, MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise InfrastructureError(
                f"{self.name}: world {world.id!r} does not open: {type(error).__name__}: {error}"
            ) from error
        return ToolboxSession(instance, self._methods, world.prefix)

    def grade(self, task: Task, session: Session) -> Grade:
        findings = judge(session.record(), self._references.of(self, task), RULE)
        reward = float(not any(findings))
        return Grade(reward, {"success": reward}, findings)


class ToolboxSession(RecordingSession):
    """One instance of the class."""

    def __init__(self, instance: Any, table: Mapping[str, Method], prefix: Iterable[ToolCall] = ()) -> None:
        self._instance = instance
        self._methods = table
        super().__init__(prefix)

    def state(self) -> Json:
        try:
            own = getattr(self._instance, "state", None)
            value = own() if own is not None else _public(self._instance)
        except (InfrastructureError, MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            name = type(self._instance).__name__
            raise InfrastructureError(
                f"the state of {name} fails: {type(error).__name__}: {error}"
            ) from error
        try:
            plain: Json = to_jsonable_python(value)
            canonical(plain).encode()  # as far as this works, comparing works
        except (ValueError, RecursionError, PydanticSerializationError) as error:
            raise BrokenWorldError(f"the state cannot be compared: {error}") from None
        return plain

    def close(self) -> None:
        instance, self._instance = self._instance, None
        try:
            getattr(instance, "close", lambda: None)()
        except Exception as error:  # what was done in it stays done: a world that will not go changes nothing
            _log.warning("closing a world of %s failed: %s", type(instance).__name__, error)

    def _run(self, call: ToolCall) -> Observation:
        method = self._methods.get(call.name)
        if method is None:
            near = difflib.get_close_matches(call.name, self._methods, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            return _error(f"there is no tool {call.name!r}{hint}")
        try:
            given = method.arguments(call.arguments)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"])) or "arguments"
            return _error(f"{call.name}: {where}: {wrong['msg'][0].lower()}{wrong['msg'][1:]}")
        except (ValueError, TypeError, RecursionError):
            return _error(f"{call.name}: the arguments are not valid JSON")
        try:
            result = getattr(self._instance, call.name)(**given)
            value: Json = to_jsonable_python(result, fallback=str)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            text.encode()
        except (InfrastructureError, MemoryError, KeyboardInterrupt):
            raise
        except SystemExit:
            return _error(f"{call.name} wanted to end its process")
        except BaseException as error:  # asyncio's and others' reasons to stop are the tool's as well
            return _error(_reason(error))
        failed = value.get("error") if isinstance(value, dict) else None
        why = None if failed is None else _short(str(failed))
        return Observation(_short(text), value if len(text) <= LONGEST else None, why)


def _public(instance: Any) -> dict[str, Any]:
    return {name: part for name, part in vars(instance).items() if not name.startswith("_")}


def _error(reason: str) -> Observation:
    text = _short(f"Error: {reason}".encode("utf-8", "backslashreplace").decode())
    return Observation(text, None, text)


def _reason(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # a class of somebody's own
        return type(error).__name__


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n[...]\n{text[-LONGEST // 2 :]}"


def _worlds(kind: type[Any]) -> dict[Split, dict[str, Json]]:
    given = getattr(kind, "worlds", None)
    if not isinstance(given, Mapping) or not given:
        raise UnknownEnvironmentError(
            f"{kind.__name__} has no worlds: give it a class attribute 'worlds', initial states by name"
        )
    if set(given) <= set(SPLITS) and all(isinstance(part, Mapping) for part in given.values()):
        return {split: dict(given.get(split, {})) for split in SPLITS}
    made: dict[Split, dict[str, Json]] = {split: {} for split in SPLITS}
    ordered = sorted(given, key=lambda name: hashlib.sha256(f"coevolve/{name}".encode()).hexdigest())
    for seen, name in enumerate(ordered, 1):
        behind = {split: share * seen - len(made[split]) for split, share in _SHARES.items()}
        made[max(behind, key=lambda split: behind[split])][str(name)] = given[name]
    return made
