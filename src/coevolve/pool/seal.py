"""A pool file that nobody writes to has a seal beside it: ``pool.db.sha256``.

Whoever writes breaks the seal before the first change and sets it after the last, so where there is one the
file must be, byte for byte, what was written. After a kill there is none: a run that goes on takes the pool
from its checkpoint, whose manifest has its hash.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path


def seal_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def set_seal(path: Path) -> None:
    """Seal a closed pool file. A disk that cannot take the seal leaves the file without one."""
    target = seal_of(path)
    scratch = target.with_name(target.name + ".part")
    with suppress(OSError):
        scratch.write_text(f"{_digest(path)}  {path.name}\n")
        scratch.replace(target)


def break_seal(path: Path) -> None:
    """Before the first change; on return the seal is gone for good."""
    try:
        seal_of(path).unlink()
    except FileNotFoundError:
        return
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal_fault(path: Path) -> str | None:
    """How a sealed pool file differs from what was sealed; None where it does not, or has no seal."""
    seal = seal_of(path)
    try:
        expected = seal.read_text(errors="replace").split()
        found = _digest(path)
    except OSError:
        return None  # no seal, or a writer is just breaking it
    if expected[:1] == [found] or not seal.exists():
        return None
    return f"its SHA-256 is {found[:16]}..., not the one in {seal.name}"


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
