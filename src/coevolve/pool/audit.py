"""What may be wrong with a pool file, found by reading all of it: a finding is a sentence with a culprit.

Nothing is taken for granted: a row that cannot be read is a finding, not an error.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coevolve.errors import RunError
from coevolve.pool import schema
from coevolve.pool.portable import IMPORTED
from coevolve.types import Rollout, Task, fingerprint, load

GUIDED = ("forgetting", "boundary", "rare", "unseen")
"""Origins that a signal has asked for."""


class Audit:
    """A pool file opened to look at it, also while a run writes to it: all findings are of one moment.

    Raises:
        RunError: there is no such file, or it is no pool of this layout.
    """

    def __init__(self, path: Path) -> None:
        self._db = schema.open_readonly(path)
        self._db.execute("BEGIN")

    def close(self) -> None:
        self._db.close()

    def file(self) -> Iterator[str]:
        """Damage to the file itself: its pages, its indexes, rows that point nowhere, ranks with gaps."""
        for (said,) in self._db.execute("PRAGMA integrity_check(10)"):
            if said != "ok":
                yield str(said)
        for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} points to a row of {parent} that is not there"
        for table in ("tasks", "candidates", "attempts", "signals", "rollouts"):
            count, last = self._one(f"SELECT count(*), coalesce(max(row), 0) FROM {table}")
            if count != last:
                yield f"{last - count} rows of {table} are missing"
        awake, last = self._one("SELECT count(rank), coalesce(max(rank), -1) FROM tasks")
        if awake != last + 1:
            yield f"{awake} tasks can be drawn, but their ranks go up to {last}"

    def addresses(self) -> Iterator[str]:
        """Tasks, refused candidates and signals whose id is not that of their content."""
        for key, kind, text in self._db.execute("SELECT id, kind, json FROM tasks ORDER BY row"):
            yield from _task_faults(f"task {key}", key, kind, text)
        rows = self._db.execute(
            "SELECT row, id, kind, task FROM candidates WHERE task IS NOT NULL ORDER BY row"
        )
        for row, key, kind, text in rows:
            yield from _task_faults(f"refused candidate {row} (task {key})", key, kind, text)
        rows = self._db.execute(
            "SELECT s.id, s.kind, s.step, t.id, s.pattern, s.scores FROM signals s"
            " LEFT JOIN tasks t ON t.row = s.task ORDER BY s.row"
        )
        for key, *parts, pattern, scores in rows:
            try:
                own = fingerprint([*parts, json.loads(pattern), json.loads(scores)])
            except (ValueError, TypeError) as error:
                own = f"unreadable ({error})"
            if own != key:
                yield f"signal {key}: its content is that of {own}"

    def lineage(self) -> Iterator[str]:
        """Whatever a task or a signal names and the pool does not hold.

        An imported task may name parents and a signal of the pool that it came from.
        """
        for key, step, text, row, named, admitted, evidence, triplets in self._db.execute(
            "SELECT t.id, t.step, t.json, t.candidate, c.id, c.admitted, c.evidence, c.triplets"
            " FROM tasks t LEFT JOIN candidates c ON c.row = t.candidate ORDER BY t.row"
        ):
            if named != key or not admitted:
                yield f"task {key}: its verdict (candidate {row}) is not there, or is not its own"
                continue
            try:
                origin = load(Task, json.loads(text)).origin
                imported = IMPORTED in json.loads(evidence)
                explored = json.loads(triplets)
            except (ValueError, TypeError, RecursionError) as error:
                yield f"task {key} cannot be read: {_short(error)}"
                continue
            if imported:
                continue
            for parent in origin.parents:
                if not self._has("tasks", parent):
                    yield f"task {key}: its parent {parent} is not in the pool"
            if origin.kind in GUIDED and origin.signal is None:
                yield f"task {key}: no signal is named, though its origin is {origin.kind}"
            if origin.signal is not None and not self._has("signals", origin.signal):
                yield f"task {key}: its signal {origin.signal} is not in the pool"
            if origin.explorer and not explored:
                yield f"task {key}: the exploration by {origin.explorer} that it was made of is not there"
            if origin.explorer and origin.step != step:
                yield f"task {key}: made at step {origin.step}, admitted at step {step}"
        for key, row in self._db.execute(
            "SELECT c.id, c.row FROM candidates c LEFT JOIN tasks t ON t.candidate = c.row"
            " WHERE c.admitted AND t.row IS NULL"
        ):
            yield f"candidate {row} (task {key}) was admitted, and its task is not there"
        for row, signal in self._db.execute(
            "SELECT row, signal FROM candidates WHERE task IS NOT NULL AND signal IS NOT NULL"
            f" AND json_extract(evidence, '$.{IMPORTED}') IS NULL"
            " AND signal NOT IN (SELECT id FROM signals) ORDER BY row"
        ):
            yield f"refused candidate {row}: its signal {signal} is not in the pool"
        yield from self._evidence()

    def _evidence(self) -> Iterator[str]:
        """Signals whose task or rollouts are not there, and rollouts of tasks that are not."""
        for key, task, failed, solved in self._db.execute(
            "SELECT s.id, t.id, s.failed, s.solved FROM signals s LEFT JOIN tasks t ON t.row = s.task"
        ):
            if task is None:
                yield f"signal {key}: its task is not in the pool"
            try:
                rows = [*json.loads(failed), *json.loads(solved)]
            except (ValueError, TypeError) as error:
                yield f"signal {key} cannot be read: {_short(error)}"
                continue
            for row in rows:
                if not self._db.execute("SELECT 1 FROM rollouts WHERE row = ?", (row,)).fetchone():
                    yield f"signal {key}: its rollout {row} is not there"
        for row, text in self._db.execute("SELECT row, json FROM rollouts ORDER BY row"):
            try:
                task = load(Rollout, json.loads(text)).task
            except (ValueError, TypeError, RecursionError) as error:
                yield f"rollout {row} cannot be read: {_short(error)}"
                continue
            if not self._has("tasks", task):
                yield f"rollout {row}: its task {task} is not in the pool"

    def attempts(self) -> dict[int, dict[str, int]]:
        """Rollouts by step and outcome."""
        found: dict[int, dict[str, int]] = {}
        for step, outcome, count in self._db.execute(
            "SELECT step, outcome, count(*) FROM attempts GROUP BY step, outcome ORDER BY step"
        ):
            found.setdefault(step, {})[outcome] = count
        return found

    def _one(self, query: str) -> Any:
        return self._db.execute(query).fetchone()

    def _has(self, table: str, key: str) -> bool:
        return self._db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (key,)).fetchone() is not None


def _task_faults(what: str, key: str, kind: str, text: str) -> Iterator[str]:
    try:
        task = load(Task, json.loads(text))
        own = task.id
    except (ValueError, TypeError, RecursionError) as error:
        yield f"{what} cannot be read: {_short(error)}"
        return
    if own != key:
        yield f"{what}: its content is that of {own}"
    if task.origin.kind != kind:
        yield f"{what}: its origin is {task.origin.kind}, listed as {kind}"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def audit(path: Path) -> Audit:
    """Open a pool to audit it; raises RunError where even that cannot be done."""
    try:
        return Audit(path)
    except sqlite3.Error as error:
        raise RunError(f"{path} cannot be read: {error}") from None
