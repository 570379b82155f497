"""Which of the values that fit are likely meant: the near ones, the fresh ones, the named ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

from coevolve.explore import lexicon
from coevolve.explore.found import Found
from coevolve.explore.scene import Scene
from coevolve.explore.schema import Parameter, Tool
from coevolve.types import Json


def fits(p: Parameter) -> Callable[[Found], bool]:
    if p.type == "integer":
        return lambda f: (
            (isinstance(f.value, int) and not isinstance(f.value, bool))
            or (isinstance(f.value, str) and f.value.isdigit())
        )
    if p.type == "number":
        return lambda f: isinstance(f.value, int | float) and not isinstance(f.value, bool)
    return lambda f: isinstance(f.value, str)


def spot(key: str, item: Found) -> str:
    """A name for the place in data that a value came from: it may turn out to be the wrong one."""
    named = [p for p in item.path if not any(c.isdigit() or c in ". @" for c in p)]
    return f"{key}|{'state' if item.turn < 0 else 'answer'}:{named[-1] if named else ''}"


def weights(found: list[Found], scene: Scene, given: Mapping[str, Json]) -> list[float]:
    """Nearer values weigh more: fresh answers, the neighbourhood of what was last used, shallow places."""
    same_call = {v for v in given.values() if isinstance(v, str)}
    shallow = min((len(f.path) for f in found if f.turn < 0), default=0)
    found_weights = []
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
        found_weights.append(weight)
    return found_weights


def bare(value: Json) -> bool:
    return isinstance(value, str) and "." not in value


def _here(item: Found, scene: Scene) -> bool:
    """Whether a named thing lies directly in the current place."""
    if item.turn >= 0:
        return item.turn == len(scene.triplets) - 1
    chain = [part for part in item.path[:-1] if scene.known.get(part) == "folder"]
    return chain == list(scene.place[1:])


def missing_name(hint: str, p: Parameter, rng: random.Random) -> str | None:
    """The name that an error says is missing, so that a helper makes exactly that."""
    if p.kind not in ("file", "folder") or "no such" not in hint.lower() or rng.random() < 0.3:
        return None
    quoted = [q for q in re.findall(r"'(\w[^'/]{1,60})'", hint) if ("." in q) == (p.kind == "file")]
    return quoted[0] if quoted else None


def unit(tool: Tool, given: Mapping[str, Json], rng: random.Random) -> Json:
    """A unit that measures the same as the one already given, in this system or between the two."""
    used = [v for v in given.values() if isinstance(v, str)]
    across = bool(tool.words & {"imperial", "metric", "customary"})
    known: list[tuple[str, ...]] = list(lexicon.UNIT_PAIRS if across else lexicon.UNIT_GROUPS)
    groups = [g for g in known if any(v in g for v in used)] or known
    options = [u for u in rng.choice(groups) if u not in used]
    return rng.choice(options)
