"""One exploration under way: choose a tool, make it succeed, read errors, call what they ask for."""

from __future__ import annotations

import random

from coevolve.explore.arguments import Choice, Chooser
from coevolve.explore.focus import Plan
from coevolve.explore.judge import informative, succeeded
from coevolve.explore.memory import PORTABLE, Memory, signature
from coevolve.explore.scene import Scene
from coevolve.explore.schema import Parameter, Tool
from coevolve.explore.words import content_words
from coevolve.types import Json, ToolCall, canonical

_DEPTH = 4
"""How deep one missing thing may lead to another: a booking needs a card, which needs a token."""
_ENOUGH = 0.45
"""From this score on, an error text is taken to speak of a tool."""


class Scout:
    """Acts in one scene by one plan; everything it learns goes into the memory."""

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
        """Until the scene's budget is spent."""
        names = list(self.scene.tools)
        lead = [n for n in self.plan.lead if n in self.scene.tools]
        idle = 0
        while self.scene.left > 0 and names and idle < 50:
            before = len(self.scene.triplets)
            for name in lead:
                if self.scene.left > 0:
                    self.bring_about(self.scene.tools[name], tries=4)
            # After the lead come calls that go on from it; it may come again with other arguments.
            follow = self._follow(names) if lead else self._any(names)
            self.bring_about(self.scene.tools[follow], tries=2)
            if lead and self.rng.random() < 0.5:
                self.bring_about(self.scene.tools[self._follow(names)], tries=1)
            idle = 0 if len(self.scene.triplets) > before else idle + 1

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
        self,
        tool: Tool,
        tries: int,
        stack: tuple[str, ...] = (),
        hint: str = "",
        forced: dict[str, Json] | None = None,
    ) -> bool:
        """Try to make ``tool`` succeed, and where it only asks, to make it answer something.

        Args:
            tries: calls of the tool itself; what it takes to repair errors comes on top.
            stack: the tools for whose sake this one is called, outermost first.
            hint: the error that led here.
            forced: arguments that are settled, by parameter name or kind.
        """
        depth, stack = len(stack), (*stack, tool.name)
        if depth == 0:
            self._create_first(tool, stack) or self._fetch_first(tool, stack)
        error, helper = "", ToolCall("")
        attempt, errors = 0, set[str]()
        while attempt < tries:
            attempt += 1
            choice = self.chooser.choose(tool, self.scene, self.rng, hint, forced)
            if choice.missing is not None:
                if not self._provide(choice.missing, tool, stack):
                    return False
                continue
            call = ToolCall(tool.name, choice.arguments)
            if canonical([call.name, call.arguments]) in self.scene.tried:
                continue
            if self.scene.left <= 0:
                return False
            triplet = self.scene.act(call)
            worked = succeeded(triplet)
            hint = triplet.observation.error or triplet.observation.text
            found = "" if worked else signature(hint)
            if error and helper.name and found != error:
                # The helper's call did it: the error is gone, or another one has come to light.
                self.memory.repaired(tool.name, error, helper.name, helper.arguments)
            error, helper = found, ToolCall("")
            if worked:
                self._credit(tool, choice)
                if triplet.changed or informative(triplet) or self.scene.moved:
                    return True
                if attempt < tries:
                    self._enrich(call, tool, stack)
                continue
            self._blame(tool, choice)
            if error not in errors and errors and attempt > 1:
                tries += 1  # another error than before: something was put right
            errors.add(error)
            if attempt < tries and depth < _DEPTH:
                helper = self._walk_to(call, stack) or self._repair(tool, hint, error, stack)
        return False

    def _credit(self, tool: Tool, choice: Choice) -> None:
        self.used[tool.name] = self.used.get(tool.name, 0) + 1
        self.memory.success(tool.name, choice.arguments, choice.portable)
        for key in choice.credits:
            self.memory.sourced(key, True)
        for kind, _ in self.scene.created:
            self.memory.created(kind, tool.name)
        if self.scene.moved and choice.arguments:
            self.memory.movers[tool.name] = self.memory.movers.get(tool.name, 0) + 1
        turn = len(self.scene.triplets) - 1
        for found in self.scene.answers:
            if found.turn == turn and isinstance(found.value, str) and found.kind in PORTABLE:
                self.memory.remember(found.kind, found.value)

    def _blame(self, tool: Tool, choice: Choice) -> None:
        self.memory.failure(tool.name)
        for key in choice.credits:
            self.memory.sourced(key, False)

    # -- what a tool may need first --------------------------------------------------------------

    def _create_first(self, tool: Tool, stack: tuple[str, ...]) -> bool:
        """At times make a new thing of the kind that the tool works on: variety beyond the world's own."""
        for parameter in tool.parameters:
            makers = self.memory.creators.get(parameter.kind, {})
            known = [n for n in sorted(makers) if n in self.scene.tools and n not in stack]
            if parameter.required and known and self.rng.random() < 0.4:
                weights = [makers[n] for n in known]
                maker = self.scene.tools[self.rng.choices(known, weights)[0]]
                return self.bring_about(maker, 2, stack)
        return False

    def _fetch_first(self, tool: Tool, stack: tuple[str, ...]) -> bool:
        """At times look a value up before using it: get X, then use X."""
        for parameter in tool.parameters:
            if parameter.required and _looked_up(parameter.kind) and self.rng.random() < 0.35:
                fresh = any(f.kind == parameter.kind for f in self.scene.answers)
                return not fresh and self._provide(parameter, tool, stack)
        return False

    def _provide(self, parameter: Parameter, tool: Tool, stack: tuple[str, ...]) -> bool:
        """Call a tool whose answer holds this kind of value."""
        if len(stack) > _DEPTH:
            return False
        makers = [
            t
            for t in self.scene.tools.values()
            if t.name not in stack and any(f.kind == parameter.kind for f in t.produces)
        ]
        makers.sort(key=lambda t: (t.spec.group != tool.spec.group, len(t.parameters), self.rng.random()))
        return any(self.bring_about(m, 2, stack) for m in makers[: 1 + (self.rng.random() < 0.5)])

    def _enrich(self, call: ToolCall, tool: Tool, stack: tuple[str, ...]) -> bool:
        """The answer was empty: write something into the thing that was asked about."""
        for parameter in tool.parameters:
            value = call.arguments.get(parameter.name)
            if parameter.kind not in ("file", "folder") or not isinstance(value, str):
                continue
            writers = [
                t
                for t in self.scene.tools.values()
                if t.name not in stack
                and any(p.kind == "text" for p in t.parameters)
                and any(p.kind == parameter.kind for p in t.parameters)
            ]
            if writers:
                return self.bring_about(self.rng.choice(writers), 1, stack, forced={parameter.kind: value})
        return False

    # -- repairs ---------------------------------------------------------------------------------

    def _walk_to(self, call: ToolCall, stack: tuple[str, ...]) -> ToolCall | None:
        """Go to where the state says that a named thing is, with tools that moved before."""
        movers = [n for n in sorted(self.memory.movers) if n in self.scene.tools and n not in stack]
        if not movers:
            return None
        named = [v for v in call.arguments.values() if isinstance(v, str)]
        for item in self.scene.state:
            if item.value in named and item.kind in ("file", "folder"):
                chain = [p for p in item.path[:-1] if self.scene.known.get(p) == "folder"]
                here = list(self.scene.place[1:])
                if chain[: len(here)] != here:
                    continue
                for step in chain[len(here) :]:
                    mover = self.scene.tools[self.rng.choice(movers)]
                    if not self.bring_about(mover, 1, stack, forced={"folder": step}):
                        break
                return ToolCall("")
        return None

    def _repair(self, tool: Tool, hint: str, error: str, stack: tuple[str, ...]) -> ToolCall:
        """Call the tool that the error text asks for, as far as words and experience tell."""
        helper = self._helper(tool, hint, error, stack)
        if helper is None or self.scene.left <= 0:
            return ToolCall("")
        remedies = self.memory.remedies.get(f"{tool.name}|{error}|{helper.name}", [])
        forced = self.rng.choice(remedies) if remedies and self.rng.random() < 0.8 else None
        if not self.bring_about(helper, 3, stack, hint, forced):
            return ToolCall("")
        done = next(t.action for t in reversed(self.scene.triplets) if t.action.name == helper.name)
        plain = {p.name for p in helper.parameters if p.type == "boolean" or p.options or _listed(p)}
        plain |= {p.name for p in helper.parameters if p.low is not None}
        return ToolCall(helper.name, {n: v for n, v in done.arguments.items() if n in plain})

    def _helper(self, tool: Tool, hint: str, error: str, stack: tuple[str, ...]) -> Tool | None:
        known = self.memory.repairs.get(f"{tool.name}|{error}", {})
        asked = set(content_words(hint))
        best, chosen = _ENOUGH, None
        for other in self.scene.tools.values():
            if other.name in stack or other.spec.group != tool.spec.group:
                continue
            overlap = len(asked & other.words) / (2 + len(other.words)) ** 0.5
            score = overlap + 3 * known.get(other.name, 0) / (1 + sum(known.values()))
            score += self.rng.random() * 0.3
            if score > best:
                best, chosen = score, other
        return chosen


def _listed(parameter: Parameter) -> bool:
    return parameter.items is not None and bool(parameter.items.options)


def _looked_up(kind: str) -> bool:
    return kind.startswith("id") or kind in ("airport", "zip", "symbol", "token")
