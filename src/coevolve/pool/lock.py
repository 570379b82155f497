"""One writer per pool file or run directory, across processes and within one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from coevolve.errors import RunError

_held: set[Path] = set()
"""Files locked by this process: record locks do not exclude their own process."""


class FileLock:
    """An exclusive lock beside ``path`` (``what`` names it in errors), gone with the process.

    A record lock (``lockf``), not ``flock``: worker processes forked later do not inherit it, so a
    killed run never leaves its pool locked by orphans.

    Raises:
        RunError: another run, or another pool object of this process, holds the file.
    """

    def __init__(self, path: Path, what: str = "") -> None:
        what = what or f"pool file {path}"
        self._file = path.with_name(path.name + ".lock").resolve()
        if self._file in _held:
            raise RunError(f"{what} is in use by this process (pid {os.getpid()}): close it first")
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise RunError(f"{what} is in use by another run (pid {owner}): wait for it or stop it") from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle: int | None = handle
        _held.add(self._file)

    def release(self) -> None:
        """Let others in; idempotent. The lock file stays, or two could lock two files of one name."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
            _held.discard(self._file)
