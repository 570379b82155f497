"""An explorer without an LLM: tool schemas, live observations, and what earlier explorations taught.

Nothing of any benchmark is written here: it reads names, descriptions and schemas, tries calls,
reads error texts to find what is missing, and remembers what helped (section 3.2).
"""

from __future__ import annotations

import random
from typing import Any

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.errors import BrokenWorldError, HeldOutError
from coevolve.explore.arguments import Choice, Chooser
from coevolve.explore.base import Exploration
from coevolve.explore.corpus import Corpus
from coevolve.explore.focus import Plan, plan_from
from coevolve.explore.judge import succeeded
from coevolve.explore.memory import PORTABLE, Memory, signature
from coevolve.explore.scene import Scene
from coevolve.explore.schema import Parameter, Tool, read_tool
from coevolve.explore.words import content_words
from coevolve.types import Signal, Split, ToolCall, Triplet, World, canonical

_DEPTH = 4
"""How deep one missing thing may lead to another: a booking needs a card, which needs a token."""


class ScriptedExplorer:
    """Explores worlds of one split; deterministic given the generator and its own memory.

    Args:
        environment: where it acts.
        config: ``calls`` bounds one exploration.
        split: the only split whose worlds it accepts. The loop uses ``train``; an evaluation that
            draws its own unguided test constructs another explorer for its own split.
    """

    name = "scripted"

    def __init__(self, environment: Environment, config: ExploreConfig, split: Split = "train") -> None:
        self._environment = environment
        self._config = config
        self._split: Split = split
        self._corpus: Corpus | None = None
        self.memory = Memory()
        self.broken = 0
        """Explorations cut short because the world could no longer be compared."""

    @property
    def corpus(self) -> Corpus:
        """Values of all worlds of the split; read on first use."""
        if self._corpus is None:
            self._corpus = Corpus(self._environment, self._split)
        return self._corpus

    def explore(
        self, world: World, rng: random.Random, signal: Signal | None = None, lead: tuple[str, ...] = ()
    ) -> Exploration:
        """Act in ``world`` for at most ``config.calls`` calls.

        Unguided without ``signal`` and ``lead``. With ``lead``, first bring about a success of each
        tool in turn. With ``signal``, lead with the pattern that failed, vary it and extend it.

        Raises:
            HeldOutError: the world is not of this explorer's split.
            InfrastructureError: the world broke.
        """
        if world.split != self._split:
            raise HeldOutError(
                f"world {world.id!r} is of the {world.split} split; this explorer takes {self._split}"
            )
        tools = {spec.name: read_tool(spec) for spec in self._environment.offered(world)}
        plan = plan_from(signal, tools, rng) if signal is not None else Plan(lead=lead)
        with self._environment.open(world) as session:
            scene = Scene(session, tools, self._config.calls)
            scene.focus = [v for call in world.prefix[-3:] for v in call.arguments.values() if isinstance(v, str)]
            scout = _Scout(scene, Chooser(self.corpus, self.memory), self.memory, plan, rng)
            try:
                scout.run()
            except BrokenWorldError:
                self.broken += 1
        return Exploration(world, tuple(scene.triplets), self.name, signal, plan.lead)

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory.state_dict(), "broken": self.broken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state["memory"])
        self.broken = state["broken"]


