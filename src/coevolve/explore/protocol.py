"""The conversation between a model and a world, in native tool calls or as plain text.

What happened is kept as :class:`Exchange`, and the messages are made from it for each request: so an
endpoint that turns out to have no native tool calling is told the same story in the text protocol.

In the text protocol the model answers with one JSON object, ``{"calls": [{"name": ..., "arguments":
{...}}]}`` or ``{"done": true}``, and is shown answers as quoted blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coevolve.explore.answers import objects, without_thinking
from coevolve.explore.calls import decode
from coevolve.explore.trim import sendable, shorten
from coevolve.llm.base import Message, ProposedCall, Reply
from coevolve.prompting import quote
from coevolve.types import Json

SILENCE = "(no answer)"
_SAID = 4000
"""Characters of one message of the model that are shown to it again."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message of the model and what came back."""

    text: str
    calls: tuple[ProposedCall, ...] = ()
    """With ids of their own within the conversation."""
    answers: tuple[str, ...] = ()
    """One per call, as the model is shown it."""
    note: str = ""
    """What we say besides."""
    native: bool = False
    """Whether the calls came as native tool calls, not in the text."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a reply comes to."""

    calls: tuple[ProposedCall, ...] = ()
    done: bool = False
    native: bool = False
    fault: str = ""
    """What the ledger counts it as, where there is neither a call nor an end."""


def understand(reply: Reply, asked_natively: bool) -> Said:
    """Calls from the reply: native ones, else from JSON in its text.

    The text is read in either case, since an endpoint without a parser for its model's calls hands
    them on as text. Without a call, an answer to a native request is the end.
    """
    if reply.calls:
        return Said(reply.calls, native=True)
    found = objects(reply.text)
    calls = tuple(call for item in found for call in _calls(item))
    if calls or any(item.get("done") is True or item.get("calls") == [] for item in found):
        return Said(calls, done=any(item.get("done") is True for item in found) or not calls)
    if not reply.text.strip():
        return Said(fault="empty_answer")
    if asked_natively:
        return Said(done=True)
    return Said(fault="invalid_schema" if found else "invalid_json")


def _calls(item: dict[str, Json]) -> list[ProposedCall]:
    listed = item.get("calls")
    if not isinstance(listed, list):
        listed = [item] if isinstance(item.get("name"), str) and "arguments" in item else []
    return [_call(entry) for entry in listed]


def _call(entry: Json) -> ProposedCall:
    """One entry of ``calls``; one of a wrong shape becomes a call that :func:`bind` refuses."""
    if not isinstance(entry, dict):
        return ProposedCall("", str(entry), "null")
    arguments = entry.get("arguments", {})
    return ProposedCall(
        "",
        str(entry.get("name", "")),
        arguments if isinstance(arguments, str) else json.dumps(arguments),
    )


def numbered(calls: Iterable[ProposedCall], taken: int, used: set[str]) -> tuple[ProposedCall, ...]:
    """The calls, each with an id that no earlier call has; ``taken`` calls were made before."""
    named = []
    for number, call in enumerate(calls, taken):
        fresh = call.id if call.id and call.id not in used else f"call{number:05d}"
        used.add(fresh)
        named.append(replace(call, id=fresh))
    return tuple(named)


def messages(exchanges: Sequence[Exchange], native: bool) -> list[Message]:
    """The conversation so far, without what came before it."""
    return [message for exchange in exchanges for message in (_native if native else _plain)(exchange)]


def _native(exchange: Exchange) -> list[Message]:
    text = _text(exchange)
    if not exchange.calls:
        return [{"role": "assistant", "content": text or SILENCE}, *_note(exchange)]
    spoken: Message = {
        "role": "assistant",
        "content": text if exchange.native else "",
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                # What cannot be read would be refused by endpoints that read it; its answer says what it was.
                "function": {"name": _name(call.name), "arguments": json.dumps(decode(call.arguments) or {})},
            }
            for call in exchange.calls
        ],
    }
    heard: list[Message] = [
        {"role": "tool", "tool_call_id": call.id, "content": sendable(answer)}
        for call, answer in zip(exchange.calls, exchange.answers, strict=True)
    ]
    return [spoken, *heard, *_note(exchange)]


def _plain(exchange: Exchange) -> list[Message]:
    text = _text(exchange)
    if exchange.native:
        shown = [
            {"name": _name(call.name), "arguments": decode(call.arguments) or {}} for call in exchange.calls
        ]
        text = json.dumps({"calls": shown})
    blocks = [
        quote({"tool": _name(call.name), "answer": answer}, "observation")
        for call, answer in zip(exchange.calls, exchange.answers, strict=True)
    ]
    heard = "\n".join([*blocks, *([exchange.note] if exchange.note else [])])
    spoken: Message = {"role": "assistant", "content": text or SILENCE}
    return [spoken, {"role": "user", "content": heard}] if heard else [spoken]


def _note(exchange: Exchange) -> list[Message]:
    return [{"role": "user", "content": exchange.note}] if exchange.note else []


def _text(exchange: Exchange) -> str:
    return shorten(without_thinking(exchange.text).strip(), _SAID)


def _name(name: str) -> str:
    """A name that endpoints accept."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64] or "unnamed"
