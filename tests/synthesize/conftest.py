"""Shared by the synthesis tests: BFCL once, and a harvest of its train worlds."""

from __future__ import annotations

from collections import Counter

import pytest

from coevolve.config import ExploreConfig
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.synthesize.harvest import harvest
from coevolve.types import Task


@pytest.fixture(scope="session")
def bfcl() -> BfclEnvironment:
    return BfclEnvironment()


@pytest.fixture(scope="session")
def refusals() -> Counter[str]:
    """Filled by ``harvested``."""
    return Counter()


@pytest.fixture(scope="session")
def harvested(bfcl: BfclEnvironment, refusals: Counter[str]) -> list[Task]:
    return harvest(bfcl, 500, 11, ExploreConfig(turns=3), counters=refusals)
