"""An explorer that asks a model for each call, and the model: made-up answers after a while.

The answers depend on what is asked and on nothing else; how long they take is the test's choice.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from coevolve.config import EvolveConfig, ExploreConfig, SignalsConfig
from coevolve.environments.base import Environment
from coevolve.explore.base import Exploration
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.llm.base import Ledger, Limits, Message, OutageError, Reply, SpentError
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.synthesize.base import Verifier
from coevolve.types import Json, Signal, ToolCall, ToolSpec, Triplet, World, canonical
from keyvalue import KEYS, KeyValue

CALLS = 5
"""Answers that one whole exploration takes."""
TOKENS = 100
"""Of one answer with its prompt, at most."""


def at_once() -> None:
    pass


def soon(seed: int, most: float = 0.004) -> Callable[[], None]:
    """Answers come after a random while, drawn apart from everything else."""
    rng = random.Random(f"latency/{seed}")
    return lambda: time.sleep(rng.random() * most)


class Oracle:
    """A language model: an answer is drawn from what was asked."""

    name = "oracle"
    native_tools = False
    concurrency = 8

    def __init__(self, latency: Callable[[], None] = at_once, faulty: float = 0.0) -> None:
        self.latency = latency
        self.faulty = faulty
        """Share of questions that are never answered."""

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
        ledger.must_have_left()
        self.latency()
        rng = random.Random(canonical([list(map(dict, messages)), stage, seed]))
        if rng.random() < self.faulty:
            ledger.fault("connection")
            raise OutageError("the oracle is silent")
        prompt, completion = rng.randrange(40, 80), rng.randrange(5, TOKENS - 80)
        ledger.counts[f"{stage}.calls"] += 1
        ledger.counts[f"{stage}.prompt_tokens"] += prompt
        ledger.counts[f"{stage}.completion_tokens"] += completion
        ledger.counts[f"{stage}.money"] += (prompt + completion) / 1000
        text = " ".join(
            [rng.choice(["put", "put", "get", "delete"]), rng.choice(list(map(str, KEYS))), rng.choice("rgb")]
        )
        return Reply(text, (), "stop", prompt, completion)


class Asker:
    """Asks for one call after the other; remembers nothing, so that several may explore side by side."""

    name = "asker"

    def __init__(self, environment: Environment, llm: Oracle, thrifty: bool = True) -> None:
        self.environment = environment
        self.llm = llm
        self.thrifty = thrifty
        """Keeps what was found before the budget ended."""
        self.exploring = 0
        self.most = 0
        """Explorations that ever were side by side."""
        self.begun = 0
        self._lock = threading.Lock()

    def explore(
        self,
        world: World,
        rng: random.Random,
        signal: Signal | None = None,
        lead: tuple[str, ...] = (),
        ledger: Ledger | None = None,
    ) -> Exploration:
        with self._lock:
            self.begun += 1
            self.exploring += 1
            self.most = max(self.most, self.exploring)
        try:
            return self._explore(world, rng, signal, ledger or Ledger())
        finally:
            with self._lock:
                self.exploring -= 1

    def _explore(
        self, world: World, rng: random.Random, signal: Signal | None, ledger: Ledger
    ) -> Exploration:
        triplets: list[Triplet] = []
        asked: list[Message] = [{"role": "user", "content": f"Explore {world.id}, {signal and signal.id}."}]
        seed = rng.randrange(2**31)
        with self.environment.open(world) as session:
            for _ in range(CALLS):
                try:
                    reply = self.llm.complete(asked, stage="act", ledger=ledger, seed=seed)
                except SpentError:
                    if self.thrifty:
                        break
                    raise
                name, key, colour = reply.text.split()
                value = {"r": "red", "g": "green", "b": "blue"}[colour]
                call = ToolCall(name, {"key": key, **({"value": value} if name == "put" else {})})
                before = session.fingerprint()
                observation, after = session.step(call)
                triplets.append(Triplet(before, call, observation, after))
                asked += [
                    {"role": "assistant", "content": reply.text},
                    {"role": "user", "content": observation.text},
                ]
        return Exploration(world, tuple(triplets), self.name, signal)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Made:
    """A loop in the key-value store, with an asking or a scripted explorer, strict replay and templates."""

    def __init__(
        self,
        path: Path,
        explorer: Literal["asker", "scripted"] = "asker",
        latency: Callable[[], None] = at_once,
        *,
        faulty: float = 0.0,
        thrifty: bool = True,
        concurrency: int = 1,
        limits: Limits | None = None,
        verifier: Callable[[Environment, Pool], Verifier] | None = None,
        fresh: bool = True,
        **evolve: Any,
    ) -> None:
        self.environment = KeyValue()
        self.pool = Pool.open(path, fresh=fresh)
        self.llm = Oracle(latency, faulty)
        self.asker = Asker(self.environment, self.llm, thrifty)
        self.loop = CoEvolution(
            self.environment,
            self.pool,
            SignalsConfig(),
            self.asker if explorer == "asker" else Delayed(self.environment, latency),
            verifier=None if verifier is None else partial(verifier, self.environment),
            evolve=EvolveConfig.model_validate({"every": 4, "tasks": 4} | evolve),
            concurrency=concurrency,
            limits=limits,
        )

    def facts(self) -> dict[str, float]:
        """All counters but times."""
        return {k: v for k, v in self.pool.counters().items() if not k.startswith("seconds.")}

    def used(self, what: str) -> float:
        """Calls, tokens or money over the whole run."""
        ledger = Ledger()
        ledger.counts |= {
            name.removeprefix("llm."): value
            for name, value in self.pool.counters().items()
            if name.startswith("llm.")
        }
        return ledger.total(what)


class Delayed(ScriptedExplorer):
    """The scripted explorer, a while later."""

    def __init__(self, environment: Environment, latency: Callable[[], None]) -> None:
        super().__init__(environment, ExploreConfig())
        self._latency = latency

    def explore(self, *given: Any, **named: Any) -> Exploration:
        self._latency()
        return super().explore(*given, **named)


@contextmanager
def made(path: Path, *given: Any, **named: Any) -> Iterator[Made]:
    parts = Made(path, *given, **named)
    try:
        yield parts
    finally:
        parts.loop.close()
        parts.pool.close()
