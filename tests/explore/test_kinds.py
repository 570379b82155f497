"""A value is offered only where its kind fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coevolve.explore.found import walk
from coevolve.explore.kinds import parameter_kind
from coevolve.explore.schema import read_tool
from coevolve.explore.words import singular, split_name, stem
from coevolve.types import Json, ToolSpec


def kind(name: str, description: str = "", type_name: str = "string") -> str:
    return parameter_kind(name, description, type_name)


def test_parameters_are_told_apart_by_name_and_description() -> None:
    assert kind("file_name") == "file"
    assert kind("folder") == "folder"
    assert kind("source", "The name of the file or directory to copy.") == "entry"
    assert kind("ticket_id", "", "integer") == "id:ticket"
    assert kind("receiver_id", "User ID of the user to send the message to.") == "id:user"
    assert kind("stock", "the stock symbol to add") == "symbol"
    assert kind("cityA", "The zipcode of the first city.") == "zip"
    assert kind("access_token") == "token"
    assert kind("refresh_token") != kind("access_token")
    assert kind("max_price", "", "number") == "number:price"


def test_an_insurance_type_is_no_token_type() -> None:
    assert kind("insurance_type") != kind("token_type")


def test_keys_of_a_map_are_values_and_keys_of_a_record_are_not() -> None:
    state: Json = {
        "stocks": {"AAPL": {"price": 1.5}, "MSFT": {"price": 2.5}},
        "account_info": {"account_id": 7, "balance": 12.5},
        "user_map": {"Alice": "USR001", "Bob": "USR002"},
    }
    found = {(f.value, f.kind) for f in walk(state, -1)}
    assert ("AAPL", "symbol") in found
    assert ("Alice", "username") in found
    assert not any(value == "balance" for value, _ in found)


def test_a_tree_says_what_is_a_file_and_what_a_folder() -> None:
    state: Json = {
        "root": {
            "directory": "home",
            "contents": {
                "notes.txt": {"file": "notes.txt", "content": "Buy the milk and bread"},
                "old": {"directory": "old", "contents": {}},
            },
        }
    }
    kinds = {f.value: f.kind for f in walk(state, -1)}
    assert kinds["notes.txt"] == "file"
    assert kinds["old"] == "folder"
    assert kinds["Buy the milk and bread"] == "text"


def test_a_bare_id_in_an_answer_belongs_to_what_the_tool_speaks_of() -> None:
    assert [f.kind for f in walk({"id": 5}, 0, "create_ticket")] == ["id:ticket"]


def test_options_bounds_and_examples_are_read_from_the_schema() -> None:
    spec = ToolSpec(
        "set_mode",
        "Sets the mode of the fan. It turns.",
        {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "description": 'The mode. [Enum]: ["on", "off"]'},
                "kind": {"type": "string", "description": "Options are: slow, fast."},
                "side": {"type": "string", "enum": ["left", "right"]},
                "level": {"type": "integer", "description": "Level, from 1 to 5. 5 is the highest."},
                "step": {"type": "number", "description": "Between 0 and 120 and a multiple of 5."},
                "sector": {"type": "string", "description": "The sector (e.g., 'Technology')."},
            },
            "required": ["mode"],
        },
    )
    tool = read_tool(spec)
    by_name = {p.name: p for p in tool.parameters}
    assert by_name["mode"].options == ("on", "off")
    assert by_name["kind"].options == ("slow", "fast")
    assert by_name["side"].options == ("left", "right")
    assert (by_name["level"].low, by_name["level"].high) == (1, 5)
    assert by_name["step"].multiple == 5
    assert by_name["sector"].examples == ("Technology",)
    assert by_name["mode"].required and not by_name["kind"].required
    assert tool.summary == "Sets the mode of the fan"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_any_data_can_be_walked(data: object) -> None:
    for found in walk(data, 0, "any_tool"):  # type: ignore[arg-type]
        assert found.kind
        assert found.value is not None


@given(st.text(max_size=20))
def test_words_of_any_name(name: str) -> None:
    for word in split_name(name):
        assert word == word.lower()
        assert singular(word) and stem(word)
