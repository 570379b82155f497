"""Validation of a call's arguments against its tool's JSON schema, compiled once per tool.

Nothing is coerced: what passes is handed on exactly as it came (invariant 6).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]
"""Takes a value, returns None or what is wrong with it ('must be ...')."""

_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def kind_of(value: Any) -> str:
    """The JSON type of a Python value; ``integer`` for whole numbers of either Python type.

    ``unknown`` for what JSON cannot hold: infinities, lone surrogates, other classes.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number" if math.isfinite(value) else "unknown"
    if isinstance(value, str):
        return "string" if value.isascii() or _encodes(value) else "unknown"
    return "array" if isinstance(value, (list, tuple)) else "object" if isinstance(value, dict) else "unknown"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def compile_check(schema: Mapping[str, Any]) -> Check:
    """A checker for one schema: ``type`` (or a list of them), ``enum``, ``items``, ``properties``."""
    declared = schema.get("type")
    types = frozenset([declared] if isinstance(declared, str) else declared or _NAMES)
    expected = " or ".join(_NAMES[name] for name in _NAMES if name in types)
    allowed = schema.get("enum")
    items = compile_check(schema["items"]) if isinstance(schema.get("items"), dict) else None
    members = compile_arguments(schema) if schema.get("properties") else None

    def check(value: Any) -> str | None:
        kind = kind_of(value)
        if kind not in types and not (kind == "integer" and "number" in types):
            return f"must be {expected}, not {_NAMES.get(kind, 'something JSON cannot hold')}"
        if allowed is not None and value not in allowed:
            return f"must be one of {', '.join(map(repr, allowed))}"
        if items is not None and kind == "array":
            for position, item in enumerate(value):
                wrong = items(item)
                if wrong:
                    return f"must be right at position {position}: {wrong}"
        if members is not None and kind == "object":
            wrong = members(value)
            if wrong:
                return f"must be a valid object: {wrong}"
        return None

    return check


def compile_arguments(schema: Mapping[str, Any]) -> Check:
    """A checker for a whole argument object: unknown, missing and ill-typed arguments."""
    checks = {name: compile_check(part) for name, part in schema.get("properties", {}).items()}
    required = tuple(schema.get("required", ()))

    def check(arguments: Any) -> str | None:
        for name in required:
            if name not in arguments:
                return f"missing argument {name!r}"
        for name, value in arguments.items():
            inner = checks.get(name)
            if inner is None:
                near = difflib.get_close_matches(str(name), checks, n=1)
                hint = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(checks) or 'none'}"
                return f"unknown argument {name!r}{hint}"
            wrong = inner(value)
            if wrong:
                return f"argument {name!r} {wrong}"
        return None

    return check
