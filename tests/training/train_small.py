"""Runs in a process of its own, so that it can be killed, or in several that train in step.

``python train_small.py POLICY RUN_DIR OPTIONS``, where OPTIONS is JSON: ``config`` (changes to the small
configuration), ``die`` ([where, step]), ``replay`` (a file of rollouts to use instead of sampling),
``record`` (a file to write them into).
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import small
import torch

from coevolve.rollout.chat import Chat
from coevolve.training import collect
from coevolve.training.trl import TrlEngine
from coevolve.types import Rollout
from keyvalue import KeyValue


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class MortalSource(small.ListSource):
    """Can be killed while a checkpoint is being written."""

    dies_saving_step = 0

    def save_state(self, folder: Path) -> None:
        super().save_state(folder)
        if len(self.seen) == self.dies_saving_step:
            kill()


def run(policy: Path, run_dir: Path, options: dict[str, Any]) -> None:
    config = small.config(**options.get("config", {}))
    where, at = options.get("die", ["nowhere", 0])
    model, tokenizer = small.load(policy)
    engine = TrlEngine(model, tokenizer, Chat(tokenizer, config.rollout), KeyValue(), config, run_dir)
    rank, main = engine.processes.rank, engine.processes.main
    source = MortalSource(small.tasks()[:14] + small.untaught(), seed=4)
    source.dies_saving_step = at if where == "checkpoint" else 0

    def progress(step: int, figures: str) -> None:
        if where == "step" and step == at:
            kill()

    with _files(options, rank):
        engine.train(source if main else None, progress=progress)
    torch.save(engine.model.state_dict(), run_dir / f"final-{rank}.pt")
    if main:
        (run_dir / "source.json").write_text(json.dumps(source.state_dict()))


@contextmanager
def _files(options: dict[str, Any], rank: int) -> Iterator[None]:
    """Lets two processes train on exactly the rollouts that one process sampled."""
    place: Any = collect
    original = place.run
    steps: list[list[Rollout]] = []
    if "record" in options:

        def recording(*args: Any, **kwargs: Any) -> Sequence[Rollout]:
            steps.append(list(original(*args, **kwargs)))
            Path(options["record"]).write_bytes(pickle.dumps(steps))
            return steps[-1]

        place.run = recording
    if "replay" in options:
        known: list[list[Rollout]] = pickle.loads(Path(options["replay"]).read_bytes())

        def replaying(tasks: Sequence[Any], *args: Any, **kwargs: Any) -> Sequence[Rollout]:
            rollouts = known.pop(0)[rank * len(tasks) :][: len(tasks)]
            assert [r.task for r in rollouts] == [t.id for t in tasks]
            return rollouts

        place.run = replaying
    try:
        yield
    finally:
        place.run = original


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
