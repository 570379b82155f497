"""A run's directory: who may write in it, which configuration it belongs to, which stages are done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from coevolve.config import Config
from coevolve.config_file import parse_config
from coevolve.errors import RunError
from coevolve.pool.lock import FileLock

# Keys that may differ when a run goes on: they shape neither pool nor weights.
FREE = (
    "environment.workers",
    "environment.call_seconds",
    "environment.memory_mb",
    "checkpoint.keep",
    "train.threads",
    "train.report_to",
)


class RunDirectory:
    """``runs/<name>/``: config.yaml, pool.db with its seal, metrics.jsonl, checkpoints/, heldout/, and in the
    end summary.json and report.html."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pool = path / "pool.db"
        self.metrics = path / "metrics.jsonl"
        self.evaluations = path / "evaluations.jsonl"
        self.checkpoints = path / "checkpoints"
        self.heldout = path / "heldout"
        self.model = path / "model"
        self.summary = path / "summary.json"
        self._stages = path / "stages.json"
        self._lock: FileLock | None = None

    @classmethod
    def existing(cls, path: Path) -> RunDirectory:
        """A run to read from.

        Raises:
            RunError: there is no run in this directory.
        """
        run = cls(path)
        if not run.pool.exists():
            raise RunError(f"{path} is not a run directory (it has no pool.db); 'coevolve run' makes one")
        return run

    def claim(self, config: Config) -> None:
        """Take the directory for this process, and bind it to ``config``.

        Raises:
            RunError: another process has it, or it belongs to another configuration.
        """
        self._lock = own_folder(self.path, "run", f"run directory {self.path}")
        try:
            self._bind(config)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the directory back; the operating system does so too when the process dies."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def begun(self) -> bool:
        """A run has been at work here: its pool belongs to its weights and checkpoints."""
        return self._stages.exists() or self.checkpoints.exists()

    def _bind(self, config: Config) -> None:
        path = self.path / "config.yaml"
        if not self.begun:  # nothing was made yet: a mistake may be mended
            write_atomic(path, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
            return
        if not path.exists():
            raise RunError(
                f"{path} is missing, so nobody knows what the run there was made with; put it back, or "
                "choose another --out"
            )
        if said := self.difference(config):
            raise RunError(
                f"{self.path} was made with another configuration ({said}); "
                "use the same configuration to go on, or another --out"
            )

    def difference(self, config: Config) -> str:
        """Where ``config`` would make another pool or other weights than what lies here; '' if nowhere."""
        before = self.config().model_dump(mode="json")
        now = config.model_dump(mode="json")
        changed = [key for key in sorted(_differences(before, now)) if key not in FREE]
        return "; ".join(f"{key}: {_at(before, key)!r} there, {_at(now, key)!r} here" for key in changed[:5])

    def config(self) -> Config:
        """The resolved configuration that the run was made with."""
        path = self.path / "config.yaml"
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise RunError(
                f"{path} cannot be read ({' '.join(str(error).split())}); put a copy back, or choose another "
                "--out"
            ) from None
        return parse_config(data, str(path))

    def stages(self) -> dict[str, Any]:
        """Results of the stages that are done, by name."""
        if not self._stages.exists():
            return {}
        return read_json(
            self._stages,
            "remove it, and the held-out tests and the scores before training are made again",
        )

    def finished(self) -> dict[str, Any]:
        """The summary of a finished run; raises :class:`RunError` where it cannot be read."""
        return read_json(
            self.summary, "remove it, and the same 'coevolve run' takes the scores after training again"
        )

    def finish_stage(self, name: str, result: Any) -> None:
        """Note that a stage is done, with what it found."""
        write_atomic(self._stages, json.dumps({**self.stages(), name: result}, indent=2) + "\n")


def own_folder(path: Path, name: str, what: str) -> FileLock:
    """Make a folder and take it for this process, by a lock file ``name`` in it; ``what`` names it in errors.

    Raises:
        RunError: it cannot be written, or another process has it.
    """
    make_folder(path)
    with _writing_in(path):
        return FileLock(path / name, what)


def make_folder(path: Path) -> None:
    """Make it where it is missing; raises :class:`RunError` if it cannot be written."""
    with _writing_in(path):
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def _writing_in(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write in {path}: {error.strerror}; choose another --out") from None


def read_json(path: Path, way_out: str) -> dict[str, Any]:
    """An object from a JSON file.

    Raises:
        RunError: it cannot be read, or is no object; ``way_out`` says what to do then.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); {way_out}") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} cannot be read (it holds no object); {way_out}")
    return found


def read_lines(path: Path, way_out: str) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines but for a last one that was cut short; none without a file.

    Raises:
        RunError: a line cannot be read; ``way_out`` says what to do then.
    """
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    found = []
    for number, text in enumerate(whole.split(b"\n") if whole else (), 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise RunError(f"line {number} of {path} cannot be read ({error}); {way_out}") from None
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise RunError(f"line {number} of {path} is of no step; {way_out}")
        found.append(line)
    return found


def write_atomic(path: Path, text: str) -> None:
    """All of ``text`` or the old file, never half of it, whatever happens."""
    scratch = path.with_name(path.name + ".part")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        with suppress(OSError):  # a full disk has no room for half a file
            scratch.unlink(missing_ok=True)
        raise


def _differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        found: list[str] = []
        for key in {**a, **b}:
            found += _differences(a.get(key), b.get(key), f"{prefix}{key}.")
        return found
    return [] if a == b else [prefix.rstrip(".")]


def _at(data: Any, key: str) -> Any:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data
