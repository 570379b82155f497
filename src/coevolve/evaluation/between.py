"""Scores on the dev split in the middle of training: to look at, nothing is decided by them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.evaluation.heldout import HeldOut, benchmark_turns, unguided
from coevolve.evaluation.scores import Score
from coevolve.rundir import read_lines, write_atomic


class Between:
    """Every ``every`` steps the score on each test, a line in ``log``.

    Args:
        tests: of the dev split.
        every: steps between scores; 0 takes none.
        log: JSON lines.
        step: where the run goes on from; lines of later steps are of steps that will be done again.
        score: one episode per task.
    """

    def __init__(
        self, tests: Sequence[HeldOut], every: int, log: Path, step: int, score: Callable[[HeldOut], Score]
    ) -> None:
        self._tests, self._every, self._log, self._score = tests, every, log, score
        self._first = step
        if log.exists():
            kept = [line for line in evaluations(log) if line["step"] <= step]
            write_atomic(log, "".join(json.dumps(line) + "\n" for line in kept))

    def lost(self) -> list[int]:
        """Steps whose scores were due before the run went on, and are not in the log any more."""
        due = range(self._every, self._first + 1, self._every) if self._every else ()
        known = Counter(line["step"] for line in evaluations(self._log))
        return [step for step in due if known[step] < len(self._tests)]

    def after(self, step: int) -> None:
        """Take the scores that are due after this step."""
        if not self._every or step % self._every:
            return
        for test in self._tests:
            score = self._score(test)
            line = {
                "step": step,
                "test": test.name,
                "split": test.split,
                "seal": test.seal,
                "success": score.mean if score.n else None,
                "interval": list(score.interval),
                "n": score.n,
                "invalid": score.invalid,
            }
            with self._log.open("a") as file:
                file.write(json.dumps(line) + "\n")


def dev_tests(environment: Environment, episodes: int, config: ExploreConfig) -> list[HeldOut]:
    """The benchmark-shaped test of the dev split; where there is none, up to ``episodes`` unguided tasks."""
    if not environment.worlds("dev"):
        return []
    benchmark = benchmark_turns(environment, "dev")
    return [benchmark] if benchmark.tasks else [unguided(environment, "dev", episodes, config)]


def evaluations(log: Path) -> list[dict[str, Any]]:
    """The lines of a log, without one that was cut short; empty where there is no log."""
    return read_lines(log, "remove that line, whose score cannot be taken again")
