"""Calls as BFCL's Python list: ``[sort(file_name='a.txt'), cd('docs')]``.

The text is parsed into a syntax tree and read as literals; nothing of it is ever evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from keyword import iskeyword
from typing import ClassVar

from coevolve.rollout.formats import MOST_PIECES, Format, FormatName, Piece, too_many
from coevolve.rollout.schema import MalformedCallError
from coevolve.types import Json, ToolCall

_LONGEST = 20_000
_FENCE = "```"
_LANGUAGE = re.compile(r"```\w*")
_NEW_LINE = re.compile(rb"\r\n|\r|\n")
_ATTEMPT = re.compile(r"^\[?\s*[A-Za-z_][\w.]*\s*\(")
_JSON_NAMES: dict[str, Json] = {"true": True, "false": False, "null": None}


class PythonFormat(Format):
    """A message is calls or prose, never both, as BFCL's own decoder has it.

    Brackets and a code fence may be missing. Positional and keyword arguments with literal values;
    ``true``, ``false`` and ``null`` are read as JSON means them.
    """

    name: ClassVar[FormatName] = "python"

    def scan(self, text: str) -> tuple[str, list[Piece]]:
        body = text.strip()
        if (opened := _LANGUAGE.match(body)) and body.endswith(_FENCE, opened.end()):
            body = body[opened.end() : -len(_FENCE)].strip()
        if not _ATTEMPT.match(body):
            return text, []
        if len(body) > _LONGEST:
            return "", [Piece(body, reason=f"longer than {_LONGEST} characters")]
        source = body if body.startswith("[") else f"[{body}]"
        try:
            tree = _tree(source)
        except (SyntaxError, ValueError):
            broken_off = body.count("(") > body.count(")")
            if not body.startswith("[") and not body.endswith(")") and not broken_off:
                return text, []  # prose that happens to begin like a call: 'print(x) shows ...'
            return "", [Piece(body, reason="not a Python list of calls")]
        if not isinstance(tree, ast.List):
            return "", [Piece(body, reason="not a Python list of calls")]
        segments = _Segments(source)
        pieces = [_piece(node, segments) for node in tree.elts[:MOST_PIECES]]
        rest = tree.elts[MOST_PIECES:]
        return "", [*pieces, *([too_many(segments.of(rest[0]))] if rest else [])]

    def spans(self, calls: Sequence[ToolCall]) -> list[tuple[str, bool]]:
        if not calls:
            return []
        written = ", ".join(
            f"{call.name}({', '.join(_argument(key, value) for key, value in call.arguments.items())})"
            for call in calls
        )
        # '<' only occurs inside string literals here; escaped, no argument can look like a tag.
        return [(f"[{re.sub(r'<(?=/?think>|[|])', _escaped, written)}]", False)]

    def instructions(self) -> str:
        return (
            "To call functions, answer with nothing but a list of calls:\n"
            "[first_function(name='value', count=2), second_function(flag=True)]\n"
            "Answer in words, without a list, once the request is done."
        )


def _argument(key: str, value: Json) -> str:
    if key.isascii() and key.isidentifier() and not iskeyword(key):
        return f"{key}={value!r}"
    return f"**{ {key: value}!r}"


def _escaped(_: re.Match[str]) -> str:
    return "\\x3c"


def _tree(source: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # '\d' in a string is the agent's business, not the log's
        return ast.parse(source, mode="eval").body


class _Segments:
    """The source text of nodes; its lines are found once, not for every node."""

    def __init__(self, source: str) -> None:
        self._data = source.encode()
        self._lines = [0, *(line.end() for line in _NEW_LINE.finditer(self._data))]

    def of(self, node: ast.expr | ast.keyword) -> str:
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        return self._data[start:end].decode(errors="replace")


def _piece(node: ast.expr, segments: _Segments) -> Piece:
    written = segments.of(node)
    try:
        if not isinstance(node, ast.Call):
            raise MalformedCallError("not a call")
        if not isinstance(node.func, ast.Name):
            raise MalformedCallError("a call must begin with the function's plain name")
        # Python takes look-alikes of letters for the letters; a name is what was written.
        if not written.startswith(node.func.id):
            raise MalformedCallError("the function's name is not written in its own letters")
        positional = tuple(_literal(argument) for argument in node.args)
        keyword: dict[str, Json] = {}
        for argument in node.keywords:
            # '**' before a literal dictionary names what Python cannot, e.g. a parameter 'from'.
            unpacked = argument.value if argument.arg is None else None
            if unpacked is not None and not isinstance(unpacked, ast.Dict):
                raise MalformedCallError("** is allowed before a literal dictionary only")
            if argument.arg is not None and not segments.of(argument).startswith(argument.arg):
                raise MalformedCallError("an argument's name is not written in its own letters")
            value = _literal(argument.value)
            for key, item in (
                value.items() if isinstance(value, dict) and unpacked else [(argument.arg, value)]
            ):
                if key in keyword:
                    raise MalformedCallError(f"two values for {key}")
                keyword[str(key)] = item
    except MalformedCallError as error:
        return Piece(written, reason=str(error))
    return Piece(written, node.func.id, positional, keyword)


def _literal(node: ast.expr) -> Json:
    """The JSON value of a literal; expressions of any other kind are refused, not evaluated."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            not isinstance(value, bool)
        ):
            return -value
        case ast.UnaryOp(op=ast.UAdd(), operand=ast.Constant(value=int() | float() as value)) if (
            not isinstance(value, bool)
        ):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values)}
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
    raise MalformedCallError("arguments must be literal values")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise MalformedCallError("the keys of a dictionary must be strings")
