"""What an experiment came to: one row per arm, paired differences with intervals, and what is not alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import bootstrap

from coevolve.evaluation.arms import Experiment
from coevolve.evaluation.growth import Added, added, means
from coevolve.evaluation.heldout import TESTS, read
from coevolve.pool import Pool
from coevolve.rundir import RunDirectory, read_lines

RESAMPLES = 10_000
ALIKE = ("rollouts", "tasks_added")
"""What the arms of a fair comparison spend alike."""


def compare(experiment: Experiment, out: Path, failed: Mapping[str, str]) -> dict[str, Any]:
    """Everything measured, as JSON data; unfinished and failed runs are listed, not hidden."""
    runs: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in experiment.arms}
    for cell in experiment.cells:
        if (out / cell.folder / "summary.json").exists():
            runs[cell.arm][cell.seed] = run_result(out / cell.folder)
    arms = {
        arm: {
            "changes": experiment.arms[arm],
            "tests": {test: over_seeds(test, list(found.values())) for test in TESTS},
            "differences": differences(found, runs[experiment.reference])
            if arm != experiment.reference
            else {},
            **{name: mean([run[name] for run in found.values()]) for name in (*ALIKE, "mixed", "seconds")},
            "seconds_training": by_name([run["seconds_training"] for run in found.values()]),
            "admitted": by_name([run["admitted"] for run in found.values()]),
            "refused": by_name([run["refused"] for run in found.values()]),
            "added": _added([Path(run["folder"]) for run in found.values()]),
            "runs": [{"seed": seed, **_plain(run)} for seed, run in found.items()],
        }
        for arm, found in runs.items()
    }
    every = [run for found in runs.values() for run in found.values()]
    return {
        "title": experiment.title,
        "reference": experiment.reference,
        "seeds": list(experiment.seeds),
        "environment": sorted({f"{run['environment']} ({run['version']})" for run in every}),
        "model": sorted({run["model"] for run in every}),
        "missing": [c.name for c in experiment.cells if c.seed not in runs[c.arm]],
        "failed": dict(failed),
        "unlike": _unlike(runs),
        "arms": arms,
        "pairs": [
            {"arm": arm, "over": other, "differences": differences(runs[arm], runs[other])}
            for arm, other in experiment.pairs
        ],
    }


def run_result(folder: Path) -> dict[str, Any]:
    """What a finished run came to, with the outcome of each held-out task."""
    run = RunDirectory(folder)
    summary = run.finished()
    steps = read_lines(run.metrics, "it belongs to the run")
    tests = {}
    for test, key in TESTS.items():
        if summary[key] is not None and summary[key]["n"]:
            ids = [task.id for task in read(folder / "heldout" / f"{test}.jsonl").tasks]
            tests[test] = {**summary[key], "tasks": ids}
    return {
        "folder": str(folder),
        "environment": summary["environment"],
        "version": summary["environment_version"],
        "model": summary["model"],
        "tests": tests,
        "rollouts": sum(summary["rollouts"].values()),
        "mixed": mean([1 - step["zero_variance"] for step in steps]),
        "tasks_added": summary["pool"]["final"] - summary["pool"]["initial"],
        "admitted": summary["admitted"],
        "refused": summary["refused"],
        "seconds": sum(summary["seconds"].values()),
        "seconds_training": summary["seconds_training"],
    }


def _added(folders: Sequence[Path]) -> dict[str, Any] | None:
    """What the data became, over all seeds: the tasks that evolutions added, all together and by step."""
    rows: list[Added] = []
    reached = []
    for folder in folders:
        held = folder / "heldout" / "benchmark.jsonl"
        with Pool.read_only(folder / "pool.db") as pool:
            all_of_it = added(pool, read(held).tasks if held.exists() else ())
        rows += [row for row in all_of_it if row.step > 0]
        reached.append(len(frozenset[str]().union(*(row.tools for row in all_of_it))))
    if not rows:
        return None
    steps = sorted({row.step for row in rows})
    origins = Counter(row.origin for row in rows)
    return {
        **means(rows),
        "tools_reached": mean(reached),
        "share": {origin: count / len(rows) for origin, count in sorted(origins.items())},
        "by_step": {str(step): means([row for row in rows if row.step == step]) for step in steps},
    }


def _plain(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run without its long lists of ids."""
    long = ("tasks", "solved_before", "solved_after")
    tests = {name: {k: v for k, v in test.items() if k not in long} for name, test in run["tests"].items()}
    return {**run, "tests": tests}


