"""A parsed call against its tool's JSON schema: allow-list, names, required parameters, types.

Values inside the right type are the tool's own business: it answers with an error that the agent can
learn from. What is checked here is that a call can be executed as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from coevolve.types import Json, ToolCall, ToolSpec

_MAX_DEPTH = 16
_MAX_BITS = 1024


class MalformedCallError(ValueError):
    """A piece of the agent's message that cannot be executed; the message says why."""


def bind(
    name: str,
    positional: Sequence[Json],
    keyword: Mapping[str, Json],
    tools: Mapping[str, ToolSpec],
) -> ToolCall:
    """Look ``name`` up and bind its arguments; positional ones in the schema's property order.

    Raises:
        MalformedCallError: a tool that is not offered, or arguments that its schema refuses.
    """
    spec = tools.get(name)
    if spec is None:
        raise MalformedCallError(f"there is no tool {_short(name)}")
    properties = _mapping(spec.parameters.get("properties"))
    names = list(properties)
    if len(positional) > len(names):
        raise MalformedCallError(
            f"{name} takes {len(names)} positional arguments, {len(positional)} were given"
        )
    arguments: dict[str, Json] = dict(zip(names, positional))
    for key, value in keyword.items():
        if key in arguments:
            raise MalformedCallError(f"{name} has two values for {key}")
        arguments[key] = value
    _check_object(arguments, spec.parameters, name, closed=True)
    for key, value in arguments.items():
        _check_plain(value, f"{name}: {key}", 0)
    return ToolCall(name, arguments)


def _check_object(value: Mapping[str, Json], schema: Mapping[str, Any], where: str, closed: bool) -> None:
    properties = _mapping(schema.get("properties"))
    required = schema.get("required")
    needed: list[str] = [str(key) for key in required] if isinstance(required, list) else []
    missing = [key for key in needed if key not in value]
    if missing:
        raise MalformedCallError(f"{where} needs {', '.join(missing)}")
    extra = schema.get("additionalProperties", not closed)
    for key, item in value.items():
        if key in properties:
            optional = key not in needed
            if not (item is None and optional):
                _check_type(item, properties[key], f"{where}: {key}", 0)
        elif extra is False:
            known = ", ".join(properties) or "none"
            raise MalformedCallError(f"{where} has no parameter {_short(key)}; it has {known}")
        elif isinstance(extra, dict):
            _check_type(item, extra, f"{where}: {key}", 0)


def _check_type(value: Json, schema: Any, where: str, depth: int) -> None:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        _check_branches(value, branches, where, depth)
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if allowed and not any(_is_a(value, kind) for kind in allowed):
        raise MalformedCallError(f"{where} must be {' or '.join(map(str, allowed))}, not {_kind(value)}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check_type(item, schema.get("items"), f"{where}[{number}]", depth + 1)
    elif isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        _check_object(value, schema, where, closed=False)


def _check_branches(value: Json, branches: Sequence[Any], where: str, depth: int) -> None:
    reasons: list[str] = []
    for branch in branches:
        try:
            _check_type(value, branch, where, depth + 1)
        except MalformedCallError as error:
            reasons.append(str(error))
        else:
            return
    raise MalformedCallError(reasons[0] if reasons else f"{where} fits no branch of its schema")


def _is_a(value: Json, kind: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return number and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
        case "number":
            return number
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
    return True  # a type of some dialect that JSON schema does not know says nothing


def _check_plain(value: Json, where: str, depth: int) -> None:
    """Refuse what cannot be stored and compared as JSON: lone surrogates, NaN, absurd sizes."""
    if depth > _MAX_DEPTH:
        raise MalformedCallError(f"{where} is nested too deep")
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise MalformedCallError(f"{where} is not a finite number")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise MalformedCallError(f"{where} is too large a number")
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, where, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, where)
            _check_plain(item, where, depth + 1)


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedCallError(f"{where} holds half a character (a lone surrogate)") from None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _kind(value: Json) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
