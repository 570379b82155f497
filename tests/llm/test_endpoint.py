"""The client of an OpenAI-compatible endpoint, over real HTTP, with each fault injected."""

from __future__ import annotations

import contextlib
import email.utils
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import server as faulty
from hypothesis import given, settings
from hypothesis import strategies as st
from server import Server, serve

from coevolve.config import LlmConfig
from coevolve.errors import ConfigError
from coevolve.llm.base import Ledger, Limits, NoToolsError, OutageError, SpentError, TooLongError
from coevolve.llm.endpoint import Endpoint
from coevolve.llm.faults import AnswerFault, read_answer, retry_after
from coevolve.types import ToolSpec

ASK = [{"role": "system", "content": "You explore."}, {"role": "user", "content": "What next?"}]
CD = ToolSpec("cd", "Change the directory.", {"type": "object", "properties": {"folder": {"type": "string"}}})


def hello(body: dict[str, Any]) -> str:
    return "hello"


@contextlib.contextmanager
def client(server: Server | str, back_off: float = 0.01, **settings: Any) -> Iterator[Endpoint]:
    url = server if isinstance(server, str) else server.base_url
    settings = {"model": "test", "attempts": 3, **settings}
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
    ("timeout", faulty.silent()),
    ("timeout", faulty.dribble()),
    ("bad_call", faulty.status(400, "Failed to call a function.", code="tool_use_failed")),
]


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[f"{kind}-{f.kind}" for kind, f in FAULTS])
def test_fault_is_counted_and_the_next_request_answers(kind: str, fault: faulty.Fault) -> None:
    seconds = 1.0 if kind == "timeout" else 60.0
    with serve(hello, [fault]) as server, client(server, seconds=seconds) as llm:
        ledger = Ledger()
        assert llm.complete(ASK, stage="act", ledger=ledger).text == "hello"
    assert {k: v for k, v in ledger.counts.items() if k.startswith("faults.")} == {f"faults.{kind}": 1}
    assert ledger.counts["act.calls"] == 1
    assert len(server.received) == 2 or kind == "timeout"


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[f"{kind}-{f.kind}" for kind, f in FAULTS])
def test_fault_that_stays_is_an_outage(kind: str, fault: faulty.Fault) -> None:
    seconds = 0.1 if kind == "timeout" else 60.0
    with serve(hello, [fault] * 9) as server, client(server, seconds=seconds, attempts=2) as llm:
        ledger = Ledger()
        with pytest.raises(OutageError, match=f"test@.* gave no usable answer.*{kind}"):
            llm.complete(ASK, stage="act", ledger=ledger)
    assert ledger.counts[f"faults.{kind}"] == 2 and ledger.counts["act.calls"] == 0
    assert len(server.received) == 2 or kind == "timeout"  # which may come before the request arrives


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
    dates: list[float] = []
    answered: list[float] = []

    def later(number: int, body: dict[str, Any]) -> faulty.Fault | None:
        if number:
            answered.append(time.time())
            return None
        dates.append(int(time.time()) + 2.0)
        return faulty.too_many(email.utils.formatdate(dates[0], usegmt=True))

    with serve(hello, later) as server, client(server) as llm:
        llm.complete(ASK, stage="act", ledger=Ledger())
    assert answered[0] >= dates[0]


def test_told_to_wait_too_long_gives_up_at_once() -> None:
    with serve(hello, [faulty.too_many("3600")]) as server, client(server) as llm:
        ledger = Ledger()
        with pytest.raises(OutageError, match="a pause of 3600 s"):
            llm.complete(ASK, stage="act", ledger=ledger)
        assert ledger.counts["act.seconds"] < 60 and len(server.received) == 1


def test_dead_endpoint_ends_in_time() -> None:
    """Nobody listens, or somebody listens and never answers: attempts times seconds at most."""
    with serve(hello) as server:
        pass
    ledger = Ledger()
    with client(server) as llm, pytest.raises(OutageError, match="3 requests"):
        llm.complete(ASK, stage="act", ledger=ledger)
    assert ledger.counts["faults.connection"] == 3
    ledger = Ledger()
    with (
        serve(hello, lambda n, body: faulty.silent()) as server,
        client(server, seconds=0.2) as llm,
        pytest.raises(OutageError),
    ):
        llm.complete(ASK, stage="act", ledger=ledger)
    assert 0.5 <= ledger.counts["act.seconds"] < 30
    assert ledger.counts["faults.timeout"] >= 2


