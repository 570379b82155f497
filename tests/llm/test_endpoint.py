"""The client of an OpenAI-compatible endpoint, over real HTTP, with each fault injected."""

from __future__ import annotations

import contextlib
import email.utils
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import server as faulty
from coevolve.config import LlmConfig
from coevolve.errors import ConfigError
from coevolve.llm.base import Ledger, Limits, NoToolsError, OutageError, SpentError
from coevolve.llm.endpoint import Endpoint
from coevolve.types import ToolSpec
from server import Server, serve

ASK = [{"role": "system", "content": "You explore."}, {"role": "user", "content": "What next?"}]
CD = ToolSpec("cd", "Change the directory.", {"type": "object", "properties": {"folder": {"type": "string"}}})


def hello(body: dict[str, Any]) -> str:
    return "hello"


@contextlib.contextmanager
def client(server: Server | str, back_off: float = 0.01, **settings: Any) -> Iterator[Endpoint]:
    url = server if isinstance(server, str) else server.base_url
    settings = {"model": "test", "seconds": 5.0, "attempts": 3, **settings}
    endpoint = Endpoint(LlmConfig(base_url=url, **settings), back_off=back_off)
    try:
        yield endpoint
    finally:
        endpoint.close()


def test_answer_and_what_it_cost() -> None:
    with serve(hello) as server, client(server, price={"prompt": 2e6, "completion": 1e6}) as llm:
        ledger = Ledger()
        reply = llm.complete(ASK, stage="reflect", ledger=ledger, seed=7)
    assert reply.text == "hello" and reply.calls == () and reply.finish == "stop" and not reply.cached
    counts = dict(ledger.counts)
    assert counts.pop("reflect.seconds") > 0
    tokens = reply.prompt_tokens, reply.completion_tokens
    money = 2 * tokens[0] + tokens[1]
    assert min(tokens) > 0
    assert counts == {
        "reflect.calls": 1,
        "reflect.prompt_tokens": tokens[0],
        "reflect.completion_tokens": tokens[1],
        "reflect.money": money,
        "paid.calls": 1,
        "paid.tokens": sum(tokens),
        "paid.money": money,
    }
    sent = server.received[0].body
    assert sent["messages"] == ASK and sent["model"] == "test" and sent["seed"] == 7
    assert sent["max_tokens"] == 1024 and sent["temperature"] == 1.0 and "tools" not in sent
    assert llm.name == f"test@{server.base_url}" and llm.native_tools and llm.concurrency == 8


FAULTS = [
    ("rate_limited", faulty.too_many()),
    ("server_error", faulty.status(500)),
    ("server_error", faulty.status(503)),
    ("error_body", faulty.error_body()),
    ("connection", faulty.reset()),
    ("empty_choices", faulty.no_choices()),
    ("empty_content", faulty.no_content()),
    ("not_json_body", faulty.not_json()),
    ("wrong_shape", faulty.wrong_shape()),
    ("timeout", faulty.silent(5.0)),
    ("timeout", faulty.dribble()),
    ("bad_call", faulty.status(400, "Failed to call a function.", code="tool_use_failed")),
]


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[f"{kind}-{f.kind}" for kind, f in FAULTS])
def test_fault_is_counted_and_the_next_request_answers(kind: str, fault: faulty.Fault) -> None:
    seconds = 0.2 if kind == "timeout" else 5.0
    with serve(hello, [fault]) as server, client(server, seconds=seconds) as llm:
        ledger = Ledger()
        assert llm.complete(ASK, stage="act", ledger=ledger).text == "hello"
    assert {k: v for k, v in ledger.counts.items() if k.startswith("faults.")} == {f"faults.{kind}": 1}
    assert ledger.counts["act.calls"] == 1 and len(server.received) == 2


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[f"{kind}-{f.kind}" for kind, f in FAULTS])
def test_fault_that_stays_is_an_outage(kind: str, fault: faulty.Fault) -> None:
    seconds = 0.1 if kind == "timeout" else 5.0
    with serve(hello, [fault] * 9) as server, client(server, seconds=seconds, attempts=2) as llm:
        ledger = Ledger()
        with pytest.raises(OutageError, match=f"test@.* gave no usable answer.*{kind}"):
            llm.complete(ASK, stage="act", ledger=ledger)
    assert ledger.counts[f"faults.{kind}"] == 2 == len(server.received)
    assert ledger.counts["act.calls"] == 0


def test_useless_answers_are_paid_for_and_the_seed_moves() -> None:
    with serve(hello, [faulty.no_content(), faulty.status(500)]) as server, client(server) as llm:
        ledger = Ledger()
        reply = llm.complete(ASK, stage="act", ledger=ledger, seed=3)
    seeds = [request.body["seed"] for request in server.received]
    assert seeds[0] == 3 != seeds[1] == seeds[2]
    assert ledger.counts["act.prompt_tokens"] == 10 + reply.prompt_tokens


@pytest.mark.parametrize(
    "fault",
    [
        faulty.too_many("0.3"),
        faulty.too_many("9", "300"),
        faulty.status(503, headers={"Retry-After": "0.3"}),
    ],
    ids=["seconds", "milliseconds", "503"],
)
def test_waits_as_told(fault: faulty.Fault) -> None:
    with serve(hello, [fault]) as server, client(server) as llm:
        ledger = Ledger()
        llm.complete(ASK, stage="act", ledger=ledger)
    first, second = server.received
    assert second.at - first.at >= 0.3
    assert ledger.counts["act.seconds"] >= 0.3


def test_waits_until_a_date() -> None:
    with serve(hello, lambda n, body: faulty.too_many(date) if n == 0 else None) as server:
        date = email.utils.formatdate(time.time() + 2, usegmt=True)
        with client(server) as llm:
            llm.complete(ASK, stage="act", ledger=Ledger())
    first, second = server.received
    assert second.at - first.at >= 0.9  # dates are whole seconds


def test_told_to_wait_too_long_gives_up_at_once() -> None:
    with serve(hello, [faulty.too_many("3600")]) as server, client(server) as llm:
        began = time.monotonic()
        with pytest.raises(OutageError, match="a pause of 3600 s"):
            llm.complete(ASK, stage="act", ledger=Ledger())
        assert time.monotonic() - began < 3 and len(server.received) == 1