def over_seeds(test: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Means over seeds of one held-out test; the spread is the standard deviation between seeds."""
    found = [run["tests"][test] for run in runs if test in run["tests"]]
    if not found:
        return None
    after = [one["after"] for one in found]
    return {
        "split": found[0]["split"],
        "tasks": len(found[0]["tasks"]),
        "before": mean([one["before"] for one in found]),
        "after": mean(after),
        "deviation": float(np.std(after, ddof=1)) if len(after) > 1 else None,
        "invalid": sum(one["invalid"] for one in found),
        "seeds": len(found),
    }


def differences(arm: Mapping[int, Any], baseline: Mapping[int, Any]) -> dict[str, Any]:
    """Arm minus baseline on each test, seed by seed and task by task."""
    found = {}
    for test in TESTS:
        pairs = [
            (arm[seed]["tests"][test], baseline[seed]["tests"][test])
            for seed in arm
            if seed in baseline and test in arm[seed]["tests"] and test in baseline[seed]["tests"]
        ]
        if pairs and len({one["seal"] for pair in pairs for one in pair}) == 1:
            found[test] = paired_difference(
                np.array([solved(mine) - solved(theirs) for mine, theirs in pairs])
            )
    return found


def solved(test: Mapping[str, Any], when: Literal["before", "after"] = "after") -> np.ndarray[Any, Any]:
    """1 for each task that was solved; an invalid episode counts as not solved, and is told."""
    found = set(test[f"solved_{when}"])
    return np.array([float(task in found) for task in test["tasks"]])


def paired_difference(differences: np.ndarray[Any, Any], seed: int = 0) -> dict[str, Any]:
    """Mean of paired differences, with a 95 % bootstrap interval over seeds and tasks.

    Seeds and tasks are two crossed samples: another training run, and another draw of the test, would
    both have given other figures, so both are drawn again.

    Args:
        differences: ``[seeds, tasks]``, in {-1, 0, 1}.
    """
    seeds, tasks = differences.shape
    # What there is one of cannot be drawn again: with one seed the interval speaks of the tasks alone.
    drawn = [axis for axis, count in enumerate(differences.shape) if count > 1]

    def redrawn(*places: Any) -> float:
        found: list[Any] = [np.arange(seeds), np.arange(tasks)]
        for axis, chosen in zip(drawn, places):
            found[axis] = chosen.astype(int)
        return float(differences[np.ix_(*found)].mean())

    interval: list[float] | None = None
    if drawn:
        limits = bootstrap(
            [np.arange(differences.shape[axis]) for axis in drawn],
            redrawn,
            n_resamples=RESAMPLES,
            vectorized=False,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        interval = [float(limits.low), float(limits.high)]
    return {"mean": float(differences.mean()), "interval": interval, "seeds": seeds, "tasks": tasks}


def _unlike(runs: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """Where the arms do not share the warm start, the sealed test, the rollouts or the tasks added."""
    found = []
    every = [(arm, seed, run) for arm, seeds in runs.items() for seed, run in seeds.items()]
    for test in TESTS:
        for what in ("seal", "before"):
            values = {run["tests"][test][what] for _, _, run in every if test in run["tests"]}
            if len(values) > 1:
                found.append(f"{test}: {'sealed tests' if what == 'seal' else 'warm starts'} differ")
    for name in ALIKE:
        means = {arm: mean([run[name] for run in seeds.values()]) for arm, seeds in runs.items() if seeds}
        if len(set(means.values())) > 1:
            said = ", ".join(f"{arm} {value:.0f}" for arm, value in means.items())
            found.append(f"{name.replace('_', ' ')} differ: {said}")
    return found


def by_name(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over runs of each figure; what a run does not name is 0 there."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    return {name: float(np.mean([run.get(name, 0) for run in runs])) for name in names}


def mean(values: Sequence[float]) -> float | None:
    """None of nothing, which JSON can say and not-a-number it cannot."""
    return float(np.mean(values)) if values else None


def points(difference: Mapping[str, Any]) -> str:
    """A difference in points with its interval."""
    text = f"{100 * difference['mean']:+.1f}"
    if difference["interval"] is not None:
        low, high = difference["interval"]
        text += f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return text
