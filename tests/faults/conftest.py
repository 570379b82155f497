"""Puts this folder on the path, and that of the agent loop's tests, whose small tokenizers are used here;
and what the attacks on whole runs share: a process that starts runs, and a run that nothing befell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill import Nursery, Timeline, make_config

sys.path.insert(0, str(Path(__file__).parent.parent / "rollout"))


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery")) as ready:
        yield ready


@pytest.fixture(scope="session")
def run_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of the small run of ``kill.py``."""
    return make_config(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def timeline() -> Timeline:
    """Filled by :func:`straight`."""
    return Timeline()


@pytest.fixture(scope="session")
def straight(
    nursery: Nursery, run_config: Path, timeline: Timeline, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that nobody killed, with all the room it wants."""
    out = tmp_path_factory.mktemp("straight") / "run"
    ended = nursery.run("run", run_config, "--out", out, timeline=timeline)
    assert ended.status == 0, ended.said
    return out
