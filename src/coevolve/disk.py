"""What a disk refuses - full, read-only, failing - told in one sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coevolve.errors import CoEvolveError, RunError

GO_ON = "the same command goes on from the last checkpoint"

_ROOM, _RIGHT, _SOUND = "make room there", "make it writable", "see to the disk"
_REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
    errno.EROFS: _RIGHT,
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.EIO: _SOUND,
    errno.ESTALE: _SOUND,
}
_SQLITE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}
_NATIVE = re.compile(r"os error (\d+)|code: (\d+), kind:")
"""How safetensors, which is written in Rust, tells of an error of the operating system."""
_TORCH = ("PytorchStreamWriter", "inline_container", "unexpected pos")
"""How torch tells that a file could not be written; it does not say why."""


def refusal(error: BaseException) -> int | None:
    """The error number with which the disk did not take, or give, data; None where it was something else.

    Looks through what the error came from, since libraries wrap what the operating system said.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _REMEDIES:
            return seen.errno
        if isinstance(seen, sqlite3.Error):
            primary = getattr(seen, "sqlite_errorcode", 0) & 0xFF
            if primary in _SQLITE:
                return _SQLITE[primary]
        if not isinstance(seen, OSError | sqlite3.Error):
            found = _NATIVE.search(str(seen))
            number = int(found[1] or found[2]) if found else 0
            if number in _REMEDIES:
                return number
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _TORCH):
        return errno.ENOSPC  # by far the most likely
    return None


def sentence(what: str, number: int, way_out: str = GO_ON) -> str:
    """That ``what`` did not work, why, and what to do."""
    return f"{what}: {os.strerror(number)}; {_REMEDIES[number]}, and {way_out}"


def told(error: BaseException) -> str | None:
    """One sentence, where a command ends with something that a disk refused; None where it did not."""
    number = refusal(error)
    if number is None:
        return None
    name = getattr(error, "filename", None) or "a file"
    return sentence(f"cannot use {name}", number, "start the same command again")


@contextmanager
def insist_on_disk(folder: Path, what: str = "", way_out: str = GO_ON) -> Iterator[None]:
    """Turn what the disk refuses inside into a :class:`RunError`.

    Args:
        folder: what is written inside lies in it.
        what: is written; by default the file is named if it is known.
    """
    try:
        yield
    except CoEvolveError:
        raise
    except Exception as error:
        number = refusal(error)
        named = str(error.filename) if isinstance(error, OSError) and error.filename else ""
        if number is None or (named and not Path(named).resolve().is_relative_to(folder.resolve())):
            raise
        what = what or f"cannot write {named or f'in {folder}'}"
        raise RunError(sentence(what, number, way_out)) from error
