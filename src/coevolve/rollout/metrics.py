"""What happened in rollouts, counted (invariant 9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from coevolve.types import Outcome, Rollout


@dataclass(slots=True)
class RolloutMetrics:
    """Counters over the rollouts of one or more calls of ``run``. Attempts that were thrown away for
    a retry count as ``retried`` and nowhere else."""

    rollouts: int = 0
    solved: int = 0
    failed: int = 0
    invalid: int = 0
    retried: int = 0
    steps: int = 0
    calls: int = 0
    call_errors: int = 0
    """Executed calls that the world answered with an error."""
    malformed: int = 0
    """Pieces that looked like calls and were not executed, calls over the limit of one step included."""
    cut: int = 0
    """Observations whose middle was left out."""
    generated_tokens: int = 0
    stops: Counter[str] = field(default_factory=Counter)

    def add(self, rollout: Rollout, cut: int) -> None:
        """Count one finished rollout."""
        self.rollouts += 1
        self.solved += rollout.outcome is Outcome.SOLVED
        self.failed += rollout.outcome is Outcome.FAILED
        self.invalid += rollout.outcome is Outcome.INVALID
        self.stops[rollout.stop.value] += 1
        self.cut += cut
        self.generated_tokens += sum(rollout.tokens.mask)
        for step in rollout.steps:
            self.steps += 1
            self.calls += len(step.calls)
            self.call_errors += sum(o.error is not None for o in step.observations[: len(step.calls)])
            self.malformed += len(step.malformed)

    @property
    def malformed_rate(self) -> float:
        """Share of attempted calls that were malformed."""
        return self.malformed / max(1, self.malformed + self.calls)

    def as_dict(self) -> dict[str, float]:
        """Flat figures for ``metrics.jsonl``; stop reasons as ``stop/<reason>``."""
        figures = {f.name: float(getattr(self, f.name)) for f in fields(self) if f.name != "stops"}
        figures["malformed_rate"] = self.malformed_rate
        return figures | {f"stop/{reason}": float(self.stops[reason]) for reason in sorted(self.stops)}
