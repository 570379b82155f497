"""Tasks in a file of their own, for other programs and other pools: JSON lines or Parquet, by its name.

A row holds a task with its id, its lineage and the evidence for it (:func:`portable_rows`). Files are read
with distrust: a row that is broken, altered or too long is told apart and takes no other row with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coevolve.errors import ConfigError, RunError
from coevolve.pool.listing import signal_row, task_row
from coevolve.pool.pool import Pool
from coevolve.types import Candidate, Json, Rollout, Task, Triplet, canonical, dump, fingerprint, load

LONGEST = 16 * 2**20
"""Bytes of a row from which it is not read: one line must not fill the memory."""
IMPORTED = "imported"
"""Key of a verdict's evidence that says where an imported task came from."""
_SUFFIXES = (".jsonl", ".parquet")
_BATCH = 500
_TASK = ("environment", "version", "world", "turns", "solution", "origin", "name", "extra")
_SIGNAL = ("id", "kind", "step", "task", "turns", "pattern", "scores", "failed", "solved")
_AS_JSON = ("world", "solution", "extra", "evidence", "triplets", "signal")
"""Columns that Parquet holds as JSON text, since their shape differs from row to row."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One row as it was read: a candidate, or what is wrong with it."""

    place: str
    """Which row, for people: ``line 3``."""
    candidate: Candidate | None = None
    signal: dict[str, Json] | None = None
    """The signal that the task's lineage names, with its rollouts, where the file has it."""
    reason: str = ""
    """``unreadable``, ``too_long`` or ``altered``; '' if nothing is wrong."""
    detail: str = ""


def portable_rows(pool: Pool) -> Iterator[dict[str, Any]]:
    """Every task in order of admission: content, lineage, evidence, exploration, and the signal behind it."""
    for judgement in pool.judgements():
        if not judgement.verdict.admitted:
            continue
        task, evidence = judgement.candidate.task, dict(judgement.verdict.evidence)
        before = evidence.pop(IMPORTED, None)
        signal: Any = before.get("signal") if isinstance(before, dict) else None
        if signal is None and task.origin.signal is not None:
            with suppress(KeyError):  # of a pool that this task was imported from without it
                signal = signal_row(pool.signal(task.origin.signal))
        row = task_row(judgement)
        del row["step"], row["verdict"]
        yield {
            **row,
            "evidence": evidence,
            "triplets": [dump(triplet) for triplet in judgement.candidate.triplets],
            "signal": signal,
        }


def write_tasks(pool: Pool, path: Path) -> int:
    """Write the pool's tasks to ``path``, in full or not at all; returns how many.

    Raises:
        ConfigError: a name that ends in neither ``.jsonl`` nor ``.parquet``, or Parquet without pyarrow.
        RunError: the file cannot be written.
    """
    _suffix(path)
    rows = portable_rows(pool)
    scratch = path.with_name(path.name + ".part")
    try:
        count = _write_parquet(rows, scratch) if path.suffix == ".parquet" else _write_lines(rows, scratch)
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None
    return count


