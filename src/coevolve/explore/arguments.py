"""Arguments for a call: found where they can be, made up only where newness makes sense."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coevolve.explore.corpus import Corpus
from coevolve.explore.found import Found
from coevolve.explore.kinds import accepted, family
from coevolve.explore.memory import PORTABLE, Memory
from coevolve.explore.nearness import bare, fits, missing_name, spot, unit, weights
from coevolve.explore.numbers import number
from coevolve.explore.scene import Scene
from coevolve.explore.schema import Parameter, Tool
from coevolve.types import Json, canonical

_NEW = re.compile(r"\b(new|create|to be added|add a|register|title|write)\b", re.IGNORECASE)
# Kinds that a stranger may choose freely: no world needs to hold them already.
_FREE = frozenset(
    "text title keyword tag mention password credential person first_name last_name date birth_date month "  # noqa: SIM905
    "datetime address card_number security_code passport company sector currency city word:type word:status "
    "word:removed".split()
)
_NAMES = frozenset(("file", "folder", "entry", "username"))


@dataclass
class Choice:
    """Arguments and where each came from, so that success can be credited."""

    arguments: dict[str, Json] = field(default_factory=dict)
    credits: list[str] = field(default_factory=list)
    portable: dict[str, Json] = field(default_factory=dict)
    missing: Parameter | None = None
    """A required parameter for which nothing fits yet."""


class Chooser:
    """Chooses arguments for one explorer; holds no state of its own."""

    def __init__(self, corpus: Corpus, memory: Memory) -> None:
        self._corpus = corpus
        self._memory = memory

    def choose(
        self,
        tool: Tool,
        scene: Scene,
        rng: random.Random,
        hint: str = "",
        forced: Mapping[str, Json] | None = None,
    ) -> Choice:
        """One set of arguments.

        Args:
            hint: the last error, whose words may name what is needed.
            forced: values that are settled, by parameter name or by kind.
        """
        choice = Choice()
        forced = forced or {}
        borrowed = self._borrow(tool, rng)
        for parameter in tool.parameters:
            settled = forced.get(parameter.name, forced.get(parameter.kind))
            if not parameter.required and settled is None:
                key = f"{tool.name}.{parameter.name}"
                with_it, without = (self._memory.odds(f"{key}|{way}", 0.5) ** 2 for way in ("given", "left"))
                given = rng.random() < with_it / (with_it + without)
                choice.credits.append(f"{key}|given" if given else f"{key}|left")
                if not given:
                    continue
            if settled is not None:
                value: Json = settled
            elif parameter.name in borrowed:
                value = borrowed[parameter.name]
            else:
                value = self._value(tool, parameter, scene, choice, rng, hint)
            if value is None:
                if parameter.required:
                    choice.missing = parameter
                    return choice
                continue
            if not parameter.required and canonical(value) == canonical(parameter.default):
                continue
            choice.arguments[parameter.name] = value
            if parameter.kind in PORTABLE:
                choice.portable[parameter.name] = value
        return choice

    def _borrow(self, tool: Tool, rng: random.Random) -> dict[str, Json]:
        names = {p.name for p in tool.parameters if p.kind in PORTABLE}
        if len(names) < 2 or rng.random() < 0.35:
            return {}
        options = list(self._memory.arguments.get(tool.name, []))
        if not options:
            for other in sorted(self._memory.arguments):
                options += [a for a in self._memory.arguments[other] if len(names & set(a)) >= 2]
        if not options:
            return {}
        chosen = rng.choice(options)
        return {n: v for n, v in chosen.items() if n in names}

    def _value(
        self, tool: Tool, p: Parameter, scene: Scene, choice: Choice, rng: random.Random, hint: str
    ) -> Json:
        if p.items is not None:
            return self._list(tool, p, scene, choice, rng, hint)
        if p.properties:
            wanted = rng.sample(p.properties, k=min(len(p.properties), rng.choice((1, 1, 2))))
            inner = {
                q.name: self._value(tool, q, scene, Choice(), rng, hint) for q in p.properties if q in wanted
            }
            return {name: value for name, value in inner.items() if value is not None} or None
        if p.options:
            return self._option(tool, p, choice, rng, hint)
        if p.type == "boolean":
            return (not p.default) if isinstance(p.default, bool) else rng.random() < 0.5
        if p.type in ("integer", "number") and not p.kind.startswith("id"):
            seen = self._candidates(p, scene, choice)
            given = [v for v in choice.arguments.values() if isinstance(v, str)]
            near = [f for f in seen if any(part in given for part in f.path)]
            return number(p, near if near and rng.random() < 0.7 else seen, rng, hint)
        return self._text(tool, p, scene, choice, rng, hint)

    def _option(self, tool: Tool, p: Parameter, choice: Choice, rng: random.Random, hint: str) -> Json:
        used = [canonical(v) for v in choice.arguments.values()]
        options = [o for o in p.options if canonical(o) not in used] or list(p.options)
        named = [o for o in options if isinstance(o, str) and len(o) > 2 and o.lower() in hint.lower()]
        if named and rng.random() < 0.6:
            return rng.choice(named)
        keys = [f"{tool.name}.{p.name}={canonical(o)}" for o in options]
        index = rng.choices(range(len(options)), [max(0.15, self._memory.odds(key, 0.5)) for key in keys])[0]
        choice.credits.append(keys[index])
        return options[index]

    def _list(
        self, tool: Tool, p: Parameter, scene: Scene, choice: Choice, rng: random.Random, hint: str
    ) -> Json:
        item = p.items
        assert item is not None
        if item.options:
            named = [o for o in item.options if isinstance(o, str) and o.lower() in hint.lower()]
            if named and rng.random() < 0.7:
                return list(named)
            size = len(item.options) if rng.random() < 0.5 else rng.randint(1, len(item.options))
            chosen = rng.sample(list(item.options), k=size)
            return [o for o in item.options if o in chosen]
        numeric = item.type in ("integer", "number")
        size = rng.randint(2, 5) if numeric else rng.choice((1, 1, 2, 2, 3))
        values: list[Json] = []
        for _ in range(size):
            value = self._value(tool, item, scene, choice, rng, hint)
            if value is not None and value not in values:
                values.append(value)
        return values or None

    # -- texts and ids ---------------------------------------------------------------------------

    def _text(
        self, tool: Tool, p: Parameter, scene: Scene, choice: Choice, rng: random.Random, hint: str
    ) -> Json:
        known = self._known(tool, p, rng)
        if known is not None:
            return known
        if p.kind == "unit":
            return unit(tool, choice.arguments, rng)
        if p.kind == "folder" and rng.random() < 0.12 and "new" not in p.description.lower():
            return ".."
        found = self._candidates(p, scene, choice)
        makeable = family(p.kind) in _FREE or p.kind in _NAMES or p.kind.startswith("word:")
        prior = 0.9 if _NEW.search(f"{tool.summary} {p.description}") else 0.15
        if p.kind in ("text", "title", "address"):
            prior = 0.97
        elif family(p.kind) in _FREE:
            prior = 0.5
        key = f"{tool.name}.{p.name}"
        made_odds = self._memory.odds(f"{key}|made", prior)
        found_odds = self._memory.odds(f"{key}|found", 1 - prior)
        if p.kind in ("text", "title"):
            make = makeable and rng.random() < prior
        else:
            make = makeable and rng.random() < made_odds**2 / (made_odds**2 + found_odds**2)
        if make or not found:
            value = (missing_name(hint, p, rng) or self._made(p, scene, choice, rng)) if makeable else None
            if value is not None:
                choice.credits.append(f"{key}|made")
                return value if p.type != "integer" else None
        if found:
            item = self._weighted(key, found, scene, choice, rng)
            choice.credits += [f"{key}|found", spot(key, item)]
            if p.type == "integer" and isinstance(item.value, str):
                return int(item.value)
            return item.value
        seen = self._memory.seen.get(p.kind) or []
        seen = [v for v in seen if v not in choice.arguments.values()]
        return rng.choice(seen) if seen else None

    def _known(self, tool: Tool, p: Parameter, rng: random.Random) -> Json:
        """Examples of its own schema, options that a namesake declares, portable values seen before."""
        namesake = self._corpus.options.get(p.name)
        if namesake:
            return rng.choice(namesake)
        if p.kind in PORTABLE and rng.random() < 0.6:
            seen = self._memory.seen.get(p.kind) or []
            if seen and p.kind in ("airport", "zip", "place"):
                return rng.choice(seen)
        return None

    def _made(self, p: Parameter, scene: Scene, choice: Choice, rng: random.Random) -> str | None:
        if p.kind == "keyword":
            return self._keyword(scene, choice, rng)
        kind = p.kind
        if kind == "entry" and any(bare(v) for v in choice.arguments.values()):
            kind = "folder"  # a directory does not get a file's name
        return self._corpus.invent(kind, rng, p.description)

    def _keyword(self, scene: Scene, choice: Choice, rng: random.Random) -> str | None:
        """A word or two out of a text in sight, of the very thing that the call is about if it has one."""
        texts = [f for f in scene.state + scene.answers if f.kind in ("text", "file", "title")]
        given = [v for v in choice.arguments.values() if isinstance(v, str)]
        inside = [f for f in texts if any(part in given for part in f.path) and f.value not in given]
        near = inside or [f for f in texts if any(part in scene.focus for part in f.path)]
        pool = near if near and rng.random() < 0.85 else texts
        if not pool:
            return self._corpus.invent("keyword", rng)
        words = re.findall(
            r"[A-Za-z][\w-]{2,}", str(rng.choice(pool).value).rsplit(".", 1)[0].replace("_", " ")
        )
        if not words:
            return self._corpus.invent("keyword", rng)
        start = rng.randrange(len(words))
        return " ".join(words[start : start + (2 if rng.random() < 0.25 else 1)])

    def _weighted(
        self, key: str, found: list[Found], scene: Scene, choice: Choice, rng: random.Random
    ) -> Found:
        near = weights(found, scene, choice.arguments)
        learned = [self._memory.odds(spot(key, item), 0.5) ** 2 for item in found]
        return rng.choices(found, [a * b for a, b in zip(near, learned)])[0]

    def _candidates(self, p: Parameter, scene: Scene, choice: Choice) -> list[Found]:
        kinds = accepted(p.kind)
        if p.kind == "entry" and any(isinstance(v, str) for v in choice.arguments.values()):
            kinds = ("folder",)  # where to, once it is settled what
        fit = fits(p)
        used = [v for v in choice.arguments.values() if isinstance(v, str)]
        return [f for f in scene.state + scene.answers if f.kind in kinds and fit(f) and f.value not in used]
