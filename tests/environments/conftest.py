"""Shared by the environments' tests: one BFCL environment and its official tasks."""

from __future__ import annotations

import pytest
from bfcl_support import SPLITS

from coevolve.environments.bfcl import BfclEnvironment
from coevolve.types import Task


@pytest.fixture(scope="session")
def bfcl() -> BfclEnvironment:
    return BfclEnvironment()


@pytest.fixture(scope="session")
def official(bfcl: BfclEnvironment) -> dict[str, Task]:
    """All official tasks by name."""
    return {task.name: task for split in SPLITS for task in bfcl.tasks(split)}