class TaskFile:
    """The rows of a file, read one after the other: memory does not grow with the file.

    Raises:
        ConfigError: no such file, a name that ends in neither ``.jsonl`` nor ``.parquet``, or Parquet
            without pyarrow.
        RunError: it is no Parquet file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _suffix(path)
        if not path.is_file():
            raise ConfigError(f"there is no file {path} to import")
        self._parquet = _open_parquet(path) if path.suffix == ".parquet" else None

    def __len__(self) -> int:
        """Rows, the broken ones included."""
        if self._parquet is not None:
            return int(self._parquet.metadata.num_rows)
        with self.path.open("rb") as file:
            return sum(1 for line in iter(lambda: file.readline(LONGEST), b"") if line.strip())

    def __iter__(self) -> Iterator[Incoming]:
        yield from self._lines() if self._parquet is None else self._rows(self._parquet)

    def _lines(self) -> Iterator[Incoming]:
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                place = f"line {number}"
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
                        pass
                    yield Incoming(place, reason="too_long", detail=f"more than {LONGEST} bytes")
                elif line.strip():
                    yield _incoming(place, line)

    def _rows(self, parquet: Any) -> Iterator[Incoming]:
        number = 0
        for batch in parquet.iter_batches(batch_size=_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield _incoming(f"row {number}", row)


def _incoming(place: str, given: bytes | dict[str, Any]) -> Incoming:
    try:
        row = _parsed(given)
        task = load(Task, {"version": "", **{key: row[key] for key in _TASK if row.get(key) is not None}})
        triplets = tuple(load(Triplet, one) for one in row.get("triplets") or ())
        signal = _signal(row.get("signal"))
        own = task.id
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the row"
        return Incoming(place, reason="unreadable", detail=f"{where}: {first['msg']}")
    except (ValueError, TypeError, RecursionError) as error:
        return Incoming(place, reason="unreadable", detail=str(error)[:200])
    candidate = Candidate(task, triplets)
    if row.get("id") not in (None, own):
        said = f"its id is {row['id']!r:.40}, its content is that of {own}"
        return Incoming(place, candidate, reason="altered", detail=said)
    if signal is not None and not _matches(signal, task.origin.signal):
        return Incoming(place, candidate, reason="altered", detail="its signal is not the one it names")
    return Incoming(place, candidate, signal)


def _parsed(given: bytes | dict[str, Any]) -> dict[str, Any]:
    """A row as JSON data; raises ValueError, TypeError or RecursionError."""
    row = given
    if isinstance(given, bytes):
        row = _json(given.decode("utf-8-sig"))
    if not isinstance(row, dict):
        raise TypeError("a row must be a JSON object")
    if isinstance(given, dict):
        row = {key: _json(v) if key in _AS_JSON and v is not None else v for key, v in row.items()}
    row.setdefault("origin", {"kind": "unguided", "explorer": "imported"})
    return row


def _json(text: str) -> Any:
    value = json.loads(text, parse_constant=_no_number)
    json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text that could be stored
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _signal(given: Any) -> dict[str, Json] | None:
    """A row's signal, with nothing in it but what a signal has; raises ValueError or TypeError."""
    if given is None:
        return None
    if not isinstance(given, dict) or not all(
        isinstance(given.get(key), list) for key in ("failed", "solved")
    ):
        raise TypeError("a signal must be a JSON object with its failed and solved rollouts")
    for rollout in (*given["failed"], *given["solved"]):
        load(Rollout, rollout)
    return {key: given[key] for key in _SIGNAL if key in given}


def _matches(signal: dict[str, Json], name: str | None) -> bool:
    """Whether a row's signal is what its id says."""
    parts = [signal.get(key) for key in ("kind", "step", "task", "pattern", "scores")]
    return signal.get("id") == name == fingerprint(parts)


def _suffix(path: Path) -> None:
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"{path}: tasks are kept as JSON lines or Parquet: name it .jsonl or .parquet")


def _write_lines(rows: Iterable[dict[str, Any]], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(canonical(row) + "\n")
            count += 1
    return count


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install pyarrow, or use a .jsonl file") from None
    return pyarrow


def _open_parquet(path: Path) -> Any:
    arrow = _arrow()
    try:
        return arrow.parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise RunError(f"{path} is no Parquet file: {' '.join(str(error).split())[:200]}") from None


def _write_parquet(rows: Iterable[dict[str, Any]], path: Path) -> int:
    arrow, count = _arrow(), 0
    text, texts = arrow.string(), arrow.list_(arrow.string())
    origin = [("kind", text), ("parents", texts), ("signal", text), ("step", arrow.int64())]
    columns = [(name, text) for name in ("id", "name", "environment", "version")]
    columns += [("turns", texts), ("origin", arrow.struct([*origin, ("explorer", text)]))]
    schema = arrow.schema([*columns, *((name, text) for name in _AS_JSON)])
    rows = iter(rows)
    with arrow.parquet.ParquetWriter(path, schema) as writer:
        while batch := list(islice(rows, _BATCH)):
            plain = [{**row, **{key: _text(row.get(key)) for key in _AS_JSON}} for row in batch]
            writer.write_table(arrow.Table.from_pylist(plain, schema))
            count += len(plain)
    return count


def _text(value: Any) -> str | None:
    return None if value is None else canonical(value)