def test_requests_at_once_stay_within_the_limit() -> None:
    with serve(hello, latency=0.1) as server, client(server, concurrency=3) as llm:
        ledgers = [Ledger() for _ in range(9)]
        began = time.monotonic()
        with ThreadPoolExecutor(9) as threads:
            replies = list(threads.map(lambda led: llm.complete(ASK, stage="act", ledger=led), ledgers))
        took = time.monotonic() - began
    assert len(replies) == 9 == len(server.received)
    assert server.most_at_once == 3
    # Waiting for a turn does not count: limits would bite by how many others ask.
    assert 0.9 <= sum(ledger.counts["act.seconds"] for ledger in ledgers) <= 3 * took


def test_limits_are_looked_at_before_each_request() -> None:
    with serve(hello) as server, client(server) as llm:
        ledger = Ledger(Limits(calls=2))
        for _ in range(2):
            llm.complete(ASK, stage="act", ledger=ledger)
        with pytest.raises(SpentError, match="2 calls"):
            llm.complete(ASK, stage="act", ledger=ledger)
        assert len(server.received) == 2 and ledger.counts["faults.spent_calls"] == 1


def test_limits_are_looked_at_between_retries() -> None:
    with serve(hello, [faulty.no_content()] * 9) as server, client(server, attempts=9) as llm:
        ledger = Ledger(Limits(tokens=100))
        with pytest.raises(SpentError, match="100 tokens"):
            llm.complete(ASK, stage="act", ledger=ledger)
    assert 1 < len(server.received) < 9
    assert ledger.total("tokens") == 15 * len(server.received)


def test_an_answer_may_take_what_is_left() -> None:
    with serve(hello) as server, client(server, price={"completion": 1e6}) as llm:
        llm.complete(ASK, stage="act", ledger=Ledger(Limits(tokens=200)))
        llm.complete(ASK, stage="act", ledger=Ledger(Limits(money=50)))
        tokens, money = (request.body["max_tokens"] for request in server.received)
        assert 100 < tokens < 200 and money == 50
        with pytest.raises(SpentError, match="the next prompt takes about"):
            llm.complete(ASK, stage="act", ledger=Ledger(Limits(tokens=30)))
        with pytest.raises(SpentError, match="in money"):
            llm.complete(ASK, stage="act", ledger=Ledger(Limits(money=5)))
        assert len(server.received) == 2


def test_time_that_is_left_is_the_deadline() -> None:
    ledger = Ledger(Limits(seconds=0.3))
    with serve(hello, [faulty.silent()] * 3) as server, client(server) as llm:
        with pytest.raises(SpentError):
            llm.complete(ASK, stage="act", ledger=ledger)
        assert len(server.received) <= 1
    assert 0.3 <= ledger.counts["act.seconds"] < 30 and ledger.counts["faults.spent_seconds"] == 1
    ledger = Ledger(Limits(seconds=50))
    with (
        serve(hello, [faulty.too_many("90")]) as server,
        client(server) as llm,
        pytest.raises(SpentError, match="left to wait"),
    ):
        llm.complete(ASK, stage="act", ledger=ledger)
    assert ledger.counts["act.seconds"] < 50


