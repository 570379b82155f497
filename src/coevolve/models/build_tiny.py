"""Build the tiny policy from nothing: harvest, tokenizer, supervised warm-up, score, file.

``python -m coevolve.models.build_tiny`` is what ``make tiny-policy`` runs. It sees train worlds only. The dev
split decides the recipe; the folder it writes holds a ``recipe.json`` that ties the weights to
everything that went into them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coevolve.config import EnvironmentConfig, ExploreConfig, RolloutConfig
from coevolve.environments.base import Environment
from coevolve.environments.registry import make
from coevolve.evaluation.heldout import benchmark_turns
from coevolve.models.loading import TINY
from coevolve.models.tiny import TinyShape, build_model, build_tokenizer
from coevolve.rollout.chat import Chat
from coevolve.rollout.demonstrate import demonstration
from coevolve.rollout.formats import render
from coevolve.synthesize.harvest import harvest
from coevolve.synthesize.replay import Replayer
from coevolve.synthesize.verify import hidden_value
from coevolve.training.warmup import WarmupRecipe, warm_up
from coevolve.types import Task, Tokens, fingerprint


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """Everything that shapes the shipped weights."""

    tasks: int = 24_000
    seed: int = 1_000_003
    """Far from any run's seed, so that the warm-up tasks are not the ``D_0`` of any run."""
    shape: TinyShape = field(default_factory=TinyShape)
    warmup: WarmupRecipe = field(default_factory=WarmupRecipe)
    probe: int = 100
    """How many of the first tasks a quick test harvests again to see that file and recipe agree."""


LIMITS = RolloutConfig(observation_tokens=96, tokens_per_step=160, context_tokens=768, steps_per_turn=6)
"""The limits under which the tiny policy was warmed up, and under which it should act."""


def warmup_tasks(environment: Environment, n: int, seed: int) -> list[Task]:
    """Verified tasks of train worlds; none overlaps with what dev and test are made of.

    The first tasks are the same whatever ``n`` is.
    """
    held: list[Task] = []
    for split in ("dev", "test"):
        held += [*environment.tasks(split), *benchmark_turns(environment, split).tasks]
    return harvest(environment, n, seed, ExploreConfig(), evaluation=held)


def digest(tasks: Sequence[Task]) -> str:
    """Content address of a list of tasks."""
    return fingerprint([task.id for task in tasks])


def texts(tasks: Sequence[Task]) -> list[str]:
    """What the tokenizer is trained on: instructions and calls of the warm-up tasks."""
    found: list[str] = []
    for task in tasks:
        found += task.turns
        found += [render("python", calls) for calls in task.solution if calls]
    return found


def build(recipe: TinyRecipe, target: Path) -> dict[str, Any]:
    """Harvest, train and write the folder; returns what went into ``recipe.json``."""
    import torch

    environment = make(EnvironmentConfig(workers=0))
    started = time.monotonic()
    tasks = warmup_tasks(environment, recipe.tasks, recipe.seed)
    print(f"{len(tasks)} verified tasks in {time.monotonic() - started:.0f} s", flush=True)
    tokenizer = build_tokenizer(texts(tasks), recipe.shape)
    chat = Chat(tokenizer, LIMITS)
    replayer = Replayer(environment)
    demonstrations: list[Tokens] = []
    for task in tasks:
        run = replayer.fresh(task.world, [call for turn in task.solution for call in turn])
        # What the agent is never shown it cannot learn to say; it would learn to guess.
        if hidden_value(task, run.observations, chat.shown) is None:
            demonstrations.append(demonstration(task, chat, environment))
    print(f"{len(tasks) - len(demonstrations)} need a value that is cut away, and are left out", flush=True)
    torch.manual_seed(recipe.warmup.seed)
    model = build_model(tokenizer, recipe.shape)
    history = warm_up(model, tokenizer, demonstrations, recipe.warmup)
    about = {
        "recipe": dataclasses.asdict(recipe),
        "environment": environment.version,
        "tasks": digest(tasks),
        "demonstrations": len(demonstrations),
        "probe": digest(tasks[: recipe.probe]),
        "parameters": model.num_parameters(),
        "final_loss": [h["loss"] for h in history if "loss" in h][-1],
        "seconds": round(time.monotonic() - started),
    }
    model.to(torch.float16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    (target / "recipe.json").write_text(json.dumps(about, indent=2) + "\n")
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TINY)
    print(json.dumps(build(TinyRecipe(), parser.parse_args().out), indent=2))


if __name__ == "__main__":
    main()
