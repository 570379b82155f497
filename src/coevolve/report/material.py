"""What a report is made of: one run's directory, read once, finished or not."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from coevolve.errors import RunError
from coevolve.evaluation.between import evaluations
from coevolve.evaluation.growth import GUARD, Added, added
from coevolve.evaluation.heldout import HeldOut, read_sealed, sealed_tests
from coevolve.pool import Pool
from coevolve.pool.stored import StoredAttempts, StoredCandidate, StoredSignal
from coevolve.rundir import RunDirectory, read_lines

KINDS = ("unguided", "forgetting", "boundary", "rare", "unseen", "official")
"""Origins in the order in which they are shown."""


@dataclass(frozen=True)
class Material:
    """One run as plain data."""

    path: Path
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    """Lines of ``metrics.jsonl``."""
    evaluations: list[dict[str, Any]]
    stages: dict[str, Any]
    summary: dict[str, Any] | None
    """None while the run is not finished."""
    tests: tuple[HeldOut, ...]
    """The sealed tests; empty where there are none."""
    candidates: list[StoredCandidate]
    signals: list[StoredSignal]
    attempts: list[StoredAttempts]
    rollouts: list[tuple[int, dict[str, Any]]]
    added: list[Added]

    @property
    def name(self) -> str:
        """The run directory's name, with its parent's where that is only a seed's."""
        own = self.path.resolve()
        return f"{own.parent.name}/{own.name}" if re.fullmatch(r"s(eed-)?\d+", own.name) else own.name

    @property
    def step(self) -> int:
        """The last step that was measured."""
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    @property
    def admitted(self) -> list[StoredCandidate]:
        """The pool's tasks, in order of admission."""
        return [one for one in self.candidates if one.admitted]

    @property
    def refused(self) -> dict[str, int]:
        """Refused candidates by reason, the most frequent first."""
        return dict(Counter(one.reason for one in self.candidates if not one.admitted).most_common())

    @property
    def guarded(self) -> int:
        """Refusals by the guard of the sealed tests."""
        return self.refused.get(GUARD, 0)

    def kinds(self, found: Iterable[str]) -> list[str]:
        """The kinds among ``found``, in the order in which they are shown; strangers last."""
        there = set(found)
        return [kind for kind in KINDS if kind in there] + sorted(there - set(KINDS))

    def fates(self) -> list[dict[str, Any]]:
        """What became of the signals of each kind, from firing to admission and refusal."""
        judged: dict[str, list[StoredCandidate]] = defaultdict(list)
        for one in self.candidates:
            judged[one.kind].append(one)
        rows = []
        fired = {signal.kind for signal in self.signals}
        for kind in self.kinds(fired | {kind for kind in judged if kind not in ("unguided", "official")}):
            mine = [signal for signal in self.signals if signal.kind == kind]
            rows.append(
                {
                    "kind": kind,
                    "fired": len(mine),
                    "explored": sum(signal.served > 0 for signal in mine),
                    "explorations": sum(signal.served for signal in mine),
                    "candidates": len(judged[kind]),
                    "admitted": sum(one.admitted for one in judged[kind]),
                    "refused": dict(Counter(one.reason for one in judged[kind] if not one.admitted)),
                }
            )
        return rows


def material(path: Path) -> Material:
    """Read a run's directory; also while the run writes in it.

    Raises:
        RunError: there is no run in this directory, or its pool cannot be read.
    """
    run = RunDirectory.existing(path)
    # The newest first: what the pool says later can then only be more than the log knows.
    metrics = _metrics(run)
    stages = run.stages()
    tests = _tests(run, stages.get("sealed", {}))
    with Pool.read_only(run.pool) as pool, pool.snapshot():
        return Material(
            path=path,
            config=_config(path),
            metrics=metrics,
            evaluations=evaluations(run.evaluations),
            stages=stages,
            summary=run.finished() if run.summary.exists() else None,
            tests=tests,
            candidates=list(pool.stored_candidates()),
            signals=list(pool.stored_signals()),
            attempts=list(pool.stored_attempts()),
            rollouts=list(pool.stored_rollouts()),
            added=added(pool, [task for test in tests for task in test.tasks]),
        )


def _config(path: Path) -> dict[str, Any]:
    """As it was written: a run of an older version has a report, too."""
    file = path / "config.yaml"
    found = yaml.safe_load(file.read_text()) if file.exists() else None
    return found if isinstance(found, dict) else {}


def _metrics(run: RunDirectory) -> list[dict[str, Any]]:
    """The log; raises :class:`RunError` where a line cannot be read, or a finished run's is not whole."""
    way_out = f"{run.checkpoints}/step-N/{run.metrics.name} of the newest checkpoint is a copy"
    lines = read_lines(run.metrics, way_out)
    steps = run.finished().get("steps") if run.summary.exists() else None
    last = lines[-1]["step"] if lines else 0
    if steps is not None and last < steps:
        raise RunError(f"{run.metrics} ends at step {last} of {steps}; {way_out}")
    return lines


def _tests(run: RunDirectory, sealed: Mapping[str, str]) -> tuple[HeldOut, ...]:
    """The sealed tests; a finished run must have all of them, one that goes on makes them again."""
    if not run.summary.exists():
        return sealed_tests(run.heldout)
    way_out = f"remove {run.summary}, and the same 'coevolve run' makes what is missing and scores again"
    found = [read_sealed(run.heldout / f"{name}.jsonl", seal, way_out) for name, seal in sealed.items()]
    return tuple(test for test in found if test.tasks)
