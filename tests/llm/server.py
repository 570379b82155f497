"""A small OpenAI-compatible server with real faults, for tests and benchmarks.

``with serve(answer, faults=[...]) as server:`` runs it on a free port of this machine; ``answer`` says what
the model says, ``faults`` what goes wrong on the way. Imports nothing of ours and nothing of pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Body = dict[str, Any]
Answer = Callable[[Body], "str | Body"]
"""Request body → text, a message (``content``, ``tool_calls``) or a whole answer (with ``choices``).

A tool call may be short: ``{"name": ..., "arguments": {...}}``.
"""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong; made by the functions below."""

    kind: str
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


Faults = Sequence["Fault | None"] | Callable[[int, Body], "Fault | None"]
"""One per request in order of arrival (None, and after the last one: nothing), or a function of a request's
number and body."""


def status(
    http: int, message: str = "it broke", headers: dict[str, str] | None = None, **error: Any
) -> Fault:
    """An HTTP error with OpenAI's error body; further keys (``code``, ``type``) go into it."""
    return Fault("status", http, {"error": {"message": message, **error}}, headers or {})


def too_many(retry_after: str | None = None, milliseconds: str | None = None) -> Fault:
    """429, with or without a Retry-After (seconds or an HTTP date) or a retry-after-ms."""
    told = {"retry-after": retry_after, "retry-after-ms": milliseconds}
    return status(429, "slow down", {name: value for name, value in told.items() if value is not None})


def error_body(message: str = "upstream is overloaded") -> Fault:
    """200 with an error object where the answer should be."""
    return Fault("body", body={"error": {"message": message, "code": 502}})


def no_choices() -> Fault:
    """200 with an empty list of choices, and usage as if it had been worth something."""
    return Fault("body", body={"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 0}})


def no_content() -> Fault:
    """200 with a message of nothing, and usage."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length"}
    return Fault("body", body={"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})


def wrong_shape() -> Fault:
    """200 with JSON of other types than OpenAI's."""
    return Fault("body", body={"choices": [{"message": "hello"}]})


def not_json(text: str = "<html>502 Bad Gateway</html>") -> Fault:
    """200 with a page of text."""
    return Fault("text", body=text)


def silent(seconds: float = 30.0) -> Fault:
    """Nothing at all for so long."""
    return Fault("silent", seconds=seconds)


def dribble(every: float = 0.02) -> Fault:
    """A body that comes one space at a time and never ends, so that no read ever times out."""
    return Fault("dribble", seconds=every)


def reset() -> Fault:
    """The connection breaks in mid-body."""
    return Fault("reset")


def fenced() -> Fault:
    """The model's text in a code fence with prose round it."""
    return Fault("fenced")


def truncated() -> Fault:
    """Two thirds of the model's text, or of its last call's arguments, and finish ``length``."""
    return Fault("truncated")


def wrong_types() -> Fault:
    """The model's JSON, or its calls' arguments, with every scalar and list as something else."""
    return Fault("wrong_types")


def no_usage() -> Fault:
    """The answer, without saying what it cost."""
    return Fault("no_usage")


def refusing(part: str, message: str, code: int = 400) -> Callable[[int, Body], Fault | None]:
    """An endpoint that does not take one part of a request (``tools``, ``response_format``, ``seed`` ...)."""
    return lambda number, body: status(code, message) if part in body else None


@dataclass(frozen=True)
class Received:
    """One request as it came in."""

    body: Body
    headers: dict[str, str]
    at: float
    """``time.monotonic()`` of its arrival."""
    fault: Fault | None


@dataclass
class Server:
    """What :func:`serve` hands out."""

    base_url: str
    received: list[Received] = field(default_factory=list)
    at_once: int = 0
    """Requests being answered right now."""
    most_at_once: int = 0
    errors: list[Exception] = field(default_factory=list)
    """What ``answer`` or ``faults`` raised; :func:`serve` raises the first of them at its end."""


@contextlib.contextmanager
def serve(answer: Answer, faults: Faults = (), latency: float = 0.0) -> Iterator[Server]:
    """Serve ``/v1/chat/completions`` and ``/v1/models`` from a thread until the block ends.

    Args:
        latency: seconds before each reply, while others are answered.
    """
    # The protocol is named so that asyncio turns Nagle's algorithm off: it would add 40 ms to replies.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    handle = Server(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")

    async def completions(request: Request) -> Response:
        body = await request.json()
        number = len(handle.received)
        handle.at_once += 1
        handle.most_at_once = max(handle.most_at_once, handle.at_once)
        try:
            fault = faults(number, body) if callable(faults) else dict(enumerate(faults)).get(number)
            handle.received.append(Received(body, dict(request.headers), time.monotonic(), fault))
            if latency:
                await asyncio.sleep(latency)
            return await _respond(fault, lambda: answer(body), body)
        except Exception as error:
            handle.errors.append(error)
            return JSONResponse({"error": {"message": f"the test's answer raised {error!r}"}}, 418)
        finally:
            handle.at_once -= 1

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "test", "object": "model"}]})

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", completions, methods=["POST"]),
            Route("/v1/models", models),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    loop, leave = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=_run, args=(loop, server, listening, leave), daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.002)
    try:
        yield handle
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join()
    if handle.errors:
        raise handle.errors[0]


