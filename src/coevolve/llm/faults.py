"""What goes wrong between a request and a usable answer, told apart once, here.

Each kind has a name of its own in the ledger (``faults.<kind>``).
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from typing import Any

from coevolve.llm.base import ProposedCall, Reply
from coevolve.llm.requests import readable

LONGEST_BODY = 16 * 2**20
"""Bytes of one answer that are read; no completion is as long, and an endpoint may send without end."""
_PASSING = {408: "timeout", 409: "conflict", 425: "conflict", 429: "rate_limited"}
_TOO_LONG = (
    "context length",
    "context_length",
    "context window",
    "context size",
    "maximum context",
    "too long",
    "too many tok",
)


class AnswerFault(Exception):
    """No usable answer to one request; another request may get one.

    Args:
        kind: its name in the ledger.
        detail: what the endpoint said.
        wait: seconds that it asks to wait before the next request; None where it says nothing.
        usage: prompt and completion tokens that the useless answer cost.
    """

    def __init__(
        self, kind: str, detail: str, wait: float | None = None, usage: tuple[int, int] | None = None
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.wait = wait
        self.usage = usage


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by ``retry-after-ms`` or ``Retry-After``: seconds or an HTTP date; None if unsaid."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            told = float(headers.get(name, "")) / scale
        except ValueError:
            continue
        if 0 <= told < float("inf"):
            return told
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError):
        return None
    return max(0.0, date.timestamp() - time.time())


def passing_fault(status: int, code: str | None) -> str | None:
    """The kind of a refusal with this HTTP status and error code if it may pass; None if it will not."""
    if code == "tool_use_failed":
        return "bad_call"  # the model's call was broken and the endpoint has thrown it away
    if code == "insufficient_quota":
        return None  # comes as a 429, and no waiting helps
    return "server_error" if status >= 500 else _PASSING.get(status)


def says_too_long(message: str) -> bool:
    """Whether a refusal is about the length of the prompt; every server has its own words for it."""
    return any(words in message.lower() for words in _TOO_LONG)


def short(text: str) -> str:
    """One line of at most 300 characters."""
    return " ".join(text.split())[:300]


async def whole_body(response: Any) -> bytes:
    """The body of an answer, as far as memory is worth it.

    Raises:
        AnswerFault: ``connection``, ``timeout``, ``oversized``.
    """
    content = bytearray()
    parts = response.iter_bytes()
    while len(content) <= LONGEST_BODY:
        try:
            content += await anext(parts)
        except StopAsyncIteration:
            return bytes(content)
        except Exception as error:  # of the SDK's transport, which has no public name
            kind = "timeout" if "Timeout" in type(error).__name__ else "connection"
            raise AnswerFault(kind, short(str(error) or type(error).__name__)) from None
    raise AnswerFault("oversized", f"the answer has more than {LONGEST_BODY:,} bytes")


def read_answer(body: bytes, silence: bool = False) -> tuple[Reply, tuple[int, int] | None]:
    """The reply in the body of a 200, and its usage where it is told.

    Args:
        silence: whether a message of nothing is an answer.

    Raises:
        AnswerFault: ``not_json_body``, ``error_body``, ``empty_choices``, ``wrong_shape``, ``empty_content``.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerFault("not_json_body", short(body[:400].decode(errors="replace"))) from None
    if not isinstance(data, dict):
        raise AnswerFault("wrong_shape", f"the answer is a {type(data).__name__}, not an object")
    usage = _usage(data.get("usage"))
    choices = data.get("choices")
    if not choices and (data.get("error") or data.get("object") == "error"):
        raise AnswerFault("error_body", short(json.dumps(data.get("error") or data)), usage=usage)
    if choices in (None, []):
        raise AnswerFault("empty_choices", "the answer has no choices", usage=usage)
    try:
        reply = _reply(choices[0])
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise AnswerFault("wrong_shape", f"unexpected shape of the answer ({error})", usage=usage) from None
    if not silence and not reply.calls and not reply.text.strip():
        raise AnswerFault("empty_content", f"neither text nor calls, finish {reply.finish!r}", usage=usage)
    return reply, usage


def _reply(choice: Any) -> Reply:
    message = choice["message"]
    calls = tuple(_call(n, call) for n, call in enumerate(message.get("tool_calls") or ()))
    text = _text(message.get("content")) or _text(message.get("refusal"))
    return Reply(text, calls, str(choice.get("finish_reason") or "stop"))


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return readable(content or "")
    if not isinstance(content, list):
        raise TypeError(f"content is a {type(content).__name__}")
    return readable("".join(part["text"] for part in content if part.get("type") == "text"))


def _call(n: int, call: Any) -> ProposedCall:
    function = call["function"]
    name, arguments = function["name"], function.get("arguments")
    if not isinstance(name, str):
        raise TypeError(f"a tool's name is a {type(name).__name__}")
    if not isinstance(arguments, str):  # some servers send the object itself
        arguments = "{}" if arguments is None else json.dumps(arguments)
    return ProposedCall(readable(str(call.get("id") or f"call_{n}")), readable(name), readable(arguments))


def _usage(usage: Any) -> tuple[int, int] | None:
    try:
        prompt, completion = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return (prompt, completion) if prompt >= 0 and completion >= 0 else None