def test_tools_go_over_and_calls_come_back() -> None:
    def call(body: dict[str, Any]) -> dict[str, Any]:
        return {"content": "Going.", "tool_calls": [{"id": "a1", "name": "cd", "arguments": {"folder": "x"}}]}

    with serve(call) as server, client(server) as llm:
        reply = llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD])
        [made] = reply.calls
        then = [
            *ASK,
            {
                "role": "assistant",
                "content": reply.text,
                "tool_calls": [
                    {
                        "id": made.id,
                        "type": "function",
                        "function": {"name": made.name, "arguments": made.arguments},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": made.id, "content": "ok"},
        ]
        llm.complete(then, stage="act", ledger=Ledger(), tools=[CD])
    assert (reply.text, made.id, made.name, json.loads(made.arguments)) == (
        "Going.",
        "a1",
        "cd",
        {"folder": "x"},
    )
    assert server.received[0].body["tools"] == [
        {
            "type": "function",
            "function": {"name": "cd", "description": CD.description, "parameters": CD.parameters},
        }
    ]
    assert server.received[1].body["messages"] == then


def test_broken_arguments_are_handed_on_as_they_are() -> None:
    broken = {"tool_calls": [{"name": "cd", "arguments": '{"folder": '}]}
    with serve(lambda body: broken) as server, client(server) as llm:
        reply = llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD])
    assert reply.calls[0].arguments == '{"folder": ' and reply.text == ""


REFUSALS = [
    (400, "registry/library/gemma does not support tools"),
    (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (404, "No endpoints found that support tool use."),
    (500, "tools param requires --jinja flag"),
    (422, "Extra inputs are not permitted: tools"),
]


@pytest.mark.parametrize(("code", "message"), REFUSALS)
def test_endpoint_without_tools_is_asked_by_text_from_then_on(code: int, message: str) -> None:
    with serve(hello, faulty.refusing("tools", message, code)) as server, client(server) as llm:
        ledger = Ledger()
        with pytest.raises(NoToolsError):
            llm.complete(ASK, stage="act", ledger=ledger, tools=[CD])
        assert not llm.native_tools
        assert llm.complete(ASK, stage="act", ledger=ledger).text == "hello"
        with pytest.raises(NoToolsError):
            llm.complete(ASK, stage="act", ledger=ledger, tools=[CD])
        assert len(server.received) == 2 and ledger.counts["faults.no_native_tools"] == 1


def test_complaint_about_a_call_does_not_end_native_tools() -> None:
    complaint = faulty.status(400, "messages with role 'tool' must follow 'tool_calls'")
    with serve(hello, [None, complaint]) as server, client(server) as llm:
        llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD])
        with pytest.raises(OutageError, match="must follow"):
            llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD])
        assert llm.native_tools


def test_tools_by_configuration() -> None:
    with serve(hello, faulty.refusing("tools", "no tools here")) as server:
        with client(server, tools="text") as llm:
            assert not llm.native_tools
        with client(server, tools="native") as llm, pytest.raises(ConfigError, match=r"llm\.tools"):
            llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD])


@pytest.mark.parametrize(
    ("part", "message", "fault"),
    [
        ("response_format", "'response_format' of type 'json_schema' is not supported", "no_json_schema"),
        ("seed", 'Invalid JSON payload received. Unknown name "seed"', "no_seed"),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5", "no_temperature"),
        ("max_tokens", "Unsupported parameter. Use 'max_completion_tokens' instead.", "no_max_tokens"),
    ],
)
def test_refused_part_is_left_out_from_then_on(part: str, message: str, fault: str) -> None:
    with serve(hello, faulty.refusing(part, message)) as server, client(server, attempts=1) as llm:
        ledger = Ledger()
        for _ in range(2):
            reply = llm.complete(ASK, stage="act", ledger=ledger, schema={"type": "object"})
            assert reply.text == "hello"
    bodies = [request.body for request in server.received]
    assert [part in body for body in bodies] == [True, False, False]
    assert ledger.counts[f"faults.{fault}"] == 1
    assert bodies[0]["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (bodies[-1].get("max_completion_tokens") is not None) == (part == "max_tokens")


def test_missing_usage_is_estimated() -> None:
    with serve(lambda body: "x" * 400, [faulty.no_usage()]) as server, client(server) as llm:
        ledger = Ledger()
        reply = llm.complete(ASK, stage="act", ledger=ledger)
    assert reply.completion_tokens == 100 and 10 < reply.prompt_tokens < 100
    assert ledger.counts["faults.no_usage"] == 1 and ledger.counts["paid.tokens"] == ledger.total("tokens")


@pytest.mark.parametrize("code", [401, 403, 404])
def test_wrong_configuration_is_said_at_once(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    fault = faulty.status(code, "Incorrect API key provided: sk-secret")
    with serve(hello, [fault]) as server, client(server, key="MY_KEY") as llm:
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1.*'test'.*MY_KEY") as refused:
            llm.complete(ASK, stage="act", ledger=Ledger())
        assert "sk-secret" not in str(refused.value)
        assert server.received[0].headers["authorization"] == "Bearer sk-secret"


def test_endpoint_that_has_answered_is_configured_rightly() -> None:
    with serve(hello, [None, faulty.status(404, "model unloaded")]) as server, client(server) as llm:
        llm.complete(ASK, stage="act", ledger=Ledger())
        with pytest.raises(OutageError, match="model unloaded"):
            llm.complete(ASK, stage="act", ledger=Ledger())


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (faulty.status(400, "This model's maximum context length is 4096 tokens"), "context_too_long"),
        (faulty.status(400, "the request exceeds the available context size"), "context_too_long"),
        (faulty.status(413, "Prompt is too long"), "context_too_long"),
        (faulty.status(400, "bad request"), "refused"),
        (faulty.status(402, "no credits"), "refused"),
        (faulty.status(429, "You exceeded your quota", code="insufficient_quota"), "refused"),
    ],
)
def test_refused_request_is_not_sent_again(fault: faulty.Fault, kind: str) -> None:
    with serve(hello, [fault] * 3) as server, client(server) as llm:
        ledger = Ledger()
        with pytest.raises(OutageError, match="refuses the request") as caught:
            llm.complete(ASK, stage="act", ledger=ledger)
        assert isinstance(caught.value, TooLongError) == (kind == "context_too_long")
        assert len(server.received) == 1 and ledger.counts[f"faults.{kind}"] == 1


