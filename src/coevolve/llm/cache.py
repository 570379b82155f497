"""Answers kept in the run, so that a resumed one pays nothing twice."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from coevolve.config import LlmConfig
from coevolve.llm.base import LLM, Ledger, Message, NoToolsError, OutageError, ProposedCall, Reply
from coevolve.llm.spending import Meter, estimated_prompt
from coevolve.types import Json, ToolSpec, canonical

_log = logging.getLogger(__name__)
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, reply TEXT NOT NULL, used TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS without_tools (name TEXT PRIMARY KEY);
"""


class ConfiguredLLM(LLM, Protocol):
    """An :class:`LLM` whose answers are shaped by ``config``."""

    @property
    def config(self) -> LlmConfig:
        """Its temperature and completion tokens, and the price."""


class CachedLLM:
    """``llm`` behind one SQLite file; thread-safe where ``llm`` is.

    The key of an answer is the SHA-256 of everything that shaped it: name, messages, tools, schema, seed,
    temperature, and the completion tokens that the ledger left. A cached answer is counted by stage, its
    waiting time included, as it was the first time, so that limits bite at the same place; ``cached.calls``
    counts those, and ``paid.*`` only what ``llm`` was really asked. Outages are not kept.

    A file that cannot be read is set aside as ``<name>.broken``; one that cannot be written is done without.
    Both are logged and counted (``faults.broken_cache``, ``faults.unwritten_cache``).
    """

    def __init__(self, llm: ConfiguredLLM, path: Path) -> None:
        self.llm = llm
        self.config = llm.config
        self.concurrency = llm.concurrency
        self.path = path
        self._meter = Meter.of(llm.config)
        self._lock = threading.Lock()
        self._asked: dict[str, threading.Lock] = {}
        self._closed = False
        self._broken = 0
        """Times that the file was set aside and no ledger knows of it yet."""
        self._database = self._opened()
        self._without_tools = self._read("SELECT 1 FROM without_tools WHERE name = ?", llm.name) is not None

    @property
    def name(self) -> str:
        return self.llm.name

    @property
    def native_tools(self) -> bool:
        """False too where an earlier process found that the endpoint has none."""
        return self.llm.native_tools and not self._without_tools

    def complete(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        ledger: Ledger,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Json] | None = None,
        seed: int = 0,
    ) -> Reply:
        """See :meth:`coevolve.llm.base.LLM.complete`."""
        if self._closed:
            raise OutageError(f"the client of {self.name} is closed")
        room = self._meter.room(ledger, estimated_prompt(messages, tools))
        if tools and not self.native_tools:
            raise NoToolsError(f"{self.name} takes no native tools; ask by the text protocol")
        key = self._key(messages, tools, schema, seed, room)
        with self._alone(key):
            if (found := self._found(key)) is not None:
                reply, used = found
                for what, amount in used.items():
                    ledger.counts[f"{stage}.{what}"] += amount
                ledger.counts["cached.calls"] += 1
                self._confess(ledger)
                return reply
            before = dict(ledger.counts)
            try:
                reply = self.llm.complete(
                    messages, stage=stage, ledger=ledger, tools=tools, schema=schema, seed=seed
                )
            except NoToolsError:
                self._without_tools = True
                self._write(ledger, "INSERT OR REPLACE INTO without_tools VALUES (?)", self.name)
                raise
            used = {
                name.removeprefix(f"{stage}."): amount - before.get(name, 0.0)
                for name, amount in ledger.counts.items()
                if name.startswith(f"{stage}.")
            }
            row = (key, json.dumps(asdict(reply)), json.dumps(used))
            self._write(ledger, "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", *row)
            self._confess(ledger)
            return reply

    def close(self) -> None:
        """Close the model where it can be closed, then the file; idempotent.

        In this order, so that an answer that was paid for is kept; what is asked from now on gets an
        OutageError, whichever thread asks.
        """
        with self._lock:
            self._closed = True
        if (close := getattr(self.llm, "close", None)) is not None:
            close()
        with self._lock:
            self._database.close()

    def _key(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        schema: Mapping[str, Json] | None,
        seed: int,
        room: int,
    ) -> str:
        shaped_by: list[Any] = [
            self.name,
            [dict(message) for message in messages],
            [asdict(tool) for tool in tools],
            None if schema is None else dict(schema),
            seed,
            self.config.temperature,
            room,
        ]
        return hashlib.sha256(canonical(shaped_by).encode(errors="surrogatepass")).hexdigest()

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Two threads with one question: the second takes the first one's answer."""
        with self._lock:
            asked = self._asked.setdefault(key, threading.Lock())
        try:
            with asked:
                yield
        finally:
            with self._lock:
                self._asked.pop(key, None)

    def _found(self, key: str) -> tuple[Reply, dict[str, float]] | None:
        row = self._read("SELECT reply, used FROM answers WHERE key = ?", key)
        if row is None:
            return None
        try:
            reply, used = json.loads(row[0]), json.loads(row[1])
            calls = tuple(ProposedCall(**call) for call in reply.pop("calls"))
            return replace(Reply(**reply, calls=calls), cached=True), used
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._notice(f"an answer in the cache {self.path} cannot be read ({error!r}); it is asked again")
            return None

    def _read(self, query: str, value: str) -> tuple[Any, ...] | None:
        with self._lock:
            if self._closed:  # no fault of the file: it must not be set aside
                return None
            try:
                row: tuple[Any, ...] | None = self._database.execute(query, (value,)).fetchone()
                return row
            except sqlite3.OperationalError as error:  # e.g. locked by another process
                self._notice(f"the cache of answers {self.path} cannot be read now: {error}")
            except sqlite3.DatabaseError as error:
                self._database.close()
                self._set_aside(error)
                self._database = self._opened()
            return None

    def _write(self, ledger: Ledger, statement: str, *values: str) -> None:
        with self._lock:
            try:
                self._database.execute(statement, values)
            except sqlite3.Error as error:  # the answer itself is at hand: a full disk must not lose it
                ledger.fault("unwritten_cache")
                _log.warning("the cache of answers %s cannot be written: %s", self.path, error)

    def _opened(self) -> sqlite3.Connection:
        """The file, made if need be; in memory where there cannot be one."""
        for _ in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return _connect(str(self.path))
            except (sqlite3.OperationalError, OSError) as error:
                self._notice(f"the cache of answers {self.path} cannot be opened, so none is kept: {error}")
                break
            except sqlite3.DatabaseError as error:
                self._set_aside(error)
        return _connect(":memory:")

    def _set_aside(self, error: Exception) -> None:
        """Move the file and its journal out of the way."""
        for suffix in ("", "-journal"):
            file = Path(f"{self.path}{suffix}")
            if file.exists():
                file.replace(f"{self.path}{suffix}.broken")
        self._notice(
            f"the cache of answers {self.path} is broken ({error}); it is now {self.path.name}.broken, and "
            "a new one is begun"
        )

    def _notice(self, text: str) -> None:
        self._broken += 1
        _log.warning(text)

    def _confess(self, ledger: Ledger) -> None:
        """Tell a ledger of what happened to the file while none was at hand."""
        with self._lock:
            broken, self._broken = self._broken, 0
        if broken:
            ledger.counts["faults.broken_cache"] += broken


def _connect(path: str) -> sqlite3.Connection:
    # Autocommit; threads take turns by the cache's lock.
    database = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
    try:
        columns = [column for _, column, *_ in database.execute("PRAGMA table_info(answers)")]
        if columns not in ([], ["key", "reply", "used"]):
            raise sqlite3.DatabaseError("it holds something else")
        database.executescript(_TABLES)
    except sqlite3.Error:
        database.close()
        raise
    return database
