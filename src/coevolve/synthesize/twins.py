"""What the pool holds, kept for the search of duplicates: memory stays the same however large the pool is."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from coevolve.errors import RunError

_TABLES = """
CREATE TABLE sketches (row INTEGER PRIMARY KEY, task TEXT NOT NULL UNIQUE, sketch BLOB NOT NULL);
CREATE TABLE solutions (key TEXT PRIMARY KEY, task TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE bands (hash INTEGER NOT NULL, row INTEGER NOT NULL, PRIMARY KEY (hash, row)) WITHOUT ROWID;
"""
_CACHE_KIB = 8192

Sketch = npt.NDArray[np.uint32]
"""MinHash values of a task's shingles, shape [permutations]."""


class Twins:
    """Sketches and solutions of the tasks so far, in a temporary file that goes with this object.

    A task is near to another if at least one *band* of their sketches agrees (locality-sensitive hashing) and
    the share of equal values reaches ``threshold``. May be used from any thread, by one at a time.

    Args:
        bands: into how many pieces a sketch is cut.
        width: values in a piece.
        threshold: estimated Jaccard similarity from which two tasks are near.
    """

    def __init__(self, bands: int, width: int, threshold: float) -> None:
        self._bands = bands
        self._width = width
        self._threshold = threshold
        self._lock = threading.Lock()
        # An empty name is a private file, gone with the process; what does not fit the cache lies there.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        self._db.executescript(_TABLES)

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT coalesce(max(row), 0) FROM sketches").fetchone()[0])

    def __contains__(self, task: str) -> bool:
        with self._lock:
            found = self._db.execute("SELECT 1 FROM sketches WHERE task = ?", (task,)).fetchone()
        return found is not None

    def add(self, task: str, solution: str, sketch: Sketch) -> None:
        """Remember a task by its id, the key of its solution, and its sketch; once is enough.

        Raises:
            RunError: the disk for temporary files is full.
        """
        with self._lock:
            try:
                cursor = self._db.execute(
                    "INSERT OR IGNORE INTO sketches(task, sketch) VALUES (?, ?)", (task, sketch.tobytes())
                )
                if cursor.rowcount:
                    bands = [(mark, cursor.lastrowid) for mark in self._marks(sketch)]
                    self._db.executemany("INSERT OR IGNORE INTO bands VALUES (?, ?)", bands)
                    self._db.execute("INSERT OR IGNORE INTO solutions VALUES (?, ?)", (solution, task))
            except sqlite3.Error as error:
                raise RunError(
                    f"the search for duplicates cannot be kept ({error}): make room for temporary files, or "
                    "name a folder that has some in SQLITE_TMPDIR"
                ) from None

    def same(self, solution: str) -> str | None:
        """The first task with this solution."""
        with self._lock:
            row = self._db.execute("SELECT task FROM solutions WHERE key = ?", (solution,)).fetchone()
        return None if row is None else str(row[0])

    def near(self, sketch: Sketch) -> tuple[str, float] | None:
        """The task of the smallest id that is near, and how near it is."""
        marks = list(self._marks(sketch))
        places = ", ".join("?" * len(marks))
        with self._lock:
            rows = self._db.execute(
                "SELECT task, sketch FROM sketches"
                f" WHERE row IN (SELECT row FROM bands WHERE hash IN ({places})) ORDER BY task",
                marks,
            )
            for task, kept in rows:
                similarity = float(np.mean(np.frombuffer(kept, np.uint32) == sketch))
                if similarity >= self._threshold:
                    return str(task), similarity
        return None

    def _marks(self, sketch: Sketch) -> Iterator[int]:
        """One number of 64 bits for each band: equal bands, equal numbers."""
        for band in range(self._bands):
            piece = sketch[band * self._width : (band + 1) * self._width].tobytes()
            digest = hashlib.blake2b(bytes([band]) + piece, digest_size=8).digest()
            yield int.from_bytes(digest, "big", signed=True)
