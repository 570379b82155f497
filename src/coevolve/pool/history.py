"""What training hands to the pool: attempts, and signals with their evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coevolve.errors import RunError
from coevolve.pool.stored import Stored
from coevolve.types import Group, Outcome, Rollout, Signal, SignalKind, Task, canonical, dump


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """What one needs to choose among signals without reading their evidence."""

    id: str
    kind: SignalKind
    step: int
    served: int
    """Explorations that it has guided."""


class History(Stored):
    """The part of the pool that grows with every step of training; its cost per rollout is flat."""

    # Attempts

    def record_groups(self, step: int, groups: Sequence[Group]) -> None:
        """Store every rollout as an attempt; invalid ones touch no history (invariant 1).

        Raises:
            RunError: a group's task is not in the pool.
        """
        with self.transaction():
            for group in groups:
                row = self._row(group.task)
                self._db.executemany(
                    "INSERT INTO attempts(task, step, outcome, reward) VALUES (?, ?, ?, ?)",
                    [(row, step, str(rollout.outcome), rollout.reward) for rollout in group.rollouts],
                )
                if group.valid:
                    solved = sum(rollout.outcome is Outcome.SOLVED for rollout in group.valid)
                    share = solved / len(group.valid)
                    streak = "streak + 1" if share == 1 else "0"
                    self._db.execute(
                        f"UPDATE tasks SET groups = groups + 1, streak = {streak}, last = ? WHERE row = ?",
                        (share, row),
                    )

    def outcomes(self) -> dict[str, int]:
        """Rollouts by outcome, over all steps."""
        rows = self._db.execute("SELECT outcome, count(*) FROM attempts GROUP BY outcome ORDER BY outcome")
        counts: dict[str, int] = {str(outcome): 0 for outcome in Outcome}
        return counts | dict(rows.fetchall())

    def last_success(self, task: str) -> float | None:
        """Share of solved rollouts among the valid ones of the task's last group; None without one."""
        row = self._db.execute("SELECT last FROM tasks WHERE id = ?", (task,)).fetchone()
        return None if row is None or row[0] is None else float(row[0])

    def scores(self, task: str) -> list[float]:
        """What the forgetting signal remembers of the task of this id, oldest first."""
        row = self._db.execute("SELECT scores FROM tasks WHERE id = ?", (task,)).fetchone()
        return [] if row is None or row[0] is None else [float(score) for score in json.loads(row[0])]

    def keep_scores(self, task: str, scores: Sequence[float]) -> None:
        """Remember these instead."""
        self._db.execute("UPDATE tasks SET scores = ? WHERE id = ?", (canonical(list(scores)), task))

    def record_signals(self, step: int, signals: Sequence[Signal]) -> None:
        """Store signals with their evidence; a rollout that several of them show is stored once."""
        kept: dict[str, int] = {}
        with self.transaction():
            for signal in signals:
                values = (
                    signal.id,
                    step,
                    signal.kind,
                    self._row(signal.task),
                    canonical(list(signal.pattern)),
                    canonical(list(signal.scores)),
                    canonical([self._keep(rollout, kept) for rollout in signal.failed]),
                    canonical([self._keep(rollout, kept) for rollout in signal.solved]),
                )
                self._db.execute(
                    "INSERT INTO signals(id, step, kind, task, pattern, scores, failed, solved)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    values,
                )

    def _row(self, task: Task) -> int:
        row = self._db.execute("SELECT row FROM tasks WHERE id = ?", (task.id,)).fetchone()
        if row is None:
            raise RunError(
                f"task {task.name or task.id} is not in the pool {self.path}: "
                "observe only groups of tasks that were drawn from it"
            )
        return int(row[0])

    def _keep(self, rollout: Rollout, kept: dict[str, int]) -> int:
        text = canonical(dump(rollout))
        if text not in kept:
            row = self._db.execute("INSERT INTO rollouts(json) VALUES (?)", (text,)).lastrowid
            kept[text] = int(row or 0)
        return kept[text]

    # Signals

    def signals(self) -> Iterator[Signal]:
        """Every signal with its evidence, oldest first."""
        for (key,) in self._db.execute("SELECT id FROM signals ORDER BY row").fetchall():
            yield self.signal(key)

    def signal(self, key: str) -> Signal:
        """The signal of this id with its evidence; raises KeyError."""
        row = self._db.execute(
            "SELECT s.kind, s.step, t.json, s.pattern, s.scores, s.failed, s.solved"
            " FROM signals s JOIN tasks t ON t.row = s.task WHERE s.id = ?",
            (key,),
        ).fetchone()
        if row is None:
            raise KeyError(key)
        kind, step, task, pattern, scores, failed, solved = row
        return Signal(
            kind,
            step,
            self._loaded(Task, task),
            scores=tuple(json.loads(scores)),
            pattern=tuple(json.loads(pattern)),
            failed=tuple(self._rollout(rollout) for rollout in json.loads(failed)),
            solved=tuple(self._rollout(rollout) for rollout in json.loads(solved)),
        )

    def _rollout(self, row: int) -> Rollout:
        return self._loaded(Rollout, self._one("SELECT json FROM rollouts WHERE row = ?", row))

    def signals_since(self, step: int) -> list[SignalRecord]:
        """The signals of all steps after ``step``, oldest first."""
        rows = self._db.execute(
            "SELECT id, kind, step, served FROM signals WHERE step > ? ORDER BY step, row", (step,)
        )
        return [SignalRecord(*row) for row in rows]

    def serve(self, signal: str) -> None:
        """Note that the signal has guided one more exploration."""
        self._db.execute("UPDATE signals SET served = served + 1 WHERE id = ?", (signal,))
