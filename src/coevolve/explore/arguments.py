"""Arguments for a call: found where they can be, made up only where newness makes sense."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from coevolve.explore import lexicon
from coevolve.explore.corpus import Corpus
from coevolve.explore.found import Found
from coevolve.explore.kinds import accepted
from coevolve.explore.memory import PORTABLE, Memory
from coevolve.explore.numbers import number
from coevolve.explore.scene import Scene
from coevolve.explore.schema import Parameter, Tool
from coevolve.types import Json, canonical

_NEW = re.compile(r"\b(new|create|to be added|add a|register|title|write)\b", re.IGNORECASE)
# Kinds that a stranger may choose freely: no world needs to hold them already.
_FREE = frozenset(
    (
        *("text", "title", "keyword", "tag", "mention", "password", "credential", "person", "first_name", "last_name"),
        *("date", "birth_date", "month", "datetime", "address", "card_number", "security_code", "passport"),
        *("company", "sector", "currency", "city", "word:type", "word:status", "word:removed"),
    )
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
        self, tool: Tool, scene: Scene, rng: random.Random, hint: str = "", optional: float = 0.45
    ) -> Choice:
        """One set of arguments; ``hint`` is the last error, whose words may name what is needed."""
        choice = Choice()
        borrowed = self._borrow(tool, rng)
        for parameter in tool.parameters:
            if not parameter.required and (rng.random() > optional):
                continue
            if parameter.name in borrowed:
                value: Json = borrowed[parameter.name]
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
            return self._option(p, choice, rng, hint)
        if p.type == "boolean":
            return (not p.default) if isinstance(p.default, bool) else rng.random() < 0.5
        if p.type in ("integer", "number") and not p.kind.startswith("id"):
            return number(p, self._candidates(p, scene, choice), tool, rng, hint)
        return self._text(tool, p, scene, choice, rng, hint)

    def _option(self, p: Parameter, choice: Choice, rng: random.Random, hint: str) -> Json:
        used = [canonical(v) for v in choice.arguments.values()]
        options = [o for o in p.options if canonical(o) not in used] or list(p.options)
        named = [o for o in options if isinstance(o, str) and len(o) > 2 and o.lower() in hint.lower()]
        return rng.choice(named) if named and rng.random() < 0.6 else rng.choice(options)

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
            return _unit(choice, rng)
        if p.kind == "folder" and rng.random() < 0.12 and "new" not in p.description.lower():
            return ".."
        found = self._candidates(p, scene, choice)
        makeable = p.kind in _FREE or p.kind in _NAMES or p.kind.startswith("word:")
        prior = 0.9 if _NEW.search(f"{tool.summary} {p.description}") else 0.15
        if p.kind in ("text", "title", "address"):
            prior = 0.97
        elif p.kind in _FREE:
            prior = 0.5
        key = f"{tool.name}.{p.name}"
        made_odds = self._memory.odds(f"{key}|made", prior)
        found_odds = self._memory.odds(f"{key}|found", 1 - prior)
        if p.kind in ("text", "title"):
            make = makeable and rng.random() < prior
        else:
            make = makeable and rng.random() < made_odds**2 / (made_odds**2 + found_odds**2)
        if make or not found:
            value = (_missing_name(hint, p, rng) or self._made(p, scene, rng)) if makeable else None
            if value is not None:
                choice.credits.append(f"{key}|made")
                return value if p.type != "integer" else None
        if found:
            choice.credits.append(f"{key}|found")
            return _weighted(found, scene, choice, rng)
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

    def _made(self, p: Parameter, scene: Scene, rng: random.Random) -> str | None:
        if p.kind == "keyword":
            return self._keyword(scene, rng)
        return self._corpus.invent(p.kind, rng, p.description)

    def _keyword(self, scene: Scene, rng: random.Random) -> str | None:
        """A word or two out of a text in sight, near what was last spoken of."""
        texts = [f for f in scene.state + scene.answers if f.kind in ("text", "file", "title")]
        near = [f for f in texts if any(part in scene.focus for part in f.path)]
        pool = near if near and rng.random() < 0.7 else texts
        if not pool:
            return self._corpus.invent("keyword", rng)
        words = re.findall(
            r"[A-Za-z][\w-]{2,}", str(rng.choice(pool).value).rsplit(".", 1)[0].replace("_", " ")
        )
        if not words:
            return self._corpus.invent("keyword", rng)
        start = rng.randrange(len(words))
        return " ".join(words[start : start + (2 if rng.random() < 0.25 else 1)])

    def _candidates(self, p: Parameter, scene: Scene, choice: Choice) -> list[Found]:
        kinds = accepted(p.kind)
        fit = _fits(p)
        used = [v for v in choice.arguments.values() if isinstance(v, str)]
        return [f for f in scene.state + scene.answers if f.kind in kinds and fit(f) and f.value not in used]


def _fits(p: Parameter) -> Callable[[Found], bool]:
    if p.type == "integer":
        return lambda f: (
            (isinstance(f.value, int) and not isinstance(f.value, bool))
            or (isinstance(f.value, str) and f.value.isdigit())
        )
    if p.type == "number":
        return lambda f: isinstance(f.value, int | float) and not isinstance(f.value, bool)
    return lambda f: isinstance(f.value, str)


def _weighted(found: list[Found], scene: Scene, choice: Choice, rng: random.Random) -> Json:
    """Nearer values weigh more: fresh answers, the neighbourhood of what was last used, shallow places."""
    same_call = {v for v in choice.arguments.values() if isinstance(v, str)}
    shallow = min((len(f.path) for f in found if f.turn < 0), default=0)
    weights = []
    for item in found:
        weight = 1.0
        if item.turn >= 0:
            weight *= 3.0 / (1 + 0.3 * (len(scene.triplets) - item.turn))
        else:
            weight *= 0.4 ** min(5, len(item.path) - shallow) if not scene.place else 1
        if any(part in same_call for part in item.path):
            weight *= 6
        elif scene.place and item.kind in ("file", "folder"):
            weight *= 1.0 if _here(item, scene) else 0.03
        elif any(part in scene.focus for part in item.path[:-1]):
            weight *= 3
        if item.value in scene.focus:
            weight *= 2
        weights.append(weight)
    return rng.choices(found, weights)[0].value


def _here(item: Found, scene: Scene) -> bool:
    """Whether a named thing lies directly in the current place."""
    if item.turn >= 0:
        return item.turn == len(scene.triplets) - 1
    named = [part for part in item.path[:-1] if part not in ("contents", "root")]
    return (named[-1:] == [scene.place[-1]]) if len(scene.place) > 1 else len(named) <= 1


def _missing_name(hint: str, p: Parameter, rng: random.Random) -> str | None:
    """The name that an error says is missing, so that a helper makes exactly that."""
    if p.kind not in ("file", "folder") or "no such" not in hint.lower() or rng.random() < 0.3:
        return None
    quoted = [q for q in re.findall(r"'([^'/]{1,60})'", hint) if ("." in q[1:]) == (p.kind == "file")]
    return quoted[0] if quoted else None


def _unit(choice: Choice, rng: random.Random) -> Json:
    given = [v for v in choice.arguments.values() if isinstance(v, str)]
    groups = [g for g in lexicon.UNIT_GROUPS if any(v in g for v in given)] or list(lexicon.UNIT_GROUPS)
    options = [u for u in rng.choice(groups) if u not in given]
    return rng.choice(options)
