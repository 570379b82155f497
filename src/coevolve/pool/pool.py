"""The task pool D_t: tasks, attempts, signals, and every candidate with its verdict, in one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coevolve.errors import HeldOutError
from coevolve.pool.history import History
from coevolve.types import Candidate, Task, Triplet, Verdict, canonical, dump, load


@dataclass(frozen=True, slots=True)
class Judgement:
    """One candidate as it was judged, admitted or not."""

    step: int
    candidate: Candidate
    verdict: Verdict


class Pool(History):
    """D_t in one SQLite file; one writer, any number of readers beside it.

    Tasks are content-addressed: what is in is in once. Active tasks are numbered 0 ... n-1 without
    gaps (their *rank*), so a draw costs the same from a hundred tasks as from a hundred thousand.
    """

    # Tasks

    def __len__(self) -> int:
        """All tasks, resting ones included."""
        return int(self._one("SELECT coalesce(max(row), 0) FROM tasks"))

    def __contains__(self, task: object) -> bool:
        key = task.id if isinstance(task, Task) else task
        return self._db.execute("SELECT 1 FROM tasks WHERE id = ?", (key,)).fetchone() is not None

    def get(self, task: str) -> Task:
        """The task of this id; raises KeyError."""
        row = self._db.execute("SELECT json FROM tasks WHERE id = ?", (task,)).fetchone()
        if row is None:
            raise KeyError(task)
        return self._loaded(Task, row[0], task)

    def __iter__(self) -> Iterator[Task]:
        return self.tasks()

    def tasks(self) -> Iterator[Task]:
        """Every task in order of admission, resting ones included."""
        for (text,) in self._db.execute("SELECT json FROM tasks ORDER BY row"):
            yield self._loaded(Task, text)

    @property
    def active(self) -> int:
        """How many tasks can be drawn."""
        return int(self._one("SELECT coalesce(max(rank), -1) + 1 FROM tasks"))

    def at_ranks(self, ranks: Iterable[int]) -> list[Task]:
        """The active tasks with these ranks (0 <= rank < :attr:`active`), in the order asked."""
        found = []
        for rank in ranks:
            row = self._db.execute("SELECT json, id FROM tasks WHERE rank = ?", (rank,)).fetchone()
            if row is None:
                raise KeyError(rank)
            found.append(self._loaded(Task, *row))
        return found

    def add(self, candidate: Candidate | Task, verdict: Verdict, step: int) -> bool:
        """Admit a verified candidate; the verdict is stored with it.

        Returns:
            False if the pool holds this very task already: stored as refused, reason ``duplicate``.

        Raises:
            HeldOutError: its world is not of the train split (invariant 4).
            ValueError: the verdict does not admit it.
        """
        candidate = Candidate(candidate) if isinstance(candidate, Task) else candidate
        task = candidate.task
        if task.world.split != "train":
            raise HeldOutError(
                f"task {task.name or task.id} lies in a {task.world.split} world: "
                "only tasks of the train split may enter the pool"
            )
        if not verdict.admitted:
            raise ValueError(f"task {task.id} was refused ({verdict.reason}) and cannot be added")
        if task in self:
            refusal = Verdict(False, "duplicate", {"of": task.id}, verdict.seconds)
            self.refuse(candidate, refusal, step)
            return False
        with self.transaction():
            row = self._judge(candidate, verdict, step)
            self._db.execute(
                "INSERT INTO tasks(id, rank, step, kind, candidate, json) VALUES (?, ?, ?, ?, ?, ?)",
                (task.id, self.active, step, task.origin.kind, row, canonical(dump(task))),
            )
        return True

    def refuse(self, candidate: Candidate, verdict: Verdict, step: int) -> None:
        """Store a refused candidate with its reason and evidence (invariant 9)."""
        if verdict.admitted:
            raise ValueError(f"task {candidate.task.id} was admitted and cannot be refused")
        self._judge(candidate, verdict, step)

    def _judge(self, candidate: Candidate, verdict: Verdict, step: int) -> int:
        task = candidate.task
        cursor = self._db.execute(
            "INSERT INTO candidates"
            "(id, step, kind, signal, admitted, reason, evidence, seconds, task, triplets)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                task.id,
                step,
                task.origin.kind,
                task.origin.signal,
                verdict.admitted,
                verdict.reason,
                canonical(verdict.evidence),
                verdict.seconds,
                None if verdict.admitted else canonical(dump(task)),
                canonical([dump(triplet) for triplet in candidate.triplets]),
            ),
        )
        return int(cursor.lastrowid or 0)

    # Verdicts

    def judgements(self) -> Iterator[Judgement]:
        """Every candidate with its verdict, in order of judgement."""
        rows = self._db.execute(
            "SELECT c.step, coalesce(c.task, t.json), c.triplets, c.admitted, c.reason, c.evidence, c.seconds"
            " FROM candidates c LEFT JOIN tasks t ON t.candidate = c.row AND c.admitted ORDER BY c.row"
        )
        for step, task, triplets, admitted, reason, evidence, seconds in rows:
            yield Judgement(
                step,
                Candidate(
                    self._loaded(Task, task), tuple(load(Triplet, one) for one in json.loads(triplets))
                ),
                Verdict(bool(admitted), reason, json.loads(evidence), seconds),
            )

    def admitted(self) -> dict[str, int]:
        """Tasks by origin kind."""
        rows = self._db.execute("SELECT kind, count(*) FROM tasks GROUP BY kind ORDER BY kind")
        return dict(rows.fetchall())

    def refused(self) -> dict[str, int]:
        """Refused candidates by reason."""
        rows = self._db.execute(
            "SELECT reason, count(*) FROM candidates WHERE NOT admitted GROUP BY reason ORDER BY reason"
        )
        return dict(rows.fetchall())

    # Retirement (samplers.py decides, the pool keeps the ranks dense)

    def rest(self, task: str, step: int) -> bool:
        """Take an active task out of the draws; False if it rests already."""
        with self.transaction():
            rank, last = self._one("SELECT rank FROM tasks WHERE id = ?", task), self.active - 1
            if rank is None:
                return False
            self._db.execute("UPDATE tasks SET rank = NULL, rested = ? WHERE id = ?", (step, task))
            if rank != last:
                self._db.execute("UPDATE tasks SET rank = ? WHERE rank = ?", (rank, last))
        return True

    def wake(self, task: str) -> bool:
        """Bring a resting task back, its streak forgotten; False if it does not rest."""
        with self.transaction():
            changed = self._db.execute(
                "UPDATE tasks SET rank = ?, streak = 0, rested = NULL WHERE id = ? AND rank IS NULL",
                (self.active, task),
            ).rowcount
        return bool(changed)

    def resting(self, n: int) -> list[str]:
        """Ids of the ``n`` tasks that have rested longest."""
        found = self._db.execute(
            "SELECT id FROM tasks WHERE rank IS NULL ORDER BY rested, row LIMIT ?", (n,)
        ).fetchall()
        return [task for (task,) in found]

    def streak(self, task: str) -> int:
        """How many of the task's last groups in a row were solved by every valid rollout."""
        return int(self._one("SELECT streak FROM tasks WHERE id = ?", task))
