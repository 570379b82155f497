"""The files of a run: its configuration, its checkpoints, its log and its summary."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coevolve.config import Config
from coevolve.errors import CoEvolveError
from coevolve.inspection.checked import Checked, short
from coevolve.pool import Pool
from coevolve.pool.audit import Audit
from coevolve.rundir import RunDirectory
from coevolve.training.checkpoint import MANIFEST, fault, latest_complete, numbered
from coevolve.types import Outcome

_OUTCOMES = tuple(map(str, Outcome))


def configuration(run: RunDirectory) -> tuple[Checked, Config | None]:
    checked, config = Checked("configuration", "config.yaml and stages.json"), None
    try:
        config = run.config()
    except (OSError, CoEvolveError, ValueError) as error:
        checked.blame([f"config.yaml: {short(error)}"])
    try:
        run.stages()
    except (OSError, CoEvolveError, ValueError) as error:
        checked.blame([f"stages.json: {short(error)}"])
    return checked, config


def checkpoints(run: RunDirectory) -> Checked:
    """Hashes of all files, and that the copy of the pool is the one that the state belongs to."""
    there = sorted(numbered(run.checkpoints)) if run.checkpoints.is_dir() else []
    checked = Checked("checkpoints", "none" if not there else f"{len(there)}, all hashes right")
    for step, path in there:
        why = fault(path)
        if why is None:
            why = _state_fault(path, step)
        if why is not None:
            checked.blame([f"{path.name}: {why}"])
    return checked


def _state_fault(path: Path, step: int) -> str | None:
    try:
        noted = json.loads((path / MANIFEST).read_text())["step"]
        if noted != step:
            return f"its manifest says step {noted}"
        state, copy = json.loads((path / "source.json").read_text()), path / "source" / "pool.db"
        if not copy.exists():
            return None  # a source without a pool of its own
        if state["step"] != step:
            return f"source.json is of step {state['step']}"
        with Pool.read_only(copy) as pool:
            sizes = pool.sizes()
    except (OSError, ValueError, KeyError, TypeError, CoEvolveError, sqlite3.Error) as error:
        return short(error)
    return None if sizes == state["pool"] else f"source/pool.db has {sizes}, source.json says {state['pool']}"


def metrics(run: RunDirectory, config: Config | None, pool: Audit) -> Checked:
    """Steps without gaps, the pool's own count of rollouts, and the summary."""
    checked = Checked("metrics")
    if not run.metrics.exists():
        checked.detail, checked.skipped = "no step has been measured", True
        return checked
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(run.metrics.read_text(errors="replace").splitlines(), 1):
        try:
            line = json.loads(text)
            lines.append({**line, "step": int(line["step"]), **{k: int(line[k]) for k in _OUTCOMES}})
        except (ValueError, KeyError, TypeError) as error:
            checked.blame([f"line {number} of metrics.jsonl cannot be read: {short(error)}"])
    checked.detail = f"{len(lines)} steps, as the pool has them"
    checked.blame(_log_faults(lines, config, pool))
    checked.blame(_cut_short(run))
    if run.summary.exists():
        checked.detail += " and the summary"
        checked.blame(_summary_faults(run, lines))
    return checked


def _log_faults(lines: list[dict[str, Any]], config: Config | None, pool: Audit) -> Iterator[str]:
    for expected, line in enumerate(lines, 1):
        if line["step"] != expected:
            yield f"step {line['step']} stands in metrics.jsonl where step {expected} should"
            break
    if config is not None and lines and lines[-1]["step"] > config.steps:
        yield f"step {lines[-1]['step']} is more than the {config.steps} that were asked for"
    try:
        attempts = pool.attempts()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        yield f"the pool's attempts cannot be read ({error})"
        return
    for line in lines:
        counted = attempts.pop(line["step"], {})
        for name in _OUTCOMES:
            if counted.get(name, 0) != line[name]:
                yield (
                    f"step {line['step']}: {line[name]} {name} rollouts in metrics.jsonl, "
                    f"{counted.get(name, 0)} in the pool"
                )
    last = lines[-1]["step"] if lines else 0
    for step in attempts:
        if step != last + 1:  # the one under way, or broken off
            yield f"step {step} is in the pool and not in metrics.jsonl"


def _cut_short(run: RunDirectory) -> Iterator[str]:
    """The log up to the newest checkpoint must be there: a run that goes on would not write it again."""
    if run.checkpoints.is_dir():
        found = latest_complete(run.checkpoints)
        known, size = found.facts.get("metrics_bytes", 0), run.metrics.stat().st_size
        if size < known:
            yield f"metrics.jsonl has {size} bytes, at step {found.step} it had {known}"


def _summary_faults(run: RunDirectory, lines: list[dict[str, Any]]) -> Iterator[str]:
    try:
        summary = json.loads(run.summary.read_text())
        with Pool.read_only(run.pool, sealed=False) as pool:
            size, admitted, refused = len(pool), pool.admitted(), pool.refused()
        told = {
            "pool.final": (summary["pool"]["final"], size),
            "admitted": ({k: v for k, v in summary["admitted"].items() if v}, admitted),
            "refused": (summary["refused"], refused),
            "rollouts": (summary["rollouts"], {k: sum(line[k] for line in lines) for k in _OUTCOMES}),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CoEvolveError, sqlite3.Error) as error:
        yield f"summary.json cannot be read: {short(error)}"
        return
    for name, (said, counted) in told.items():
        if said != counted:
            yield f"summary.json: {name} is {said}, counted {counted}"
