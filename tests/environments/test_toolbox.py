"""A plain class is an environment."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path

import pytest
import toolbox_examples as examples
from bfcl_support import SPLITS
from hypothesis import given
from hypothesis import strategies as st

from coevolve.checks import insist_on_worlds
from coevolve.config import EnvironmentConfig
from coevolve.environments.base import Environment
from coevolve.environments.registry import make, pooled
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.errors import BrokenWorldError, InfrastructureError, UnknownEnvironmentError
from coevolve.types import Grade, Json, Origin, Task, ToolCall, World

ADD = ToolCall("add", {"text": "eggs"})


def todo() -> ToolboxEnvironment:
    return ToolboxEnvironment(examples.TodoList)


def world(environment: Environment, name: str = "shopping") -> World:
    every = [w for split in SPLITS for w in environment.worlds(split)]
    return next(w for w in every if w.id == name)


def graded(solution: list[list[ToolCall]], done: list[list[ToolCall]]) -> Grade:
    environment = todo()
    turns = tuple(tuple(turn) for turn in solution)
    task = Task(
        "TodoList", environment.version, world(environment), ("",) * len(turns), turns, Origin("unguided")
    )
    with environment.open(task.world) as session:
        for turn in done:
            session.run(turn)
            session.end_turn()
        return environment.grade(task, session)


def test_the_schema_comes_from_hints_and_docstrings() -> None:
    specs = {spec.name: spec for spec in todo().offered(world(todo()))}
    assert list(specs) == ["add", "count", "done"]
    assert specs["add"].description == "Add one thing to do."
    assert specs["add"].parameters == {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to do, in a few words."}},
        "required": ["text"],
    }
    assert specs["count"].returns == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert specs["count"].group == "TodoList"


def test_worlds_without_splits_are_divided_and_none_is_in_two() -> None:
    names = [[w.id for w in todo().worlds(split)] for split in SPLITS]
    assert sorted(name for part in names for name in part) == sorted(examples.TodoList.worlds)
    assert all(names[::2])
    device = ToolboxEnvironment(examples.Device)
    assert [len(device.worlds(split)) for split in SPLITS] == [1, 0, 1]


def test_worlds_are_fresh_and_class_data_stays_as_it_was() -> None:
    environment = todo()
    with environment.open(world(environment)) as first, environment.open(world(environment)) as second:
        first.call(ADD)
        assert first.state() == ["milk", "bread", "eggs"] and second.state() == ["milk", "bread"]
    assert examples.TodoList.worlds["shopping"] == ["milk", "bread"]


def test_answers_and_errors_become_observations() -> None:
    environment = todo()
    with environment.open(world(environment)) as session:
        assert session.call(ToolCall("count")).text == '{"count": 2}'
        assert session.call(ToolCall("count")).value == {"count": 2}
        assert session.call(ADD).text == "3 things to do"
        assert session.call(ToolCall("done", {"text": "none"})).error
        assert "did you mean 'done'" in (session.call(ToolCall("don")).error or "")
        wrong: list[dict[str, Json]] = [{}, {"text": 3}, {"text": "x", "more": 1}]
        for arguments in wrong:
            assert (session.call(ToolCall("add", arguments)).error or "").startswith("Error: add: ")
        for name in ("state", "items", "__init__", "worlds", "remove"):
            assert session.call(ToolCall(name)).error


def test_typed_arguments_arrive_as_their_types() -> None:
    environment = ToolboxEnvironment(examples.Device)
    assert (environment.name, environment.version) == ("device", "7")
    with environment.open(environment.worlds("train")[0]) as session:
        answer = session.call(ToolCall("set_level", {"level": "high", "marks": [1, 2]}))
        assert answer.value == "high" and answer.error is None
        assert session.call(ToolCall("set_level", {"level": "middle"})).error
        assert session.state() == {"level": "high", "marks": [1, 2]}
        session.call(ToolCall("tangle"))
        with pytest.raises(BrokenWorldError):
            session.state()


def test_the_grade_looks_at_states_and_at_answers_where_nothing_changes() -> None:
    count = ToolCall("count")
    assert graded([[ADD]], [[ADD]]).reward == 1
    assert graded([[ADD]], [[count, ADD, count]]).reward == 1
    assert graded([[ADD]], [[]]).findings == ("no call",)
    assert graded([[ADD]], [[count]]).reward == 0
    assert graded([[ADD]], [[ADD, ADD]]).reward == 0
    assert graded([[count]], [[count]]).reward == 1
    assert graded([[count]], [[ToolCall("nothing")]]).findings == ("no answer like that of count",)
    assert graded([[ADD], [count]], [[ADD, count], [count]]).reward == 1
    assert graded([[ADD], [count]], [[count, ADD], [ToolCall("x")]]).reward == 0
    assert graded([[ADD], []], [[ADD], [ADD]]).reward == 0
    assert graded([[ADD], []], [[ADD], []]).reward == 1
    assert graded([[ADD], [count]], [[ADD]]).findings == ("", "the turn was never finished")
    assert graded([[ADD]], [[ADD], []]).reward == 0


def test_what_is_asked_beside_an_effect_must_have_been_looked_up() -> None:
    count, milk = ToolCall("count"), ToolCall("done", {"text": "milk"})
    assert graded([[ADD, count]], [[ADD, count]]).reward == 1
    assert graded([[ADD, count]], [[ADD]]).findings == ("no answer like that of count",)
    assert graded([[ADD, count]], [[count, ADD]]).reward == 0, "counted too early"
    assert graded([[count, ADD]], [[count, ADD]]).reward == 1
    assert graded([[ADD, count], [milk]], [[ADD, count], [milk]]).reward == 1
    assert graded([[ADD, count], [milk]], [[ADD], [milk, count]]).reward == 0


class Safe:
    """A safe that opens by a code, and a note with the code on it."""

    worlds = {"one": "7431", "two": "1234"}  # noqa: RUF012

    def __init__(self, code: str) -> None:
        self.code = code
        self.open = False

    def read(self) -> str:
        """Read the note."""
        return f"The code is {self.code}."

    def enter(self, code: str) -> str:
        """Enter the code.

        Args:
            code: Four digits.
        """
        if code != self.code:
            raise ValueError("wrong")
        self.open = True
        return "open"


@pytest.mark.parametrize(
    ("words", "asked"), [("Open it.", False), ("Open it with 7431 and read the note.", True)]
)
def test_what_is_looked_up_to_be_used_is_not_asked_for(words: str, asked: bool) -> None:
    environment = ToolboxEnvironment(Safe)
    place = next(w for split in SPLITS for w in environment.worlds(split) if w.start == "7431")
    enter = ToolCall("enter", {"code": "7431"})
    solution = ((ToolCall("read"), enter),)
    task = Task(environment.name, environment.version, place, (words,), solution, Origin("unguided"))
    with environment.open(place) as session:
        session.call(enter)
        session.end_turn()
        assert environment.grade(task, session).reward == (0 if asked else 1)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=3) | st.none(), max_size=3))
def test_any_arguments_give_an_observation(arguments: dict[str, Json]) -> None:
    environment = todo()
    with environment.open(world(environment)) as session:
        observation = session.call(ToolCall("add", arguments))
        valid = set(arguments) == {"text"} and isinstance(arguments["text"], str)
        assert (observation.error is None) == valid


class NoWorlds:
    def act(self) -> None:
        """Act."""


class NoWords:
    worlds = {"a": 0}  # noqa: RUF012

    def act(self) -> None: ...


class NoTypes:
    worlds = {"a": 0}  # noqa: RUF012

    def act(self, x) -> None:  # type: ignore[no-untyped-def]
        """Act."""


class NoTools:
    worlds = {"a": 0}  # noqa: RUF012


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (NoWorlds, "has no worlds"),
        (NoWords, "NoWords.act needs a docstring"),
        (NoTypes, "parameter 'x' needs a type"),
        (NoTools, "no public method"),
    ],
)
def test_a_class_that_cannot_be_used_says_what_it_lacks(kind: type, says: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=says):
        ToolboxEnvironment(kind)


def test_a_config_names_a_registered_environment_or_a_class() -> None:
    assert make(EnvironmentConfig()).name == "bfcl"
    assert make(EnvironmentConfig(name="toolbox_examples:TodoList")).name == "TodoList"
    config = EnvironmentConfig(name="toolbox_examples:TodoList", workers=1)
    with pooled(config) as environment, environment.open(world(environment)) as session:
        assert session.call(ADD).text == "3 things to do"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bfcI", "did you mean 'bfcl'"),
        ("no_such_module:Thing", "cannot import 'no_such_module'"),
        ("toolbox_examples:TodoLst", "did you mean 'TodoList'"),
        ("toolbox_examples:Level", "is no environment"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(name: str, says: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=says):
        make(EnvironmentConfig(name=name))


def test_classes_are_refused_where_there_is_nothing_to_select() -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"environment\.classes"):
        make(EnvironmentConfig(name="toolbox_examples:TodoList", classes=("a",)))


class Unstable:
    """Its methods are fine; how it opens is decided by a start that says so."""

    worlds = {"train": {"a": "fine"}}  # noqa: RUF012

    def __init__(self, start: str) -> None:
        self.value: object = 0
        self.closed = 0
        if start == "drawn":
            self.value = next(NUMBERS)
        elif start == "odd":
            self.value = object()
        elif start == "gone":
            raise KeyError("size")

    def read(self, how: str) -> str:
        """Read it."""
        if how == "outage":
            raise InfrastructureError("the service does not answer")
        return how

    def close(self) -> None:
        CLOSED.append(self)
        raise OSError("gone already")


NUMBERS = itertools.count()
CLOSED: list[Unstable] = []


def opening(start: str) -> ToolboxEnvironment:
    return ToolboxEnvironment(type("Unstable", (Unstable,), {"worlds": {"train": {"a": start}}}))


@pytest.mark.parametrize(
    ("start", "error", "says"),
    [
        ("drawn", UnknownEnvironmentError, "'a' does not open in the same state twice"),
        ("odd", UnknownEnvironmentError, r"the state cannot be compared: .*; let state\(\) return JSON data"),
        ("gone", InfrastructureError, "world 'a' does not open: KeyError: 'size'"),
    ],
)
def test_a_class_is_tried_out_before_a_run(start: str, error: type[Exception], says: str) -> None:
    opening("fine").try_out()
    with pytest.raises(error, match=says):
        insist_on_worlds(opening(start), EnvironmentConfig())


def test_an_outage_is_not_the_agents_error_and_closing_a_world_breaks_nothing() -> None:
    environment = opening("fine")
    CLOSED.clear()
    with environment.open(environment.worlds("train")[0]) as session:
        assert session.call(ToolCall("read", {"how": "well"})).text == "well"
        with pytest.raises(InfrastructureError, match="does not answer"):
            session.call(ToolCall("read", {"how": "outage"}))
    session.close()
    assert len(CLOSED) == 1


def test_a_state_that_fails_names_the_class() -> None:
    kind = type("Blind", (Unstable,), {"state": lambda self: self.missing})
    environment = ToolboxEnvironment(kind)
    with (
        environment.open(environment.worlds("train")[0]) as session,
        pytest.raises(InfrastructureError, match="the state of Blind fails: AttributeError"),
    ):
        session.state()


@pytest.mark.parametrize("text", ["def f(:", "1 / 0", "import no_such_module"])
def test_a_module_that_cannot_be_imported_is_one_sentence(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{zlib.crc32(text.encode())}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownEnvironmentError, match=f"cannot import '{name}': "):
        make(EnvironmentConfig(name=f"{name}:Thing"))
