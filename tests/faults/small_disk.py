"""A disk that tests can fill: a small file system in memory, where root may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip() or done.returncode}")


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """``folder`` on a file system of its own, of ``size`` as ``mount`` takes it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system to fill")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _mount("-t", "tmpfs", "-o", f"size={size}", "coevolve-test", str(folder))
    except FileNotFoundError:
        pytest.skip("this machine has no mount command")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(folder: Path, size: str) -> None:
    """Make the file system of :func:`mounted` larger or smaller; what lies there stays."""
    _mount("-o", f"remount,size={size}", str(folder))


def writable(folder: Path, yes: bool) -> None:
    """Mount it read-only, or for writing again."""
    _mount("-o", f"remount,{'rw' if yes else 'ro'}", str(folder))


def fill(folder: Path, leave: int = 0) -> Path:
    """Fill the disk up to ``leave`` bytes with one file, which is returned."""
    ballast = folder / "ballast"
    room = os.statvfs(folder)
    with ballast.open("wb") as file:
        left = room.f_bavail * room.f_frsize - leave
        file.write(b"\0" * max(0, left))
    return ballast
