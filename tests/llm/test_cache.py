"""Answers kept in the run: nothing is paid twice, and nothing that matters is left out of the key."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import server as faulty
from server import Server, serve

from coevolve.config import LlmConfig
from coevolve.llm.base import LLM, Ledger, Limits, NoToolsError, OutageError, SpentError
from coevolve.llm.build import build_llm
from coevolve.llm.cache import CachedLLM
from coevolve.types import ToolSpec

ASK = [{"role": "user", "content": "What next?"}]
CD = ToolSpec("cd", "Change the directory.", {"type": "object", "properties": {}})
PRICE = {"prompt": 1e6, "completion": 2e6}


def counting() -> Any:
    """A model that never says the same twice."""
    said = iter(range(1000))
    return lambda body: f"answer {next(said)}"


def cached(server: Server, path: Path, **settings: Any) -> Any:
    settings = {"model": "test", "attempts": 1, "price": PRICE, **settings}
    return build_llm(LlmConfig(base_url=server.base_url, **settings), path)


def by_stage(ledger: Ledger) -> dict[str, float]:
    other = ("paid.", "cached.", "faults.")
    return {name: value for name, value in ledger.counts.items() if not name.startswith(other)}


def test_second_run_pays_nothing_and_counts_the_same(tmp_path: Path) -> None:
    with serve(counting(), latency=0.02) as server:
        ledgers, replies = [], []
        for _ in range(2):
            llm, ledger = cached(server, tmp_path / "llm.db"), Ledger()
            replies.append(
                [llm.complete(ASK, stage=stage, ledger=ledger, seed=n) for n, stage in enumerate("ab")]
            )
            ledgers.append(ledger)
            llm.close()
    first, second = ledgers
    assert len(server.received) == 2
    assert [reply.text for reply in replies[0] + replies[1]] == ["answer 0", "answer 1"] * 2
    assert [reply.cached for reply in replies[0] + replies[1]] == [False, False, True, True]
    assert by_stage(first) == by_stage(second) and first.total("seconds") >= 0.04
    assert first.counts["paid.calls"] == 2 and first.counts["paid.money"] == first.total("money") > 0
    assert second.counts["cached.calls"] == 2
    assert not [name for name in second.counts if name.startswith("paid.")]


def test_cached_answer_is_counted_under_the_stage_that_asks(tmp_path: Path) -> None:
    with serve(counting()) as server:
        llm, ledger = cached(server, tmp_path / "llm.db"), Ledger()
        llm.complete(ASK, stage="solve", ledger=ledger)
        llm.complete(ASK, stage="safety", ledger=ledger)
        llm.close()
    assert ledger.counts["solve.calls"] == ledger.counts["safety.calls"] == 1
    assert ledger.total("calls") == 2 and ledger.counts["paid.calls"] == 1


def test_limits_bite_at_the_same_place(tmp_path: Path) -> None:
    def explore(llm: LLM) -> tuple[int, dict[str, float]]:
        ledger, said = Ledger(Limits(tokens=180)), 0
        with pytest.raises(SpentError):
            for seed in range(100):
                llm.complete(ASK, stage="act", ledger=ledger, seed=seed)
                said += 1
        return said, by_stage(ledger)

    with serve(counting()) as server:
        first, second = cached(server, tmp_path / "llm.db"), cached(server, tmp_path / "llm.db")
        alone = explore(first)
        sent = len(server.received)
        assert explore(second) == alone and alone[0] > 1
        assert len(server.received) == sent
        first.close(), second.close()


def test_everything_that_shapes_an_answer_is_in_its_key(tmp_path: Path) -> None:
    path = tmp_path / "llm.db"
    with serve(counting()) as server:

        def ask(ledger: Ledger | None = None, settings: dict[str, Any] | None = None, **given: Any) -> str:
            llm = cached(server, path, **(settings or {}))
            try:
                asked: dict[str, Any] = {"messages": ASK, **given}
                return str(llm.complete(stage="act", ledger=ledger or Ledger(), **asked).text)
            finally:
                llm.close()

        shaped: Sequence[dict[str, Any]] = [
            {},
            {"messages": [{"role": "user", "content": "What now?"}]},
            {"messages": [{"role": "system", "content": "What next?"}]},
            {"seed": 1},
            {"tools": [CD]},
            {"tools": [ToolSpec("cd", "Another description.", CD.parameters)]},
            {"schema": {"type": "object"}},
            {"settings": {"temperature": 0.5}},
            {"settings": {"model": "other"}},
            {"settings": {"tokens": 99}},
            {"ledger": Ledger(Limits(tokens=200))},
        ]
        answers = [ask(**given) for given in shaped]
        assert len(set(answers)) == len(shaped)
        assert [ask(**{**given, **fresh(given)}) for given in shaped] == answers


def fresh(given: dict[str, Any]) -> dict[str, Any]:
    return {"ledger": Ledger(given["ledger"].limits)} if "ledger" in given else {}


def test_outages_are_not_kept(tmp_path: Path) -> None:
    with serve(counting(), [faulty.status(500)]) as server:
        llm = cached(server, tmp_path / "llm.db")
        with pytest.raises(OutageError):
            llm.complete(ASK, stage="act", ledger=Ledger())
        assert llm.complete(ASK, stage="act", ledger=Ledger()).text == "answer 0"
        llm.close()


def test_calls_survive_the_cache(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "cd", "arguments": '{"folder": '}]}
    with serve(lambda body: call) as server:
        llm = cached(server, tmp_path / "llm.db")
        first, second = (llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD]) for _ in range(2))
        llm.close()
    assert first.calls == second.calls and second.calls[0].arguments == '{"folder": ' and second.cached


def test_resumed_run_knows_that_the_endpoint_has_no_tools(tmp_path: Path) -> None:
    with serve(counting(), faulty.refusing("tools", "does not support tools")) as server:
        for run in range(2):
            llm = cached(server, tmp_path / "llm.db")
            assert llm.native_tools == (run == 0)
            with pytest.raises(NoToolsError):
                llm.complete(ASK, stage="act", ledger=Ledger(), tools=[CD])
            assert not llm.native_tools
            llm.close()
        assert len(server.received) == 1


def test_threads_share_it_and_ask_the_same_only_once(tmp_path: Path) -> None:
    with serve(counting(), latency=0.05) as server:
        llm = cached(server, tmp_path / "llm.db")
        start = threading.Barrier(8)

        def ask(n: int) -> str:
            start.wait()
            return str(llm.complete(ASK, stage="act", ledger=Ledger(), seed=n % 4).text)

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, range(8)))
        llm.close()
    assert len(server.received) == 4
    assert answers[:4] == answers[4:] and len(set(answers)) == 4


@pytest.mark.parametrize("damage", ["text", "other tables"])
def test_broken_file_is_set_aside_and_said(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "llm.db"
    if damage == "text":
        path.write_text("no database at all, but something long enough to be taken for one " * 20)
    else:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE answers (something TEXT)")
        other.close()
    content = path.read_bytes()
    with serve(counting()) as server, caplog.at_level(logging.WARNING):
        llm, ledger = cached(server, path), Ledger()
        for _ in range(2):
            assert llm.complete(ASK, stage="act", ledger=ledger).text == "answer 0"
        llm.close()
    assert ledger.counts["faults.broken_cache"] == 1 and ledger.counts["cached.calls"] == 1
    assert (tmp_path / "llm.db.broken").read_bytes() == content
    assert "llm.db.broken" in caplog.text


def test_file_that_breaks_under_way_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "llm.db"
    with serve(counting()) as server:
        llm, ledger = cached(server, path), Ledger()
        for seed in range(40):
            llm.complete(ASK, stage="act", ledger=ledger, seed=seed)
        path.write_bytes(b"\xff" * path.stat().st_size)
        llm.complete(ASK, stage="act", ledger=ledger, seed=100)
        llm.complete(ASK, stage="act", ledger=ledger, seed=100)
        llm.close()
    assert ledger.counts["faults.broken_cache"] == 1 and ledger.counts["cached.calls"] == 1
    assert len(server.received) == 41


def test_one_broken_row_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "llm.db"
    with serve(counting()) as server:
        llm, ledger = cached(server, path), Ledger()
        llm.complete(ASK, stage="act", ledger=ledger)
        with sqlite3.connect(path) as other:
            other.execute("UPDATE answers SET reply = '{\"text\"'")
        other.close()
        assert llm.complete(ASK, stage="act", ledger=ledger).text == "answer 1"
        assert llm.complete(ASK, stage="act", ledger=ledger).text == "answer 1"
        llm.close()
    assert ledger.counts["faults.broken_cache"] == 1


def test_answers_come_even_where_none_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serve(counting()) as server:
        llm, ledger = cached(server, tmp_path / "file" / "llm.db"), Ledger()
        assert isinstance(llm, CachedLLM)
        assert llm.complete(ASK, stage="act", ledger=ledger).text == "answer 0"
        llm.close()
    assert ledger.counts["faults.broken_cache"] == 1