def _run(
    loop: asyncio.AbstractEventLoop, server: uvicorn.Server, listening: socket.socket, leave: asyncio.Event
) -> None:
    """Serve until ``leave``, then drop every connection at once, as a server that dies does."""

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await leave.wait()
        serving.cancel()  # uvicorn's own way to stop takes 0.2 s
        await asyncio.gather(serving, return_exceptions=True)
        for listener in server.servers:
            listener.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
        listening.close()


async def _respond(fault: Fault | None, answer: Callable[[], str | Body], asked: Body) -> Response:
    kind = fault.kind if fault is not None else ""
    if fault is not None and kind in ("status", "body"):
        return JSONResponse(fault.body, fault.status, fault.headers)
    if fault is not None and kind == "text":
        return Response(fault.body, media_type="text/html")
    if fault is not None and kind == "dribble":
        return StreamingResponse(_spaces(fault.seconds), media_type="application/json")
    if fault is not None and kind == "silent":
        await asyncio.sleep(fault.seconds)
    whole = completion(_damaged(kind, message(answer())), asked)
    if kind == "no_usage":
        del whole["usage"]
    if kind == "truncated":
        whole["choices"][0]["finish_reason"] = "length"
    if kind == "reset":
        written = json.dumps(whole).encode()
        return StreamingResponse(
            _half(written), media_type="application/json", headers={"content-length": str(len(written))}
        )
    return Response(json.dumps(whole), media_type="application/json")  # escapes what UTF-8 cannot hold


def message(said: str | Body) -> Body:
    """What ``answer`` returned as an assistant's message in OpenAI's shape, or as a whole answer."""
    if isinstance(said, str):
        return {"role": "assistant", "content": said}
    if "choices" in said or not said.get("tool_calls"):
        return said if "choices" in said else {"role": "assistant", **said}
    calls = []
    for n, call in enumerate(said["tool_calls"]):
        if "function" not in call:
            arguments = call.get("arguments", {})
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            call = {
                "id": call.get("id", f"call_{n}"),
                "type": "function",
                "function": {"name": call["name"], "arguments": text},
            }
        calls.append(call)
    return {"role": "assistant", "content": None, **said, "tool_calls": calls}


def completion(said: Body, asked: Body) -> Body:
    """A whole answer round a message; four characters count as a token."""
    if "choices" in said:
        return said
    finish = "tool_calls" if said.get("tool_calls") else "stop"
    prompt, answered = len(json.dumps(asked["messages"])) // 4 + 1, len(json.dumps(said)) // 4 + 1
    return {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "created": 0,
        "model": asked.get("model", "test"),
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": answered,
            "total_tokens": prompt + answered,
        },
    }


def _damaged(kind: str, said: Body) -> Body:
    if kind not in ("fenced", "truncated", "wrong_types") or "choices" in said:
        return said
    said = json.loads(json.dumps(said))
    if calls := said.get("tool_calls"):
        function = calls[-1]["function"]
        function["arguments"] = _damaged_text(kind, function["arguments"])
    else:
        said["content"] = _damaged_text(kind, said["content"] or "")
    return said


def _damaged_text(kind: str, text: str) -> str:
    if kind == "fenced":
        return f"Sure, here is what you asked for:\n\n```json\n{text}\n```\n\nLet me know if it helps!"
    if kind == "truncated":
        return text[: 2 * len(text) // 3]
    try:
        return json.dumps(_other_types(json.loads(text)) or [])
    except ValueError:
        return json.dumps({"text": [text]})


def _other_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _other_types(inner) for key, inner in value.items()}
    return {"value": value} if isinstance(value, list) else [value]


async def _spaces(every: float) -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(every)


async def _half(written: bytes) -> AsyncIterator[bytes]:
    yield written[: len(written) // 2]
    raise ConnectionResetError  # uvicorn closes the connection
