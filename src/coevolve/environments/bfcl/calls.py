"""The reference answers' call strings, read as data: literal arguments only, nothing evaluated."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from coevolve.types import ToolCall


def parse_call(text: str, signatures: Mapping[str, Sequence[str]]) -> ToolCall:
    """``sort('a.txt')`` as a :class:`ToolCall`; positional arguments get their parameters' names.

    Args:
        text: one call.
        signatures: parameter names of every tool, in order.

    Raises:
        ValueError: not one plain call of a known tool with literal arguments.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"not a call: {text!r}") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"not a plain call: {text!r}")
    name = node.func.id
    if name not in signatures:
        raise ValueError(f"unknown tool {name!r} in {text!r}")
    names = signatures[name]
    if len(node.args) > len(names):
        raise ValueError(f"{len(node.args)} positional arguments, {name!r} has {len(names)} parameters")
    arguments = {key: _literal(value, text) for key, value in zip(names, node.args)}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError(f"argument {keyword.arg or '**'!r} of {text!r} cannot be bound")
        arguments[keyword.arg] = _literal(keyword.value, text)
    return ToolCall(name, arguments)


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return _plain(ast.literal_eval(node))
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"argument of {text!r} is not a literal") from error


def _plain(value: Any) -> Any:
    """Tuples as lists, so that a reference call is the call an agent can write in JSON."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise ValueError(f"{type(value).__name__} is not JSON")
