"""The pool file as a file: opened, locked, written in transactions, copied, compared."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from coevolve.errors import RunError
from coevolve.pool import schema
from coevolve.pool.connection import Connection, damaged
from coevolve.pool.lock import FileLock
from coevolve.pool.seal import break_seal, seal_fault, set_seal
from coevolve.types import canonical, load

T = TypeVar("T")

_CONTENT = {
    "tasks": "id, rank, step, kind, groups, streak, rested",
    "candidates": "id, step, kind, signal, admitted, reason, evidence, triplets",
    "attempts": "task, step, outcome, reward",
    "signals": "id, step, kind, task, pattern, scores, failed, solved, served",
    "rollouts": "json",
}
"""What a pool says, by table, apart from the times that work took."""


class PoolFile:
    """One SQLite file: one writer, any number of readers beside it."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: FileLock | None) -> None:
        self.path = path
        self._db = db
        self._lock = lock
        self._depth = 0

    @classmethod
    def open(cls, path: Path | str, *, fresh: bool = False) -> Self:
        """Open or create the pool file, for this process alone to write.

        Args:
            path: the file; its directory must exist. ``":memory:"`` is a pool without a file.
            fresh: begin an empty pool, whatever the file held (a run without a checkpoint).

        Raises:
            RunError: another run writes to it, or it is no pool of this layout.
        """
        path = Path(path)
        if str(path) == ":memory:":
            return cls(path, schema.create_or_check(path), None)
        if not path.parent.is_dir():
            raise RunError(f"cannot create pool file {path}: there is no directory {path.parent}")
        lock = FileLock(path)
        try:
            if not fresh:
                _insist_on_seal(path)
            break_seal(path)
            if fresh:
                for suffix in ("", "-wal", "-shm"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
            return cls(path, schema.create_or_check(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def read_only(cls, path: Path | str, *, sealed: bool = True) -> Self:
        """Open the pool file to look at it, also while a run writes to it.

        Args:
            sealed: refuse a file that has a seal and is not what was sealed; False looks at it nevertheless.

        Raises:
            RunError: there is none, it is no pool of this layout, or it is damaged.
        """
        path = Path(path)
        db = schema.open_readonly(path, Connection)
        try:
            if sealed:
                _insist_on_seal(path)
        except RunError:
            db.close()
            raise
        return cls(path, db, None)

    def close(self) -> None:
        """Close the file, seal it, and let the next run have it; idempotent."""
        self._db.close()
        if self._lock is not None:
            # What SQLite could not move into the file itself lies in the journal beside it.
            if not getattr(self._db, "suspect", False) and not schema.has_journal(self.path):
                set_seal(self.path)
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside happen together or, on an exception, not at all. May be nested."""
        if self._depth:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself rolls back where the disk is full
                self._db.execute("ROLLBACK")
            raise
        finally:
            self._depth -= 1

    # Counters

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter: what happened and left no other trace (invariant 9)."""
        self._db.execute(
            "INSERT INTO counters VALUES (?, ?)"
            " ON CONFLICT(name) DO UPDATE SET value = value + excluded.value",
            (name, by),
        )

    def counters(self) -> dict[str, float]:
        """All counters by name."""
        return dict(self._db.execute("SELECT name, value FROM counters ORDER BY name").fetchall())

    # Copies

    def backup(self, path: Path | str) -> None:
        """Write a complete copy to one file, for a checkpoint; it appears in full or not at all."""
        schema.copy_to(self._db, Path(path))

    def restore(self, path: Path | str) -> None:
        """Become what :meth:`backup` wrote, whatever happened since.

        Raises:
            RunError: the copy is missing or damaged; the pool is as it was.
        """
        schema.copy_from(self._db, Path(path))

    def sizes(self) -> dict[str, int]:
        """Rows of each table: enough to tell whether a pool belongs to a checkpoint."""
        return {table: int(self._one(f"SELECT coalesce(max(row), 0) FROM {table}")) for table in _CONTENT}

    def digest(self) -> str:
        """Equal pools, equal digests: everything but the times that work took."""
        digest = hashlib.sha256()
        for table, columns in _CONTENT.items():
            for row in self._db.execute(f"SELECT {columns} FROM {table} ORDER BY row"):
                digest.update(canonical([table, *row]).encode())
        return digest.hexdigest()[:16]

    def _one(self, query: str, *values: Any) -> Any:
        row = self._db.execute(query, values).fetchone()
        if row is None:
            raise KeyError(*values)
        return row[0]

    def _loaded(self, kind: type[T], text: str, key: str | None = None) -> T:
        """An object from its JSON; raises RunError where it is none any more, or not the one of that id."""
        try:
            found = load(kind, json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(
                self.path, f"what it holds as {kind.__name__.lower()} is none: {error!s:.120}"
            ) from None
        if key is not None and getattr(found, "id", key) != key:
            raise damaged(self.path, f"the content of {kind.__name__.lower()} {key} has changed")
        return found


def _insist_on_seal(path: Path) -> None:
    if why := seal_fault(path):
        raise damaged(path, f"{why}; whoever changed it on purpose removes that file")
