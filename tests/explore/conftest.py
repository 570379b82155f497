"""Shared by the exploration tests: BFCL once, and one explorer that has been round its train worlds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coevolve.config import ExploreConfig
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.explore.base import Exploration
from coevolve.explore.scripted import ScriptedExplorer


@pytest.fixture(scope="session")
def bfcl() -> BfclEnvironment:
    return BfclEnvironment()


@pytest.fixture(scope="session")
def tour(bfcl: BfclEnvironment) -> list[Exploration]:
    """Explorations that lead with each tool four times over, after a few unguided ones."""
    explorer = ScriptedExplorer(bfcl, ExploreConfig())
    worlds = bfcl.worlds("train")
    made = [explorer.explore(world, random.Random(f"tour/{world.id}")) for world in worlds]
    homes: dict[str, list[int]] = {}
    for index, world in enumerate(worlds):
        for spec in bfcl.offered(world):
            homes.setdefault(spec.name, []).append(index)
    seen: Counter[str] = Counter()
    for turn in range(4):
        for name in sorted(homes):
            rng = random.Random(f"tour/{name}/{turn}")
            seen[name] += 1
            made.append(explorer.explore(worlds[rng.choice(homes[name])], rng, lead=(name,)))
    return made
