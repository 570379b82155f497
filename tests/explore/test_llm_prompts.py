"""Every prompt, word for word."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from brain import CONTEXT
from over_http import NAMES, weakness, world

from coevolve.explore.context import ExplorationContext
from coevolve.explore.llm import opening_for
from coevolve.explore.reflect import prompt
from coevolve.prompting import render, version
from keyvalue import TOOLS, put

SNAPSHOTS = Path(__file__).parent / "snapshots"


def compare(name: str, text: str) -> None:
    """Against the stored text; ``UPDATE_SNAPSHOTS=1`` writes it anew."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text()


def as_text(said: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(f"=== {message['role']} ===\n{message['content']}" for message in said)


@pytest.mark.parametrize("kind", ["forgetting", "boundary", "rare"])
def test_reflection_prompts(kind: str) -> None:
    compare(f"reflect_{kind}", as_text(prompt(weakness(kind), NAMES, 3000)))


@pytest.mark.parametrize(
    ("guide", "native"),
    [("nothing", True), *((guide, False) for guide in ("nothing", "context", "hint", "rare", "lead"))],
)
def test_acting_prompts(guide: str, native: bool) -> None:
    signal = {"context": weakness(), "hint": weakness(), "rare": weakness("rare")}.get(guide)
    opening = opening_for(
        replace(world(), prefix=(put("zebra"),)) if signal else world(),
        TOOLS,
        12,
        signal,
        ExplorationContext.model_validate(CONTEXT) if guide == "context" else None,
        ("delete",) if guide == "lead" else (),
        ("get", "put"),
    )
    compare(f"act_{guide}_{'native' if native else 'text'}", as_text(opening(native)))


def test_reask_prompt() -> None:
    compare("reask", render("coevolve.explore", "reask", error="attempt: Field required"))


@pytest.mark.parametrize("kind", ["fault", "cut", "nothing"])
def test_again_prompt(kind: str) -> None:
    compare(
        f"again_{kind}", render("coevolve.explore", "act.again", fault=kind != "nothing", cut=kind == "cut")
    )


def test_every_prompt_has_a_version() -> None:
    names = [path.name for path in files("coevolve.explore").joinpath("prompts").iterdir()]
    assert len(names) == 6
    for name in names:
        assert version("coevolve.explore", name.removesuffix(".j2")) >= 1
