"""A whole run that takes seconds: an environment of one class, a small taught policy, a configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from coevolve.types import Task

Kind = Literal["red", "green", "blue", "white"]


class Shelf:
    """A shelf with boxes of four colours, a door and a label."""

    worlds = {  # noqa: RUF012
        "train": {
            "full": {"red": 3, "green": 2, "blue": 4},
            "mixed": {"red": 1, "white": 5},
            "green": {"green": 6, "blue": 1},
            "white": {"white": 2, "red": 2},
        },
        "test": {"other": {"blue": 3, "white": 3}, "plain": {"red": 5, "green": 1}},
        "dev": {"small": {"red": 1, "blue": 1}},
    }

    def __init__(self, start: dict[str, int]) -> None:
        self.boxes = dict(start)
        self.open = True
        self.label = ""

    def add_box(self, kind: Kind) -> str:
        """Put one more box on the shelf.

        Args:
            kind: The colour of the box.
        """
        self.boxes[kind] = self.boxes.get(kind, 0) + 1
        return f"{self.boxes[kind]} {kind}"

    def take_box(self, kind: Kind) -> str:
        """Take a box off the shelf.

        Args:
            kind: The colour of the box.
        """
        if not self.boxes.get(kind):
            raise ValueError(f"there is no {kind} box")
        self.boxes[kind] -= 1
        return f"{self.boxes[kind]} {kind}"

    def count_boxes(self, kind: Kind) -> dict[str, int]:
        """Count the boxes of one colour.

        Args:
            kind: The colour of the boxes.
        """
        return {"count": self.boxes.get(kind, 0)}

    def write_label(self, kind: Kind) -> str:
        """Write a colour on the label of the shelf.

        Args:
            kind: The colour to write.
        """
        self.label = kind
        return f"label {kind}"


PLAIN: dict[str, Any] = {
    "environment": {"name": "small_run:Shelf", "workers": 0},
    "steps": 4,
    "rollout": {
        "steps_per_turn": 3,
        "tokens_per_step": 40,
        "context_tokens": 256,
        "observation_tokens": 16,
    },
    "train": {"tasks_per_step": 2, "group_size": 2, "learning_rate": 1e-3, "threads": 1},
    "explore": {"calls": 4, "calls_per_task": 2},
    "evolve": {"every": 2, "tasks": 2},
    "pool": {"initial": 8},
    "evaluate": {"episodes": 4},
    "checkpoint": {"every": 2},
}
"""Four steps on the shelf: eight tasks, two rollouts of each of two tasks a step."""


def write_config(path: Path, model: Path, **changes: Any) -> Path:
    """:data:`PLAIN` with ``changes`` merged into its sections, as a YAML file."""
    data = {"model": str(model), **PLAIN}
    for key, value in changes.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(data))
    return path


def make_policy(
    folder: Path, environment: Any, taught: int = 0, known: Sequence[Task] = (), **shape: int
) -> None:
    """A two-layer policy with a tokenizer of its own; ``taught`` steps on demonstrations, or random.

    Args:
        known: what is demonstrated; by default 24 harvested tasks.
    """
    import torch

    from coevolve.config import ExploreConfig, RolloutConfig
    from coevolve.models.build_tiny import texts
    from coevolve.models.tiny import TinyShape, build_model, build_tokenizer
    from coevolve.rollout.chat import Chat
    from coevolve.rollout.demonstrate import demonstration
    from coevolve.synthesize.harvest import harvest
    from coevolve.training.demonstrate import pad_tokens

    sizes = TinyShape(**{"vocabulary": 512, "width": 48, "layers": 2, "heads": 2, "hidden": 96, **shape})
    known = known or harvest(environment, 24, 7, ExploreConfig(calls=4, calls_per_task=2))
    tokenizer = build_tokenizer(texts(known), sizes)
    torch.manual_seed(0)
    model = build_model(tokenizer, sizes)
    if taught:
        chat = Chat(tokenizer, RolloutConfig(**PLAIN["rollout"]))
        shown = [demonstration(task, chat, environment) for task in known]
        ids, attention, mask, after = pad_tokens(shown, tokenizer.pad_token_id)
        optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
        for _ in range(taught):
            logits = model(input_ids=ids, attention_mask=attention).logits[:, -after - 1 : -1]
            each = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), ids[:, -after:], reduction="none"
            )
            ((each * mask).sum() / mask.sum()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def surroundings(**changes: str) -> dict[str, str]:
    """Environment variables of a subprocess: it finds this module, and uses one thread."""
    here = str(Path(__file__).parent)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": here, "COLUMNS": "200", **changes}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "coevolve", *map(str, words)]


def coevolve(*words: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        check=False,
        env=surroundings(**changes),
        timeout=240,
    )


def assert_same_pool_and_weights(one: Path, two: Path, step: int) -> None:
    """Two runs hold equal pools, and equal weights in the checkpoints of ``step``."""
    from safetensors.torch import load_file

    from coevolve.pool import Pool

    with Pool.read_only(one / "pool.db") as first, Pool.read_only(two / "pool.db") as second:
        assert first.digest() == second.digest()
    weights, others = (
        load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors") for run in (one, two)
    )
    assert weights and weights.keys() == others.keys()
    assert all(weights[name].equal(others[name]) for name in weights)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def steps_of(run: Path) -> Any:
    """The records of a run's steps without times, and without what became of its worker processes."""
    records = lines(run / "metrics.jsonl")
    return without_times([{k: v for k, v in record.items() if k != "environment"} for record in records])


def without_times(data: Any) -> Any:
    """JSON data without whatever is named after seconds."""
    if isinstance(data, dict):
        return {key: without_times(value) for key, value in data.items() if "seconds" not in key}
    return [without_times(item) for item in data] if isinstance(data, list) else data