def test_closed_client_lets_nobody_wait() -> None:
    with serve(hello, lambda n, body: faulty.silent()) as server, client(server) as llm:
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(llm.complete, ASK, stage="act", ledger=Ledger())
            while not server.received:
                time.sleep(0.01)
            llm.close()
            with pytest.raises(OutageError, match="closed"):
                asked.result(timeout=60)
        with pytest.raises(OutageError, match="closed"):
            llm.complete(ASK, stage="act", ledger=Ledger())


def test_damaged_text_of_a_model_reaches_the_caller_as_it_is() -> None:
    """Fences, cut JSON and wrong types are the reader's matter; the server can make them."""
    plan = json.dumps({"steps": ["a", "b"], "n": 1})
    faults = [faulty.fenced(), faulty.truncated(), faulty.wrong_types()]
    with serve(lambda body: plan, faults) as server, client(server) as llm:
        fenced, cut, wrong = [llm.complete(ASK, stage="act", ledger=Ledger()) for _ in faults]
    assert f"```json\n{plan}\n```" in fenced.text
    assert plan.startswith(cut.text) and cut.finish == "length"
    assert json.loads(wrong.text) == {"steps": {"value": ["a", "b"]}, "n": [1]}


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "http://", "http://[::1", "http://host:99999/v1", "http://my host/v1"]
)
def test_base_url_must_be_one(url: str) -> None:
    with pytest.raises(ConfigError, match=r"llm\.base_url: .* is no address"):
        Endpoint(LlmConfig(base_url=url, model="m"))


def test_name_tells_no_secret() -> None:
    endpoint = Endpoint(LlmConfig(base_url="http://user:secret@host:1/v1?key=secret", model="m"))
    assert endpoint.name == "m@http://host:1/v1"
    endpoint.close()


def test_half_a_character_breaks_nothing() -> None:
    """JSON can spell what UTF-8 cannot hold; a model or a tool that writes it must not end the run."""
    said = {"content": "a\ud800b", "tool_calls": [{"name": "cd", "arguments": {"folder": "\udfff"}}]}
    with serve(lambda body: said) as server, client(server) as llm:
        asked = [{"role": "user", "content": "x\ud800y"}]
        reply = llm.complete(asked, stage="act", ledger=Ledger(), tools=[CD])
    assert reply.text == "a?b" and json.loads(reply.calls[0].arguments) == {"folder": "\udfff"}
    assert server.received[0].body["messages"] == [{"role": "user", "content": "x?y"}]


SHAPES = st.sampled_from(
    ["choices", "message", "content", "tool_calls", "function", "name", "arguments", "error", "usage", "text"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHAPES, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON)
def test_any_body_is_an_answer_or_a_fault(body: Any) -> None:
    inside = {"message": {"content": None, "tool_calls": [{"id": 1, "function": body}]}}
    for whole in (
        body,
        {"choices": body, "usage": body},
        {"choices": [{"message": body}], "usage": {"prompt_tokens": body, "completion_tokens": body}},
        {"choices": [{"message": {"content": body, "tool_calls": body}}]},
        {"choices": [inside]},
    ):
        try:
            reply, usage = read_answer(json.dumps(whole).encode())
        except AnswerFault as fault:
            assert fault.kind in ("error_body", "empty_choices", "wrong_shape", "empty_content")
        else:
            assert reply.text.strip() or reply.calls
            assert usage is None or min(usage) >= 0


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_a_fault(body: bytes) -> None:
    with contextlib.suppress(AnswerFault):
        read_answer(body)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_retry_after_is_a_time_or_nothing(text: str) -> None:
    told = retry_after({"retry-after": text, "retry-after-ms": text})
    assert told is None or 0 <= told < float("inf")
