"""A parsed call against its tool: allow-list, positional arguments by name, JSON schema, plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from coevolve.environments.arguments import compile_arguments
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
    properties = spec.parameters.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    if len(positional) > len(names):
        raise MalformedCallError(f"{name} takes at most {len(names)} arguments, {len(positional)} were given")
    arguments: dict[str, Json] = dict(zip(names, positional))
    for key, value in keyword.items():
        if key in arguments:
            raise MalformedCallError(f"{name} has two values for {_short(key)}")
        arguments[key] = value
    for key, value in arguments.items():
        _check_plain(value, f"{name}: argument {_short(key)}", 0)
    required = spec.parameters.get("required")
    needed = required if isinstance(required, list) else []
    # null stands for "not given" wherever nothing has to be given.
    given = {key: value for key, value in arguments.items() if value is not None or key in needed}
    unknown = {key: value for key, value in arguments.items() if key not in names}
    wrong = compile_arguments(spec.parameters)({**given, **unknown})
    if wrong:
        raise MalformedCallError(f"{name}: {wrong}")
    return ToolCall(name, arguments)


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


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
