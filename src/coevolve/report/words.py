"""What a report says in words: what happened in one paragraph, and the five figures that matter."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from coevolve.evaluation.heldout import TESTS
from coevolve.report.arms import change
from coevolve.report.material import Material
from coevolve.report.timing import spent

_LABELS = {"benchmark": "benchmark-shaped test", "unguided": "unguided test"}


def run_words(run: Material) -> dict[str, Any]:
    """Everything that the page says of one run."""
    config, pool = run.config, run.admitted
    first = run.candidates[0].task if run.candidates else ""
    initial = sum(one.step == 0 for one in pool)
    outcomes = Counter[str]()
    for line in run.metrics:
        outcomes.update({name: line.get(name, 0) for name in ("solved", "failed", "invalid")})
    near = sorted(row.similarity for row in run.added if row.similarity is not None)
    seconds = sum(run.stages.get("seconds", {}).values())
    summary = run.summary or {}
    tests = _tests(run)
    return {
        "name": run.name,
        "environment": summary.get("environment") or config.get("environment", {}).get("name", "?"),
        "version": summary.get("environment_version") or _version(first),
        "model": config.get("model", "?"),
        "seed": config.get("seed", 0),
        "steps": config.get("steps", run.step),
        "step": run.step,
        "finished": run.summary is not None,
        "tests": tests,
        "pool": len(pool),
        "initial": initial,
        "added": len(pool) - initial,
        "evolutions": len({one.step for one in pool if one.step > 0}),
        "signals": len(run.signals),
        "made": sum(one.step > 0 for one in run.candidates),
        "refused": sum(one.step > 0 and not one.admitted for one in run.candidates),
        "guarded": run.guarded,
        "held": sum(len(test.tasks) for test in run.tests),
        "near_median": near[len(near) // 2] if near else None,
        "near_largest": near[-1] if near else None,
        "rollouts": sum(outcomes.values()),
        "outcomes": dict(outcomes),
        "seconds": seconds,
        "time": _time(seconds),
        "growing": _share(spent(run).get("training: explore and verify", 0.0), seconds),
    }


def _tests(run: Material) -> list[dict[str, Any]]:
    """The held-out tests that have been taken, with the change since the start where the run is finished."""
    found = []
    for name, key in TESTS.items():
        before = run.stages.get("before", {}).get(name)
        after = (run.summary or {}).get(key)
        if before is None and after is None:
            continue
        if after is not None and not after["n"]:
            continue
        found.append(
            {
                "label": _LABELS[name],
                "split": after["split"] if after else run.config.get("evaluate", {}).get("split", "test"),
                "n": after["n"] if after else before["n"],
                "before": after["before"] if after else before["mean"],
                "after": after["after"] if after else None,
                "interval": after["interval_after"] if after else None,
                "change": change(name, run.path) if after else None,
            }
        )
    return found


def _version(task: str) -> str:
    return str(json.loads(task)["version"]) if task else "?"


def _share(part: float, whole: float) -> float | None:
    return part / whole if part and whole else None


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
