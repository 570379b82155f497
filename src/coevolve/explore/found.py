"""Values found in data: states and answers, each with its kind and the place it was found at."""
# ruff: noqa: SIM905 - word lists read better as text

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from coevolve.explore.kinds import entity, parameter_kind
from coevolve.explore.schema import field_kind
from coevolve.explore.words import singular, split_name
from coevolve.types import Json, Observation

Scalar = str | int | float | bool
_PLURAL_CONTAINER = frozenset("list map record records history queue table contents lookup".split())
_FILE = re.compile(r"^[\w .()-]*\w\.[A-Za-z][A-Za-z0-9]{0,5}$")
_EMPTY = frozenset(("", "none", "null", "n/a", "true", "false"))


@dataclass(frozen=True, slots=True)
class Found:
    """One value at one place."""

    value: Scalar
    kind: str
    path: tuple[str, ...]
    turn: int
    """-1 for the state, else the position of the call whose answer held it."""


def walk(data: Json, turn: int, owner: str = "", known: dict[str, str] | None = None) -> list[Found]:
    """Every scalar and every telling key in ``data``.

    ``owner`` is the tool that answered; ``known`` maps texts to kinds already settled by the state,
    which is how a bare list of names gets its kinds.
    """
    return list(_walk(data, (), turn, owner, known or {}, 0))


def _walk(
    data: Json, path: tuple[str, ...], turn: int, owner: str, known: dict[str, str], depth: int
) -> Iterator[Found]:
    if depth > 24:
        return
    container = next((p for p in reversed(path) if p and not p.isdigit()), owner)
    if isinstance(data, dict):
        as_map = _is_map(container, data)
        for key, child in data.items():
            if as_map and not key.startswith("_"):
                yield Found(key, known.get(key) or _key_kind(container, key, child), (*path, key), turn)
            yield from _walk(child, (*path, key), turn, owner, known, depth + 1)
    elif isinstance(data, list):
        for index, child in enumerate(data):
            yield from _walk(child, (*path, str(index)), turn, owner, known, depth + 1)
    elif isinstance(data, str):
        text = data.strip()
        if text.lower() not in _EMPTY and len(text) <= 400:
            yield Found(text, known.get(text) or _leaf_kind(path, container, text), path, turn)
    elif isinstance(data, int | float) and not isinstance(data, bool):
        name = _leaf_name(path) or owner
        type_name = "integer" if isinstance(data, int) else "number"
        yield Found(data, _number_kind(name, path, owner, type_name), path, turn)


def _leaf_name(path: tuple[str, ...]) -> str:
    return next((p for p in reversed(path) if not p.isdigit()), "")


def _parent_name(path: tuple[str, ...], owner: str) -> str:
    named = [p for p in path if p and not p.isdigit()]
    return named[-2] if len(named) > 1 else owner


def _number_kind(name: str, path: tuple[str, ...], owner: str, type_name: str) -> str:
    if path and path[-1].isdigit():
        # A list of bare numbers: a history of order numbers holds ids of orders.
        return f"id:{entity(name)}" if type_name == "integer" else parameter_kind(name, "", type_name)
    return field_kind(name, _parent_name(path, owner), "", type_name)


def _is_map(container: str, data: dict[str, Json]) -> bool:
    """Whether keys are values (symbols, file names, ids) rather than names of fields."""
    if not data:
        return False
    words = split_name(container)
    last = words[-1] if words else ""
    plural = last in _PLURAL_CONTAINER or (singular(last) != last)
    if not plural:
        return False
    inner = {
        ("dict" if isinstance(v, dict) else "list" if isinstance(v, list) else "scalar")
        for v in data.values()
    }
    return len(inner) == 1 or "dict" in inner


def _key_kind(container: str, key: str, child: Json) -> str:
    if isinstance(child, dict):
        # A node that says what it is, either as {"type": "file"} or as {"file": name}.
        named = child.get("type") if isinstance(child.get("type"), str) else next(iter(child), "")
        kind = parameter_kind(str(named), "", "string")
        if kind in ("file", "folder"):
            return kind
    kind = parameter_kind(container, "", "string")
    if not kind.startswith("word:") and kind not in ("text", "keyword"):
        return kind
    about = entity(container)
    if any(c.isdigit() for c in key):
        return f"id:{about}"
    return "username" if about == "user" else f"word:{about}"


def _leaf_kind(path: tuple[str, ...], container: str, text: str) -> str:
    if text.startswith("#") and " " not in text:
        return "tag"
    if text.startswith("@") and " " not in text:
        return "mention"
    kind = field_kind(_leaf_name(path) or container, _parent_name(path, container), "", "string")
    if _FILE.match(text) and kind not in ("text", "title", "username"):
        return "file"
    if len(text.split()) >= 4 and kind not in ("title", "address"):
        return "text"
    if kind == "text" and len(text.split()) <= 1:
        return "word:" + entity(container)
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return "date" if kind != "birth_date" else kind
    return kind


def answer_data(observation: Observation) -> Json:
    """The answer as data, also where only its text holds it."""
    if observation.value is not None:
        if isinstance(observation.value, str) and observation.value[:1] in "[{":
            try:
                parsed: Json = json.loads(observation.value)
                return parsed
            except ValueError:
                return observation.value
        return observation.value
    try:
        decoded: Json = json.loads(observation.text)
        return decoded
    except ValueError:
        return observation.text or None
