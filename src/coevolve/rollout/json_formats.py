"""Calls as JSON objects: Hermes (Qwen2.5, Qwen3) and Llama 3.1."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from coevolve.rollout.formats import MOST_PIECES, THINK, UNTHINK, Format, FormatName, Piece, too_many
from coevolve.types import ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_PYTHON_TAG = "<|python_tag|>"
_TAG = re.compile(f"{_OPEN}|{THINK}")
_NEXT = re.compile(r";\s*(?=\{)")


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key appears twice")
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)


def _decode(text: str, start: int) -> tuple[Any, int, str]:
    """(value, end, reason) of the JSON value at ``start``; ``reason`` is '' if there is one."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, start, f"not valid JSON ({error.msg})"
    except ValueError as error:
        return None, start, f"not valid JSON ({error})"
    return value, end, ""


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _piece(value: Any, source: str, keys: Sequence[str]) -> Piece:
    """An object ``{"name": ..., <one of keys>: {...}}`` as a piece; anything else is malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Piece(source, reason='a call must be a JSON object with a "name"')
    given = [key for key in keys if key in value]
    if len(given) != 1 or not isinstance(value[given[0]], dict):
        return Piece(source, reason=f'a call must have an object "{keys[0]}"')
    if len(value) > 2:
        return Piece(source, reason=f'a call must have nothing but "name" and "{keys[0]}"')
    return Piece(source, value["name"], keyword=value[given[0]])


def _written(call: ToolCall, key: str) -> str:
    # '<' only occurs inside strings here; escaped, no argument can look like a tag of the format.
    text = json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False)
    return re.sub(r"<(?=/?think>|/?tool_call>|\|)", r"\\u003c", text)


class HermesFormat(Format):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, as often as needed, in any prose.

    The closing tag may be missing if the object is complete: models often stop right there.
    """

    name: ClassVar[FormatName] = "hermes"

    def scan(self, text: str) -> tuple[str, list[Piece]]:
        plain: list[str] = []
        pieces: list[Piece] = []
        at = 0
        while (found := _TAG.search(text, at)) is not None:
            plain.append(text[at : found.start()])
            if len(pieces) == MOST_PIECES:
                return "".join(plain), [*pieces, too_many(text[found.start() :])]
            if found[0] == THINK:
                closed = text.find(UNTHINK, found.end())
                at = len(text) if closed < 0 else closed + len(UNTHINK)
            else:
                piece, at = self._block(text, found.end())
                pieces.append(piece)
        plain.append(text[at:])
        return "".join(plain), pieces

    def _block(self, text: str, start: int) -> tuple[Piece, int]:
        value, end, reason = _decode(text, _skip_space(text, start))
        if not reason:
            after = _skip_space(text, end)
            if text.startswith(_CLOSE, after):
                return _piece(value, text[start:end], ("arguments",)), after + len(_CLOSE)
            if after == len(text) or text.startswith(_OPEN, after):
                return _piece(value, text[start:end], ("arguments",)), after
            reason = f"text between the JSON object and {_CLOSE}"
        stops = [at for tag in (_CLOSE, _OPEN) if (at := text.find(tag, start)) >= 0]
        stop = min(stops, default=len(text))
        past = stop + len(_CLOSE) if text.startswith(_CLOSE, stop) else stop
        return Piece(text[start:stop], reason=reason), past

    def spans(self, calls: Sequence[ToolCall]) -> list[tuple[str, bool]]:
        spans: list[tuple[str, bool]] = []
        for number, call in enumerate(calls):
            spans.append(("\n" * (number > 0) + f"{_OPEN}\n", True))
            spans.append((_written(call, "arguments"), False))
            spans.append((f"\n{_CLOSE}", True))
        return spans

    def instructions(self) -> str:
        return (
            "To call functions, write one JSON object per call within <tool_call></tool_call> tags:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )


class LlamaFormat(Format):
    """``{"name": ..., "parameters": {...}}``, several separated by ``;`` (or just one after another),
    and nothing else.

    ``<|python_tag|>`` may stand before it, after prose too. ``arguments`` is read as well, since the
    models write either.
    """

    name: ClassVar[FormatName] = "llama"
    keys: ClassVar[tuple[str, ...]] = ("parameters", "arguments")

    def scan(self, text: str) -> tuple[str, list[Piece]]:
        prose, tag, tail = text.partition(_PYTHON_TAG)
        if not tag:
            prose, tail = "", text
        at = _skip_space(tail, 0)
        if not tag and not tail.startswith("{", at):
            return text, []
        pieces: list[Piece] = []
        while at < len(tail):
            if len(pieces) == MOST_PIECES:
                return prose, [*pieces, too_many(tail[at:])]
            value, end, reason = _decode(tail, at)
            after = _skip_space(tail, end)
            separator = 1 if tail.startswith(";", after) else 0
            if not reason and after < len(tail) and tail[after] not in ";{":
                reason = "text after the JSON object; several calls are separated by ';'"
            if reason:
                resume = _NEXT.search(tail, max(after, at + 1))
                stop = resume.start() if resume else len(tail)
                pieces.append(Piece(tail[at:stop], reason=reason))
                at = resume.end() if resume else len(tail)
            else:
                pieces.append(_piece(value, tail[at:end], self.keys))
                at = _skip_space(tail, after + separator)
        return prose, pieces

    def spans(self, calls: Sequence[ToolCall]) -> list[tuple[str, bool]]:
        return [("; ".join(_written(call, "parameters") for call in calls), False)] if calls else []

    def instructions(self) -> str:
        return (
            "To call functions, answer with JSON only, several calls separated by ';':\n"
            '{"name": <function-name>, "parameters": <args-json-object>}'
        )
