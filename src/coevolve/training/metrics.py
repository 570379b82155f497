"""``metrics.jsonl``: one line per training step, cut back to the checkpoint on resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


class MetricsLog:
    """Appends to ``path``; only the main process has one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: dict[str, Any]) -> None:
        """Write one line. What is not a finite number becomes null, so that any JSON reader can read it."""
        with self._path.open("a") as file:
            file.write(json.dumps(_plain(record)) + "\n")

    def size(self) -> int:
        """Bytes written so far; part of a checkpoint."""
        return self._path.stat().st_size if self._path.exists() else 0

    def cut(self, size: int) -> None:
        """Forget everything after ``size`` bytes: steps that no checkpoint has."""
        if self.size() > size:
            with self._path.open("r+b") as file:
                file.truncate(size)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