class _Scout:
    """One exploration under way."""

    def __init__(
        self, scene: Scene, chooser: Chooser, memory: Memory, plan: Plan, rng: random.Random
    ) -> None:
        self.scene = scene
        self.chooser = chooser
        self.memory = memory
        self.plan = plan
        self.rng = rng
        self.used: dict[str, int] = {}

    def run(self) -> None:
        names = list(self.scene.tools)
        lead = [n for n in self.plan.lead if n in self.scene.tools]
        guided = bool(lead)
        while self.scene.left > 0 and names:
            for name in lead:
                if self.scene.left > 0:
                    self.bring_about(self.scene.tools[name], tries=4)
            # After the lead come calls that go on from it; it may come again with other arguments.
            follow = self._follow(names) if guided else self._any(names)
            self.bring_about(self.scene.tools[follow], tries=2)
            if guided and self.rng.random() < 0.5:
                follow = self._follow(names)
                self.bring_about(self.scene.tools[follow], tries=1)

    def _any(self, names: list[str]) -> str:
        weights = [1.0 / (1 + 2 * self.used.get(name, 0)) for name in names]
        return self.rng.choices(names, weights)[0]

    def _follow(self, names: list[str]) -> str:
        """A tool that can use what the last calls brought, or that speaks of the same things."""
        recent = self.scene.triplets[-3:]
        spoken = {w for t in recent for w in self.scene.tools[t.action.name].words}
        fresh = {f.kind for f in self.scene.answers if f.turn >= len(self.scene.triplets) - 3}
        weights = []
        for name in names:
            tool = self.scene.tools[name]
            weight = 0.3 + len(spoken & tool.words)
            weight += 2 * sum(p.kind in fresh for p in tool.parameters)
            weight *= self.plan.weights.get(name, 1.0)
            weights.append(weight / (1 + 2 * self.used.get(name, 0)))
        return self.rng.choices(names, weights)[0]

    # -- one tool --------------------------------------------------------------------------------

    def bring_about(
        self, tool: Tool, tries: int, depth: int = 0, stack: tuple[str, ...] = (), hint: str = ""
    ) -> bool:
        """Try to make ``tool`` succeed: choose arguments, read errors, call what they ask for."""
        stack = (*stack, tool.name)
        error = ""
        if depth == 0:
            self._create_first(tool, depth, stack)
            self._fetch_first(tool, depth, stack)
        repaired_by: list[str] = []
        for attempt in range(tries):
            choice = self.chooser.choose(tool, self.scene, self.rng, hint)
            if choice.missing is not None:
                if not self._provide(choice.missing, tool, depth, stack):
                    return False
                continue
            call = ToolCall(tool.name, choice.arguments)
            if canonical([call.name, call.arguments]) in self.scene.tried:
                continue
            if self.scene.left <= 0:
                return False
            triplet = self.scene.act(call)
            if succeeded(triplet):
                self._credit(tool, choice, triplet, error, repaired_by)
                return True
            hint = triplet.observation.error or triplet.observation.text
            error = signature(hint)
            self.memory.failure(tool.name)
            for key in choice.credits:
                self.memory.sourced(key, False)
            if attempt + 1 < tries and depth < _DEPTH:
                repaired_by += self._repair(tool, hint, error, depth, stack)
        return False

    def _credit(
        self, tool: Tool, choice: Choice, triplet: Triplet, error: str, repaired_by: list[str]
    ) -> None:
        self.used[tool.name] = self.used.get(tool.name, 0) + 1
        self.memory.success(tool.name, choice.arguments, choice.portable)
        for key in choice.credits:
            self.memory.sourced(key, True)
        if error and repaired_by:
            self.memory.repaired(tool.name, error, repaired_by[-1])
        for kind, _ in self.scene.created:
            self.memory.created(kind, tool.name)
        turn = len(self.scene.triplets) - 1
        for found in self.scene.answers:
            if found.turn == turn and isinstance(found.value, str) and found.kind in PORTABLE:
                self.memory.remember(found.kind, found.value)

    def _create_first(self, tool: Tool, depth: int, stack: tuple[str, ...]) -> None:
        """At times make a new thing of the kind that the tool works on: variety beyond the world's own."""
        for parameter in tool.parameters:
            makers = self.memory.creators.get(parameter.kind, {})
            known = [n for n in sorted(makers) if n in self.scene.tools and n not in stack]
            if parameter.required and known and self.rng.random() < 0.4:
                # One with a text beside the name leaves something to read.
                weights = [3.0 if _writes(self.scene.tools[n]) else 1.0 for n in known]
                self.bring_about(self.scene.tools[self.rng.choices(known, weights)[0]], 2, depth + 1, stack)
                return

    def _fetch_first(self, tool: Tool, depth: int, stack: tuple[str, ...]) -> None:
        """At times look a value up before using it: get X, then use X."""
        for parameter in tool.parameters:
            if parameter.required and _looked_up(parameter.kind) and self.rng.random() < 0.3:
                fresh = any(f.kind == parameter.kind for f in self.scene.answers)
                if not fresh:
                    self._provide(parameter, tool, depth, stack)
                    return

    def _provide(self, parameter: Parameter, tool: Tool, depth: int, stack: tuple[str, ...]) -> bool:
        """Call a tool whose answer holds this kind of value."""
        if depth >= _DEPTH:
            return False
        makers = [
            t
            for t in self.scene.tools.values()
            if t.name not in stack and any(f.kind == parameter.kind for f in t.produces)
        ]
        makers.sort(key=lambda t: (t.spec.group != tool.spec.group, len(t.parameters), self.rng.random()))
        return any(self.bring_about(m, 2, depth + 1, stack) for m in makers[: 1 + (self.rng.random() < 0.5)])

    def _repair(self, tool: Tool, hint: str, error: str, depth: int, stack: tuple[str, ...]) -> list[str]:
        """Call the tool that the error text asks for, as far as words and experience tell."""
        helper = self._helper(tool, hint, error, stack)
        if helper is None or self.scene.left <= 0:
            return []
        return [helper.name] if self.bring_about(helper, 3, depth + 1, stack, hint) else []

    def _helper(self, tool: Tool, hint: str, error: str, stack: tuple[str, ...]) -> Tool | None:
        known = self.memory.repairs.get(f"{tool.name}|{error}", {})
        asked = set(content_words(hint))
        scored: list[tuple[float, str]] = []
        for other in self.scene.tools.values():
            if other.name in stack or other.spec.group != tool.spec.group:
                continue
            overlap = len(asked & other.words) / (2 + len(other.words)) ** 0.5
            score = overlap + 3 * known.get(other.name, 0) / (1 + sum(known.values()))
            score += self.rng.random() * 0.3
            scored.append((score, other.name))
        best = max(scored, default=(0.0, ""))
        return self.scene.tools[best[1]] if best[0] > 0.45 else None


def _writes(tool: Tool) -> bool:
    return any(p.kind == "text" for p in tool.parameters)


def _looked_up(kind: str) -> bool:
    return kind.startswith("id") or kind in ("airport", "zip", "symbol", "token")
