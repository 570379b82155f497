"""The connection to a pool file, whose errors are sentences with a way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

from coevolve.disk import refusal, sentence
from coevolve.errors import RunError

T = TypeVar("T")

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
WAY_OUT = (
    "a run that goes on takes the copy in its last checkpoint, elsewhere put that in its place: "
    "checkpoints/step-N/source/pool.db"
)
_IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def damaged(path: object, why: object) -> RunError:
    """A pool file whose content is not what was written."""
    return RunError(f"pool file {path} is damaged ({' '.join(str(why).split())}); {WAY_OUT}")


Trouble = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises; the second where a damaged file's own bytes are in its message."""


def explained(error: Exception, path: object) -> Exception:
    """What an error of SQLite means for the user; a bug of ours stays what it is."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in _DAMAGED or isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in str(error):
        return damaged(path, error)
    if primary in _IN_USE:
        return RunError(f"pool file {path} is locked by another program ({error}): close that one first")
    number = refusal(error)
    return error if number is None else RunError(sentence(f"cannot write pool file {path}", number))


class Rows(sqlite3.Cursor):
    """A cursor that explains what goes wrong, at the first row and at each later one."""

    def execute(self, sql: str, values: Any = (), /) -> Self:
        return self._told(super().execute, sql, values)

    def executemany(self, sql: str, values: Iterable[Any], /) -> Self:
        return self._told(super().executemany, sql, values)

    def fetchone(self) -> Any:
        return self._told(super().fetchone)

    def fetchall(self) -> list[Any]:
        return self._told(super().fetchall)

    def __next__(self) -> Any:
        return self._told(super().__next__)

    def _told(self, work: Callable[..., T], *values: Any) -> T:
        try:
            return work(*values)
        except Trouble as error:
            home: Any = self.connection
            told = explained(error, home.path)
            if told is error:
                raise
            home.suspect = True
            raise told from error


class Connection(sqlite3.Connection):
    """Opened by :mod:`coevolve.pool.schema`; for whoever uses a pool."""

    path: Path = Path()
    suspect = False
    """The file was found damaged, or something could not be written to it."""

    def cursor(self, factory: Any = Rows) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, values: Any = (), /) -> Rows:
        rows: Rows = self.cursor().execute(sql, values)
        return rows

    def executemany(self, sql: str, values: Iterable[Any], /) -> Rows:
        rows: Rows = self.cursor().executemany(sql, values)
        return rows
