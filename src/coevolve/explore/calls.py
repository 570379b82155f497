"""Calls that a language model proposes: looked up, checked against the tool's schema, or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping

from coevolve.environments.arguments import compile_arguments
from coevolve.explore.answers import InvalidAnswerError
from coevolve.llm.base import ProposedCall
from coevolve.types import Json, ToolCall, ToolSpec

_MOST = 20_000
"""Characters of one call's arguments."""
_DEEPEST = 17
"""Levels of one call's arguments."""
_LARGEST = 1024
"""Bits of a whole number."""


def bind(call: ProposedCall, tools: Mapping[str, ToolSpec]) -> ToolCall:
    """The call as it may be executed.

    Nothing is coerced. A null for an argument that need not be given and may not be null is taken for
    what it means: not given.

    Raises:
        InvalidAnswerError: ``unknown_tool`` or ``bad_arguments``; the message is for the model.
    """
    spec = tools.get(call.name)
    if spec is None:
        raise InvalidAnswerError("unknown_tool", f"there is no tool {call.name[:40]!r}; it was not executed")
    arguments = decode(call.arguments)
    if arguments is None:
        raise InvalidAnswerError(
            "bad_arguments", f"{call.name}: the arguments must be one JSON object; it was not executed"
        )
    check = compile_arguments(spec.parameters)
    wrong = check(arguments)
    if wrong:
        required = spec.parameters.get("required")
        needed = required if isinstance(required, list) else []
        given = {key: value for key, value in arguments.items() if value is not None or key in needed}
        if check(given):
            raise InvalidAnswerError("bad_arguments", f"{call.name}: {wrong}; it was not executed")
        arguments = given
    return ToolCall(call.name, arguments)


def decode(text: str) -> dict[str, Json] | None:
    """A JSON object that can be stored and sent; None for anything else. Blank stands for no arguments."""
    if not text.strip():
        return {}
    if len(text) > _MOST:
        return None
    try:
        value = json.loads(text)
        # Infinities, NaN and half characters pass the decoder, but are no JSON.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _plain(value, _DEEPEST) else None


def _plain(value: Json, depth: int) -> bool:
    """Neither nested deeper than a policy may write it, nor with numbers that nobody can store."""
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_plain(item, depth - 1) for item in inner)
    return not isinstance(value, int) or value.bit_length() <= _LARGEST
