"""The layout of the pool file, and how it is opened, copied and checked."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from coevolve.errors import RunError
from coevolve.pool.connection import WAY_OUT, Connection, Trouble, explained

VERSION = 3
"""Kept in ``user_version``; an older file is brought up to it when it is opened for writing, a newer one is
refused."""

_MIGRATIONS = {
    1: """
ALTER TABLE tasks ADD COLUMN last REAL;
UPDATE tasks SET last = (
    SELECT avg(outcome = 'solved') FROM attempts a WHERE a.task = tasks.row AND a.outcome != 'invalid'
    AND a.step = (SELECT max(step) FROM attempts b WHERE b.task = tasks.row AND b.outcome != 'invalid'));
""",
    2: "ALTER TABLE tasks ADD COLUMN scores TEXT;",  # a checkpoint of that time has them in its state
}
"""From each earlier version to the next."""

_TABLES = """
CREATE TABLE tasks (
    row INTEGER PRIMARY KEY,      -- 1, 2, 3 ... in order of admission; rows are never deleted
    id TEXT NOT NULL UNIQUE,      -- content address
    rank INTEGER UNIQUE,          -- 0 ... n-1, dense over the active tasks; NULL while it rests
    step INTEGER NOT NULL,        -- training step of its admission
    kind TEXT NOT NULL,           -- origin
    candidate INTEGER NOT NULL REFERENCES candidates(row),
    groups INTEGER NOT NULL DEFAULT 0,   -- groups observed with a valid rollout
    streak INTEGER NOT NULL DEFAULT 0,   -- of these, the last ones in a row that were all solved
    rested INTEGER,               -- step at which it was retired
    json TEXT NOT NULL,
    last REAL,                    -- share of the last group's valid rollouts that solved it
    scores TEXT                   -- mean rewards of its last groups, newest last: what was known of it
);
CREATE INDEX resting ON tasks(rested) WHERE rank IS NULL;
CREATE TABLE candidates (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL,             -- of its task
    step INTEGER NOT NULL,
    kind TEXT NOT NULL,
    signal TEXT,
    admitted INTEGER NOT NULL,
    reason TEXT NOT NULL,
    evidence TEXT NOT NULL,
    seconds REAL NOT NULL,
    task TEXT,                    -- NULL where it was admitted: see tasks
    triplets TEXT NOT NULL
);
CREATE TABLE attempts (           -- only ever appended, no index: the cost of a rollout stays flat
    row INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks(row),
    step INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reward REAL NOT NULL
);
CREATE TABLE signals (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    step INTEGER NOT NULL,
    kind TEXT NOT NULL,
    task INTEGER NOT NULL REFERENCES tasks(row),
    pattern TEXT NOT NULL,
    scores TEXT NOT NULL,
    failed TEXT NOT NULL,         -- rows of rollouts
    solved TEXT NOT NULL,
    served INTEGER NOT NULL DEFAULT 0   -- explorations that it has guided
);
CREATE INDEX signals_by_step ON signals(step);
CREATE TABLE rollouts (           -- evidence; shared by the signals of one step
    row INTEGER PRIMARY KEY,
    json TEXT NOT NULL
);
CREATE TABLE counters (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""


def create_or_check(path: Path) -> Connection:
    """Open a pool file for writing; an empty or missing one is laid out.

    Raises:
        RunError: it is not a pool, is damaged, or has another layout version.
    """
    try:
        db = sqlite3.connect(path, isolation_level=None, factory=Connection)
    except sqlite3.Error as error:
        raise RunError(f"cannot open pool file {path}: {error}") from None
    db.path = path
    try:
        setting_up = db.cursor(sqlite3.Cursor)  # its errors are told below: this may be no pool at all
        setting_up.execute("PRAGMA journal_mode=WAL")
        setting_up.execute("PRAGMA synchronous=NORMAL")
        if not setting_up.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            db.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={VERSION};COMMIT;")
        _check(db, path)
        _bring_up(db)
    except Trouble as error:
        db.close()
        raise _unusable(path, error) from None
    except RunError:
        db.close()
        raise
    return db


def _unusable(path: Path, error: Exception) -> Exception:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return explained(error, path)
    return RunError(f"{path} cannot be used as a pool file: {error}; {WAY_OUT}")


def open_readonly(path: Path, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """Open a pool file to look at it, also while a run writes to it.

    Args:
        kind: of the connection; by default SQLite's own, with its own errors.

    Raises:
        RunError: there is none, or it cannot be used.
    """
    if not path.is_file():
        raise RunError(f"there is no pool file {path}: is this a run directory?")
    location = path.resolve().as_uri()
    try:
        db = sqlite3.connect(f"{location}?mode=ro", uri=True, isolation_level=None, factory=kind)
        try:
            _check(db, path)
        except sqlite3.OperationalError:
            # A finished run on a read-only disk: SQLite cannot make its side files, nobody writes.
            db.close()
            if has_journal(path):
                raise RunError(
                    f"{path} was left with a journal, {path.name}-wal, that cannot be read on this disk, and "
                    "without it the pool is not whole: copy both to a disk that can be written to"
                ) from None
            db = sqlite3.connect(
                f"{location}?mode=ro&immutable=1", uri=True, isolation_level=None, factory=kind
            )
            _check(db, path)
    except Trouble as error:
        raise _unusable(path, error) from None
    if isinstance(db, Connection):
        db.path = path
    return db


def has_journal(path: Path) -> bool:
    """Whether a part of the pool lies beside the file: it is open for writing, or its writer was killed."""
    journal = path.with_name(path.name + "-wal")
    return journal.exists() and journal.stat().st_size > 0


def _check(db: sqlite3.Connection, path: Path) -> None:
    version = db.cursor(sqlite3.Cursor).execute("PRAGMA user_version").fetchone()[0]
    if not 0 < version <= VERSION:
        raise RunError(
            f"{path} has pool layout {version}, this CoEvolve reads layouts up to {VERSION}: "
            "use the version that wrote it, or start a new run"
        )


def _bring_up(db: sqlite3.Connection) -> None:
    """To the present layout, one version after the other, each whole or not at all."""
    for version in range(db.execute("PRAGMA user_version").fetchone()[0], VERSION):
        db.executescript(f"BEGIN;{_MIGRATIONS[version]}PRAGMA user_version={version + 1};COMMIT;")


def copy_to(db: sqlite3.Connection, path: Path) -> None:
    """Write a complete copy to ``path``: one file, there in full or not at all.

    Raises:
        RunError: the disk did not take it, or ``db`` is damaged.
    """
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        copy = sqlite3.connect(partial, isolation_level=None)
        try:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # no side files: the copy is this one file
        finally:
            copy.close()
        handle = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        partial.replace(path)
    except sqlite3.Error as error:
        partial.unlink(missing_ok=True)
        raise explained(error, path) from error


def copy_from(db: sqlite3.Connection, path: Path) -> None:
    """Replace everything in ``db`` by the copy at ``path``.

    Raises:
        RunError: the copy is missing, damaged or of another layout, or the disk did not take it; ``db`` is as
            it was.
    """
    copy = open_readonly(path)
    try:
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise RunError(f"pool copy {path} is damaged ({found}): use an earlier checkpoint")
    except Trouble as error:
        copy.close()
        raise RunError(f"pool copy {path} is damaged ({error}): use an earlier checkpoint") from None
    try:
        copy.backup(db)
        db.execute("PRAGMA journal_mode=WAL")
        _bring_up(db)
    except sqlite3.Error as error:
        raise explained(error, getattr(db, "path", path)) from error
    finally:
        copy.close()
