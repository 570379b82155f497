"""What is sent to an OpenAI-compatible endpoint, and which parts of it one has refused.

Endpoints differ in what they take: tools, JSON schemas, seeds, even ``max_tokens``. A request is sent
whole until the endpoint names a part that it does not take; that part is left out from then on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from coevolve.llm.base import Message
from coevolve.types import Json, ToolSpec

_NAMED_BY: dict[str, tuple[str, ...]] = {
    "response_format": ("response_format", "json_schema", "json schema", "grammar", "guided", "structured"),
    "max_tokens": ("max_completion_tokens",),
    "temperature": ("temperature",),
    "seed": ("seed",),
    "tools": ("tool", "function call"),
}
"""Words of an endpoint's complaint by which a part of the request is known; the first match counts."""
_REFUSALS = (400, 404, 422)
_FEATURES = ("tools", "response_format")
"""Also refused by a 500 or 501: llama.cpp says 500 to tools where its model has no template for them."""


def readable(text: str) -> str:
    """``text`` with a question mark for each half of a character, which no encoding can carry."""
    return text.encode(errors="replace").decode()


def sendable(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """``messages`` as they can go over the wire, whatever a world or a model has written into them."""
    plain = [dict(message) for message in messages]
    written = json.dumps(plain, ensure_ascii=False)
    return plain if written == (clean := readable(written)) else list(json.loads(clean))


def build(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    schema: Mapping[str, Json] | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole body of a chat completion; ``settings`` are ``seed``, ``temperature``, ``max_tokens``."""
    body: dict[str, Any] = {"model": model, "messages": sendable(messages), **settings}
    if tools:
        body["tools"] = [tool_shape(tool) for tool in tools]
    if schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": dict(schema)},
        }
    return body


def tool_shape(tool: ToolSpec) -> dict[str, Any]:
    """A tool in OpenAI's shape."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def without(body: Mapping[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """``body`` as this endpoint takes it."""
    kept = {key: value for key, value in body.items() if key not in refused}
    if "max_tokens" in refused and "max_tokens" in body:
        kept["max_completion_tokens"] = body["max_tokens"]
    return kept


def refused_part(
    status: int, complaint: str, sent: Mapping[str, Any], taken: Collection[str] = ()
) -> str | None:
    """Which part of the request ``sent`` the endpoint complains about; None if about none that can go.

    Parts in ``taken`` were answered before, so the complaint is about something else.
    """
    said = complaint.lower()
    for part, words in _NAMED_BY.items():
        possible = status in _REFUSALS or (status in (500, 501) and part in _FEATURES)
        if possible and part in sent and part not in taken and any(word in said for word in words):
            return part
    return None
