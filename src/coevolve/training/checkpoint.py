"""Checkpoints that are complete or ignored (invariant 8).

A checkpoint is written into a scratch folder, sealed with a manifest of all its files and their hashes,
and only then moved to ``checkpoints/step-N``. Whatever is cut short, altered or lacks its manifest does
not count, and the caller is told so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
SCRATCH = "unfinished"
"""Folder below ``checkpoints/`` in which the next one is being written."""
_DOOMED = "removed-"


@dataclass(frozen=True, slots=True)
class Ignored:
    """A folder that looks like a checkpoint and is not one."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Found:
    """The last complete checkpoint, and what newer ones had to be passed over."""

    path: Path | None
    step: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[Ignored, ...] = ()


def latest_complete(root: Path) -> Found:
    """Look through ``root`` from the newest checkpoint down."""
    ignored: list[Ignored] = []
    for step, path in sorted(numbered(root), reverse=True):
        why = fault(path)
        if why is None:
            facts = json.loads((path / MANIFEST).read_text())["facts"]
            return Found(path, step, facts, tuple(ignored))
        ignored.append(Ignored(path, why))
    return Found(None, ignored=tuple(ignored))


def fault(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        listed = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
        manifest["facts"]
    except FileNotFoundError:
        return "it has no manifest, so it was cut short while being written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest cannot be read"
    for name, (size, digest) in sorted(listed.items()):
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes instead of {size}"
        if _digest(file) != digest:
            return f"{name} was altered (its hash differs)"
    return None


def publish(folder: Path, root: Path, step: int, facts: dict[str, Any], keep: int) -> Path:
    """Seal ``folder``, move it to ``root/step-N``, and delete all but the ``keep`` newest.

    On return the checkpoint is on disk; killed before, there is none.
    """
    files = {}
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        _flush(file)
        files[file.relative_to(folder).as_posix()] = {"bytes": file.stat().st_size, "sha256": _digest(file)}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"step": step, "facts": facts, "files": files}, indent=1) + "\n")
    _flush(manifest)
    _flush(folder)
    target = root / f"step-{step}"
    if target.exists():  # left broken by a run before, or latest_complete would have gone on from it
        _remove(target)
    folder.rename(target)
    _flush(root)
    for number, path in sorted(numbered(root), reverse=True)[keep:]:
        if number < step:
            _remove(path)
    return target


def clear(root: Path) -> None:
    """Remove what a process that was killed here had not finished to write, or to remove."""
    for path in (root / SCRATCH, *root.glob(f"{_DOOMED}*")):
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Out of the way at once, so that a kill leaves no half-removed checkpoint under its name."""
    doomed = path.with_name(_DOOMED + path.name)
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


def numbered(root: Path) -> Iterator[tuple[int, Path]]:
    """Whatever looks like a checkpoint below ``root``, with its step."""
    for path in root.glob("step-*"):
        number = path.name.removeprefix("step-")
        if path.is_dir() and number.isdecimal():
            yield int(number), path


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
